"""Reading of a changing selection of endpoints."""

from __future__ import annotations

import msgq
from msgq.cli.serve.message_reader import MessageReader
from msgq.stats import endpoint_inodes
from tests.serve.test_websocket import publish


def take_payloads(reader: MessageReader) -> list[bytes]:
    return [message.payload for message in reader.take_messages(0)]


def test_messages_after_new_schema_wait_until_schema_is_accepted(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json")
    with publish("pose", schema) as first:
        reader = MessageReader(prefix)
        reader.select_endpoints(endpoint_inodes(prefix))
        first.send(b"1")
        assert take_payloads(reader) == [b"1"]
    with publish("pose", msgq.Schema("Other", "json")), publish("pose", schema) as last:
        last.send(b"2")
        assert reader.list_endpoints_with_new_schema() == ["pose"]
        assert take_payloads(reader) == []
        reader.accept_schema("pose")
        assert take_payloads(reader) == [b"2"]
        assert reader.list_endpoints_with_new_schema() == []


def test_only_selected_endpoints_are_read_and_losses_are_counted(prefix: str) -> None:
    with publish("pose", None) as pose, publish("other", None) as other:
        inodes = endpoint_inodes(prefix)
        reader = MessageReader(prefix)
        reader.select_endpoints({"pose": inodes["pose"]})
        pose.send(b"1")
        other.send(b"1")
        assert [message.endpoint for message in reader.take_messages(0)] == ["pose"]
        assert reader.lost_by_endpoint == {"pose": 0}
        for _ in range(30):
            pose.send(bytes(100_000))  # more than the ring holds
        taken = 0
        while some := reader.take_messages(0):
            taken += len(some)
        lost = reader.lost_by_endpoint["pose"]
        assert lost is not None
        assert lost > 0
        assert taken + lost == 30
        reader.select_endpoints({"other": inodes["other"]})
        pose.send(b"2")
        other.send(b"2")
        assert [(message.endpoint, message.payload) for message in reader.take_messages(0)] == [("other", b"2")]
        assert reader.lost_by_endpoint == {"other": 0}


def test_large_message_is_read_whole(prefix: str) -> None:
    with publish("blob", None, segment_size=16 << 20) as pub:
        reader = MessageReader(prefix)
        reader.select_endpoints(endpoint_inodes(prefix))
        payload = bytes(range(256)) * (5 << 12)
        pub.send(payload)
        assert take_payloads(reader) == [payload]
