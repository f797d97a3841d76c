"""Vectors and boards in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import Any

from msgq.common import record_changes
from msgq.common.message_source import MessageSource
from msgq.errors import RecordMismatchError, SegmentError
from msgq.impl import backend
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState
from msgq.impl.fake.records import Board, RecordsState, SeqlockVector
from msgq.impl.records.core import is_board
from msgq.kinds.playback import PlaybackMessage
from msgq.kinds.simulation import KindSimulation, SentMessage
from msgq.records.names import KIND


def _follow_changes(name: str, function: Callable[[Any], object]) -> Generator[Board | SeqlockVector, Any, None]:
    """Call a function for each change of a vector or board, with `Changes`, or a dict of `Value` by key.

    Raises:
        SegmentError: the vector or board does not exist.
    """
    try:
        handle: Board | SeqlockVector = SeqlockVector(name, create=False)
    except RecordMismatchError:
        handle = Board(name, create=False)
    while True:
        changes = yield handle
        function(changes)


def _describe_sent_message(
    time_ns: int, node: str, state: EndpointState[Any], bus_message: BusMessage
) -> Iterator[SentMessage]:
    if not isinstance(state, RecordsState):
        return
    write: Any = bus_message
    options = state.read_options(write.handle)
    if state.dtype is None:
        form = {"form": "board", "keys": options.length, "value_bytes": write.handle.value_bytes}
        source = MessageSource(KIND.name, key=write.key, options=json.dumps(form))
        yield SentMessage(time_ns, node, state.endpoint, write.data, source, state.schema)
        return
    form = {
        "form": "vector",
        "length": options.length,
        "copies": options.copies,
        "exclusive": options.exclusive,
    }
    source = MessageSource(KIND.name, options=json.dumps(form))
    schema, size = record_changes.make_record_change_schema(state.dtype), state.dtype.itemsize
    for place, index in enumerate(write.indices.tolist()):
        change = record_changes.RecordChange(index, state.count_begun_write(index), time_ns)
        data = record_changes.pack_change(change, write.data[place * size : (place + 1) * size])
        yield SentMessage(time_ns, node, state.endpoint, data, source, schema)


class _RecordsSimulation(KindSimulation):
    def encode_playback(self, message: PlaybackMessage) -> PlaybackMessage:
        """Return a change of a vector, or a value of a board, whose bytes have the key, a zero byte and the value."""
        try:
            if not is_board(KIND.bare_name(message.endpoint), backend.resolve_prefix(None)):
                return message
        except SegmentError:  # it does not exist yet
            return message
        key, _, value = message.data.partition(b"\0")
        return message._replace(data=value, source=MessageSource(KIND.name, key=key.decode()))


SIMULATION = _RecordsSimulation(
    _describe_sent_message,
    follow_endpoint=_follow_changes,
    fault_kinds=("drop", "delay", "reorder", "restart"),
)
