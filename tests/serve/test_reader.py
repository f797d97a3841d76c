"""Reading of a changing selection of endpoints."""

from __future__ import annotations

import msgq
from msgq.cli.serve.channel_catalog import ChannelCatalog
from msgq.cli.serve.message_reader import MessageReader
from msgq.monitor.endpoint_selection import EndpointSelection
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


def test_each_message_has_schema_of_its_publisher(prefix: str) -> None:
    schemas = [msgq.Schema(name, "json") for name in ("First", "Second")]
    with publish("pose", schemas[0]) as former:
        reader = MessageReader(prefix)
        reader.select_endpoints(endpoint_inodes(prefix))
        former.send_many([b"1", b"2"])
    with publish("pose", schemas[1]) as latter:
        latter.send(b"3")
        messages = reader.take_messages(0)
        assert reader.list_endpoints_with_new_schema() == ["pose"]
        reader.accept_schema("pose")
        messages += reader.take_messages(0)
    expected = [(b"1", schemas[0]), (b"2", schemas[0]), (b"3", schemas[1])]
    assert [(message.payload, message.schema) for message in messages] == expected


def test_message_with_new_schema_has_no_channel_before_refresh(prefix: str) -> None:
    catalog, reader = ChannelCatalog(EndpointSelection((), prefix)), MessageReader(prefix)
    with publish("pose", msgq.Schema("First", "json")):
        catalog.refresh()
    former = catalog.entries["pose"]
    with publish("pose", msgq.Schema("Second", "json")) as pub:
        reader.select_endpoints({"pose": former.inode})
        pub.send(b"1")
        (message,) = reader.take_messages(0)
        assert catalog.find_entry(message) is None
        assert catalog.find_entry(message._replace(schema=former.schema)) == former
        unread = {("pose", former.inode): former.schema}
        assert catalog.refresh(unread) == ({}, [])
        assert catalog.find_entry(message) is None
        assert catalog.refresh(reader.list_schemas()).removed == [former.number]
        assert catalog.find_entry(message) == catalog.entries["pose"] != former


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
