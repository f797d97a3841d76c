"""Changes of vectors as messages of recordings: index, number of writes, time and value of an element.

A change is a head of 20 bytes, followed by the item.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgq.common.dtypes import struct_dtype, struct_schema
from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun

if TYPE_CHECKING:
    import numpy as np

#: Fields of a change's head, in this order and without padding. `count` is the number of writes of this element,
#: including this one; `publish_time` is in ns of the host's clock (docs/internals/clock.md).
CHANGE_HEAD_FIELDS = (("index", "<u4"), ("count", "<u8"), ("publish_time", "<i8"))
VALUE_FIELD = "value"
_HEAD_STRUCT = struct.Struct("<IQq")
CHANGE_HEAD_BYTES = _HEAD_STRUCT.size
CHANGE_INDEX_BYTES = 4  # index of the first element


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A change without its value."""

    index: int
    count: int
    publish_time: int


def make_record_change_schema(item: np.dtype[Any]) -> Schema:
    """Return the schema of the changes of a vector. `item`: dtype of its elements."""
    import numpy as np

    return struct_schema(np.dtype([*CHANGE_HEAD_FIELDS, (VALUE_FIELD, item)]))


def item_dtype(schema: Schema | None) -> np.dtype[Any]:
    """Return the dtype of the vector elements that a schema of changes describes.

    Raises:
        ValueError: the schema does not describe changes.
    """
    if schema is None or schema.encoding != "struct":
        raise ValueError("schema of vector changes is missing")
    dtype = struct_dtype(schema)
    if dtype.names != (*(name for name, _ in CHANGE_HEAD_FIELDS), VALUE_FIELD) or any(
        dtype[name].str != kind for name, kind in CHANGE_HEAD_FIELDS
    ):
        raise ValueError(f"schema describes {dtype} instead of changes of a vector")
    item = dtype[VALUE_FIELD]
    if dtype.itemsize != CHANGE_HEAD_BYTES + item.itemsize:
        raise ValueError(f"schema describes {dtype} with padding, but changes of a vector have no padding")
    return item


def pack_change(change: RecordChange, item: bytes) -> bytes:
    """Return a change as bytes."""
    return _HEAD_STRUCT.pack(change.index, change.count, change.publish_time) + item


def unpack_change(data: bytes) -> tuple[RecordChange, bytes]:
    """Return a change and the bytes of its value.

    Raises:
        ValueError: `data` is too short.
    """
    if len(data) <= CHANGE_HEAD_BYTES:
        raise ValueError(
            f"change of a vector has {format_count_noun(len(data), 'byte')}, but its head alone has {CHANGE_HEAD_BYTES}"
        )
    return RecordChange(*_HEAD_STRUCT.unpack_from(data)), data[CHANGE_HEAD_BYTES:]
