"""Struct types from ROS and DDS schemas."""

from __future__ import annotations

from collections.abc import Callable

from msgq.common.schema import Schema
from msgq.decoding.cdr_types import CdrStruct
from msgq.decoding.idl import parse_idl_struct
from msgq.decoding.rosmsg import parse_ros1_struct, parse_ros2_struct

_DEFINITION_PARSERS: dict[tuple[str, str], Callable[[str, str], CdrStruct]] = {
    ("ros1", "ros1msg"): parse_ros1_struct,
    ("cdr", "ros2msg"): parse_ros2_struct,
    ("cdr", "ros2idl"): parse_idl_struct,
    ("cdr", "omgidl"): parse_idl_struct,
}


def parse_schema_struct(schema: Schema) -> CdrStruct:
    """Return the type of messages of a schema with the encoding "cdr" or "ros1".

    Raises:
        ValueError: the definition is missing or invalid, or its format is not ros1msg, ros2msg, ros2idl or omgidl.
    """
    defined = _DEFINITION_PARSERS.get((schema.encoding, schema.schema_encoding))
    if defined is None:
        raise ValueError(
            f"schema encoding {schema.schema_encoding!r} is not supported; use ros1msg, ros2msg, ros2idl or omgidl"
        )
    return defined(schema.name, schema.data.decode())
