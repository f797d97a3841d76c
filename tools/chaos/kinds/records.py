"""A vector that all write, one with an exclusive writer, and a board whose keys have one owner at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

import msgq
from msgq.errors import KeyTakenError, MultipleWritersError, WaitTimeoutError
from msgq.records import Board, SeqlockVector
from tools.chaos.history import RECORDS, History, Record
from tools.chaos.kinds.workload import (
    Counts,
    Lane,
    RunResult,
    WorkerContext,
    Workload,
    check_none_left,
    check_within,
)

LENGTH = 8  # elements of the vector that all write
KEYS = 4
KEY_VALUE_BYTES = 400
# Words of an incarnation: started writes of each element, completed writes; then its counts for the table.
BEGUN, DONE, SEEN, WROTE, LOOKED = slice(0, LENGTH), slice(LENGTH, 2 * LENGTH), 16, 17, 18
# Words of incarnation 0: writes of each key that its owners began, and those that returned; of the exclusive vector the
# same; of each element at the end.
KEY_BEGUN, KEY_DONE, TURN_BEGUN, TURN_DONE, TOTAL = 0, KEYS, 2 * KEYS, 2 * KEYS + 1, 16


def dtype(item_bytes: int) -> np.dtype[Any]:
    """Return the type of an element."""
    return np.dtype([("words", "<u8", (item_bytes // 8,))])


def make_stamped_values(kind: np.dtype[Any], stamps: list[int]) -> Any:
    """Return values, one for each stamp."""
    values = np.zeros(len(stamps), kind)
    factors = np.arange(1, kind.itemsize // 8 + 1, dtype=np.uint64)
    values["words"] = np.array(stamps, np.uint64)[:, None] * factors
    return values


def read_stamps(values: Any) -> Any:
    """Return the stamps of whole values."""
    words = np.atleast_2d(values["words"])
    factors = np.arange(1, words.shape[1] + 1, dtype=np.uint64)
    assert (words == words[:, :1] * factors).all(), "torn"
    return words[:, 0]


def make_key_value(count: int) -> bytes:
    """Return the value that a key has when it was written so often."""
    return count.to_bytes(8, "little") * (1 + count % 50)


def stamp(incarnation: int, index: int) -> int:
    """Return the stamp of an incarnation's write of an element, the how-many-th of that element."""
    return incarnation << 32 | index


class Records(Workload):
    """The vectors and the board of a run."""

    section, record_type = RECORDS, Record

    def __init__(self, context: WorkerContext, lane: Lane) -> None:
        super().__init__(context, lane)
        self._shared = context.history.words(0, RECORDS)
        passive = context.way == "passive" and not context.writes
        self._vector, self._board = SeqlockVector(lane.name, passive=passive), Board(board_of(lane))
        self._turn = SeqlockVector(turns_of(lane), passive=passive)
        self._entries: dict[int, Any] = {}
        self._counts, self._times, self._last = [0] * LENGTH, [0] * LENGTH, dict[tuple[int, int], int]()
        self._key_counts: dict[str, int] = {}

    def readers(self) -> list[Any]:
        return [self._vector, self._board]

    def produce(self) -> None:
        way = self.rng.random()
        if way < 0.6:
            self._write_elements(self.rng.choices(range(self.rng.choice((1, LENGTH))), k=self.rng.choice((1, 5, 20))))
        elif way < 0.7:
            self._take_turn()
        else:
            self._write_key(self.rng.randrange(KEYS))

    def _write_elements(self, elements: list[int]) -> None:
        """Write elements one directly after the other."""
        begun, done, kind = self.words[BEGUN], self.words[DONE], self._vector.dtype
        indices = [begun[i] + 1 + elements[:k].count(i) for k, i in enumerate(elements)]
        values = make_stamped_values(kind, [stamp(self.context.incarnation, index) for index in indices])
        for k, i in enumerate(elements):
            begun[i] += 1
            try:
                self._vector.write([i], values[k : k + 1], timeout=0.05)
            except WaitTimeoutError:  # another incarnation was stopped in the middle of a write; nothing was written
                begun[i] -= 1
                return
            done[i] += 1

    def _take_turn(self) -> None:
        """Be the one writer of the exclusive vector for a while."""
        with SeqlockVector(self._turn.name) as vector:
            try:
                vector.claim()
            except MultipleWritersError:
                return
            count, shared = int(vector.counts([0])[0]), self._shared
            begun, done = shared[TURN_BEGUN], shared[TURN_DONE]
            assert done <= count <= begun, f"{count} exclusive writes, by the history {done} to {begun}"
            for _ in range(self.rng.randrange(20)):
                shared[TURN_BEGUN] = count + 1
                vector[0] = make_stamped_values(vector.dtype, [count + 1])[0]
                count += 1
                assert vector.counts([0])[0] == count, "somebody else wrote"
                shared[TURN_DONE] = count
            shared[TURN_BEGUN] = shared[TURN_DONE] = count

    def _write_key(self, k: int) -> None:
        if k not in self._entries and not self._declare(k):
            return
        entry, count = self._entries[k], self._shared[KEY_DONE + k]
        for _ in range(self.rng.randrange(10)):
            count += 1
            self._shared[KEY_BEGUN + k] = count
            entry.write(make_key_value(count))
            self._shared[KEY_DONE + k] = count
            self.words[WROTE] += 1
        if self.rng.random() < 0.2:
            self._entries.pop(k).close()

    def _declare(self, k: int) -> bool:
        """Declare a key, and continue after the value of its last owner, which may have died during a write."""
        try:
            self._entries[k] = self._board.declare(f"key {k}")
        except KeyTakenError:
            return False
        with self._board.observe(f"key {k}") as observed:
            current = observed.read()
        count = current.count if current else 0
        begun, done = self._shared[KEY_BEGUN + k], self._shared[KEY_DONE + k]
        assert done <= count <= begun, f"key {k} was written {count} times, by the history {done} to {begun}"
        self._shared[KEY_BEGUN + k] = self._shared[KEY_DONE + k] = count
        return True

    def take(self, reader: Any, timeout: float = 0.0) -> bool:
        if timeout:
            reader.wait(timeout)
        if reader is self._board:
            return self._check_keys(reader.changes())
        self._look_at_elements(reader)
        return self._check_elements(reader.changes())

    async def atake(self, reader: Any) -> None:
        changes = await reader.areceive()
        if reader is self._board:
            self._check_keys(changes)
        else:
            self._check_elements(changes)

    def _look_at_elements(self, vector: SeqlockVector) -> None:
        """Read whole values, in one of the ways there are."""
        way = self.rng.randrange(6)
        if way == 0:
            read_stamps(vector[self.rng.randrange(LENGTH)])
        elif way == 1:
            read_stamps(vector.read([self.rng.randrange(LENGTH) for _ in range(5)]))
        elif way == 2:
            read_stamps(vector.snapshot())
        elif way == 3:
            read_stamps(self._turn[0])

    def _check_elements(self, changes: Any) -> bool:
        parts = changes.indices.tolist(), read_stamps(changes.rows).tolist() if len(changes.rows) else []
        for i, stamp_read, count, time in zip(*parts, changes.counts.tolist(), changes.times.tolist(), strict=True):
            incarnation, index = stamp_read >> 32, stamp_read & 0xFFFFFFFF
            assert count > self._counts[i], f"element {i}: write {count} came after {self._counts[i]}"
            assert time >= self._times[i], f"element {i}: time {time} came after {self._times[i]}"
            before = self._last.get((i, incarnation), 0)
            assert index > before, f"element {i}: write {index} of incarnation {incarnation} came after {before}"
            begun = self.context.history.words(incarnation, RECORDS)[i]
            assert index <= begun, f"element {i}: incarnation {incarnation} began {begun} writes, not {index}"
            self._counts[i], self._times[i], self._last[i, incarnation] = count, time, index
            self.words[SEEN] += 1
        return bool(parts[0])

    def _check_keys(self, changes: dict[str, Any]) -> bool:
        for key, current in changes.items():
            before, begun = self._key_counts.get(key, 0), self._shared[KEY_BEGUN + int(key[4:])]
            assert current.data == make_key_value(current.count), f"{key}: torn"
            assert before < current.count <= begun, f"{key}: write {current.count} after {before}, of {begun}"
            self._key_counts[key] = current.count
            self.words[LOOKED] += 1
        return bool(changes)

    def stop_producing(self) -> None:
        while self._entries:
            self._entries.popitem()[1].close()
        assert list(self.words[BEGUN]) == list(self.words[DONE]), "every write has returned"

    def close(self) -> None:
        for one in (self._vector, self._turn, self._board):
            one.close()

    @staticmethod
    def create_files(lane: Lane) -> None:
        SeqlockVector(lane.name, dtype(lane.size), LENGTH, copies=lane.copies).close()
        SeqlockVector(turns_of(lane), dtype(lane.size), 1, exclusive=True).close()
        Board(board_of(lane), value_bytes=KEY_VALUE_BYTES).close()

    @staticmethod
    def check_at_end(context: WorkerContext, lane: Lane) -> None:
        shared = context.history.words(0, RECORDS)
        with SeqlockVector(lane.name) as vector, SeqlockVector(turns_of(lane)) as turn:
            counts = vector.counts().tolist()
            _check_last(context.history, read_stamps(vector.snapshot(atomic=True)).tolist(), counts)
            for i, count in enumerate(counts):
                shared[TOTAL + i] = count
            vector[0] = make_stamped_values(vector.dtype, [1])[0]
            assert vector.counts([0])[0] == counts[0] + 1, "a vector that everybody left cannot be used"
            assert shared[TURN_DONE] <= turn.counts()[0] <= shared[TURN_BEGUN], "exclusive writes"
            turn.claim()
        with Board(board_of(lane)) as board:
            written = board.changes()
            for k in range(KEYS):
                current = written.get(f"key {k}")
                count = current.count if current else 0
                assert current is None or current.data == make_key_value(count), f"key {k}: torn"
                assert shared[KEY_DONE + k] <= count <= shared[KEY_BEGUN + k], f"key {k}: {count} writes"
                board.declare(f"key {k}").close()
        for name in (lane.name, turns_of(lane), board_of(lane)):
            check_none_left(one.participant for one in msgq.stats.record(name).writers)

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        records = [record.words for _, record in run_result.records()]
        totals, errors = run_result.history.words(0, RECORDS)[TOTAL:], list[str]()
        for i in range(LENGTH):
            done, begun = (sum(record[part][i] for record in records) for part in (DONE, BEGUN))
            errors += check_within(f"writes of element {i} of records/{run_result.lane.name}", done, totals[i], begun)
        return errors

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        records = [record.words for _, record in run_result.records()]
        shared = run_result.history.words(0, RECORDS)
        elements, seen = sum(shared[TOTAL : TOTAL + LENGTH]), sum(record[SEEN] for record in records)
        values, looked = sum(shared[KEY_DONE : KEY_DONE + KEYS]), sum(record[LOOKED] for record in records)
        return [Counts("vector", elements, seen, 0, "state"), Counts("board", values, looked, 0, "state")]


def board_of(lane: Lane) -> str:
    """Return the name of the board next to the lane's vector."""
    return f"{lane.name}-board"


def turns_of(lane: Lane) -> str:
    """Return the name of the exclusive vector next to the lane's vector."""
    return f"{lane.name}-turns"


def _check_last(history: History, stamps: list[int], counts: list[int]) -> None:
    """The value that stands is the last one that its incarnation wrote there."""
    for i, (stamp_read, count) in enumerate(zip(stamps, counts, strict=True)):
        if count == 0:
            continue
        incarnation, index = stamp_read >> 32, stamp_read & 0xFFFFFFFF
        record = history.words(incarnation, RECORDS)
        begun, done = record[BEGUN][i], record[DONE][i]
        assert done <= index <= begun, (
            f"element {i}: write {index} of incarnation {incarnation} stands; it made {done} to {begun}"
        )
