"""A vector that all incarnations write, and a board of which each key has one owner at a time."""

from __future__ import annotations

from typing import Any

import msgq
from msgq.errors import KeyTakenError, WaitTimeoutError
from msgq.records import Board, SeqlockVector
from tests.stress.records import dtype, make_stamped_values, read_stamps, value
from tools.chaos.history import RECORDS, History
from tools.chaos.kinds.workload import Counts, RunResult, WorkerContext, Workload, check_within

VECTOR, BOARD = "state", "settings"
LENGTH, ITEM_BYTES = 8, 64
KEYS = 4
# Words of an incarnation: started writes of each element, completed writes; then its counts for the table.
BEGUN, DONE, SEEN, WROTE, LOOKED = slice(0, LENGTH), slice(LENGTH, 2 * LENGTH), 16, 17, 18
# Words of incarnation 0: writes of each key that its owners began, and those that returned; of each element at the end.
KEY_BEGUN, KEY_DONE, TOTAL = 0, KEYS, 16


def stamp(incarnation: int, index: int) -> int:
    """Return the stamp of an incarnation's write of an element, the how-many-th of that element."""
    return incarnation << 32 | index


class Records(Workload):
    """The vector and the board of the incarnations of all kinds."""

    section = RECORDS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._begun, self._done = self.words[BEGUN], self.words[DONE]
        self._keys = context.history.words(0, RECORDS)
        self._vector, self._board = SeqlockVector(VECTOR), Board(BOARD)
        self._entries: dict[int, Any] = {}
        self._counts, self._times, self._last = [0] * LENGTH, [0] * LENGTH, dict[tuple[int, int], int]()
        self._key_counts: dict[str, int] = {}

    def readers(self) -> list[Any]:
        return [self._vector, self._board]

    def produce(self) -> None:
        if self.rng.random() < 0.6:
            self._write_element(self.rng.randrange(LENGTH))
        else:
            self._write_key(self.rng.randrange(KEYS))

    def _write_element(self, i: int) -> None:
        self._begun[i] += 1
        data = make_stamped_values(self._vector.dtype, [stamp(self.context.incarnation, self._begun[i])])
        try:
            self._vector.write([i], data, timeout=0.05)
        except WaitTimeoutError:  # another incarnation was stopped in the middle of a write; nothing was written
            self._begun[i] -= 1
        else:
            self._done[i] += 1

    def _write_key(self, k: int) -> None:
        if k not in self._entries and not self._declare(k):
            return
        entry, count = self._entries[k], self._keys[KEY_DONE + k]
        for _ in range(self.rng.randrange(10)):
            count += 1
            self._keys[KEY_BEGUN + k] = count
            entry.write(value(count))
            self._keys[KEY_DONE + k] = count
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
        begun, done = self._keys[KEY_BEGUN + k], self._keys[KEY_DONE + k]
        assert done <= count <= begun, f"key {k} was written {count} times, by the history {done} to {begun}"
        self._keys[KEY_BEGUN + k] = self._keys[KEY_DONE + k] = count
        return True

    def take(self, reader: Any) -> None:
        if isinstance(reader, SeqlockVector):
            self._take_elements()
        else:
            self._take_keys()

    def _take_elements(self) -> None:
        changes = self._vector.changes()
        if not len(changes.rows):
            return
        parts = changes.indices.tolist(), read_stamps(changes.rows).tolist(), changes.counts.tolist()
        for i, stamp_read, count, time in zip(*parts, changes.times.tolist(), strict=True):
            incarnation, index = stamp_read >> 32, stamp_read & 0xFFFFFFFF
            assert count > self._counts[i], f"element {i}: write {count} came after {self._counts[i]}"
            assert time >= self._times[i], f"element {i}: time {time} came after {self._times[i]}"
            before = self._last.get((i, incarnation), 0)
            assert index > before, f"element {i}: write {index} of incarnation {incarnation} came after {before}"
            begun = self.context.history.words(incarnation, RECORDS)[i]
            assert index <= begun, f"element {i}: incarnation {incarnation} began {begun} writes, not {index}"
            self._counts[i], self._times[i], self._last[i, incarnation] = count, time, index
            self.words[SEEN] += 1

    def _take_keys(self) -> None:
        for key, current in self._board.changes().items():
            before, begun = self._key_counts.get(key, 0), self._keys[KEY_BEGUN + int(key[4:])]
            assert current.data == value(current.count), f"{key}: torn"
            assert before < current.count <= begun, f"{key}: write {current.count} after {before}, of {begun}"
            self._key_counts[key] = current.count
            self.words[LOOKED] += 1

    def stop_producing(self) -> None:
        while self._entries:
            self._entries.popitem()[1].close()
        assert list(self._begun) == list(self._done), "every write has returned"

    def close(self) -> None:
        self._vector.close()
        self._board.close()

    @staticmethod
    def create_files() -> None:
        SeqlockVector(VECTOR, dtype(ITEM_BYTES), LENGTH).close()
        Board(BOARD).close()

    @staticmethod
    def check_at_end(context: WorkerContext) -> None:
        keys = context.history.words(0, RECORDS)
        with SeqlockVector(VECTOR) as vector:
            counts = vector.counts().tolist()
            _check_last(context.history, read_stamps(vector.read()).tolist(), counts)
            for i, count in enumerate(counts):
                keys[TOTAL + i] = count
            vector[0] = make_stamped_values(vector.dtype, [1])[0]
            assert vector.counts([0])[0] == counts[0] + 1, "a vector that everybody left cannot be used"
        with Board(BOARD) as board:
            written = board.changes()
            for k in range(KEYS):
                current = written.get(f"key {k}")
                count = current.count if current else 0
                assert current is None or current.data == value(count), f"key {k}: torn"
                assert keys[KEY_DONE + k] <= count <= keys[KEY_BEGUN + k], f"key {k}: {count} writes"
                board.declare(f"key {k}").close()
        for name in (VECTOR, BOARD):
            stats = msgq.stats.record(name)
            assert not [participant for participant in stats.writers if participant.participant.alive is not False], (
                stats.writers
            )

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        records = [run_result.history.words(result.incarnation, RECORDS) for result in run_result.results]
        totals, errors = run_result.history.words(0, RECORDS)[TOTAL:], list[str]()
        for i in range(LENGTH):
            done, begun = (sum(record[workload][i] for record in records) for workload in (DONE, BEGUN))
            errors += check_within(f"writes of element {i} of records/{VECTOR}", done, totals[i], begun)
        return errors

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        records = [run_result.history.words(result.incarnation, RECORDS) for result in run_result.results]
        keys = run_result.history.words(0, RECORDS)
        elements, seen = sum(keys[TOTAL : TOTAL + LENGTH]), sum(record[SEEN] for record in records)
        values, looked = sum(keys[KEY_DONE : KEY_DONE + KEYS]), sum(record[LOOKED] for record in records)
        return [Counts("vector", elements, seen, 0, "state"), Counts("board", values, looked, 0, "state")]


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
