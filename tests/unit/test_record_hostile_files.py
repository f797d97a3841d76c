"""A file of a vector or board that is none, another one's, or of another size: opened or refused, used or told of.

What, why, and what a failure would mean are at the top of test_record_hostile.py.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgq.errors import (
    CorruptSegmentError,
    IpcError,
    LayoutVersionError,
    RecordMismatchError,
    SegmentError,
    SegmentSizeError,
)
from msgq.records import Board, Seqlock, SeqlockVector
from tests.cases import each_case
from tests.meta.layouts import cell_strides
from tests.support import SHM, Task
from tests.unit.recordfile import (
    COPIES_AT,
    COPY_STRIDE_AT,
    EDGES,
    FLAGS_AT,
    HEADER,
    ITEM_AT,
    LENGTH,
    LENGTH_AT,
    STRIDE_AT,
    RecordFile,
    all_calls,
    call_with_time_limit,
    check_works,
    write_declared_key,
)


@pytest.fixture
def vector(endpoint: str) -> Iterator[SeqlockVector]:
    with SeqlockVector(endpoint, "f8", LENGTH) as vector:
        vector[:] = 1.0
        yield vector


@pytest.fixture
def board(endpoint: str) -> Iterator[Board]:
    with Board(endpoint, keys=LENGTH, value_bytes=100) as board:
        for number in range(3):
            write_declared_key(board, f"k{number}")
        yield board


# ---- files that cannot be opened ----


def test_open_records_work_after_changes_of_header_fields(vector: SeqlockVector, endpoint: str) -> None:
    """Sizes are read once: those who have it open go on."""
    file = RecordFile(endpoint)
    for at in range(0, 256, 8):
        sound = file.read(at)
        for value in (*EDGES, 2, 3, 4, 8, sound + 1, sound - 1):
            file.write(at, value)
            for kind in (SeqlockVector, Seqlock, Board):
                other = call_with_time_limit(kind, endpoint)
                assert isinstance(other, kind | SegmentError), other
                if isinstance(other, SeqlockVector | Board):
                    all_calls(other)
                if not isinstance(other, IpcError):
                    other.close()
            check_works(vector)
        file.write(at, sound)
    all_calls(vector)


def header_of_other_layout(item: int, copies: int) -> dict[int, int]:
    """Words of a header that fit each other, of other items or copies."""
    stride, copy_stride = cell_strides(item, copies)
    return {ITEM_AT: item, COPIES_AT: copies, STRIDE_AT: stride, COPY_STRIDE_AT: copy_stride}


@each_case(
    "fields, error",
    [
        ({0: 0}, CorruptSegmentError),
        ({0: 0x3130434552515348}, CorruptSegmentError),
        ({8: 0}, LayoutVersionError),
        ({8: 2 << 32}, LayoutVersionError),
        ({16: HEADER - 64}, CorruptSegmentError),
        ({LENGTH_AT: 0}, CorruptSegmentError),
        ({LENGTH_AT: 2**31}, CorruptSegmentError),
        ({LENGTH_AT: LENGTH + 64}, CorruptSegmentError),
        ({ITEM_AT: 0}, CorruptSegmentError),
        ({ITEM_AT: 2**30 + 1}, CorruptSegmentError),
        ({ITEM_AT: 2**64 - 1}, CorruptSegmentError),
        ({COPIES_AT: 0}, CorruptSegmentError),
        ({COPIES_AT: 1}, CorruptSegmentError),
        ({COPIES_AT: 3}, CorruptSegmentError),
        ({STRIDE_AT: 128}, CorruptSegmentError),
        ({STRIDE_AT: 0}, CorruptSegmentError),
        ({COPY_STRIDE_AT: 8}, CorruptSegmentError),
        ({FLAGS_AT: 4}, CorruptSegmentError),
        ({FLAGS_AT: 2**63}, CorruptSegmentError),
        ({FLAGS_AT: 2}, CorruptSegmentError),  # a board of values without room for their length
        (header_of_other_layout(1, 2), CorruptSegmentError),
        (header_of_other_layout(16, 2), CorruptSegmentError),
        (header_of_other_layout(8, 1), CorruptSegmentError),
        (header_of_other_layout(8, 8), CorruptSegmentError),
        (header_of_other_layout(2**29, 4), CorruptSegmentError),
        ({**header_of_other_layout(1, 2), FLAGS_AT: 2}, CorruptSegmentError),
        ({**header_of_other_layout(8, 2), FLAGS_AT: 2}, CorruptSegmentError),
    ],
)
@each_case("passive", [False, True])
def test_record_file_with_invalid_header_is_refused(
    vector: SeqlockVector, endpoint: str, fields: dict[int, int], error: type[Exception], passive: bool
) -> None:
    """Also one whose numbers fit each other: then the dtype does not."""
    file = RecordFile(endpoint)
    sound = {at: file.read(at) for at in fields}
    for at, value in fields.items():
        file.write(at, value)
    with pytest.raises(error, match=endpoint):
        SeqlockVector(endpoint, passive=passive)
    if fields.get(FLAGS_AT) == 2:
        with pytest.raises(error, match=str(file.path)):
            Board(endpoint, passive=passive)
    for at, value in sound.items():
        file.write(at, value)
    SeqlockVector(endpoint, passive=passive).close()
    check_works(vector)


def test_vector_file_is_refused_as_board_and_board_file_as_vector(vector: SeqlockVector, token: str) -> None:
    name = f"{token}b"
    with Board(name, keys=1):
        for wrong in (SeqlockVector, Seqlock):
            with pytest.raises(RecordMismatchError, match="board"):
                wrong(name)
        with pytest.raises(RecordMismatchError, match="vector"):
            Board(token)
    Board.unlink_name(name)


def test_vector_file_with_board_flag_does_not_crash_board_calls(endpoint: str) -> None:
    """Items are large enough for a length: what was a value is one, and keys lie over elements."""
    with SeqlockVector(endpoint, "V200", 400) as vector:
        vector[:] = np.full(400, b"\xff" * 200, "V200")
        file = RecordFile(endpoint)
        file.write(FLAGS_AT, 2)
        found = call_with_time_limit(Board, endpoint)
        assert isinstance(found, CorruptSegmentError), "the keys make it too short"
        file.write(LENGTH_AT, 100)
        with Board(endpoint) as board:
            all_calls(board)
        file.write(FLAGS_AT, 3)
        with Board(endpoint) as board:
            all_calls(board)


@pytest.mark.parametrize("size", [0, 8, HEADER - 1, HEADER, HEADER + 64, -1])
@pytest.mark.parametrize("passive", [False, True])
def test_record_file_that_is_too_short_is_refused(vector: SeqlockVector, size: int, passive: bool) -> None:
    path = Path(vector.path)
    whole = path.stat().st_size
    os.truncate(path, size if size >= 0 else whole - 1)
    with pytest.raises(CorruptSegmentError, match=str(path)):
        SeqlockVector(vector.name, passive=passive)


def make_directory(path: Path) -> Callable[[], None]:
    path.mkdir()
    return path.rmdir


def make_symlink(path: Path) -> Callable[[], None]:
    path.symlink_to("/dev/shm/msgqrec_elsewhere")
    return path.unlink


def make_fifo(path: Path) -> Callable[[], None]:
    os.mkfifo(path)
    return path.unlink


def bound_socket(path: Path) -> Callable[[], None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path.unlink


def empty_file(path: Path) -> Callable[[], None]:
    path.touch()
    return path.unlink


@pytest.mark.parametrize("make", [make_directory, make_symlink, make_fifo, bound_socket, empty_file])
def test_record_file_of_another_format_is_refused(endpoint: str, make: Callable[[Path], Callable[[], None]]) -> None:
    path = SHM / f"msgqrec_{endpoint}"
    remove = make(path)
    openings: tuple[Callable[[], Any], ...] = (
        lambda: SeqlockVector(endpoint),
        lambda: SeqlockVector(endpoint, "f8", 1),
        lambda: Seqlock(endpoint, "f8", passive=True),
        lambda: Board(endpoint),
    )
    try:
        for opening in openings:
            refused = call_with_time_limit(opening)
            assert isinstance(refused, SegmentError)
            assert str(path) in str(refused)
    finally:
        remove()


def test_record_file_with_second_link_is_refused(vector: SeqlockVector, endpoint: str) -> None:
    other = SHM / f"msgqrec_{endpoint}-second"
    os.link(vector.path, other)
    try:
        for name in (endpoint, f"{endpoint}-second"):
            with pytest.raises(SegmentError, match="2 names"):
                SeqlockVector(name)
        check_works(vector)
    finally:
        other.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_record_file_of_another_user_is_refused(vector: SeqlockVector, endpoint: str) -> None:
    os.chown(vector.path, 54321, 54321)
    with pytest.raises(SegmentError, match="user 54321"):
        SeqlockVector(endpoint)
    SeqlockVector(endpoint, trust="54321").close()


# ---- a file that changes its size while it is open ----


@pytest.mark.parametrize("size", [0, 4096, HEADER])
@pytest.mark.parametrize("passive", [False, True])
def test_truncated_vector_raises_in_each_call(endpoint: str, size: int, passive: bool) -> None:
    """Above all of a write: a value in memory that nobody else has would be lost without a word."""
    with SeqlockVector(endpoint, "f8", 4000) as vector, SeqlockVector(endpoint, passive=True) as looking:
        vector[:] = 1.0
        vector.changes()
        os.truncate(vector.path, size)
        handle = looking if passive else vector
        calls: tuple[Callable[[], Any], ...] = (
            lambda: handle[0],
            lambda: handle[3999],
            lambda: handle.read([5]),
            lambda: handle.snapshot(),
            lambda: handle.snapshot(atomic=True),
            lambda: handle.times(),
            lambda: handle.changes(),
            lambda: handle.wait(0),
            lambda: handle.wait(),
            lambda: handle.receive(timeout=0),
        )
        writes: tuple[Callable[[], Any], ...] = (
            lambda: handle.write([3], 2.0),
            lambda: handle.__setitem__(0, 2.0),
            lambda: handle.__setitem__(slice(None), 2.0),
        )
        for call in calls if passive else calls + writes:
            with pytest.raises(SegmentSizeError, match="truncated"):
                call()


def test_truncated_board_raises_in_each_call(board: Board) -> None:
    entry, observed = board.declare("k1"), board.observe("k1")
    os.truncate(board.path, HEADER)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: entry.write(b"lost"),
        observed.read,
        observed.data,
        lambda: observed.read_into(bytearray(100)),
        lambda: observed.wait(0),
        lambda: board["k0"],
        board.items,
        board.keys,
        board.changes,
        lambda: board.wait(0),
        lambda: board.declare("k2"),
    )
    told = [call_with_time_limit(call) for call in calls]
    assert [type(one).__name__ for one in told] == ["SegmentSizeError"] * len(calls)


@pytest.mark.parametrize("large", [False, True])
def test_vector_truncated_before_its_first_write_raises(endpoint: str, large: bool) -> None:
    with SeqlockVector(endpoint, "V1000000" if large else "f8", 4) as vector:
        os.truncate(vector.path, 0)
        with pytest.raises(SegmentSizeError, match="truncated"):
            vector[1] = np.zeros((), vector.dtype)


def test_truncation_of_record_file_wakes_waiting_thread(vector: SeqlockVector) -> None:
    vector.changes()
    waiting = Task(vector.wait, 30.0)
    waiting.wait_asleep()
    os.truncate(vector.path, 0)
    with pytest.raises(SegmentSizeError):
        waiting.result()


def test_records_work_after_another_program_extends_their_file(vector: SeqlockVector, endpoint: str) -> None:
    os.truncate(vector.path, Path(vector.path).stat().st_size * 2)
    check_works(vector)
    with SeqlockVector(endpoint) as other:
        assert len(other) == LENGTH
        check_works(other)
        assert vector[4] == other[4]
