"""Decodes many CDR or ROS 1 messages to Arrow at once: C code follows a plan made from the definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from msgq.common.schema import Schema
from msgq.decoding.arrow_types import make_distinct_names
from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType, measure_type
from msgq.decoding.core import (
    CDR_REPEAT_DEPTH_MAX,
    CDR_STEP_NUMBERS,
    CDR_STEP_REPEAT_BEGIN,
    CDR_STEP_REPEAT_END,
    CDR_STEP_SEQUENCE,
    CDR_STEP_TEXT,
    unpack_columns,
)
from msgq.decoding.scalar_types import ScalarType, TextType
from msgq.decoding.struct_definitions import parse_schema_struct

_PLAN_STEPS_MAX = 4096  # fields, with those of the structs in it
_MESSAGE_BYTES_MAX = 1 << 40  # bytes; no message has so many
_ByteColumns: TypeAlias = Sequence[np.ndarray[Any, np.dtype[np.uint8]]]
#: Makes of the columns an array of so many values.
_ArrayBuilder: TypeAlias = Callable[[_ByteColumns, int], pa.Array]


class NotColumnarError(ValueError):
    """No plan exists for this definition. Messages with this definition are decoded one by one."""


class ColumnarDecodePlan:
    """Plan for decoding messages of one definition to columns. Threads may share a plan.

    Attributes:
        arrow_type: type of the messages: a struct, without fields that have no fields themselves. Numbers, texts and
            structs have the Arrow types of the same names. Arrays become lists (of a fixed size if the definition has
            one), and arrays of bytes become binary.
    """

    def __init__(self, struct: CdrStruct, is_cdr: bool) -> None:
        """Build the plan.

        Raises:
            NotColumnarError: the definition has an unsupported type, or too many steps.
        """
        self._steps: list[list[int]] = []
        self._are_offsets: list[bool] = []
        self._depth = 0
        self._is_cdr = is_cdr
        if not struct.type_size.min_bytes:
            raise NotColumnarError("messages of this schema have no bytes")
        self._build_message_structs = self._plan_struct_fields(struct)
        self._table = np.array(self._steps, np.int64)
        self.arrow_type: pa.DataType = self._build_message_structs(self._make_empty_columns(), 0).type

    def decode_columns(self, data: pa.BinaryArray) -> tuple[pa.StructArray, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return the values of the messages that match the plan, and for each message True if it does not match.

        `data`: messages, none of which is null.
        """
        if not len(data):
            return self._build_message_structs(self._make_empty_columns(), 0), np.zeros(0, np.bool_)
        borders = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
        payload = data.buffers()[2]
        payload_bytes = np.zeros(0, np.uint8) if payload is None else np.frombuffer(payload, np.uint8)
        columns, failed = unpack_columns(self._table, self._are_offsets, self._is_cdr, payload_bytes, borders)
        return self._build_message_structs(columns, len(data) - int(np.count_nonzero(failed))), failed

    def _make_empty_columns(self) -> _ByteColumns:
        return [np.zeros(4 if is_offsets else 0, np.uint8) for is_offsets in self._are_offsets]

    # Steps

    def _add_plan_step(
        self, kind: int, element_bytes: int, count: int = -1, values: int = -1, offsets: int = -1, partner: int = -1
    ) -> int:
        if len(self._steps) == _PLAN_STEPS_MAX:
            raise NotColumnarError(f"schema has more than {_PLAN_STEPS_MAX} fields")
        self._steps.append([kind, element_bytes, count, values, offsets, partner])
        return len(self._steps) - 1

    def _add_byte_column(self, are_offsets: bool = False) -> int:
        self._are_offsets.append(are_offsets)
        return len(self._are_offsets) - 1

    def _plan_field_type(self, kind: CdrType) -> _ArrayBuilder:
        match kind:
            case ScalarType(enum_names=None):
                return self._plan_number_field(kind, 1)
            case TextType(is_wide=False):
                return self._plan_text_field()
            case CdrArray(element_type=ScalarType(enum_names=None) as number):
                return self._plan_number_array(number, kind.element_count)
            case CdrArray():
                return self._plan_nested_array(kind)
            case CdrSequence(element_type=ScalarType(enum_names=None) as number):
                return self._plan_number_sequence(number)
            case CdrSequence():
                return self._plan_nested_sequence(kind)
            case CdrStruct():
                return self._plan_struct_fields(kind)
        raise NotColumnarError(f"schema has a field of type {kind}, which has no column form")

    def _plan_number_field(self, kind: ScalarType, count: int) -> _ArrayBuilder:
        dtype = np.dtype(kind.code)
        values = self._add_byte_column()
        self._add_plan_step(CDR_STEP_NUMBERS, dtype.itemsize, count, values)
        return lambda columns, _rows: _view_as_numbers(columns[values], dtype)

    def _plan_number_array(self, kind: ScalarType, count: int) -> _ArrayBuilder:
        if kind.code == "u1":
            values = self._add_byte_column()
            self._add_plan_step(CDR_STEP_NUMBERS, 1, count, values)
            return lambda columns, rows: pa.Array.from_buffers(
                pa.binary(count), rows, [None, pa.py_buffer(columns[values])]
            )
        inner = self._plan_number_field(kind, count)
        return lambda columns, rows: pa.FixedSizeListArray.from_arrays(inner(columns, rows), count)

    def _plan_text_field(self) -> _ArrayBuilder:
        return self._plan_byte_sequence(CDR_STEP_TEXT, pa.string())

    def _plan_byte_sequence(self, kind: int, arrow_type: pa.DataType) -> _ArrayBuilder:
        values, offsets = self._add_byte_column(), self._add_byte_column(are_offsets=True)
        self._add_plan_step(kind, 1, values=values, offsets=offsets)
        return lambda columns, rows: pa.Array.from_buffers(
            arrow_type, rows, [None, pa.py_buffer(columns[offsets]), pa.py_buffer(columns[values])]
        )

    def _plan_number_sequence(self, kind: ScalarType) -> _ArrayBuilder:
        if kind.code == "u1":
            return self._plan_byte_sequence(CDR_STEP_SEQUENCE, pa.binary())
        dtype = np.dtype(kind.code)
        values, offsets = self._add_byte_column(), self._add_byte_column(are_offsets=True)
        self._add_plan_step(CDR_STEP_SEQUENCE, dtype.itemsize, values=values, offsets=offsets)
        return lambda columns, _rows: pa.ListArray.from_arrays(
            _view_as_offsets(columns[offsets]), _view_as_numbers(columns[values], dtype)
        )

    def _plan_nested_array(self, kind: CdrArray) -> _ArrayBuilder:
        inner = self._plan_repeated_element(kind.element_type, kind.element_count, -1)
        return lambda columns, rows: pa.FixedSizeListArray.from_arrays(
            inner(columns, rows * kind.element_count), kind.element_count
        )

    def _plan_nested_sequence(self, kind: CdrSequence) -> _ArrayBuilder:
        column = self._add_byte_column(are_offsets=True)
        inner = self._plan_repeated_element(kind.element_type, -1, column)

        def build_array(columns: _ByteColumns, _rows: int) -> pa.Array:
            offsets = columns[column].view(np.int32)
            return pa.ListArray.from_arrays(pa.array(offsets), inner(columns, int(offsets[-1])))

        return build_array

    def _plan_repeated_element(self, element_type: CdrType, count: int, offsets: int) -> _ArrayBuilder:
        if self._depth == CDR_REPEAT_DEPTH_MAX:
            raise NotColumnarError(f"lists are nested deeper than {CDR_REPEAT_DEPTH_MAX} levels")
        least = min(measure_type(element_type).min_bytes, _MESSAGE_BYTES_MAX)
        begin = self._add_plan_step(CDR_STEP_REPEAT_BEGIN, least, count, offsets=offsets)
        self._depth += 1
        inner = self._plan_field_type(element_type)
        self._depth -= 1
        self._steps[begin][-1] = self._add_plan_step(CDR_STEP_REPEAT_END, 1, partner=begin)
        return inner

    def _plan_struct_fields(self, kind: CdrStruct) -> _ArrayBuilder:
        makers = {
            name: self._plan_field_type(field_type)
            for name, field_type in kind.fields
            if measure_type(field_type).min_bytes
        }
        names = make_distinct_names(makers)

        def build_array(columns: _ByteColumns, rows: int) -> pa.Array:
            arrays = [maker(columns, rows) for maker in makers.values()]
            return pa.StructArray.from_arrays(arrays, names)

        return build_array


def _view_as_numbers(column: np.ndarray[Any, np.dtype[np.uint8]], dtype: np.dtype[Any]) -> pa.Array:
    return pa.array(column != 0 if dtype.kind == "b" else column.view(dtype))


def _view_as_offsets(column: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    return pa.array(column.view(np.int32))


def make_columnar_decode_plan(schema: Schema) -> ColumnarDecodePlan | None:
    """Return the plan for messages of a schema; None: decode the messages one by one, which also reports errors."""
    if schema.encoding not in ("cdr", "ros1"):
        return None
    try:
        return ColumnarDecodePlan(parse_schema_struct(schema), schema.encoding == "cdr")
    except ValueError:
        return None
