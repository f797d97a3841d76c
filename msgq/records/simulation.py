"""Vectors and boards in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import Any

from msgq.common import record_changes, settings
from msgq.common.message_source import MessageSource
from msgq.impl.fake.bus import InProcessBus
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState
from msgq.impl.fake.records import Board, SeqlockVector
from msgq.impl.fake.records_store import BoardStore, VectorStore
from msgq.kinds.playback import PlaybackMessage
from msgq.kinds.simulation import KindSimulation, SentMessage
from msgq.records.names import KIND


def _follow_changes(
    name: str, bus: InProcessBus, function: Callable[[Any], object]
) -> Generator[Board | SeqlockVector, Any, None]:
    """Call a function for each change of a vector or board, with `Changes`, or a dict of `Value` by key.

    Raises
    ------
    SegmentError : the vector or board does not exist.
    """
    handle = Board(name, create=False) if _is_board(bus, name) else SeqlockVector(name)
    while True:
        changes = yield handle
        function(changes)


def _is_board(bus: InProcessBus, name: str) -> bool:
    return isinstance(bus.records.get((settings.get_prefix(), name)), BoardStore)


def _describe_sent_message(
    time_ns: int, node: str, store: EndpointState[Any], bus_message: BusMessage
) -> Iterator[SentMessage]:
    if isinstance(store, BoardStore):
        key, data, _ = store.get_pending_change(bus_message)
        form = {"form": "board", "keys": store.capacity, "value_bytes": store.value_bytes}
        source = MessageSource(KIND.name, key=key, options=json.dumps(form))
        yield SentMessage(time_ns, node, store.endpoint, data, source, store.schema)
    elif isinstance(store, VectorStore):
        yield from _describe_vector_changes(time_ns, node, store, bus_message)


def _describe_vector_changes(
    time_ns: int, node: str, store: VectorStore, bus_message: BusMessage
) -> Iterator[SentMessage]:
    indices, rows, _ = store.get_pending_change(bus_message)
    form = {"form": "vector", "length": len(store.elements), "copies": store.copies, "exclusive": store.exclusive}
    said = MessageSource(KIND.name, options=json.dumps(form))
    schema = record_changes.make_record_change_schema(store.dtype)
    for place, index in enumerate(indices.tolist()):
        change = record_changes.RecordChange(index, store.count_begun_write(index), time_ns)
        data = record_changes.pack_change(change, rows[place].tobytes())
        yield SentMessage(time_ns, node, store.endpoint, data, said, schema)


class _RecordsSimulation(KindSimulation):
    def encode_playback(self, message: PlaybackMessage, bus: InProcessBus) -> PlaybackMessage:
        """Return a change of a vector, or a value of a board, whose bytes have the key, a zero byte and the value."""
        if not _is_board(bus, KIND.bare_name(message.endpoint)):
            return message
        key, _, value = message.data.partition(b"\0")
        return message._replace(data=value, source=MessageSource(KIND.name, key=key.decode()))


SIMULATION = _RecordsSimulation(
    _describe_sent_message,
    follow_endpoint=_follow_changes,
    fault_kinds=("drop", "delay", "reorder", "restart"),
)
