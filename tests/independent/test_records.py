"""Vectors between this library and an implementation that was written from the docs alone."""

from __future__ import annotations

import json
import struct
from functools import partial

import numpy as np
import pytest

import msgq
from tests.independent import shared_file
from tests.independent.board import BoardReader, BoardWriter, create_board
from tests.independent.interruptions import interrupt_next_read
from tests.independent.record import Reader, Writer, WritersError
from tests.independent.record_file import SCHEMA_DATA, Cell, Schema, create_vector
from tests.support import Child, Task, hear, say, wait_asleep, wait_until

WRITES = 2000
PAIR = np.dtype([("bid", "<f8"), ("ask", "<f8")])
CELLS = [(8, 2), (16, 2), (24, 2), (48, 2), (56, 2), (8, 4), (48, 4), (56, 4), (4096, 2), (4096, 4)]


def schema_of(dtype: str) -> Schema:
    return Schema("Record", "struct", json.dumps(dtype).encode())


@pytest.mark.parametrize(("item_bytes", "copies"), CELLS)
def test_independent_reader_reads_msgq_cells_of_each_size(endpoint: str, item_bytes: int, copies: int) -> None:
    ours = msgq.SeqlockVector(endpoint, f"V{item_bytes}", 3, copies=copies)
    theirs = Reader(endpoint)
    for number in range(1, 6):
        ours[1] = bytes([number]) * item_bytes
        value, written, count = theirs.read(1)
        assert (value, count) == (bytes([number]) * item_bytes, number)
        assert written == ours.times([1])[0]
    assert theirs.read(0) == (bytes(item_bytes), 0, 0)
    theirs.close()


@pytest.mark.parametrize(("item_bytes", "copies"), [(8, 2), (56, 4)])
def test_msgq_reader_opens_and_reads_independent_vector(endpoint: str, item_bytes: int, copies: int) -> None:
    create_vector(endpoint, 3, Cell(item_bytes, copies), schema_of(f"|V{item_bytes}"))
    theirs = Writer(endpoint)
    ours = msgq.SeqlockVector(endpoint)
    assert (len(ours), ours.dtype) == (3, np.dtype(f"V{item_bytes}"))
    for number in range(1, 6):
        theirs.write(2, bytes([number]) * item_bytes)
        assert ours[2].tobytes() == bytes([number]) * item_bytes
        assert list(ours.counts()) == [0, 0, number]
    theirs.close()


def test_msgq_and_independent_readers_get_dtype_from_record_schema(endpoint: str) -> None:
    msgq.SeqlockVector(endpoint, PAIR, 2)
    reader = Reader(endpoint)
    schema = reader.read_schema()
    assert schema.encoding == "struct"
    assert np.dtype([tuple(field) for field in json.loads(schema.data)]) == PAIR
    packed = schema.packed_data()  # with the fingerprints
    assert reader.file.read(SCHEMA_DATA, len(packed)) == packed
    reader.close()


def test_msgq_and_independent_writers_share_element(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "<u8", 2)
    theirs, reader = Writer(endpoint), Reader(endpoint)
    for number in range(1, 11):
        ours[0] = 2 * number
        theirs.write(0, struct.pack("<Q", 2 * number + 1))
        assert reader.read(0)[0] == struct.pack("<Q", 2 * number + 1)
        assert ours[0] == 2 * number + 1
    assert list(ours.counts()) == [20, 0]
    assert reader.changes() == {0: struct.pack("<Q", 21)}
    assert reader.changes() == {}
    theirs.close()
    reader.close()


@pytest.mark.parametrize(("copies", "writes_missed"), [(2, 0), (4, 2)])
def test_independent_reader_after_too_many_writes_repeats_read(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, copies: int, writes_missed: int
) -> None:
    ours = msgq.SeqlockVector(endpoint, "<u8", 1, copies=copies)
    reader = Reader(endpoint)
    for writes in range(copies + 1):
        before = int(ours.counts()[0])

        def write(writes: int = writes) -> None:
            for _ in range(writes):
                ours[0] = ours.counts()[0] + 1

        interrupt_next_read(monkeypatch, reader.file, write)
        _, _, count = reader.read(0)
        assert count == (before if writes <= writes_missed else before + writes)
    reader.close()


def write_often(endpoint: str) -> None:
    writer = Writer(endpoint)
    say("ready")
    for number in range(WRITES):
        writer.write(0, number.to_bytes(4, "little") * 250, timeout=60)
    say("written")
    hear()
    writer.close()


def test_msgq_reader_during_independent_writes_sees_whole_values(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "V1000", 1)
    with Child(write_often, endpoint) as child:
        child.hear()

        def last_is_read() -> bool:
            value = ours[0].tobytes()
            assert value == value[:4] * 250
            return bool(value[:4] == (WRITES - 1).to_bytes(4, "little"))

        wait_until(last_is_read)
        child.hear()
        child.say()
        assert ours.counts()[0] == WRITES


def read_often(endpoint: str) -> None:
    reader = Reader(endpoint)
    say("ready")
    last = -1
    while last < WRITES - 1:
        assert reader.wait(60)
        for value in reader.changes().values():
            number = int.from_bytes(value[:4], "little")
            assert value == value[:4] * 250
            assert number > last
            last = number
    reader.close()


def test_independent_reader_during_msgq_writes_sees_whole_values(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "V1000", 1)
    with Child(read_often, endpoint) as child:
        child.hear()
        for number in range(WRITES):
            ours[0] = number.to_bytes(4, "little") * 250
        child.result()


def wait_for_change(endpoint: str) -> list[int]:
    shared_file.FIRST_POLL_S = 3600.0  # only a wake ends the sleep
    reader = Reader(endpoint)
    say("ready")
    assert reader.wait(60)
    return list(reader.changes())


def test_msgq_writer_wakes_independent_reader(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "<u8", 5)
    with Child(wait_for_change, endpoint) as child:
        child.hear()
        wait_asleep(child.pid)
        ours[3] = 1
        assert child.result() == [3]


def test_independent_writer_wakes_msgq_reader(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "<u8", 5)
    theirs = Writer(endpoint)
    task = Task(lambda: ours.wait(timeout=60))
    assert task.is_woken_by(partial(theirs.write, 3, bytes(8)))
    assert task.result()
    theirs.close()


def test_exclusive_vector_has_one_owner_across_implementations(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "<u8", 1, exclusive=True)
    ours[0] = 1
    with pytest.raises(WritersError):
        Writer(endpoint)
    ours.close()
    theirs = Writer(endpoint)
    theirs.write(0, struct.pack("<Q", 2))
    ours = msgq.SeqlockVector(endpoint)
    with pytest.raises(msgq.errors.MultipleWritersError):
        ours[0] = 3
    theirs.close()
    ours[0] = 4
    assert list(ours.counts()) == [3]
    ours.close()


def hold_and_wait(endpoint: str) -> None:
    writer = Writer(endpoint)
    writer._hold(writer.element(0), 1)
    say("held")
    hear()


def test_msgq_writer_takes_element_of_killed_independent_holder(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "<u8", 1)
    ours[0] = 1
    with Child(hold_and_wait, endpoint) as child:
        child.hear()
        with pytest.raises(msgq.errors.WaitTimeoutError):
            ours.write([0], [2], timeout=0)
        child.kill()
        ours[0] = 3
    assert (ours[0], list(ours.counts())) == (3, [2])


def test_independent_writer_releases_elements_of_dead_row_owner(endpoint: str) -> None:
    msgq.SeqlockVector(endpoint, "<u8", 1)
    with Child(hold_and_wait, endpoint) as child:
        child.hear()
        child.kill()
    theirs, reader = Writer(endpoint), Reader(endpoint)
    assert reader.file.load(reader.element(0)) == 0
    theirs.write(0, bytes(8))
    theirs.close()
    reader.close()


def test_record_snapshot_shows_one_instant(endpoint: str) -> None:
    ours = msgq.SeqlockVector(endpoint, "<i8", 3)
    ours[:] = [50, 30, 20]
    reader = Reader(endpoint)
    assert [struct.unpack("<q", value)[0] for value in reader.snapshot()] == [50, 30, 20]
    reader.close()


def test_msgq_and_independent_program_read_and_write_one_board(endpoint: str) -> None:
    create_board(endpoint, 4, 100)
    theirs, reader = BoardWriter(endpoint), BoardReader(endpoint)
    with msgq.Board(endpoint) as ours:
        pose = theirs.declare("pose")
        theirs.publish(pose, b"first")
        theirs.publish(pose, b"second value")
        status = ours.declare("status")
        status.write(b"")
        assert (ours["pose"], ours["status"], sorted(ours)) == (b"second value", b"", ["pose", "status"])
        assert (reader.value("pose"), reader.value("status")) == (b"second value", b"")
        assert reader.keys() == ["pose", "status"]
        assert reader.value("speed") is None
    theirs.close()
    reader.close()


def test_board_key_has_one_owner_across_implementations(endpoint: str) -> None:
    with msgq.Board(endpoint, keys=4) as ours:
        theirs = BoardWriter(endpoint)
        with ours.declare("of ours"), pytest.raises(WritersError):
            theirs.declare("of ours")
        index = theirs.declare("of theirs")
        with pytest.raises(msgq.errors.KeyTakenError):
            ours.declare("of theirs")
        theirs.withdraw(index)
        ours.declare("of theirs").write(b"ours now")
        assert theirs.value("of theirs") == b"ours now"
        theirs.close()


def declare_and_wait(endpoint: str) -> None:
    board = BoardWriter(endpoint)
    board.publish(board.declare("pose"), b"last words")
    say("declared")
    hear()


def test_msgq_board_gets_key_of_killed_independent_owner_at_once(endpoint: str) -> None:
    with msgq.Board(endpoint, keys=4) as ours:
        with Child(declare_and_wait, endpoint) as child:
            child.hear()
            child.kill()
        assert ours["pose"] == b"last words"
        ours.declare("pose").write(b"next")
        assert ours["pose"] == b"next"
