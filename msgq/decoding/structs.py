"""The structs that schemas of ROS and DDS describe."""

from __future__ import annotations

from collections.abc import Callable

from msgq.common.schema import Schema
from msgq.decoding.idl import idl_struct
from msgq.decoding.rosmsg import ros1_struct, ros2_struct
from msgq.decoding.type_model import Struct

_DEFINITIONS: dict[tuple[str, str], Callable[[str, str], Struct]] = {
    ("ros1", "ros1msg"): ros1_struct,
    ("cdr", "ros2msg"): ros2_struct,
    ("cdr", "ros2idl"): idl_struct,
    ("cdr", "omgidl"): idl_struct,
}


def schema_struct(schema: Schema) -> Struct:
    """Return what messages of a schema are made of, whose encoding is "cdr" or "ros1".

    Raises
    ------
    ValueError : its definition cannot be read, is not there, or is in something else than ros1msg, ros2msg, ros2idl or
        omgidl.
    """
    defined = _DEFINITIONS.get((schema.encoding, schema.schema_encoding))
    if defined is None:
        raise ValueError(f"its definition is in {schema.schema_encoding!r}, which nothing here reads")
    return defined(schema.name, schema.data.decode())
