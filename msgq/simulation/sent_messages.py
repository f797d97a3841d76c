"""What a simulation says of what was sent: each message as a recording has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgq.channel.names import KIND as CHANNEL
from msgq.common import record_changes
from msgq.common.message_source import TOPIC, MessageSource
from msgq.common.schema import Schema
from msgq.impl.base.process import process_name
from msgq.impl.fake.bus import EndpointState, Entry, TopicState
from msgq.impl.fake.channel_order import ChannelState
from msgq.impl.fake.records_store import BoardStore, VectorStore
from msgq.impl.fake.workqueue_store import Queue
from msgq.records.names import KIND as RECORDS
from msgq.workqueue.names import KIND as QUEUE
from visionipc.names import KIND as FRAMES


class SentMessage(NamedTuple):
    """A message that was sent.

    Attributes
    ----------
    time_ns : when, in virtual time.
    node : by which node; "main": the test itself, "play": a recording.
    endpoint : where to, with the mark of its kind.
    data : what. Of a vector a change of one element, as `msgq.common.record_changes` has it: a call that writes
        several elements is several messages. Of a board the value, of a work queue the message.
    source : its kind, publisher, key and options.
    schema : what the data mean; of a work queue, what its messages are.
    priority : of a message of a work queue.
    """

    time_ns: int
    node: str
    endpoint: str
    data: bytes
    source: MessageSource = TOPIC
    schema: Schema | None = None
    priority: int = 0

    @property
    def kind(self) -> str:
        """Of its endpoint: "topic", "frames", "channel", "records" or "queue"."""
        return self.source.kind

    @property
    def publisher(self) -> str:
        """Who published it: of a channel its node's name, where none was given that of the simulation's node."""
        return self.source.publisher

    @property
    def key(self) -> str:
        """Of a board; else ""."""
        return self.source.key


def describe_sent_entry(time_ns: int, node: str, source: EndpointState[Any], entry: Entry) -> Iterator[SentMessage]:
    """Give what is to be said of an entry that somebody sends."""
    endpoint = source.endpoint
    if isinstance(source, TopicState):
        if source.picture is not None:
            picture = source.picture(entry[1])
            yield SentMessage(time_ns, node, f"{endpoint}/image", picture, MessageSource(FRAMES.name), source.schema)
            return
        yield SentMessage(time_ns, node, endpoint, entry[1], TOPIC, source.schema)
    elif isinstance(source, ChannelState):
        yield SentMessage(time_ns, node, endpoint, entry[1], _channel_source(source, entry, node), source.schema)
    elif isinstance(source, Queue):
        sizes = {"max_messages": source.max_messages, "max_message_size": source.max_message_size}
        said = MessageSource(QUEUE.name, node, options=json.dumps(sizes))
        yield SentMessage(
            time_ns, node, endpoint, entry[1], said, source.schema, source.delayed_message(entry).priority
        )
    elif isinstance(source, BoardStore):
        key, data, _ = source.pending(entry)
        form = {"form": "board", "keys": source.capacity, "value_bytes": source.value_bytes}
        said = MessageSource(RECORDS.name, key=key, options=json.dumps(form))
        yield SentMessage(time_ns, node, endpoint, data, said, source.schema)
    elif isinstance(source, VectorStore):
        yield from _changes(time_ns, node, source, entry)


def _channel_source(channel: ChannelState, entry: Entry, node: str) -> MessageSource:
    pool = channel.order.at(entry[0]).pool
    name = "" if pool is None else pool.node
    options = {
        "capacity": channel.config["capacity"],
        "slot_bytes": 0 if pool is None else pool.slot_bytes,
        "stamps": channel.config["stamps"],
    }
    # Who gave no name has the process's, which is another one in each process.
    return MessageSource(CHANNEL.name, node if name in ("", process_name()) else name, options=json.dumps(options))


def _changes(time_ns: int, node: str, store: VectorStore, entry: Entry) -> Iterator[SentMessage]:
    indices, rows, _ = store.pending(entry)
    form = {"form": "vector", "length": len(store.items), "copies": store.copies, "exclusive": store.exclusive}
    said = MessageSource(RECORDS.name, options=json.dumps(form))
    schema = record_changes.change_schema(store.dtype)
    for place, index in enumerate(indices.tolist()):
        change = record_changes.Change(index, store.begin(index), time_ns)
        data = record_changes.pack(change, rows[place].tobytes())
        yield SentMessage(time_ns, node, store.endpoint, data, said, schema)
