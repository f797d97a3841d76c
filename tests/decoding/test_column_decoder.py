"""Columns of many messages: one message that does not fit costs no other one its values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from msgq.common.schema import Schema, schema_of
from msgq.decoding.arrow_types import (
    build_arrow_array,
    build_value_column,
    cast_array,
    find_common_type,
    list_value_column_names,
)
from msgq.decoding.column_decoder import ColumnDecoder
from msgq.lake.delta_types import convert_to_delta_type
from tests.recording.logs import struct_schema

TEXT = np.dtype([("text", "<U2"), ("n", "<i4")])


def decode_rows(
    schema: Schema, payloads: Sequence[bytes], decoder: ColumnDecoder | None = None
) -> tuple[list[tuple[int, Any]], dict[int, str], list[bytes]]:
    """Return the row and value of each element, the reason for each undecoded row, and the undecoded payloads."""
    found: list[tuple[int, Any]] = []
    reasons: dict[int, str] = {}
    failed: list[bytes] = []
    for part in (decoder or ColumnDecoder()).decode_values(schema, pa.array(payloads, pa.binary())):
        rows = list(range(len(part.value_column))) if part.message_rows is None else part.message_rows.tolist()
        said = [None] * len(rows) if part.failure_reasons is None else part.failure_reasons.to_pylist()
        for row, value, reason in zip(rows, part.value_column.to_pylist(), said, strict=True):
            if reason is None:
                found.append((row, value))
            else:
                reasons[row] = reason
        if part.failed_payloads is not None:
            failed += [payload for payload in part.failed_payloads.to_pylist() if payload is not None]
    return sorted(found, key=lambda pair: pair[0]), reasons, failed


def text_payload(code_point: int, n: int, count: int = 1) -> bytes:
    return np.array([(code_point, 0, n)] * count, "<u4").tobytes()


@pytest.mark.parametrize("value_type", [None, pa.string()])
@pytest.mark.parametrize("code_point", [0xD800, 0x7FFFFFFF])
def test_invalid_code_point_costs_only_its_message(code_point: int, value_type: pa.DataType | None) -> None:
    payloads = [text_payload(ord("a"), n) for n in range(100)]
    payloads[10] = payloads[10][:-1]
    payloads[40], payloads[41] = text_payload(code_point, 40), text_payload(ord("b"), 41, 3)
    found, reasons, failed = decode_rows(struct_schema(TEXT), payloads, ColumnDecoder(value_type))
    is_decoded = value_type is not None and code_point == 0xD800  # JSON escapes it
    rows = [row for row in range(100) if row != 10 and (row != 40 or is_decoded)]
    assert [row for row, _ in found] == sorted([*rows, 41, 41])
    assert sorted(reasons) == ([10] if is_decoded else [10, 40])
    assert failed == [payloads[row] for row in sorted(reasons)]
    if value_type is None:
        assert all(value == {"text": "b" if row == 41 else "a", "n": row} for row, value in found)


def test_batch_of_only_invalid_code_points_has_no_values() -> None:
    found, reasons, failed = decode_rows(struct_schema(TEXT), [text_payload(0xD800, 1)] * 3)
    assert (found, sorted(reasons), len(failed)) == ([], [0, 1, 2], 3)


@pytest.mark.parametrize("bad", [b'{"\\ud800": 1}', b'{"a": [{"\\ud800": 1}]}'])
@pytest.mark.parametrize("schema", ["", '{"type": "object", "properties": {"n": {"type": "integer"}}}'])
def test_half_surrogate_as_key_costs_only_its_message(bad: bytes, schema: str) -> None:
    payloads = [b'{"n": %d}' % n for n in range(100)]
    payloads[40] = bad
    found, reasons, failed = decode_rows(Schema("S", "json", schema.encode()), payloads)
    assert found == [(n, {"n": n}) for n in range(100) if n != 40]
    assert (list(reasons), failed) == ([40], [bad])
    assert "not Unicode" in reasons[40]


def test_type_of_messages_without_schema_ignores_half_surrogate() -> None:
    column = ColumnDecoder().build_schema_column(Schema("S", "json"), [{"n": 1}, {"\ud800": 1}])
    assert column.type == pa.struct([("n", pa.int64())])


@pytest.mark.parametrize(
    ("dtype", "most", "nanoseconds"),
    [
        ("<M8[s]", 9223372036, 10**9),
        (">M8[D]", 106751, 86_400 * 10**9),
        ("<m8[h]", 2562047, 3600 * 10**9),
        ("<m8[25us]", 368934881474191, 25_000),
        ("<M8[ns]", 2**63 - 1, 1),
    ],
)
def test_time_beyond_nanoseconds_costs_only_its_message(dtype: str, most: int, nanoseconds: int) -> None:
    numbers = [-most, most, -7, np.iinfo(np.int64).min]  # the last one is NaT
    too_far = [-most - 1, most + 1, 2**62] if most < 2**62 else []
    payloads = [np.array([number], f"{dtype[0]}i8").tobytes() for number in [*numbers, *too_far]]
    schema = struct_schema(np.dtype([("time", dtype)]))
    found, reasons, failed = decode_rows(schema, payloads, ColumnDecoder(allowed=convert_to_delta_type))
    times = [number * nanoseconds for number in numbers[:3]]
    assert found == [(row, {"time": time}) for row, time in enumerate([*times, None])]
    assert (sorted(reasons), failed) == ([*range(4, 4 + len(too_far))], payloads[4:])
    assert all("exceeds int64 nanoseconds" in reason for reason in reasons.values())


@pytest.mark.parametrize("dtype", ["M8[Y]", "M8[M]", "m8[ps]", "m8[2fs]"])
def test_times_of_other_units_are_nanoseconds(dtype: str) -> None:
    values = np.array([-290, -1, 0, 291]).view(dtype)
    assert build_arrow_array(values).equals(pa.array(values.astype(f"{dtype[:2]}[ns]")))


@pytest.mark.parametrize("dtype", ["M8[Y]", "M8[M]"])
def test_time_in_months_beyond_nanoseconds_raises(dtype: str) -> None:
    with pytest.raises(ValueError, match="exceeds int64 nanoseconds"):
        build_arrow_array(np.array(["3000"], dtype))


POINT_DEFINITION = b"P p\nP[] more\n" + b"=" * 80 + b"\nMSG: a/P\nfloat32 x\nfloat32 X\n"


@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_ros_fields_that_differ_in_case_have_distinct_names(encoding: str) -> None:
    name, definition = ("a/msg/M", "ros2msg") if encoding == "cdr" else ("a/M", "ros1msg")
    schema = schema_of(name, encoding, POINT_DEFINITION, definition)
    value_type = ColumnDecoder().find_value_type(schema)
    point = pa.struct([("x", pa.float32()), ("X_", pa.float32())])
    assert value_type == pa.struct([("p", point), ("more", pa.list_(point))])
    head = b"\0\1\0\0" if encoding == "cdr" else b""
    found, reasons, _ = decode_rows(schema, [head + struct.pack("<2fI2f", 1, 2, 1, 3, 4), b"cut"])
    assert found == [(0, {"p": {"x": 1, "X_": 2}, "more": [{"x": 3, "X_": 4}]})]
    assert list(reasons) == [1]


def test_numpy_fields_that_differ_in_case_have_distinct_names() -> None:
    dtype = np.dtype([("p", [("x", "<f4"), ("X", "<f4")]), ("q", [("y", "<i2"), ("Y", "<i2")], (2,))])
    payload = np.array(((1, 2), [(3, 4), (5, 6)]), dtype).tobytes()
    found, _, _ = decode_rows(struct_schema(dtype), [payload])
    assert found == [(0, {"p": {"x": 1, "X_": 2}, "q": [{"y": 3, "Y_": 4}, {"y": 5, "Y_": 6}]})]


def test_common_type_merges_nested_fields_that_differ_in_case() -> None:
    first = pa.array([{"p": [{"x": 1}]}])
    second = pa.array([{"p": [{"X": 2.5, "y": True}]}])
    common = find_common_type(first.type, second.type)
    assert common == pa.struct([("p", pa.list_(pa.struct([("x", pa.float64()), ("y", pa.bool_())])))])
    assert cast_array(second, common).to_pylist() == [{"p": [{"x": 2.5, "y": True}]}]


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b'{"type": "object", "properties": {"n": {"type": "integer"}}}',
        b'{"type": "object", "properties": {"A": {"type": "integer"}, "n": {"type": "integer"}}}',
    ],
)
def test_order_of_keys_does_not_choose_their_columns(schema: bytes) -> None:
    first = b'{"n": 0, "a": 1, "A": 2, "p": {"x": 3, "X": 4}}'
    second = b'{"p": {"X": 4, "x": 3}, "A": 2, "a": 1, "n": 0}'
    names = {"a_": 1, "A": 2} if b'"A"' in schema else {"a": 1, "A_": 2}
    for payload in (first, second):
        found, _, _ = decode_rows(Schema("S", "json", schema), [payload])
        assert found == [(0, {"n": 0, **names, "p": {"x": 3, "X_": 4}})]


def test_key_without_values_keeps_name_from_other_key() -> None:
    found, _, _ = decode_rows(Schema("S", "json"), [b'{"A": 2, "a": null}'])
    assert found == [(0, {"A_": 2})]


def test_order_of_keys_does_not_choose_columns_with_reserved_names() -> None:
    for keys in (("log_time", "Log_Time"), ("Log_Time", "log_time")):
        column = build_value_column([{key: int(key == "Log_Time") for key in keys}])
        names = list_value_column_names(column.type, ["log_time"])
        row = dict(zip(names, column.to_pylist()[0].values(), strict=True))
        assert row == {"log_time_": 0, "Log_Time__": 1}
