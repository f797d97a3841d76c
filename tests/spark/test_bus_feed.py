"""The live stream of topics: the schemas of messages."""

from __future__ import annotations

import numpy as np

import msgq
from msgq.common.selection import SelectedEndpoints
from msgq.recording.mcap_io.core import CHUNK_ENTRY_FIELDS, ChunkBuffer
from msgq.spark.source.bus_feed import RingFeed


def test_messages_of_live_stream_have_schemas_of_their_publishers(prefix: str) -> None:
    with msgq.PubSocket() as former, msgq.PubSocket() as latter:
        former.connect(msgq.context, "pose", schema=msgq.Schema("First", "json", b"{}"))
        feed = RingFeed(SelectedEndpoints(["pose"]), prefix)
        former.send_many([b"1", b"2"])
        latter.connect(msgq.context, "pose", schema=msgq.Schema("Second", "json", b"{}"))
        latter.send(b"3")
        found = []
        for _ in range(3):  # the first call finds the other publisher
            chunk = ChunkBuffer(1 << 20, 1 << 10)
            feed.take_messages(chunk, 0)
            for channel in np.frombuffer(chunk.message_entries, CHUNK_ENTRY_FIELDS)["channel"].tolist():
                schema = feed.channels[channel].schema_record
                found.append(schema and schema.name)
    assert found == ["First", "First", "Second"]
