"""Messages of CDR and ROS 1 taken apart into columns: as reading them one by one does, whatever they are."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgq.common.schema import Schema
from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType, is_byte_array
from msgq.decoding.columnar_decode_plan import ColumnarDecodePlan, NotColumnarError, make_columnar_decode_plan
from msgq.decoding.core import CdrReader
from msgq.decoding.scalar_types import ScalarType, TextType
from tests.recording.ros_messages import CODES, Encoder

EMPTY = CdrStruct("empty", ())


NAMES = ("a", "b", "c", "d")


def struct_of(kinds: list[CdrType]) -> CdrStruct:
    return CdrStruct("S", tuple(zip(NAMES, kinds, strict=False)))


def nested_types(inner: st.SearchStrategy[CdrType]) -> st.SearchStrategy[CdrType]:
    return st.one_of(
        st.builds(CdrArray, inner, st.integers(1, 3)),
        st.builds(CdrSequence, inner),
        st.lists(inner, min_size=1, max_size=4).map(struct_of),
    )


LEAVES: list[CdrType] = [*map(ScalarType, CODES), TextType()]
TYPES = st.recursive(st.sampled_from(LEAVES), nested_types, max_leaves=8)


def values_of(of: CdrType) -> st.SearchStrategy[Any]:
    match of:
        case ScalarType(code="b1"):
            return st.booleans()
        case ScalarType(code=code) if code[0] == "f":
            return st.floats(width=32)
        case ScalarType(code=code):
            bits = 8 * int(code[1:])
            least = -(1 << (bits - 1)) if code[0] == "i" else 0
            return st.integers(least, least + (1 << bits) - 1)
        case CdrStruct(fields=fields):
            return st.fixed_dictionaries({name: values_of(kind) for name, kind in fields})
        case CdrArray(element_type=inner, element_count=length):
            return st.lists(values_of(inner), min_size=length, max_size=length)
        case CdrSequence(element_type=inner):
            return st.lists(values_of(inner), max_size=4)
    return st.text(max_size=6)


def comparable_value(value: Any) -> Any:
    """Return a value that equals another one if they say the same; structs without fields are none."""
    if isinstance(value, dict):
        return {name: said for name, one in value.items() if (said := comparable_value(one)) != {}}
    if isinstance(value, np.ndarray):
        return comparable_value(value.tolist())
    if isinstance(value, list):
        return [comparable_value(one) for one in value]
    return "NaN" if value != value else value


def one_by_one(of: CdrStruct, is_cdr: bool, message: bytes) -> Any:
    try:
        value = CdrReader(of, is_cdr).read(message)
    except ValueError:
        return None
    return comparable_value(value)


def by_column(of: CdrStruct, is_cdr: bool, messages: list[bytes]) -> list[Any]:
    """Return the values, None of what is no such message."""
    found, failed = ColumnarDecodePlan(of, is_cdr).decode_columns(
        pa.array([b"before", *messages], pa.binary()).slice(1)
    )
    found.validate(full=True)
    assert len(found) == np.count_nonzero(~failed)
    values = iter(found.to_pylist())
    return [None if one else comparable_value(next(values)) for one in failed]


STRUCTS = st.lists(TYPES, min_size=1, max_size=4).map(struct_of)
FORMS = st.sampled_from([(True, "<"), (True, ">"), (False, "<")])


@pytest.mark.ci
@given(st.data(), STRUCTS, FORMS)
def test_decoded_columns_equal_written_values(data: st.DataObject, of: CdrStruct, form: tuple[bool, str]) -> None:
    is_cdr, order = form
    written = data.draw(st.lists(values_of(of), min_size=1, max_size=4))
    messages = [Encoder(is_cdr, order).message(of, value) for value in written]
    made = [comparable_value(bytes_for_byte_arrays(of, value)) for value in written]
    assert by_column(of, is_cdr, messages) == made
    assert [one_by_one(of, is_cdr, message) for message in messages] == made


def bytes_for_byte_arrays(of: CdrType, value: Any) -> Any:
    """Return a value with bytes for unsigned numbers of 8 bits."""
    if is_byte_array(of):
        return bytes(value)
    match of:
        case CdrStruct(fields=fields):
            return {name: bytes_for_byte_arrays(kind, value[name]) for name, kind in fields}
        case CdrArray(element_type=inner) | CdrSequence(element_type=inner):
            return [bytes_for_byte_arrays(inner, one) for one in value]
    return value


@pytest.mark.ci
@given(st.data(), STRUCTS, FORMS)
@settings(max_examples=300)
def test_columns_decoded_from_random_bytes_equal_single_messages(
    data: st.DataObject, of: CdrStruct, form: tuple[bool, str]
) -> None:
    is_cdr, order = form
    messages = []
    for value in data.draw(st.lists(values_of(of), min_size=2, max_size=4)):
        message = bytearray(Encoder(is_cdr, order).message(of, value))
        for place in data.draw(st.lists(st.integers(0, len(message) - 1), max_size=3)) if message else ():
            message[place] = data.draw(st.sampled_from([0, 1, 2, 4, 127, 128, 255]))
        messages.append(
            bytes(message[: data.draw(st.integers(0, len(message)))] if data.draw(st.booleans()) else message)
        )
    assert by_column(of, is_cdr, messages) == [one_by_one(of, is_cdr, message) for message in messages]


@pytest.mark.parametrize("behind", [0, 3, 4])
def test_column_decoder_handles_trailing_bytes_like_message_decoder(behind: int) -> None:
    of = CdrStruct("S", (("a", ScalarType("u1")),))
    assert by_column(of, True, [b"\0\1\0\0\7" + bytes(behind)]) == [{"a": 7} if behind < 4 else None]
    assert by_column(of, False, [b"\7" + bytes(behind)]) == [None if behind else {"a": 7}]


def test_column_decoder_allocates_no_memory_for_impossible_lengths() -> None:
    of = CdrStruct(
        "S", (("a", CdrSequence(CdrStruct("T", (("b", TextType()), ("c", CdrSequence(ScalarType("f8"))))))),)
    )
    many = b"\0\1\0\0\xff\xff\xff\xff" + bytes(100)
    assert by_column(of, True, [many, b"\0\1\0\0" + bytes(4)]) == [None, {"a": []}]
    huge = CdrStruct("S", (("a", CdrArray(CdrArray(CdrArray(of, 2**31 - 1), 2**31 - 1), 2**31 - 1)),))
    assert by_column(huge, True, [many]) == [None]


def test_column_decoder_rejects_invalid_utf8() -> None:
    of = CdrStruct("S", (("a", TextType()),))
    texts = [b"plain", "é€𝄞".encode(), b"12345678\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
    messages = [struct.pack("<I", len(text)) + text for text in texts]
    assert by_column(of, False, messages) == [{"a": "plain"}, {"a": "é€𝄞"}, None, None, None, None, None]


def test_column_decoder_omits_structs_without_fields() -> None:
    of = CdrStruct("S", (("a", EMPTY), ("b", ScalarType("i2")), ("c", CdrStruct("T", (("d", EMPTY),)))))
    assert by_column(of, False, [b"\1\0"]) == [{"b": 1}]
    with pytest.raises(NotColumnarError):
        ColumnarDecodePlan(EMPTY, False)


def test_list_columns_have_length_of_type_definition() -> None:
    of = CdrStruct(
        "S",
        (
            ("a", CdrArray(ScalarType("f8"), 9)),
            ("b", CdrArray(ScalarType("u1"), 16)),
            ("c", CdrSequence(ScalarType("b1"))),
        ),
    )
    assert ColumnarDecodePlan(of, True).arrow_type == pa.struct(
        [("a", pa.list_(pa.float64(), 9)), ("b", pa.binary(16)), ("c", pa.list_(pa.bool_()))]
    )


@pytest.mark.parametrize(
    "kind",
    [TextType(is_wide=True), ScalarType("i4", {0: "zero"}), struct_of([ScalarType("u1")])],
    ids=["wide text", "enum", "many fields"],
)
def test_unsupported_column_type_raises_not_columnar_error(kind: CdrType) -> None:
    fields = [(f"f{i}", kind) for i in range(5000 if isinstance(kind, CdrStruct) else 1)]
    with pytest.raises(NotColumnarError):
        ColumnarDecodePlan(CdrStruct("S", tuple(fields)), True)


def test_column_decoder_supports_17_nested_lists() -> None:
    of: CdrType = ScalarType("u1")
    for _ in range(17):
        of = CdrSequence(of)
    assert by_column(CdrStruct("S", (("a", of),)), True, [b"\0\1\0\0" + bytes(4)]) == [{"a": []}]
    with pytest.raises(NotColumnarError):
        ColumnarDecodePlan(CdrStruct("S", (("a", CdrSequence(of)),)), True)


def test_columnar_plan_is_made_only_for_valid_cdr_schema() -> None:
    made = make_columnar_decode_plan(Schema("std_msgs/msg/String", "cdr", b"string data"))
    assert made is not None
    assert made.arrow_type == pa.struct([("data", pa.string())])
    assert make_columnar_decode_plan(Schema("std_msgs/msg/String", "cdr", b"what is this")) is None
    assert make_columnar_decode_plan(Schema("string", "json", b"string data")) is None
