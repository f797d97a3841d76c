"""Events of work queues as Arrow columns: heads, event names as text, and payloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.queue_events import EVENT_ENCODING, EVENT_FIELDS, EVENT_HEAD_BYTES, QUEUE_EVENT_SCHEMA, Event
from msgq.common.schema import Schema
from msgq.decoding.arrow_types import build_arrow_array
from msgq.decoding.fixed_headers import read_fixed_headers

EVENT_HEAD_DTYPE = np.dtype(list(EVENT_FIELDS))
#: Names of events by their numbers; "": no event has this number.
EVENT_NAME_BY_NUMBER = np.array([Event(number).name.lower() if number in set(Event) else "" for number in range(256)])


def is_queue_event_schema(schema: Schema | None) -> bool:
    """Return True if messages of a schema are events of a queue."""
    return schema is not None and schema.encoding == EVENT_ENCODING


def explain_unknown_event_layout(schema: Schema) -> str | None:
    """Return the reason why the heads of events cannot be read: their layout is unknown; None: they can be read."""
    if not schema.data or schema.data == QUEUE_EVENT_SCHEMA.data:
        return None
    return "its schema describes a head of events that this release does not know"


def read_event_heads(data: pa.BinaryArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a mask of the payloads that are events, and the heads of these events (`EVENT_HEAD_DTYPE`)."""
    whole, heads_found = read_fixed_headers(data, EVENT_HEAD_DTYPE)
    is_known = EVENT_NAME_BY_NUMBER[heads_found["event"]] != ""
    whole[whole] = is_known
    return whole, heads_found[is_known]


def list_event_names(event_rows: np.ndarray[Any, Any]) -> pa.Array:
    """Return the name of each event."""
    return pa.array(EVENT_NAME_BY_NUMBER[event_rows["event"]], pa.string())


def read_event_payloads(data: pa.BinaryArray) -> pa.Array:
    """Return the payload after the head of each event."""
    return pc.binary_slice(data, EVENT_HEAD_BYTES, np.iinfo(np.int32).max)


def build_event_structs(heads: np.ndarray[Any, Any], data: pa.BinaryArray) -> pa.StructArray:
    """Return events of queues as structs: the fields of their heads, the event name as text, and `payload`."""
    names = list(heads.dtype.names or ())
    fields = {name: build_arrow_array(heads[name]) for name in names}
    number = pa.array(heads["number"].astype(np.int64))  # same type as in `work`: the numbers stay below 2**63
    event_columns = fields | {"event": list_event_names(heads), "number": number, "payload": read_event_payloads(data)}
    return pa.StructArray.from_arrays(list(event_columns.values()), list(event_columns))
