"""Hostile bytes in the file of a vector or board, under real handles: errors of ours, or nothing, and soon.

What: every part of the file gets each kind of nonsense, before a handle opens it and while handles work.
Why: any process that may use a vector may write any word of it, by a bug as well.
A failure would mean: a bad word ends a process, hangs it, or spoils an element that lies beside it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from msgq.common.schema import Schema
from msgq.errors import (
    CorruptSegmentError,
    IpcError,
    MultipleWritersError,
    SegmentError,
    TooManyWritersError,
    WaitTimeoutError,
)
from msgq.impl.records.core import KeyObserver
from msgq.records import Board, SeqlockVector, Value
from tests.support import SHM, Task, run_child
from tests.unit.recordfile import (
    ATTENTION,
    CALL_SECONDS,
    EDGES,
    HEADER,
    LENGTH,
    OWNER,
    SCHEMA,
    RecordFile,
    all_calls,
    call_with_time_limit,
    check_works,
    owner_words,
    random_word,
    version_words,
    write_declared_key,
)


@pytest.fixture(params=[2, 4])
def vector(endpoint: str, request: pytest.FixtureRequest) -> Iterator[SeqlockVector]:
    with SeqlockVector(endpoint, "f8", LENGTH, copies=request.param) as vector:
        vector[:] = 1.0
        yield vector


@pytest.fixture
def board(endpoint: str) -> Iterator[Board]:
    with Board(endpoint, keys=LENGTH, value_bytes=100) as board:
        for number in range(3):
            write_declared_key(board, f"k{number}")
        yield board


# ---- vectors ----


def test_vector_is_writable_after_arbitrary_version_words(vector: SeqlockVector, endpoint: str) -> None:
    """The element is written by the next who writes there, unless the word says that one writes it who lives."""
    file = RecordFile(endpoint)
    generation = file.read(file.row(0, 8))
    with SeqlockVector(endpoint) as other:
        other.claim()
        living = {1 << 16 | generation, 2 << 16 | file.read(file.row(1, 8))}
        for version in version_words(0, generation):
            for element in (0, 8):
                file.write(file.version(element), version)
            all_calls(vector)
            for element in (0, 8):
                file.write(file.version(element), version)
            if version & 0xFFFFFF in living:
                with pytest.raises(WaitTimeoutError, match=r"element 8 .* locked"):
                    other.write([8], 2.0, timeout=0.002)
            else:
                check_works(other, 8)
            check_works(vector)
            file.reset()


def test_vector_opened_with_arbitrary_version_words_is_usable(vector: SeqlockVector, endpoint: str) -> None:
    file = RecordFile(endpoint)
    vector.close()
    for version in version_words(0, file.read(file.row(0, 8))):
        for element in range(0, LENGTH, 2):
            file.write(file.version(element), version)
        with SeqlockVector(endpoint) as other:
            all_calls(other)
            check_works(other, 1)
            check_works(other)
        file.reset()


def test_vector_calls_do_not_crash_with_arbitrary_write_times(vector: SeqlockVector, endpoint: str) -> None:
    """They are told as they are, and right again after the next write."""
    file = RecordFile(endpoint)
    now = int(vector.times([0])[0])
    for value in EDGES:
        for copy in range(vector.copies):
            file.write(file.copy(3, copy), value)
        assert int(vector.times([3])[0]) % 2**64 == value
        all_calls(vector)
        for _ in range(vector.copies):
            vector[3] = 1.0
        assert now < vector.times([3])[0] < now + 10**12


def test_read_of_constantly_changing_element_raises(vector: SeqlockVector, endpoint: str) -> None:
    """Its versions jump, so no read of it is whole; what is beside it is read."""
    file, over = RecordFile(endpoint), threading.Event()

    def scribble() -> None:
        rng = random.Random(2)
        while not over.is_set():
            file.write(file.version(2), rng.getrandbits(40) << 24)
            file.write(file.version(3), random_word(rng))
            file.write(file.copy(rng.randrange(2, 4), rng.randrange(2)), rng.getrandbits(64))

    stranger = Task(scribble)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        all_calls(vector)
        check_works(vector)
    over.set()
    stranger.result()


@pytest.mark.parametrize("value", EDGES)
def test_vector_wait_ends_with_arbitrary_sleeper_flags(vector: SeqlockVector, endpoint: str, value: int) -> None:
    """Who sleeps looks by itself, when its flag was taken away."""
    file = RecordFile(endpoint)
    file.write(ATTENTION, value)
    all_calls(vector)
    vector.changes()
    waiting = Task(vector.wait, 20.0)
    waiting.wait_asleep()
    file.write(ATTENTION, value)
    with SeqlockVector(endpoint) as other:
        begun = time.monotonic()
        other[0] = 3.0
        assert waiting.result()
        assert time.monotonic() - begun < CALL_SECONDS


def test_vector_works_with_arbitrary_writer_rows(vector: SeqlockVector, endpoint: str) -> None:
    file = RecordFile(endpoint)
    with SeqlockVector(endpoint) as other:
        other.claim()
        for field in range(16):
            for value in EDGES:
                for row in (0, 1, 2, 127):
                    file.write(file.row(row, field), value)
                check_works(other)
                check_works(vector)
                with SeqlockVector(endpoint) as newcomer:
                    call_with_time_limit(check_works, newcomer, 1)
        all_calls(other)


def test_vector_with_row_table_full_of_live_processes_refuses_writer(vector: SeqlockVector, endpoint: str) -> None:
    file = RecordFile(endpoint)
    ours = [file.read(file.row(0, field)) for field in range(8)]
    for row in range(1, 128):
        for field in range(8):
            file.write(file.row(row, field), ours[field])
        file.write(file.row(row, 7), 0)  # simulates a process that could not lock
        file.write(file.row(row, 0), 1)
    with SeqlockVector(endpoint) as other:
        assert other[0] == 1.0
        with pytest.raises(TooManyWritersError, match="128 writing handles"):
            other[0] = 2.0
    check_works(vector)


def test_exclusive_vector_works_with_arbitrary_owner_word(endpoint: str) -> None:
    """Only one who lives keeps others from writing, and it goes on."""
    with SeqlockVector(endpoint, "f8", LENGTH, exclusive=True) as vector:
        vector[0] = 1.0
        file = RecordFile(endpoint)
        generation = file.read(file.row(0, 8))
        for name in (*owner_words(0, generation), *EDGES):
            file.write(OWNER, name)
            with SeqlockVector(endpoint) as other:
                found = call_with_time_limit(other.claim)
                if name == 1 << 16 | generation:
                    assert isinstance(found, MultipleWritersError), hex(name)
                else:
                    assert found is None or isinstance(found, MultipleWritersError), hex(name)
            all_calls(vector)
            check_works(vector)
            file.reset()


def test_vector_works_with_arbitrary_schema_bytes(vector: SeqlockVector, endpoint: str) -> None:
    file = RecordFile(endpoint)
    rng = random.Random(1)
    for value in EDGES:
        for at in range(SCHEMA, SCHEMA + 320, 8):
            file.write(at, value if rng.random() < 0.7 else rng.getrandbits(64))
        found = call_with_time_limit(lambda: vector.schema)
        assert found is None or isinstance(found, Schema | IpcError)
        assert isinstance(call_with_time_limit(SeqlockVector, endpoint), CorruptSegmentError)
        check_works(vector)


# ---- boards ----


def test_board_works_with_arbitrary_value_sizes_and_versions(board: Board, endpoint: str) -> None:
    file = RecordFile(endpoint)
    generation = file.read(file.row(0, 8))
    for version in version_words(0, generation):
        for value in (0, 4, 100, 101, 2**63, 2**64 - 1):
            file.write(file.version(1), version)
            for copy in range(2):
                file.write(file.copy(1, copy) + 8, value)
            written = version >> 24
            found = call_with_time_limit(lambda: board["k1"])
            if value > 100 and written:
                assert isinstance(found, CorruptSegmentError), (hex(version), value, found)
            elif written:
                assert len(found) == value
            all_calls(board)
            assert board["k1"] == b"1234", "somebody has written it since"
            assert board["k0"] == b"1234"


def read_value(key: KeyObserver) -> Value:
    value = key.read()
    assert value is not None
    return value


def test_board_value_of_corrupt_time_has_age_from_this_time(board: Board, endpoint: str) -> None:
    file = RecordFile(endpoint)
    key = board.observe("k1")
    now_ns = read_value(key).time
    for time_ns in (-(2**63), -1, now_ns, 2**63 - 1):
        for copy in range(2):
            file.write(file.copy(1, copy), time_ns)
        age_ns = read_value(key).age_ns
        assert max(0, now_ns - time_ns) <= age_ns
        assert time_ns <= now_ns or age_ns == 0


def test_board_works_with_arbitrary_key_bytes(board: Board, endpoint: str) -> None:
    file = RecordFile(endpoint)
    sound = bytes(file.map[HEADER : file.version(0)])
    for field in range(16):
        for value in (*EDGES, *owner_words(0, file.read(file.row(0, 8))), 0x3131313131313131):
            for element in (0, 1, 8):
                file.write(file.key(element, field), value)
            all_calls(board)
            with Board(endpoint) as other:
                all_calls(other)
            with Board(endpoint, passive=True) as looking:
                for call in (looking.keys, looking.items, looking.changes):
                    call_with_time_limit(call)
            file.map[HEADER : file.version(0)] = sound
            write_declared_key(board, "k2")
            assert board["k2"] == b"1234"


def test_board_with_corrupt_key_table_is_full(board: Board, endpoint: str) -> None:
    file = RecordFile(endpoint)
    for element in range(LENGTH):
        file.write(file.key(element, 1), 2**64 - 1)
        file.map[file.key(element, 2) : file.key(element + 1, 0)] = b"\xff" * 112
    assert len(board.keys()) == len(board) == LENGTH
    all_calls(board)
    with pytest.raises(IpcError, match="its limit"):
        board.declare("another")


# ---- anything, at random ----


def run_hostile_rounds(endpoint: str, seed: int, count: int) -> int:
    """In a process of its own, for it may end in a fault: handles work while words change."""
    for number in range(count):
        rng, name = random.Random(f"{seed}/{number}"), f"{endpoint}-{number % 4}"
        board = rng.random() < 0.4
        flags: Any = {"exclusive": rng.random() < 0.3, "copies": rng.choice((2, 4))}
        made = Board(name, LENGTH, 100) if board else SeqlockVector(name, "f8", LENGTH, **flags)
        file, handles = RecordFile(name), [made]
        for _ in range(12):
            for _ in range(rng.randrange(6)):
                at = rng.choice(
                    (
                        file.version(rng.randrange(LENGTH)),
                        file.copy(rng.randrange(LENGTH), rng.randrange(2)) + 8 * rng.randrange(2),
                        file.row(rng.randrange(5), rng.randrange(16)),
                        file.key(rng.randrange(LENGTH), rng.randrange(16)) if board else OWNER,
                        rng.choice((ATTENTION, OWNER)),
                        8 * rng.randrange(len(file.map) // 8),
                    )
                )
                file.write(at, random_word(rng))
            all_calls(rng.choice(handles))
            if rng.random() < 0.3:
                found = call_with_time_limit(type(made), name)
                if not isinstance(found, IpcError):
                    handles.append(found)
        for handle in handles:
            handle.close()
        file.path.unlink()
    return count


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.ci)])
def test_record_calls_do_not_crash_with_random_bytes_anywhere(endpoint: str, seed: int, count: int) -> None:
    try:
        assert run_child(run_hostile_rounds, endpoint, seed, count) == count
    finally:
        for path in SHM.glob(f"msgqrec_{endpoint}-*"):
            with contextlib.suppress(SegmentError):
                path.unlink()
