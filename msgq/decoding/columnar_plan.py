"""Many messages of CDR or ROS 1 to Arrow at once, by a plan: steps made of their definition, gone through in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from msgq.common.schema import Schema
from msgq.decoding import type_model
from msgq.decoding.core import (
    STEP_AGAIN,
    STEP_DEPTH_MAX,
    STEP_FIXED,
    STEP_REPEAT,
    STEP_SEQUENCE,
    STEP_TEXT,
    unpack_columns,
)
from msgq.decoding.structs import parse_schema_struct
from msgq.decoding.type_model import Array, Number, Struct, Text, Type

_STEPS_MAX = 4096  # fields, with those of the structs in it
_MESSAGE_BYTES_MAX = 1 << 40  # bytes; no message has so many
_ByteColumns: TypeAlias = Sequence[np.ndarray[Any, np.dtype[np.uint8]]]
#: Makes of the columns an array of so many values.
_ArrayBuilder: TypeAlias = Callable[[_ByteColumns, int], pa.Array]


class NoPlanError(ValueError):
    """There is no plan for such messages, so that they are decoded one by one."""


class ColumnarPlan:
    """How messages of one definition become columns. Threads may share it.

    Attributes
    ----------
    type : of the messages: a struct, without what has no fields itself. Numbers, texts and structs are what they are in
        Arrow; arrays are lists, of a fixed size where the definition says one, and binary where they are bytes.
    """

    def __init__(self, struct: Struct, is_cdr: bool) -> None:
        """Make a plan.

        Raises
        ------
        NoPlanError : it has what is not taken apart here, or too much of all.
        """
        self._steps: list[list[int]] = []
        self._are_ends: list[bool] = []
        self._depth = 0
        self._is_cdr = is_cdr
        if not struct.bounds.least:
            raise NoPlanError("its messages have no bytes")
        self._build_structs = self._plan_struct(struct)
        self._table = np.array(self._steps, np.int64)
        self.type: pa.DataType = self._build_structs(self._empty_columns(), 0).type

    def columns(self, data: pa.BinaryArray) -> tuple[pa.StructArray, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return the values of those messages that can be taken apart, and of all whether they cannot.

        data : messages, none of which is null.
        """
        if not len(data):
            return self._build_structs(self._empty_columns(), 0), np.zeros(0, np.bool_)
        borders = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
        payload = data.buffers()[2]
        octets = np.zeros(0, np.uint8) if payload is None else np.frombuffer(payload, np.uint8)
        columns, failed = unpack_columns(self._table, self._are_ends, self._is_cdr, octets, borders)
        return self._build_structs(columns, len(data) - int(np.count_nonzero(failed))), failed

    def _empty_columns(self) -> _ByteColumns:
        return [np.zeros(4 if ends else 0, np.uint8) for ends in self._are_ends]

    # Steps

    def _add_step(
        self, kind: int, size: int, count: int = -1, values: int = -1, ends: int = -1, other: int = -1
    ) -> int:
        if len(self._steps) == _STEPS_MAX:
            raise NoPlanError(f"it has more than {_STEPS_MAX} fields")
        self._steps.append([kind, size, count, values, ends, other])
        return len(self._steps) - 1

    def _add_column(self, are_ends: bool = False) -> int:
        self._are_ends.append(are_ends)
        return len(self._are_ends) - 1

    def _plan_type(self, kind: Type) -> _ArrayBuilder:
        match kind:
            case Number():
                return self._plan_number(kind, 1)
            case Text(wide=False):
                return self._plan_text()
            case Array(value_type=Number() as number):
                return self._plan_fixed_size(number, kind.length)
            case Array():
                return self._plan_array(kind)
            case type_model.Sequence(value_type=Number() as number):
                return self._plan_numbers(number)
            case type_model.Sequence():
                return self._plan_sequence(kind)
            case Struct():
                return self._plan_struct(kind)
        raise NoPlanError(f"it has {kind}")

    def _plan_number(self, kind: Number, count: int) -> _ArrayBuilder:
        dtype = np.dtype(kind.code)
        values = self._add_column()
        self._add_step(STEP_FIXED, dtype.itemsize, count, values)
        return lambda columns, _rows: _view_numbers(columns[values], dtype)

    def _plan_fixed_size(self, kind: Number, count: int) -> _ArrayBuilder:
        if kind.code == "u1":
            values = self._add_column()
            self._add_step(STEP_FIXED, 1, count, values)
            return lambda columns, rows: pa.Array.from_buffers(
                pa.binary(count), rows, [None, pa.py_buffer(columns[values])]
            )
        inner = self._plan_number(kind, count)
        return lambda columns, rows: pa.FixedSizeListArray.from_arrays(inner(columns, rows), count)

    def _plan_text(self) -> _ArrayBuilder:
        return self._plan_bytes(STEP_TEXT, pa.string())

    def _plan_bytes(self, kind: int, arrow_type: pa.DataType) -> _ArrayBuilder:
        values, ends = self._add_column(), self._add_column(are_ends=True)
        self._add_step(kind, 1, values=values, ends=ends)
        return lambda columns, rows: pa.Array.from_buffers(
            arrow_type, rows, [None, pa.py_buffer(columns[ends]), pa.py_buffer(columns[values])]
        )

    def _plan_numbers(self, kind: Number) -> _ArrayBuilder:
        if kind.code == "u1":
            return self._plan_bytes(STEP_SEQUENCE, pa.binary())
        dtype = np.dtype(kind.code)
        values, ends = self._add_column(), self._add_column(are_ends=True)
        self._add_step(STEP_SEQUENCE, dtype.itemsize, values=values, ends=ends)
        return lambda columns, _rows: pa.ListArray.from_arrays(
            _view_ends(columns[ends]), _view_numbers(columns[values], dtype)
        )

    def _plan_array(self, kind: Array) -> _ArrayBuilder:
        inner = self._plan_repetition(kind.value_type, kind.length, -1)
        return lambda columns, rows: pa.FixedSizeListArray.from_arrays(inner(columns, rows * kind.length), kind.length)

    def _plan_sequence(self, kind: type_model.Sequence) -> _ArrayBuilder:
        column = self._add_column(are_ends=True)
        inner = self._plan_repetition(kind.value_type, -1, column)

        def build(columns: _ByteColumns, _rows: int) -> pa.Array:
            ends = columns[column].view(np.int32)
            return pa.ListArray.from_arrays(_view_ends(columns[column]), inner(columns, int(ends[-1])))

        return build

    def _plan_repetition(self, value_type: Type, count: int, ends: int) -> _ArrayBuilder:
        if self._depth == STEP_DEPTH_MAX:
            raise NoPlanError(f"it has lists nested deeper than {STEP_DEPTH_MAX} levels")
        least = min(type_model.measure_type(value_type).least, _MESSAGE_BYTES_MAX)
        begin = self._add_step(STEP_REPEAT, least, count, ends=ends)
        self._depth += 1
        inner = self._plan_type(value_type)
        self._depth -= 1
        self._steps[begin][-1] = self._add_step(STEP_AGAIN, 1, other=begin)
        return inner

    def _plan_struct(self, kind: Struct) -> _ArrayBuilder:
        makers = {
            name: self._plan_type(field_type)
            for name, field_type in kind.fields
            if type_model.measure_type(field_type).least
        }

        def build(columns: _ByteColumns, rows: int) -> pa.Array:
            arrays = [maker(columns, rows) for maker in makers.values()]
            return pa.StructArray.from_arrays(arrays, list(makers))

        return build


def _view_numbers(column: np.ndarray[Any, np.dtype[np.uint8]], dtype: np.dtype[Any]) -> pa.Array:
    return pa.array(column != 0 if dtype.kind == "b" else column.view(dtype))


def _view_ends(column: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    return pa.array(column.view(np.int32))


def make_columnar_plan(schema: Schema) -> ColumnarPlan | None:
    """Return the plan of messages of a schema; None: they are decoded one by one, which also tells what is wrong."""
    if schema.encoding not in ("cdr", "ros1"):
        return None
    try:
        return ColumnarPlan(parse_schema_struct(schema), schema.encoding == "cdr")
    except ValueError:
        return None
