"""What vectors and boards take and refuse, without a vector or a board."""

from __future__ import annotations

import errno
import json
import pickle
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from msgq import errors
from msgq.common.dtype_descriptions import NESTING_MAX, record_dtype
from msgq.common.dtypes import struct_dtype, struct_schema
from msgq.common.schema import Schema
from msgq.common.stats import Participant
from msgq.decoding.payload_decoder import PayloadDecoder
from msgq.errors import (
    CorruptSegmentError,
    EndpointNameError,
    InvalidValueError,
    RecordIndexError,
    RecordMismatchError,
    RecordTypeError,
)
from msgq.impl.records import arrays, options
from msgq.impl.records.values import Changes, Value
from msgq.recording.reader.message import Message
from tests.cases import each_case

QUOTE = np.dtype([("bid", "f8"), ("ask", "f8")])
COUNTED = np.dtype([("count", "i4"), ("price", "f8")])
INNER = np.dtype([("x", "i1"), ("y", "f8")], align=True)
DTYPES: dict[str, Any] = {
    "f8": "f8",
    "big-endian": ">u2",
    "bool": bool,
    "complex": "c16",
    "bytes": "S5",
    "text": "U3",
    "void": "V7",
    "time": "M8[ns]",
    "span": "m8[25us]",
    "long double": "g",
    "structured": QUOTE,
    "from text": "f8, 3i4",
    "padded": INNER,
    "trailing padding": {"names": ["a"], "formats": ["i2"], "offsets": [1], "itemsize": 9},
    "nested": [("head", QUOTE), ("inner", INNER, (2, 3)), ("name", "S7")],
    "subarrays": [("m", "f4", (2, 3)), ("one", "i4", (1,))],
    "unaligned": [("flag", "?"), ("value", "f8"), ("small", "i2")],
    "other letters": [("é", "f8"), (("title", "name"), "i2")],
    "50 deep": None,
}


def nested_dtype(levels: int) -> np.dtype[Any]:
    dtype = np.dtype([("x", "i1")])
    for _ in range(levels - 1):
        dtype = np.dtype([("x", dtype)])
    return dtype


def dtype_of(case: str) -> np.dtype[Any]:
    return nested_dtype(NESTING_MAX) if case == "50 deep" else np.dtype(DTYPES[case])


class TestDtypes:
    @pytest.mark.parametrize("case", DTYPES)
    def test_dtype_converted_to_schema_and_back_is_equal(self, case: str) -> None:
        dtype = dtype_of(case)
        said = record_dtype(dtype)
        assert said == dtype
        assert said.fields == dtype.fields
        schema = struct_schema(said)
        assert (schema.name, schema.encoding) == ("Record", "struct")
        assert struct_dtype(schema) == dtype

    @pytest.mark.parametrize("case", DTYPES)
    def test_recording_decoder_reads_values_of_record_dtype(self, case: str) -> None:
        dtype = dtype_of(case)
        readable = case not in ("text", "nested", "long double")
        data = bytes(range(1, dtype.itemsize + 1)) if readable else bytes(dtype.itemsize)
        message = Message("records", data, 0, 0, 0, 0, struct_schema(dtype))
        decoded = PayloadDecoder().decode_payload(message.schema, message.data)
        assert decoded == np.frombuffer(data, dtype)[0]
        assert decoded.dtype.names == dtype.names
        assert decoded.dtype.kind == dtype.kind

    def test_record_dtype_ignores_metadata_and_alignment_flag(self) -> None:
        assert record_dtype(np.dtype("i4", metadata={"unit": "m"})).metadata is None
        assert not record_dtype(INNER).isalignedstruct
        assert record_dtype(INNER).itemsize == 16

    def test_record_dtype_after_change_of_names_in_place_has_current_names(self) -> None:
        dtype = np.dtype([("a", "i1"), ("b", "f8")])
        assert record_dtype(dtype).names == ("a", "b")
        dtype.names = ("c", "d")
        assert record_dtype(dtype).names == ("c", "d")

    def test_change_of_names_of_a_returned_dtype_changes_no_later_dtype(self) -> None:
        asked = [("p", "f8"), ("q", "f8"), ("inner", [("x", "i4")])]
        changed = record_dtype(asked)
        changed["inner"].names = ("y",)
        changed.names = ("a", "b", "c")
        later = record_dtype(asked)
        assert later.names == ("p", "q", "inner")
        assert later["inner"].names == ("x",)
        assert struct_dtype(struct_schema(np.dtype(asked))).names == ("p", "q", "inner")

    @pytest.mark.parametrize(
        ("asked", "why"),
        [
            ("O", "Python objects"),
            ([("a", "f8"), ("b", "O")], "Python objects"),
            ("V0", "no bytes"),
            ("S", "no bytes"),
            ([], "no bytes"),
            ("nonsense", "is not a NumPy dtype"),
            ("f8,)", "is not a NumPy dtype"),
            (5, "is not a NumPy dtype"),
            (("f8", (3, 3)), r"\[\('value', 'float64', \(3, 3\)\)\]"),
            ({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}, "order of their offsets"),
            ({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [4, 0]}, "order of their offsets"),
            ({"names": ["a"], "formats": ["i4"], "titles": [1.5j]}, "does not fit into a schema"),
            (nested_dtype(NESTING_MAX + 1), "nesting is deeper"),
            ([("x" * 50000, "i1")], "does not fit into a schema"),
        ],
        ids=str,
    )
    def test_unsupported_record_dtype_is_refused(self, asked: Any, why: str) -> None:
        with pytest.raises(RecordTypeError, match=why) as caught:
            record_dtype(asked, "quotes")
        assert caught.value.endpoint == "quotes"

    def test_record_dtype_too_long_for_header_is_refused(self) -> None:
        many = [(f"{number:050}", "i1") for number in range(200)]
        with pytest.raises(RecordTypeError, match=f"at most {options.SCHEMA_DATA_BYTES_MAX}"):
            vector_options("quotes", many, 1)

    def test_header_dtype_with_wrong_item_size_is_refused(self) -> None:
        assert options.read_schema_dtype(struct_schema(QUOTE), 16, "quotes") == QUOTE
        for schema, size in [
            (struct_schema(QUOTE), 8),
            (None, 16),
            (Schema("x", "struct", b"{"), 16),
            (Schema("x", "struct", json.dumps("O").encode()), 8),
        ]:
            with pytest.raises(CorruptSegmentError):
                options.read_schema_dtype(schema, size, "quotes")


def vector_options(
    name: Any = "quotes", dtype: Any = None, length: Any = None, **given: Any
) -> options.VectorOpenOptions:
    wanted = {"exclusive": None, "copies": None, "create": None, "mode": None, "passive": False, **given}
    return options.check_vector_options(name, dtype, length, **wanted)


class TestOpening:
    def test_vector_options_with_dtype_and_length_create_or_open(self) -> None:
        assert vector_options(dtype="f8", length=3).create is None
        assert vector_options(dtype="f8", length=3, create=True).create is True
        assert vector_options(dtype="f8", length=3, create=False).create is False
        assert vector_options(dtype="f8", length=3).fill_defaults() == (np.dtype("f8"), 3, False, 2)
        assert vector_options(dtype="f8", length=3, exclusive=True, copies=4).fill_defaults() == (
            np.dtype("f8"),
            3,
            True,
            4,
        )

    @pytest.mark.parametrize("given", [{}, {"dtype": "f8"}, {"length": 3}])
    def test_vector_options_without_dtype_or_length_only_open(self, given: dict[str, Any]) -> None:
        wanted = vector_options(**given)
        assert wanted.create is False
        assert "give dtype and length" in str(wanted.missing_error())
        assert wanted.missing_error().errno == errno.ENOENT
        with pytest.raises(InvalidValueError, match="create=True"):
            vector_options(**given, create=True)

    def test_seqlock_options_have_length_one(self) -> None:
        assert vector_options(dtype="f8", is_single_element=True).fill_defaults()[1] == 1
        with pytest.raises(RecordMismatchError, match="2 elements"):
            vector_options(is_single_element=True).check_existing(np.dtype("f8"), 2, False, 2)

    def test_private_vector_is_always_created(self) -> None:
        assert vector_options(None, "f8", 3).create is True
        for given in ({"create": False}, {"passive": True}, {"dtype": None}, {"length": None}):
            with pytest.raises(InvalidValueError, match="private"):
                vector_options(**{"name": None, "dtype": "f8", "length": 3, **given})

    def test_passive_vector_options_only_open(self) -> None:
        assert vector_options(dtype="f8", length=3, passive=True).create is False
        with pytest.raises(InvalidValueError, match="passive"):
            vector_options(dtype="f8", length=3, passive=True, create=True)

    @pytest.mark.parametrize(
        ("given", "error", "told"),
        [
            ({"name": "a/b"}, EndpointNameError, "records"),
            ({"length": 0}, InvalidValueError, "length is 0; give 1 to 2147483647"),
            ({"length": 2**31}, InvalidValueError, "length is 2147483648"),
            ({"length": -1}, InvalidValueError, "length"),
            ({"length": 1.5}, TypeError, "float"),
            ({"length": "3"}, TypeError, "str"),
            ({"copies": 3}, InvalidValueError, "copies is 3; give 2, or 4"),
            ({"copies": "2"}, InvalidValueError, "copies"),
            ({"mode": 0o777}, InvalidValueError, "mode"),
            ({"dtype": f"S{2**30 + 1}"}, RecordTypeError, "at most 1073741824"),
        ],
    )
    def test_invalid_vector_options_are_refused(self, given: dict[str, Any], error: type[Exception], told: str) -> None:
        with pytest.raises(error, match=told):
            vector_options(**{"dtype": "f8", "length": 3, **given})

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"dtype": "f4"}, "dtype float64.*float32"),
            ({"length": 11}, "length 10.*11"),
            ({"exclusive": True}, "exclusive=False.*exclusive=True"),
            ({"copies": 4}, "copies=2.*copies=4"),
        ],
    )
    def test_vector_options_unequal_to_existing_file_raise(self, given: dict[str, Any], told: str) -> None:
        with pytest.raises(RecordMismatchError, match=told):
            vector_options(**given).check_existing(np.dtype("f8"), 10, False, 2)

    def test_smaller_length_selects_first_elements_of_vector(self) -> None:
        assert vector_options().check_existing(np.dtype("f8"), 10, False, 2) == 10
        assert vector_options(length=10).check_existing(np.dtype("f8"), 10, False, 2) == 10
        assert vector_options(length=4, copies=4, exclusive=False).check_existing(np.dtype("f8"), 10, False, 4) == 4


def board(name: Any = "status", **given: Any) -> options.BoardOpenOptions:
    wanted = {"keys": None, "value_bytes": None, "schema": None, "create": None, "mode": None, "passive": False}
    return options.check_board_options(name, **{**wanted, **given})


class TestBoards:
    def test_board_options_have_defaults(self) -> None:
        assert board().fill_defaults() == (256, 1008)
        assert board().create is None
        assert board(passive=True).create is False

    def test_board_options_unequal_to_existing_file_raise(self) -> None:
        board().check_existing(3, 4)
        with pytest.raises(RecordMismatchError, match=r"keys=256.*keys=3"):
            board(keys=3).check_existing(256, 1008)
        with pytest.raises(RecordMismatchError, match=r"value_bytes=1008.*value_bytes=3"):
            board(value_bytes=3).check_existing(256, 1008)

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ({"keys": 0}, InvalidValueError),
            ({"keys": 65537}, InvalidValueError),
            ({"value_bytes": 0}, InvalidValueError),
            ({"value_bytes": 2**30 - 7}, InvalidValueError),
            ({"schema": "text"}, TypeError),
            ({"schema": Schema("x", "text", b"x" * 11841)}, InvalidValueError),
            ({"create": True, "passive": True}, InvalidValueError),
            ({"name": ""}, EndpointNameError),
        ],
    )
    def test_invalid_board_options_are_refused(self, given: dict[str, Any], error: type[Exception]) -> None:
        with pytest.raises(error):
            board(**given)

    @pytest.mark.parametrize("key", ["", "x" * 112, "é" * 56, "a\0b", "\ud800"])
    def test_invalid_board_key_is_refused(self, key: str) -> None:
        with pytest.raises(InvalidValueError, match="key"):
            options.validate_key(key, "status")
        with pytest.raises(TypeError):
            options.validate_key(b"key", "status")  # type: ignore[arg-type]

    def test_valid_board_key_is_encoded_as_utf8(self) -> None:
        assert options.validate_key("x" * 111, "status") == b"x" * 111
        assert options.validate_key("é/ ", "status") == "é/ ".encode()


def index_error_text(selection: Any) -> str:
    with pytest.raises(RecordIndexError) as caught:
        arrays.resolve_element_indices(selection, 10, "quotes")
    return str(caught.value)


class TestIndices:
    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            (None, list(range(10))),
            (slice(None), list(range(10))),
            (slice(-3, None), [7, 8, 9]),
            (slice(8, 2, -2), [8, 6, 4]),
            (slice(5, 100), [5, 6, 7, 8, 9]),
            (slice(3, 3), []),
            ([3, 1, 3], [3, 1, 3]),
            ([], []),
            (range(2, 8, 3), [2, 5]),
            (np.array([0, 9], "u1"), [0, 9]),
            (np.array([9, 0], ">i2"), [9, 0]),
            (np.arange(10)[::3], [0, 3, 6, 9]),
            ([True] + [False] * 8 + [True], [0, 9]),
            (np.arange(10) > 7, [8, 9]),
            (np.zeros(10, bool), []),
            (np.array([], "i8"), []),
        ],
        ids=str,
    )
    def test_index_selection_is_resolved_to_element_numbers(self, selection: Any, expected: list[int]) -> None:
        found = arrays.resolve_element_indices(selection, 10, "quotes")
        assert found.tolist() == expected
        assert found.dtype == np.int64
        assert found.flags.c_contiguous

    def test_element_indices_are_copied_from_array_of_caller(self) -> None:
        """Who changes the array meanwhile must not reach what lies beside the vector."""
        given = np.arange(3)
        found = arrays.resolve_element_indices(given, 10, "quotes")
        assert not np.shares_memory(given, found)

    @each_case(
        "selection, told",
        [
            ([-1], "-1"),
            ([3, 10], "10.*0 to 9"),
            (np.array([2**64 - 1], "u8"), "18446744073709551615"),
            ([2**70], "dtype object"),
            ([1.0], "dtype float64"),
            (np.array([]), "dtype float64"),
            (["1"], "dtype <U1"),
            ("bid", "bid"),
            ((1, 2), r"\(1, 2\)"),
            ([[1, 2]], r"\(1, 2\)"),
            ([[1], [2, 3]], "not a selection"),
            (5, r"5 is a single index.*\[5\]"),
            (np.array(5), r"a single index"),
            ([0, -3], "-3 is not an index"),
            (..., "object"),
            ([True, False], "2 elements, but the vector has 10"),
            (np.zeros((10, 1), bool), r"\(10, 1\)"),
            (slice(0, 5, 0), "zero"),
            (slice(0.5, 3), "slice"),
            (slice("a", "b"), "slice"),
        ],
    )
    def test_invalid_element_indices_are_refused(self, selection: Any, told: str) -> None:
        assert re.search(told, index_error_text(selection))

    @pytest.mark.parametrize("index", [0, 9, np.int8(9), np.uint64(3), np.array(4)], ids=repr)
    def test_valid_element_index_is_returned(self, index: Any) -> None:
        assert arrays.check_element_index(index, 10, "quotes") == int(index)

    @pytest.mark.parametrize("index", [-1, 10, 2**70, -(2**70), True, False, 1.0, "1", "bid", None, ..., (1,), b"1"])
    def test_invalid_element_index_raises_record_index_error(self, index: Any) -> None:
        with pytest.raises(RecordIndexError, match="0 to 9"):
            arrays.check_element_index(index, 10, "quotes")
        with pytest.raises(IndexError):
            arrays.check_element_index(index, 10, "quotes")


class SignalError(Exception):
    """Raised by a signal handler."""


@pytest.fixture
def raise_in_handler() -> Iterator[Callable[[], None]]:
    """A function that calls a signal handler, which raises."""

    def handle(*_: object) -> None:
        raise SignalError

    before = signal.signal(signal.SIGUSR1, handle)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_exception_of_a_signal_handler_in_record_dtype_is_raised(
    monkeypatch: pytest.MonkeyPatch, raise_in_handler: Callable[[], None]
) -> None:
    monkeypatch.setattr(json, "loads", lambda _: raise_in_handler())
    with pytest.raises(SignalError):
        record_dtype([("of this test", "i4")])


def test_exception_of_a_signal_handler_during_conversion_by_numpy_is_raised(
    raise_in_handler: Callable[[], None],
) -> None:
    class Fields(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:  # NumPy calls this method
            raise_in_handler()
            return super().__getitem__(name)

    fields: Any = Fields(count=("i4", 0))
    with pytest.raises(SignalError):
        record_dtype(fields)


class TestValues:
    @each_case(
        "given, dtype, count, expected",
        [
            (1.5, "f8", 1, [1.5]),
            (1.5, "f8", 3, [1.5] * 3),
            ([1, 2], "f8", 2, [1.0, 2.0]),
            (np.float32(1.5), "f8", 1, [1.5]),
            (np.arange(3, dtype="i8"), "i4", 3, [0, 1, 2]),
            (np.arange(3, dtype="f8"), "f4", 3, [0.0, 1.0, 2.0]),
            (np.arange(3), "f4", 3, [0.0, 1.0, 2.0]),
            (np.arange(6)[::2], "i8", 3, [0, 2, 4]),
            (np.array([7]), "i8", 3, [7, 7, 7]),
            (5, "u1", 1, [5]),
            (b"abc", "S5", 1, [b"abc"]),
            ("abc", "S5", 1, [b"abc"]),
            ((1, 2), QUOTE, 1, [(1.0, 2.0)]),
            ([(1, 2), (3, 4)], QUOTE, 2, [(1.0, 2.0), (3.0, 4.0)]),
            ([(1, 2.5), (True, 4)], COUNTED, 2, [(1, 2.5), (1, 4.0)]),
            ([np.zeros(1, COUNTED)[0], (np.int64(2), 4)], COUNTED, 2, [(0, 0.0), (2, 4.0)]),
            (3, COUNTED, 1, [(3, 3.0)]),
            (memoryview(b"\1\2"), "i4", 2, [1, 2]),
            (bytearray(b"\1\2"), "i4", 2, [1, 2]),
            ([], "i8", 0, []),
            (np.zeros((), QUOTE), QUOTE, 2, [(0.0, 0.0)] * 2),
            (np.zeros(1, QUOTE)[0], QUOTE, 1, [(0.0, 0.0)]),
            (np.ones(2, [("bid", "f4"), ("ask", "f8")]), QUOTE, 2, [(1.0, 1.0)] * 2),
            ([], "f8", 0, []),
        ],
    )
    def test_values_are_converted_to_record_elements(
        self, given: Any, dtype: Any, count: int, expected: list[Any]
    ) -> None:
        found = arrays.convert_element_values(given, np.dtype(dtype), count, "quotes")
        assert found.tolist() == expected
        assert (found.dtype, found.shape) == (np.dtype(dtype), (count,))
        assert found.flags.c_contiguous

    def test_list_instead_of_tuple_for_record_raises_with_hint(self) -> None:
        with pytest.raises(InvalidValueError, match=r"shape \(2,\), but the call needs 1 value .*a record is a tuple"):
            arrays.convert_element_values([1, 2], QUOTE, 1, "quotes")
        with pytest.raises(InvalidValueError, match=r"but the call needs 1 value or 3 values$"):
            arrays.convert_element_values([1, 2], np.dtype("f8"), 3, "quotes")

    def test_element_values_of_matching_dtype_are_not_copied(self) -> None:
        given = np.zeros(3, QUOTE)
        assert arrays.convert_element_values(given, QUOTE, 3, "quotes") is given

    @each_case(
        "given, dtype, told",
        [
            (np.zeros(3), "i8", "float64.*int64"),
            (1.0, "i8", "value is 1.0, of type float, but the schema has int64"),
            ([1, 2.5], "i8", r"value is \[1, 2.5\]"),
            ("7", "i8", "value is '7', of type str"),
            ((1.5, 2), COUNTED, "field 'count' is 1.5"),
            ([(1, 2), (2.5, 3)], COUNTED, "field 'count' is 2.5"),
            (2.5, COUNTED, "value is 2.5"),
            (np.zeros(3, "i8"), "u8", "int64.*uint64"),
            (np.float64(1), "i8", "float64.*int64"),
            (np.zeros(3, "c16"), "f8", "complex128.*float64"),
            (np.array([1, 2, 3], object), "f8", "object.*float64"),
            (np.zeros(3), QUOTE, r"float64.*'bid'"),
            (np.zeros(3, QUOTE), "f8", r"'bid'.*float64"),
            (np.zeros(3, [("bid", "f8"), ("sell", "f8")]), QUOTE, r"'sell'.*'ask'"),
            (np.zeros(3, [("ask", "f8"), ("bid", "f8")]), QUOTE, "cannot be converted"),
            (np.zeros(3, [("bid", "c16"), ("ask", "f8")]), QUOTE, "cannot be converted"),
            (np.zeros(3, [("q", [("sell", "f8")])]), [("q", [("bid", "f8")])], "cannot be converted"),
            (np.zeros(3, "U3"), "f8", "<U3.*float64"),
            (None, "i8", "NoneType"),
            (None, "f8", "NoneType"),
            (None, QUOTE, "NoneType"),
        ],
    )
    def test_element_values_of_different_dtype_raise_with_both_dtypes(self, given: Any, dtype: Any, told: str) -> None:
        with pytest.raises(RecordTypeError, match=told) as caught:
            arrays.convert_element_values(given, np.dtype(dtype), 3, "quotes")
        assert isinstance(caught.value, TypeError)

    @pytest.mark.parametrize(
        ("given", "dtype"),
        [
            ([1, 2], "f8"),
            (np.zeros((2, 3)), "f8"),
            (np.zeros(0), "f8"),
            ("abc", "f8"),
            ((1, 2, 3), QUOTE),
            ([[1, 2], [3]], "f8"),
        ],
        ids=str,
    )
    def test_element_values_of_invalid_shape_are_refused(self, given: Any, dtype: Any) -> None:
        with pytest.raises(InvalidValueError):
            arrays.convert_element_values(given, np.dtype(dtype), 3, "quotes")

    def test_element_value_out_of_range_is_refused(self) -> None:
        with pytest.raises(InvalidValueError):
            arrays.convert_element_values(2**70, np.dtype("i8"), 1, "quotes")

    def test_dtype_that_begins_with_both_timestamps_is_tracked(self) -> None:
        assert arrays.is_tracked_dtype(np.dtype([("publish_time", "<i8"), ("origin_time", "<i8"), ("x", "f8")]))

    @pytest.mark.parametrize(
        "dtype",
        [
            "f8",
            QUOTE,
            [("origin_time", "<i8"), ("publish_time", "<i8")],
            [("publish_time", "<i8"), ("x", "f8"), ("origin_time", "<i8")],
            [("publish_time", "<u8"), ("origin_time", "<i8")],
            [("publish_time", ">i8"), ("origin_time", "<i8")],
            {"names": ["publish_time", "origin_time"], "formats": ["<i8", "<i8"], "offsets": [8, 16]},
        ],
        ids=str,
    )
    def test_dtype_without_both_timestamp_fields_is_not_tracked(self, dtype: Any) -> None:
        assert not arrays.is_tracked_dtype(np.dtype(dtype))


class TestOut:
    def test_output_array_is_returned_unchanged(self) -> None:
        out = np.zeros(3, QUOTE)
        assert arrays.check_output_array(out, QUOTE, (3,), "quotes") is out

    @pytest.mark.parametrize("out", [bytearray(48), [0.0] * 3, None, np.zeros(3), np.zeros(3, "f4")], ids=str)
    def test_output_array_of_different_dtype_is_refused(self, out: Any) -> None:
        with pytest.raises(RecordTypeError, match="out is"):
            arrays.check_output_array(out, QUOTE, (3,), "quotes")

    def test_output_array_of_wrong_shape_or_layout_is_refused(self) -> None:
        frozen = np.zeros(3)
        frozen.flags.writeable = False
        for out in (np.zeros(2), np.zeros((3, 1)), np.zeros(6)[::2], frozen):
            with pytest.raises(InvalidValueError, match="out"):
                arrays.check_output_array(out, np.dtype("f8"), (3,), "quotes")


def test_record_changes_and_board_values_can_be_pickled() -> None:
    changes = Changes(np.arange(1), np.zeros(1, QUOTE), np.arange(1), np.arange(1, dtype="u8"))
    assert pickle.loads(pickle.dumps(changes)).rows.dtype == QUOTE
    value = Value(b"x", 1, 2, 3, lambda: Participant(7, 8, 9, "plan", True))
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value
    assert copy.owner == value.owner
    assert copy.alive is True


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (options.element_locked_error(5, "plan 7", 1.0, "q"), errors.WaitTimeoutError, "element 5.*1 s by plan 7"),
        (options.read_contention_error(5, 1.0, "q"), TimeoutError, "element 5.*copies=4"),
        (options.no_atomic_snapshot_error(0.5, "q"), TimeoutError, "0.5 s"),
        (options.unwritten_key_error("k", "q"), KeyError, "'k'"),
        (options.value_too_large_error(9, 8, "q"), errors.MessageTooLargeError, "9 bytes.*8"),
        (options.buffer_too_small_error(9, 8, "q"), errors.MessageTooLargeError, "9 bytes.*8"),
        (options.closed_entry_error("k", "q"), errors.StateError, "'k'"),
        (options.passive_writer_error("q"), errors.StateError, "passive"),
        (options.concurrent_changes_error("q"), errors.ConcurrentUseError, "changes"),
        (options.wrong_records_kind_error(True, "q"), RecordMismatchError, "is a board.*as a vector"),
        (options.wrong_records_kind_error(False, "q"), RecordMismatchError, "is a vector.*as a board"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_record_errors_name_endpoint_and_values(error: errors.IpcError, kind: type[Exception], told: str) -> None:
    assert isinstance(error, kind)
    assert error.endpoint == "q"
    with pytest.raises(kind, match=told):
        raise error
