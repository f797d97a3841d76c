"""Vectors: making and opening them, what a handle says, who may write, pickling."""

from __future__ import annotations

import errno
import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from msgq.common import shm_paths
from msgq.errors import (
    EndpointClosedError,
    EndpointNameError,
    InvalidValueError,
    MultipleWritersError,
    RecordMismatchError,
    RecordTypeError,
    SegmentError,
    TooManyWritersError,
)
from msgq.impl.backend import resolve_prefix
from msgq.impl.base.files import read_file_status
from tests.cases import each_case
from tests.contract.conftest import Records

QUOTE = np.dtype([("bid", "f8"), ("ask", "f8")])


class TestOpening:
    def test_vector_with_dtype_and_length_creates_or_opens_the_file(self, records: Records) -> None:
        records.vector(QUOTE, 10)[3] = (1, 2)
        assert records.vector(QUOTE, 10)[3].tolist() == (1.0, 2.0)

    def test_vector_without_dtype_and_length_opens_existing_vector(self, records: Records) -> None:
        records.vector(QUOTE, 10, exclusive=True, copies=4)
        there = records.vector()
        assert (there.dtype, len(there), there.exclusive, there.copies) == (QUOTE, 10, True, 4)

    @pytest.mark.parametrize("given", [(), ("f8",), (None, 3)], ids=str)
    def test_vector_without_dtype_or_length_creates_no_file(self, records: Records, given: tuple[Any, ...]) -> None:
        with pytest.raises(SegmentError, match="give dtype and length") as caught:
            records.vector(*given)
        assert caught.value.errno == errno.ENOENT
        assert caught.value.endpoint == records.name

    def test_seqlock_without_dtype_is_refused(self, records: Records) -> None:
        with pytest.raises(SegmentError):
            records.seqlock()
        records.seqlock("f8")
        assert records.seqlock().dtype == "f8"

    def test_create_true_only_creates_new_vector(self, records: Records) -> None:
        records.vector("f8", 3, create=True)
        with pytest.raises(SegmentError) as caught:
            records.vector("f8", 3, create=True)
        assert caught.value.errno == errno.EEXIST
        with pytest.raises(InvalidValueError):
            records.vector(create=True)

    def test_records_that_fit_into_no_file_are_refused(self, records: Records) -> None:
        for create, sizes in (
            (records.vector, (f"S{2**30}", 512)),
            (records.SeqlockVector, (None, f"S{2**30}", 512)),
            (records.board, (65536, 2**30 - 8)),
        ):
            with pytest.raises(InvalidValueError, match="at most 1099511627776 bytes"):
                create(*sizes)

    def test_create_false_only_opens_existing_vector(self, records: Records) -> None:
        with pytest.raises(SegmentError) as caught:
            records.vector("f8", 3, create=False)
        assert caught.value.errno == errno.ENOENT
        records.vector("f8", 3)
        assert len(records.vector("f8", 3, create=False)) == 3

    def test_passive_vector_only_opens_existing_file(self, records: Records) -> None:
        with pytest.raises(SegmentError) as caught:
            records.vector("f8", 3, passive=True)
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(InvalidValueError, match="passive"):
            records.vector("f8", 3, passive=True, create=True)

    def test_vector_defaults_are_as_documented(self, records: Records) -> None:
        numbers = records.vector("f8", 3)
        assert (numbers.exclusive, numbers.copies, numbers.closed, numbers.passive) == (False, 2, False, False)
        assert (numbers.name, numbers.endpoint, numbers.prefix) == (records.name, records.name, "")
        assert numbers.mode == 0o600
        assert numbers.schema.encoding == "struct"
        assert numbers.schema.data == b'"<f8"'
        assert numbers.created_ns <= records.time_ns()
        name, pid = numbers.creator
        assert name
        assert pid

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"dtype": "f4"}, "float64.*float32"),
            ({"dtype": QUOTE}, "float64.*bid"),
            ({"dtype": ">f8"}, "float64.*>f8"),
            ({"length": 11}, "10.*11"),
            ({"exclusive": True}, "exclusive=False.*exclusive=True"),
            ({"copies": 4}, "copies=2.*copies=4"),
        ],
        ids=str,
    )
    def test_vector_mismatch_error_names_the_difference(
        self, records: Records, given: dict[str, Any], told: str
    ) -> None:
        records.vector("f8", 10)[3] = 5
        for options in (given, {"dtype": "f8", "length": 10, **given}):
            with pytest.raises(RecordMismatchError, match=told) as caught:
                records.vector(**options)
            assert caught.value.endpoint == records.name
        assert records.vector()[3] == 5

    def test_vector_with_smaller_length_shows_the_first_elements(self, records: Records) -> None:
        whole = records.vector("i8", 10)
        some = records.vector("i8", 4)
        assert len(some) == len(some.read()) == len(some.snapshot(atomic=True)) == 4
        whole[5] = 1
        assert some.wait(0) is False
        assert some.changes().indices.tolist() == []
        whole[3] = 2
        some[0] = 3
        assert some.wait(0) is True
        assert some.changes().indices.tolist() == [0, 3]
        assert whole.read([0, 3, 5]).tolist() == [3, 2, 1]
        assert some[-2:].tolist() == [0, 2]
        with pytest.raises(IndexError):
            some[4]
        with pytest.raises(IndexError):
            some.read([True] * 10)

    def test_vector_opened_as_a_seqlock_raises(self, records: Records) -> None:
        records.vector("f8", 2)
        with pytest.raises(RecordMismatchError, match="2 elements"):
            records.seqlock()
        assert len(records.vector("f8", 1)) == 1

    def test_vector_opened_as_board_and_board_opened_as_vector_raise(self, records: Records) -> None:
        records.vector("f8", 2)
        with pytest.raises(RecordMismatchError, match="vector"):
            records.board()
        records.board(name="board")
        for call in (records.vector, records.seqlock):
            with pytest.raises(RecordMismatchError, match="board"):
                call(name="board")
            with pytest.raises(RecordMismatchError, match="board"):
                call(name="board", passive=True)

    @each_case(
        "given, error",
        [
            ({"length": 0}, InvalidValueError),
            ({"length": 2**31}, InvalidValueError),
            ({"length": -1}, InvalidValueError),
            ({"length": 1.5}, TypeError),
            ({"copies": 3}, InvalidValueError),
            ({"mode": 0o777}, InvalidValueError),
            ({"prefix": "a/b"}, EndpointNameError),
            ({"trust": "nobody-has-this-name"}, InvalidValueError),
            ({"spin_us": -1}, InvalidValueError),
            ({"dtype": "O"}, RecordTypeError),
            ({"dtype": [("a", "f8"), ("b", "O")]}, RecordTypeError),
            ({"dtype": "V0"}, RecordTypeError),
            ({"dtype": ("f8", (3, 3))}, RecordTypeError),
            ({"dtype": "nonsense"}, RecordTypeError),
            ({"dtype": {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}}, RecordTypeError),
            ({"dtype": f"S{2**30 + 1}"}, RecordTypeError),
            ({"dtype": f"S{2**30}", "length": 2**10}, InvalidValueError),
        ],
        reset="records.close",
    )
    def test_vector_with_invalid_arguments_creates_no_file(
        self, records: Records, given: dict[str, Any], error: Any
    ) -> None:
        with pytest.raises(error):
            records.vector(**{"dtype": "f8", "length": 3, **given})
        with pytest.raises(SegmentError):
            records.vector()

    @pytest.mark.parametrize("name", ["", "a/b", "..", "a\0b", "x" * 247, 5])
    def test_vector_with_invalid_name_is_refused(self, records: Records, name: Any) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: records.SeqlockVector(name, "f8", 3),
            lambda: records.Seqlock(name, "f8"),
        ]
        for call in calls:
            with pytest.raises((EndpointNameError, TypeError)):
                call()

    def test_vector_name_may_be_bytes(self, records: Records) -> None:
        records.vector("i8", 3)[0] = 5
        with records.SeqlockVector(records.name.encode()) as numbers:
            assert (numbers[0], numbers.name) == (5, records.name)

    def test_vector_methods_refuse_extra_positional_arguments(self, records: Records) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: records.SeqlockVector(records.name, "f8", 3, False),
            lambda: records.Seqlock(records.name, "f8", 3),
            lambda: records.SeqlockVector(None, "f8", 3).write([0], 1, 1.0),
        ]
        for call in calls:
            with pytest.raises(TypeError):
                call()

    def test_vector_attributes_are_read_only(self, records: Records) -> None:
        numbers = records.vector("f8", 3)
        for name in ("dtype", "name", "exclusive", "copies", "closed", "mode", "schema", "identity"):
            with pytest.raises(AttributeError):
                setattr(numbers, name, 1)

    def test_vector_repr_names_vector_and_dtype(self, records: Records) -> None:
        assert records.name in repr(records.vector("f8", 3))
        assert "SeqlockVector" in repr(records.vector())
        assert "float64" in repr(records.vector())
        assert "Seqlock" in repr(records.seqlock("f8", name="one"))
        assert "SeqlockVector" in repr(records.SeqlockVector(None, "f8", 3))


class TestNames:
    def test_unlinked_vector_stays_usable_for_open_handles(self, records: Records) -> None:
        former = records.vector("i8", 3)
        former[0] = 1
        same = records.vector()
        assert former.identity == same.identity
        former.unlink()
        with pytest.raises(SegmentError) as caught:
            former.unlink()
        assert caught.value.errno == errno.ENOENT
        same[1] = 2
        assert former.read().tolist() == [1, 2, 0]
        other = records.vector("f8", 2)
        assert other.read().tolist() == [0.0, 0.0]
        assert other.identity != former.identity

    def test_unlink_name_removes_the_vector(self, records: Records) -> None:
        records.vector("i8", 3)
        records.SeqlockVector.unlink_name(records.name)
        for kind in (records.SeqlockVector, records.Seqlock, records.Board):
            with pytest.raises(SegmentError) as caught:
                kind.unlink_name(records.name)
            assert caught.value.errno == errno.ENOENT

    def test_vectors_of_different_prefixes_are_separate(self, records: Records, prefix: str) -> None:
        inside, outside = records.vector("i8", 3), records.vector("i8", 3, prefix="")
        assert (inside.prefix, outside.prefix) == (prefix, "")
        inside[0] = 5
        assert outside[0] == 0
        assert records.vector(prefix=prefix)[0] == 5
        records.SeqlockVector.unlink_name(records.name)
        outside[0] = 6
        records.SeqlockVector.unlink_name(records.name, "")

    def test_vector_is_one_file_with_the_requested_mode(self, records: Records) -> None:
        numbers = records.vector("i8", 3, mode=0o640)
        assert numbers.path == shm_paths.records_path(records.name, resolve_prefix(""))
        file = read_file_status(numbers.path)
        assert file is not None
        assert file.mode == numbers.mode == 0o640
        assert records.vector(mode=0o600).mode == 0o640
        assert numbers.identity[1] == file.number
        assert file.bytes == 32768 + 3 * 64

    def test_vectors_of_different_names_are_separate(self, records: Records) -> None:
        one, other = records.vector("i8", 3, name="1"), records.vector("i8", 3, name="2")
        one[0] = 5
        assert other[0] == 0


class TestWriters:
    def test_exclusive_vector_has_one_writing_handle(self, records: Records) -> None:
        writer, other = records.vector("i8", 3, exclusive=True), records.vector()
        writer[0] = 1
        calls: list[Callable[[], Any]] = [
            lambda: other.__setitem__(1, 2),
            lambda: other.write([1], 2),
            lambda: other.claim(),
        ]
        for call in calls:
            with pytest.raises(MultipleWritersError) as caught:
                call()
            assert str(writer.creator[1]) in str(caught.value)
            assert caught.value.endpoint == records.name
        assert other.read().tolist() == [1, 0, 0]
        writer[1] = 2
        assert other[1] == 2

    def test_closing_exclusive_writer_lets_another_handle_write(self, records: Records) -> None:
        writer, other = records.vector("i8", 3, exclusive=True), records.vector()
        for number in range(5):
            writer[0] = number
            writer.close()
            writer, other = other, records.vector()
        other[0] = 7
        assert writer[0] == 7
        assert writer.counts()[0] == 6

    def test_deleting_exclusive_writer_lets_another_handle_write(self, records: Records) -> None:
        records.SeqlockVector(records.name, "i8", 3, exclusive=True)[0] = 1
        gc.collect()
        records.vector()[0] = 2

    def test_claim_gives_a_handle_the_exclusive_write_right(self, records: Records) -> None:
        one, other = records.vector("i8", 3, exclusive=True), records.vector()
        one.claim()
        one.claim()
        with pytest.raises(MultipleWritersError):
            other[0] = 1
        one.close()
        other.claim()

    def test_readers_of_exclusive_vector_are_unlimited(self, records: Records) -> None:
        handles = [records.vector("i8", 3, exclusive=True) for _ in range(5)]
        for handle in handles[1:]:
            assert handle[0] == 0
            assert handle.changes().indices.tolist() == []
        handles[0][0] = 1

    @pytest.mark.parametrize("exclusive", [False, True])
    def test_invalid_write_leaves_writer_row_free(self, records: Records, exclusive: bool) -> None:
        numbers = records.vector("i8", 3, exclusive=exclusive)
        with pytest.raises(IndexError):
            numbers[3] = 1
        with pytest.raises(TypeError):
            numbers[0] = np.float64(1)
        records.vector()[0] = 5

    def test_several_handles_write_a_shared_vector(self, records: Records) -> None:
        handles = [records.vector("i8", 3) for _ in range(4)]
        for number, handle in enumerate(handles * 3):
            handle[0] = number
            assert all(each[0] == number for each in handles)
        assert handles[0].counts()[0] == 12

    def test_writers_beyond_128_handles_are_refused(self, records: Records) -> None:
        handles = [records.vector("i8", 3) for _ in range(130)]
        for number, handle in enumerate(handles[:128]):
            handle[0] = number
        for handle in handles[128:]:
            with pytest.raises(TooManyWritersError, match="128"):
                handle[0] = 5
            with pytest.raises(TooManyWritersError, match="128"):
                handle.claim()
            assert handle[0] == 127
        handles[5].close()
        handles[128][0] = 1000
        assert handles[129][0] == 1000
        with pytest.raises(TooManyWritersError):
            handles[129][0] = 5


class TestPickling:
    def test_unpickled_vector_opens_the_same_name(self, records: Records) -> None:
        numbers = records.vector("i8", 5)
        numbers[0] = 7
        with pickle.loads(pickle.dumps(numbers)) as copy:
            assert type(copy) is type(numbers)
            assert (copy.name, len(copy), copy[0]) == (records.name, 5, 7)
            copy[1] = 8
        assert numbers[1] == 8
        assert not numbers.closed

    def test_unpickled_vector_keeps_its_length(self, records: Records) -> None:
        records.vector("i8", 5)
        with pickle.loads(pickle.dumps(records.vector("i8", 3))) as copy:
            assert len(copy) == 3

    def test_pickled_seqlock_and_passive_vector_keep_their_type(self, records: Records) -> None:
        number = records.seqlock("i8")
        number.value = 5
        with pickle.loads(pickle.dumps(number)) as copy:
            assert copy.value == 5
        with pickle.loads(pickle.dumps(records.seqlock(passive=True))) as copy:
            assert copy.passive
            assert copy.value == 5

    def test_unpickled_vector_keeps_its_prefix(
        self, records: Records, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        numbers = records.vector("i8", 5)
        numbers[0] = 7
        data = pickle.dumps(numbers)
        monkeypatch.delenv("OPENPILOT_PREFIX")
        with pickle.loads(data) as copy:
            assert (copy.prefix, copy[0]) == (prefix, 7)

    def test_private_vector_cannot_be_pickled(self, records: Records) -> None:
        with records.SeqlockVector(None, "f8", 3) as numbers, pytest.raises(TypeError, match="private"):
            pickle.dumps(numbers)

    def test_unlinked_vector_cannot_be_unpickled(self, records: Records) -> None:
        numbers = records.vector("i8", 5)
        data = pickle.dumps(numbers)
        numbers.unlink()
        with pytest.raises(SegmentError) as caught:
            pickle.loads(data)
        assert caught.value.errno == errno.ENOENT


def test_unlink_of_private_vector_has_no_effect(records: Records) -> None:
    numbers = records.SeqlockVector(None, "f8", 3)
    numbers.unlink()
    numbers[0] = 1
    numbers.close()
    with pytest.raises(EndpointClosedError):
        numbers.unlink()
