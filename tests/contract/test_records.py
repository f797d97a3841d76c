"""Vectors: reading and writing, of all dtypes."""

from __future__ import annotations

import math
import os
import sysconfig
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from msgq.errors import (
    EndpointClosedError,
    InvalidValueError,
    MsgqError,
    RecordIndexError,
    RecordTypeError,
    StateError,
)
from msgq.impl.base.clock import set_origin
from tests.cases import each_case
from tests.contract.conftest import Records

QUOTE = np.dtype([("bid", "f8"), ("ask", "f8")])
MIXED = np.dtype([("count", "i4"), ("price", "f8")])
PAIR = np.dtype([("hashes", "u8", (2,))])
PADDED = np.dtype([("flag", "i1"), ("value", "f8")], align=True)
DTYPES: dict[str, Any] = {
    "f8": np.dtype("f8"),
    "one byte": np.dtype("u1"),
    "bool": np.dtype(bool),
    "big-endian": np.dtype(">i4"),
    "complex": np.dtype("c16"),
    "bytes": np.dtype("S5"),
    "text": np.dtype("U3"),
    "time": np.dtype("M8[ns]"),
    "void": np.dtype("V7"),
    "structured": QUOTE,
    "padded": PADDED,
    "unaligned": np.dtype([("flag", "?"), ("value", "f8"), ("small", "i2")]),
    "nested": np.dtype([("head", QUOTE), ("more", PADDED, (2, 3)), ("name", "S7")]),
    "subarrays": np.dtype([("matrix", "f4", (2, 3)), ("one", "i4", (1,))]),
    "a line": np.dtype("S48"),
    "more than a line": np.dtype("S57"),
    "a page": np.dtype([("data", "u1", (4096,))]),
    "a mebibyte": np.dtype([("data", "u1", (1 << 20,))]),
}


class IntegerLike:
    """A number without a NumPy dtype, like a tensor of another library."""

    dtype = "int32"

    def __init__(self, value: int = 7) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"IntegerLike({self.value})"

    def __index__(self) -> int:
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.value, dtype)


def sample(dtype: np.dtype[Any], number: int, count: int = 1) -> np.ndarray[Any, np.dtype[Any]]:
    """Return rows whose bytes differ from each other's and from those of another number."""
    rows = np.zeros(count, dtype)
    for i, row in enumerate(rows):
        for field in walk(rows[i : i + 1] if row.shape == () else rows[i]):
            flat = field.reshape(-1)
            for at in range(min(flat.size, 50)):
                value = number + i + at + 1
                kind = flat.dtype.kind
                flat[at] = {"S": str(value).encode(), "U": str(value), "V": b"%d" % value, "b": value % 2}.get(
                    kind, value % 120
                )
    return rows


def walk(rows: Any) -> Any:
    if rows.dtype.names is None:
        yield rows
    for name in rows.dtype.names or ():
        yield from walk(rows[name])


class TestElements:
    def test_vector_element_is_written_and_read(self, records: Records) -> None:
        quotes = records.vector(QUOTE, 10)
        quotes[3] = (99.5, 100.0)
        bid, ask = quotes[3]
        assert (bid, ask) == (99.5, 100.0)
        assert quotes[4].tolist() == (0.0, 0.0)

    def test_mapping_with_all_fields_is_written_as_record(self, records: Records) -> None:
        quotes = records.vector(QUOTE, 10)
        quotes[0] = {"ask": 2.0, "bid": 1.0}
        quotes[1:4] = {"bid": 3.0, "ask": 4.0}
        quotes.write([7, 8], [{"bid": 5.0, "ask": 6.0}, (7.0, 8.0)])
        assert quotes.read([0, 1, 3, 7, 8]).tolist() == [(1.0, 2.0), (3.0, 4.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0)]

    @pytest.mark.parametrize(
        ("mapping", "reason"),
        [
            ({"bid": 1.0}, r"mapping lacks the fields \['ask'\]; the fields are bid, ask"),
            ({"bid": 1.0, "ask": 2.0, "mid": 3.0}, r"mapping has unknown fields \['mid'\]; the fields are bid, ask"),
            ({"bid": 1.0, "ask": [2.0]}, "cannot become"),
        ],
    )
    def test_mapping_with_other_fields_raises(self, records: Records, mapping: Any, reason: str) -> None:
        quotes = records.vector(QUOTE, 3)
        for write in (partial(quotes.__setitem__, 0), partial(quotes.write, [0, 1]), partial(quotes.write, [1])):
            with pytest.raises((RecordTypeError, InvalidValueError), match=reason):
                write(mapping)
            with pytest.raises((RecordTypeError, InvalidValueError), match=reason):
                write([mapping])
        assert not quotes.counts().any()

    @each_case("copies", [2, 4])
    @each_case("exclusive", [False, True])
    @each_case("case", DTYPES, reset="records.close")
    def test_vector_accepts_each_dtype(self, records: Records, case: str, exclusive: bool, copies: int) -> None:
        dtype = DTYPES[case]
        rows = records.vector(dtype, 3, exclusive=exclusive, copies=copies)
        assert rows.dtype == dtype
        for number in range(2 * copies + 1):  # all copies, and round again
            expected = sample(dtype, number, 3)
            for i in range(3):
                rows[i] = expected[i]
            for i in range(3):
                assert rows[i] == expected[i]
            assert (rows.read() == expected).all()
            rows.write([2, 0], expected[:2])
            assert rows[0] == expected[1]
            assert (rows[[0, 2]] == expected[[1, 0]]).all()
        assert records.vector().read([1])[0] == expected[1]

    def test_vector_element_of_plain_dtype_is_a_scalar(self, records: Records) -> None:
        numbers = records.vector("f8", 3)
        numbers[0] = 1.5
        assert type(numbers[0]) is np.float64
        assert isinstance(records.vector(QUOTE, 3, name="q")[0], np.void)

    def test_vector_read_returns_a_copy(self, records: Records) -> None:
        quotes = records.vector(QUOTE, 3)
        quotes[0] = (1, 2)
        row, many = quotes[0], quotes.read()
        quotes[0] = (3, 4)
        assert row.tolist() == (1.0, 2.0)
        assert many[0].tolist() == (1.0, 2.0)
        many["bid"] = 6
        assert quotes[0].tolist() == (3.0, 4.0)

    def test_vector_write_stores_a_copy(self, records: Records) -> None:
        quotes = records.vector(QUOTE, 3)
        values = np.ones(3, QUOTE)
        quotes[:] = values
        values["bid"] = 7
        assert quotes.read()["bid"].tolist() == [1.0] * 3

    @pytest.mark.parametrize("index", [0, 9, np.int8(9), np.uint64(3), np.array(4)], ids=repr)
    def test_vector_accepts_integer_indices(self, records: Records, index: Any) -> None:
        numbers = records.vector("i8", 10)
        numbers[index] = 5
        assert numbers[index] == 5
        assert numbers.read().tolist() == [5 * (i == int(index)) for i in range(10)]

    @each_case(
        "index",
        [-1, 10, 2**31, 2**63, 2**70, -(2**70), True, 1.0, "1", "bid", None, ..., (1,), (1, 2), b"1"],
        reset="records.close",
    )
    def test_vector_access_with_invalid_index_raises(self, records: Records, index: Any) -> None:
        numbers = records.vector("i8", 10)
        with pytest.raises(RecordIndexError) as caught:
            numbers[index]
        assert isinstance(caught.value, IndexError)
        assert caught.value.endpoint == records.name
        with pytest.raises(RecordIndexError):
            numbers[index] = 1
        assert not numbers.counts().any()

    def test_vector_can_be_iterated(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers[:] = [1, 2, 3]
        assert list(numbers) == [1, 2, 3]

    @each_case(
        "dtype, value, expected",
        [
            ("f8", 1, 1.0),
            ("f8", np.float32(1.5), 1.5),
            ("f4", np.float64(1.5), 1.5),
            ("i8", True, 1),
            ("u1", 255, 255),
            ("S3", b"abcdef", b"abc"),
            ("S3", "ab", b"ab"),
            (QUOTE, (1, 2), (1.0, 2.0)),
            (QUOTE, 3, (3.0, 3.0)),
            (QUOTE, np.ones((), QUOTE), (1.0, 1.0)),
            ("f8", np.array([2.5]), 2.5),
            ("f8", np.array(2.5), 2.5),
            (QUOTE, np.ones(1, QUOTE), (1.0, 1.0)),
            (QUOTE, [(5, 6)], (5.0, 6.0)),
            ("i8", IntegerLike(), 7),
            (MIXED, (IntegerLike(), 2.5), (7, 2.5)),
        ],
        reset="records.close",
    )
    def test_vector_element_accepts_convertible_values(
        self, records: Records, dtype: Any, value: Any, expected: Any
    ) -> None:
        rows = records.vector(dtype, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows[1] = value
        assert rows[1].tolist() == expected
        assert rows.counts().tolist() == [0, 1, 0]

    @each_case(
        "dtype, value, error",
        [
            ("i8", np.float64(1.5), RecordTypeError),
            ("i8", 1.5, RecordTypeError),
            ("i8", "7", RecordTypeError),
            (MIXED, (1.0, 2.5), RecordTypeError),
            (MIXED, 2.5, RecordTypeError),
            ("u8", np.int64(1), RecordTypeError),
            ("i8", None, RecordTypeError),
            ("f8", "abc", InvalidValueError),
            ("i8", 2**70, InvalidValueError),
            ("u1", 256, InvalidValueError),
            ("f8", [1, 2], InvalidValueError),
            ("f8", (1, 2), InvalidValueError),
            ("f8", np.zeros(2), InvalidValueError),
            (QUOTE, (1, 2, 3), InvalidValueError),
            (QUOTE, np.float64(1), RecordTypeError),
            (QUOTE, np.zeros((), [("bid", "f8"), ("sell", "f8")]), RecordTypeError),
        ],
        reset="records.close",
    )
    def test_invalid_vector_element_value_changes_nothing(
        self, records: Records, dtype: Any, value: Any, error: Any
    ) -> None:
        rows = records.vector(dtype, 3)
        rows[1] = 1
        with pytest.raises(error):
            rows[1] = value
        with pytest.raises(error):
            rows.write([1], value)
        assert rows[1] == np.ones((), dtype)
        assert rows.counts().tolist() == [0, 1, 0]


class TestMany:
    @each_case(
        "selection",
        [
            slice(None),
            slice(2, 5),
            slice(-3, None),
            slice(8, 2, -2),
            slice(5, 100),
            slice(3, 3),
            [3, 1, 2],
            [],
            np.array([0, 9], "u1"),
            np.array([9, 0], ">i2"),
            np.arange(10)[::3],
            [True, False] * 5,
            np.arange(10) > 7,
            np.zeros(10, bool),
            range(1, 9, 3),
        ],
        reset="records.close",
    )
    def test_vector_selections_behave_as_in_numpy(self, records: Records, selection: Any) -> None:
        numbers, plain = records.vector("i8", 10), np.zeros(10, "i8")
        for each in (numbers, plain):
            each[:] = np.arange(10) + 100
            each[selection] = np.arange(len(plain[selection])) + 7
        assert numbers.read().tolist() == plain.tolist()
        assert numbers[selection].tolist() == plain[selection].tolist()
        assert numbers.read(selection).tolist() == plain[selection].tolist()
        assert numbers.times(selection).shape == numbers.counts(selection).shape == plain[selection].shape

    @each_case(
        "selection",
        [
            [-1],
            [3, 10],
            np.array([2**64 - 1], "u8"),
            [2**70],
            [1.0],
            np.array([]),
            ["1"],
            [[1, 2]],
            [[1], [2, 3]],
            [True, False],
            np.zeros((10, 1), bool),
            slice(0, 5, 0),
            slice(0.5, 3),
            np.array([[1]]),
        ],
        reset="records.close",
    )
    def test_invalid_vector_selection_is_refused(self, records: Records, selection: Any) -> None:
        numbers = records.vector("i8", 10)
        calls: list[Callable[[], Any]] = [
            lambda: numbers[selection],
            lambda: numbers.read(selection),
            lambda: numbers.times(selection),
            lambda: numbers.counts(selection),
            lambda: numbers.write(selection, 1),
            lambda: numbers.__setitem__(selection, 1),
        ]
        for call in calls:
            with pytest.raises(RecordIndexError):
                call()
        assert not numbers.counts().any()

    @pytest.mark.parametrize("selection", [5, (1, 2), "bid", ...], ids=str)
    def test_vector_read_and_write_refuse_a_single_index(self, records: Records, selection: Any) -> None:
        numbers = records.vector("i8", 10)
        with pytest.raises(RecordIndexError):
            numbers.read(selection)
        with pytest.raises(RecordIndexError):
            numbers.write(selection, 1)

    @pytest.mark.parametrize(
        "values", [[2**63 + 1, 5], [np.uint64(2**63 + 1), np.int64(5)], [2**63 + 1, IntegerLike(5)]], ids=str
    )
    def test_lists_of_small_and_large_integers_are_exact(self, records: Records, values: Any) -> None:
        numbers = records.vector("u8", 2)
        numbers[:] = values
        assert numbers.read().tolist() == [2**63 + 1, 5]

    def test_field_of_small_and_large_integers_is_exact(self, records: Records) -> None:
        rows = records.vector(PAIR, 1)
        rows[0] = ([2**63 + 1, 5],)
        assert rows.read()["hashes"].tolist() == [[2**63 + 1, 5]]

    def test_vector_takes_records_of_a_memoryview(self, records: Records) -> None:
        rows = records.vector(MIXED, 2)
        rows[:] = np.array([(1, 2.5), (3, 4.5)], MIXED).data
        assert rows.read().tolist() == [(1, 2.5), (3, 4.5)]

    def test_vector_values_are_broadcast_as_in_numpy(self, records: Records) -> None:
        numbers = records.vector("f8", 4)
        numbers[:] = 5
        assert numbers.read().tolist() == [5.0] * 4
        numbers.write([0, 1], [6])
        numbers.write([2, 3], np.array([7, 8], "i4"))
        assert numbers.read().tolist() == [6.0, 6.0, 7.0, 8.0]
        numbers[1:3] = np.arange(6, dtype="f4")[::3]
        assert numbers.read().tolist() == [6.0, 0.0, 3.0, 8.0]

    @each_case(
        "values, error",
        [
            ([1, 2], InvalidValueError),
            (np.zeros((2, 3)), InvalidValueError),
            (np.zeros(0), InvalidValueError),
            ([[1, 2], [3]], InvalidValueError),
            ("abc", InvalidValueError),
            (np.zeros(3, "c16"), RecordTypeError),
            (np.array([1, 2, 3], object), RecordTypeError),
            (np.zeros(3, QUOTE), RecordTypeError),
            (np.zeros(3, "U3"), RecordTypeError),
            (None, RecordTypeError),
        ],
        reset="records.close",
    )
    def test_invalid_vector_batch_changes_nothing(self, records: Records, values: Any, error: Any) -> None:
        numbers = records.vector("f8", 3)
        with pytest.raises(error):
            numbers[:] = values
        with pytest.raises(error):
            numbers.write([0, 1, 2], values)
        assert not numbers.counts().any()

    @pytest.mark.parametrize("dtype", ["f8", "f4", "i8", QUOTE], ids=str)
    def test_vector_write_of_none_is_refused(self, records: Records, dtype: Any) -> None:
        numbers = records.vector(dtype, 3)
        with pytest.raises(RecordTypeError, match="NoneType"):
            numbers[0] = None
        assert not numbers.counts().any()

    def test_vector_write_error_names_vector_dtype_and_given_dtype(self, records: Records) -> None:
        with pytest.raises(RecordTypeError, match=r"float64.*int64"):
            records.vector("i8", 3).write([0], np.zeros(1))

    @pytest.mark.parametrize("take_part", [lambda value: value, lambda value: value["hashes"]], ids=["value", "field"])
    def test_vector_values_keep_content_during_later_reads(
        self, records: Records, take_part: Callable[[Any], Any]
    ) -> None:
        vector = records.vector(PAIR, 1)
        kept = []
        for number in range(5_000):  # more than the memory of several allocations holds
            vector[0] = ((number, number),)
            value = take_part(vector[0])
            if number % 100 == 0:
                kept.append((number, value))
        for number, value in kept:
            assert set(np.ravel(value.tolist())) == {number}

    @pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="reference counts are not exact")
    def test_vector_values_that_nobody_keeps_share_memory(self, records: Records) -> None:
        vector = records.vector(PAIR, 1)
        blocks = {vector[0].base.ctypes.data for _ in range(20_000)}
        assert len(blocks) <= 2

    def test_vector_write_with_repeated_index_keeps_last_value(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers.write([1, 1, 1], [5, 6, 7])
        assert numbers[1] == 7
        assert numbers.counts().tolist() == [0, 3, 0]

    def test_empty_vector_write_raises_no_error(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers.write([], [])
        numbers[3:] = 5
        assert not numbers.counts().any()

    def test_vector_read_fills_an_output_array(self, records: Records) -> None:
        quotes = records.vector(QUOTE, 4)
        quotes[:] = np.ones(4, QUOTE)
        out = np.zeros(4, QUOTE)
        assert quotes.read(out=out) is out
        assert out["ask"].tolist() == [1.0] * 4
        quotes[2] = (5, 6)
        assert quotes.read([2, 2], out[:2]) is not None
        assert out["bid"].tolist() == [5.0, 5.0, 1.0, 1.0]
        assert quotes.snapshot(out=out) is out
        assert out["bid"].tolist() == [1.0, 1.0, 5.0, 1.0]

    @pytest.mark.parametrize("out", [bytearray(32), [0.0] * 4, np.zeros(4), np.zeros(4, "f4, f4")], ids=str)
    def test_vector_read_refuses_output_of_another_dtype(self, records: Records, out: Any) -> None:
        quotes = records.vector(QUOTE, 4)
        for call in (quotes.read, quotes.snapshot):
            with pytest.raises(RecordTypeError, match="out"):
                call(out=out)

    def test_vector_read_refuses_output_of_another_shape(self, records: Records) -> None:
        numbers = records.vector("f8", 4)
        frozen = np.zeros(4)
        frozen.flags.writeable = False
        for out in (np.zeros(3), np.zeros((4, 1)), np.zeros(8)[::2], frozen, np.zeros(())):
            for call in (numbers.read, numbers.snapshot):
                with pytest.raises(InvalidValueError, match="out"):
                    call(out=out)
        assert not frozen.any()

    def test_vector_holds_many_elements(self, records: Records) -> None:
        numbers = records.vector("i4", 100_000)
        numbers[:] = np.arange(100_000, dtype="i4")
        assert (numbers.read() == np.arange(100_000)).all()
        assert numbers.read(np.arange(99_999, -1, -1))[:2].tolist() == [99_999, 99_998]
        assert (numbers.snapshot(atomic=True) == np.arange(100_000)).all()


class TestTimes:
    def test_unwritten_element_has_no_write_time(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        assert (numbers.times().dtype, numbers.counts().dtype) == (np.int64, np.uint64)
        assert numbers.times().tolist() == numbers.counts().tolist() == [0, 0, 0]

    def test_element_times_use_the_host_clock(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        before = records.time_ns()
        numbers[1] = 5
        numbers.write([1, 2], 6)
        after = records.time_ns()
        slack = 1_000_000_000  # two clocks, and one is corrected
        assert before - slack <= int(numbers.times([1])[0]) <= int(numbers.times()[2]) <= after + slack
        assert numbers.counts().tolist() == [0, 2, 1]
        assert numbers.counts([2, 1]).tolist() == [1, 2]

    def test_element_times_do_not_decrease(self, records: Records) -> None:
        numbers = records.vector("i8", 1)
        times = []
        for number in range(100):
            numbers[0] = number
            times.append(int(numbers.times()[0]))
        assert times == sorted(times)


class TestSnapshots:
    @pytest.mark.parametrize("atomic", [False, True])
    def test_snapshot_returns_all_elements(self, records: Records, atomic: bool) -> None:
        quotes = records.vector(QUOTE, 5)
        assert quotes.snapshot(atomic).tolist() == [(0.0, 0.0)] * 5
        quotes[2] = (1, 2)
        rows = quotes.snapshot(atomic=atomic)
        assert rows[2].tolist() == (1.0, 2.0)
        assert (rows.dtype, rows.shape) == (QUOTE, (5,))

    @pytest.mark.parametrize("timeout", [-1, math.nan, math.inf])
    def test_snapshot_with_invalid_timeout_is_refused(self, records: Records, timeout: float) -> None:
        numbers = records.vector("i8", 3)
        with pytest.raises(InvalidValueError):
            numbers.snapshot(True, timeout=timeout)
        with pytest.raises(InvalidValueError):
            numbers.write([0], 1, timeout=timeout)
        assert not numbers.counts().any()

    def test_write_and_snapshot_accept_timeout_none_and_0(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers.write([0], 1, timeout=None)
        numbers.write([0], 1, timeout=0)
        assert numbers.snapshot(atomic=True, timeout=None).tolist() == [1, 0, 0]
        assert numbers.snapshot(atomic=True, timeout=0).tolist() == [1, 0, 0]


class TestSeqlock:
    def test_seqlock_is_a_vector_of_one_element(self, records: Records) -> None:
        pose = records.seqlock(QUOTE)
        assert pose.value.tolist() == (0.0, 0.0)
        assert (pose.time, pose.count) == (0, 0)
        pose.value = (1, 2)
        pose.write((3, 4))
        pose.write((5, 6), timeout=0)
        assert pose.read().tolist() == pose.value.tolist() == (5.0, 6.0)
        assert pose.count == 3
        assert type(pose.time) is type(pose.count) is int
        assert records.vector()[0].tolist() == (5.0, 6.0)
        assert len(records.vector()) == 1

    def test_seqlock_read_fills_an_output_array(self, records: Records) -> None:
        number = records.seqlock("f8")
        number.value = 1.5
        out = np.zeros(1)
        assert number.read(out) is out
        assert number.read(out=out)[0] == 1.5
        with pytest.raises(InvalidValueError):
            number.read(np.zeros(2))

    def test_invalid_seqlock_values_are_refused(self, records: Records) -> None:
        number = records.seqlock("i8")
        with pytest.raises(RecordTypeError):
            number.value = np.float64(1)
        with pytest.raises(InvalidValueError):
            number.write([1, 2])
        assert number.count == 0

    def test_seqlock_changes_report_a_write(self, records: Records) -> None:
        number = records.seqlock("i8")
        assert number.wait(0) is False
        number.value = 5
        assert number.wait() is True
        assert number.changes().rows.tolist() == [5]
        assert number.wait(0) is False

    @pytest.mark.parametrize("call", ["read", "value", "read into", "changes"])
    def test_seqlock_read_clears_the_changed_flag(self, records: Records, call: str) -> None:
        number, other = records.seqlock("i8"), records.seqlock("i8")
        calls: dict[str, Callable[[], Any]] = {
            "read": number.read,
            "value": lambda: number.value,
            "read into": lambda: number.read(np.zeros(1, "i8")),
            "changes": number.changes,
        }
        calls[call]()
        assert (number.changed, number.wait(0)) == (False, False)  # it was never written
        for value in (5, 6):
            other.value = value
            assert (number.changed, number.wait(0), other.changed) == (True, True, True)
            calls[call]()
            assert (number.changed, number.wait(0)) == (False, False)
        assert len(number.changes().rows) == 0
        assert other.changed is True  # each handle knows what it read


class TestScalars:
    """Structured scalars are written from where their bytes are, if these have the same fields at the same places."""

    def test_write_accepts_a_scalar_of_an_equal_dtype(self, records: Records) -> None:
        rows = records.vector([("x", "<i4"), ("y", "<f8")], 4)
        for place in range(3):  # each has a dtype object of its own
            rows[place] = np.array([(place, 0.5)], [("x", "<i4"), ("y", "<f8")])[0]
        assert rows[:3].tolist() == [(0, 0.5), (1, 0.5), (2, 0.5)]

    def test_write_of_an_array_element_stores_a_copy(self, records: Records) -> None:
        rows = records.vector([("x", "<i4"), ("y", "<f8")], 4)
        theirs = np.array([(1, 1.0), (2, 2.0)], rows.dtype)
        rows[0] = theirs[1]
        theirs[1] = (3, 3.0)
        assert rows[0].tolist() == (2, 2.0)
        rows[1] = rows[0]
        assert rows[1].tolist() == (2, 2.0)

    def test_write_accepts_a_record_scalar(self, records: Records) -> None:
        rows = records.vector([("x", "<i4"), ("y", "<f8")], 4)
        rows[0] = np.rec.array([(1, 2.0)], rows.dtype)[0]
        assert rows[0].tolist() == (1, 2.0)

    def test_write_accepts_value_with_equal_fields_at_other_offsets(self, records: Records) -> None:
        rows = records.vector([("x", "<i4"), ("y", "<i4")], 4)
        turned = np.dtype({"names": ["x", "y"], "formats": ["<i4", "<i4"], "offsets": [4, 0]})
        rows[0] = np.array([(1, 2)], turned)[0]
        assert rows[0].tolist() == (1, 2)

    def test_write_accepts_a_value_in_the_other_byte_order(self, records: Records) -> None:
        rows = records.vector([("x", "<i4")], 4)
        rows[0] = np.array([(1,)], [("x", ">i4")])[0]
        assert rows[0].tolist() == (1,)

    def test_write_accepts_a_void_scalar_without_fields(self, records: Records) -> None:
        rows = records.vector("V5", 4)
        rows[0] = np.void(b"abcde")
        assert bytes(rows[0]) == b"abcde"

    def test_write_refuses_different_dtype_after_accepting_equal_dtype(self, records: Records) -> None:
        rows = records.vector([("x", "<i4"), ("y", "<i4")], 4)
        rows[0] = np.array([(1, 2)], [("x", "<i4"), ("y", "<i4")])[0]
        with pytest.raises(RecordTypeError):
            rows[0] = np.array([(1, 2)], [("x", "<i4"), ("z", "<i4")])[0]
        with pytest.raises(RecordTypeError):
            rows[0] = np.array([(1.0, 2.0)], [("x", "<f4"), ("y", "<f4")])[0]
        assert rows[0].tolist() == (1, 2)

    def test_write_accepts_numbers(self, records: Records) -> None:
        numbers = records.vector("f8", 5)
        for place, given in enumerate((1.5, np.float64(2.5), np.float32(3.5), 4, True)):
            numbers[place] = given
        assert numbers[:].tolist() == [1.5, 2.5, 3.5, 4.0, 1.0]


class TestPrivate:
    def test_private_vector_is_separate_memory(self, records: Records) -> None:
        one, other = records.SeqlockVector(None, QUOTE, 3), records.SeqlockVector(None, QUOTE, 3)
        one[0] = (1, 2)
        assert one[0].tolist() == (1.0, 2.0)
        assert other[0].tolist() == (0.0, 0.0)
        assert (one.name, one.path, one.identity, one.endpoint) == (None, "", None, "")
        assert one.changes().indices.tolist() == [0]
        for each in (one, other):
            each.close()
        with pytest.raises(EndpointClosedError):
            one[0]

    def test_private_seqlock_stores_a_value(self, records: Records) -> None:
        with records.Seqlock(None, "f8", exclusive=True, copies=4) as number:
            number.value = 1.5
            assert number.value == 1.5

    @pytest.mark.parametrize(
        "given", [{"create": False}, {"passive": True}, {"dtype": None}, {"length": None}], ids=str
    )
    def test_private_vector_refuses_options_that_open_existing_vector(
        self, records: Records, given: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidValueError, match="private"):
            records.SeqlockVector(None, **{"dtype": "f8", "length": 3, **given})


TRACKED = np.dtype([("publish_time", "<i8"), ("origin_time", "<i8"), ("x", "f8")])


class TestTracked:
    def test_tracked_write_fills_publish_time_and_origin_time(self, records: Records) -> None:
        rows = records.vector(TRACKED, 4)
        before = records.time_ns()
        rows[0] = (0, 0, 1.5)
        rows.write([1, 2], np.ones(2, TRACKED))
        after = records.time_ns()
        found = rows.read()
        assert found["x"].tolist() == [1.5, 1.0, 1.0, 0.0]
        slack = 1_000_000_000
        for row in found[:3]:
            assert before - slack <= row["publish_time"] <= after + slack
            assert abs(row["origin_time"] - row["publish_time"]) < slack
        assert found[3].tolist() == (0, 0, 0.0)
        assert found["publish_time"][:3].tolist() == rows.times([0, 1, 2]).tolist()

    def test_written_tracked_element_has_origin_of_the_thread(self, records: Records) -> None:
        rows = records.vector(TRACKED, 4)
        set_origin(77)
        try:
            rows[0] = (1, 2, 3)
            rows.write([1, 2], np.ones(2, TRACKED))
        finally:
            set_origin(0)
        rows[3] = (1, 2, 3)
        found = rows.read()
        assert found["origin_time"][:3].tolist() == [77] * 3
        assert found["origin_time"][3] != 77
        assert found["publish_time"].tolist() == rows.times().tolist()

    def test_element_written_without_origin_gets_a_unique_origin(self, records: Records) -> None:
        rows = records.vector(TRACKED, 4)
        for i in range(4):
            rows[i] = np.zeros((), TRACKED)
        assert len(set(rows.read()["origin_time"].tolist())) == 4

    def test_seqlock_of_tracked_records_has_publish_time_and_origin_time(self, records: Records) -> None:
        pose = records.seqlock(TRACKED)
        pose.value = (1, 2, 3.5)
        publish_time, origin_time, x = pose.value
        assert (publish_time, x) == (pose.time, 3.5)
        assert origin_time not in (1, 2)

    def test_write_leaves_the_callers_array_unchanged(self, records: Records) -> None:
        values = np.ones(2, TRACKED)
        records.vector(TRACKED, 4).write([1, 2], values)
        assert values["publish_time"].tolist() == [1, 1]


def calls_of(vector: Any) -> list[Any]:
    return [
        lambda: vector[0],
        lambda: vector[:],
        lambda: vector.read(),
        lambda: vector.snapshot(),
        lambda: vector.snapshot(atomic=True),
        lambda: vector.times(),
        lambda: vector.counts(),
        lambda: vector.changes(),
        lambda: vector.wait(0),
        lambda: vector.fileno(),
        lambda: vector.receive(0),
        lambda: vector.__setitem__(0, 1),
        lambda: vector.write([0], 1),
        lambda: vector.claim(),
    ]


class TestClosed:
    @pytest.mark.parametrize("selection", [3, np.int64(3), slice(1, 4), [3, 1], slice(None)])
    def test_assignment_to_a_field_of_a_read_element_raises(self, records: Records, selection: Any) -> None:
        vector = records.vector([("bid", "<f8"), ("ask", "<f8")], 5)
        vector[:] = [(1.0, 2.0)] * 5
        with pytest.raises(ValueError, match="read-only"):
            vector[selection]["bid"] = 7.0
        assert vector[3].tolist() == (1.0, 2.0)

    def test_assignment_to_an_iterated_element_raises(self, records: Records) -> None:
        vector = records.vector([("bid", "<f8")], 2)
        for record in vector:
            with pytest.raises(ValueError, match="read-only"):
                record["bid"] = 7.0

    def test_assignment_to_a_field_of_a_seqlock_raises(self, records: Records) -> None:
        seqlock = records.seqlock([("bid", "<f8")])
        seqlock.write((1.0,))
        with pytest.raises(ValueError, match="read-only"):
            seqlock.value["bid"] = 7.0
        with pytest.raises(ValueError, match="read-only"):
            seqlock.read()["bid"] = 7.0

    def test_arrays_copied_or_read_from_a_vector_are_writable(self, records: Records) -> None:
        vector = records.vector([("bid", "<f8"), ("ask", "<f8")], 3)
        record = vector[1].copy()
        record["bid"] = 7.0
        vector[1] = record
        for rows in (vector.read(), vector.snapshot(), vector.read([0, 1, 2])):
            assert rows["bid"].tolist() == [0.0, 7.0, 0.0]
            rows["ask"] = 8.0
        assert vector[1].tolist() == (7.0, 0.0)

    def test_closed_vector_raises_on_each_call(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        numbers[0] = 1
        assert not numbers.closed
        numbers.close()
        numbers.close()
        assert numbers.closed
        assert "closed" in repr(numbers)
        for call in calls_of(numbers):
            with pytest.raises(EndpointClosedError) as caught:
                call()
            assert caught.value.endpoint == records.name
        assert records.vector()[0] == 1

    def test_end_of_vector_block_closes_the_vector(self, records: Records) -> None:
        with records.vector("i8", 3) as numbers:
            numbers[0] = 1
        assert numbers.closed

    def test_write_raises_when_array_conversion_closes_the_vector(self, records: Records) -> None:
        numbers = records.vector("i8", 3)

        class Closing:
            def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
                numbers.close()
                return np.ones(1, "i8")

        with pytest.raises(MsgqError):
            numbers.write([0], Closing())
        assert not records.vector().counts().any()


class TestPassive:
    def test_passive_vector_reads_and_refuses_writes(self, records: Records) -> None:
        numbers = records.vector("i8", 3)
        watcher = records.vector(passive=True)
        assert (watcher.passive, numbers.passive) == (True, False)
        numbers[1] = 5
        assert watcher[1] == 5
        assert watcher.changes().indices.tolist() == [1]
        calls: list[Callable[[], Any]] = [
            lambda: watcher.__setitem__(0, 1),
            lambda: watcher.write([0], 1),
            lambda: watcher.claim(),
        ]
        for call in calls:
            with pytest.raises(StateError, match="passive"):
                call()
        assert numbers.counts().tolist() == [0, 1, 0]

    def test_passive_vector_waits_for_changes(self, records: Records) -> None:
        numbers, watcher = records.vector("i8", 3), records.vector(passive=True)
        assert watcher.wait(0.02) is False
        numbers[1] = 5
        assert watcher.wait(10) is True

    @pytest.mark.needs("processes")
    def test_passive_vector_needs_only_read_permission(self, records: Records) -> None:
        numbers = records.vector("i8", 3, mode=0o600)
        numbers[0] = 5
        os.chmod(numbers.path, 0o400)
        with records.vector(passive=True) as watcher:
            assert watcher[0] == 5
        os.chmod(numbers.path, 0o600)
