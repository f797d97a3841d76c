"""A vector that all lives write, and a board of which each key has one owner at a time."""

from __future__ import annotations

from typing import Any

import msgq
from msgq.errors import KeyTakenError, WaitTimeoutError
from msgq.records import Board, SeqlockVector
from tests.stress.records import dtype, stamped, stamps_of, value
from tools.chaos.books import RECORDS, Books
from tools.chaos.kinds.part import Figures, Outcome, Part, Place, within

VECTOR, BOARD = "state", "settings"
LENGTH, ITEM_BYTES = 8, 64
KEYS = 4
# Words of a life: writes of each element that it began, those that returned; then what it counts for the table.
BEGUN, DONE, SEEN, WROTE, LOOKED = slice(0, LENGTH), slice(LENGTH, 2 * LENGTH), 16, 17, 18
# Words of life 0: writes of each key that its owners began, and those that returned; of each element at the end.
KEY_BEGUN, KEY_DONE, TOTAL = 0, KEYS, 16


def stamp(life: int, index: int) -> int:
    """Return the stamp of a life's write of an element, the how-many-th of that element."""
    return life << 32 | index


class Records(Part):
    """The vector and the board of the lives of all kinds."""

    section = RECORDS

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._begun, self._done = self.words[BEGUN], self.words[DONE]
        self._keys = place.books.words(0, RECORDS)
        self._vector, self._board = SeqlockVector(VECTOR), Board(BOARD)
        self._entries: dict[int, Any] = {}
        self._counts, self._times, self._last = [0] * LENGTH, [0] * LENGTH, dict[tuple[int, int], int]()
        self._key_counts: dict[str, int] = {}

    def readers(self) -> list[Any]:
        return [self._vector, self._board]

    def act(self) -> None:
        if self.rng.random() < 0.6:
            self._write_element(self.rng.randrange(LENGTH))
        else:
            self._write_key(self.rng.randrange(KEYS))

    def _write_element(self, i: int) -> None:
        self._begun[i] += 1
        one = stamped(self._vector.dtype, [stamp(self.place.life, self._begun[i])])
        try:
            self._vector.write([i], one, timeout=0.05)
        except WaitTimeoutError:  # another life was stopped in the middle of a write; nothing was written
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
        """Make a key ours; go on from the value that its last owner left, who may have died in a write."""
        try:
            self._entries[k] = self._board.declare(f"key {k}")
        except KeyTakenError:
            return False
        with self._board.observe(f"key {k}") as observed:
            found = observed.read()
        count = found.count if found else 0
        begun, done = self._keys[KEY_BEGUN + k], self._keys[KEY_DONE + k]
        assert done <= count <= begun, f"key {k} was written {count} times, by the books {done} to {begun}"
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
        parts = changes.indices.tolist(), stamps_of(changes.rows).tolist(), changes.counts.tolist()
        for i, found, count, time in zip(*parts, changes.times.tolist(), strict=True):
            life, index = found >> 32, found & 0xFFFFFFFF
            assert count > self._counts[i], f"element {i}: write {count} came after {self._counts[i]}"
            assert time >= self._times[i], f"element {i}: time {time} came after {self._times[i]}"
            before = self._last.get((i, life), 0)
            assert index > before, f"element {i}: write {index} of life {life} came after {before}"
            begun = self.place.books.words(life, RECORDS)[i]
            assert index <= begun, f"element {i}: life {life} began {begun} writes, not {index}"
            self._counts[i], self._times[i], self._last[i, life] = count, time, index
            self.words[SEEN] += 1

    def _take_keys(self) -> None:
        for key, found in self._board.changes().items():
            before, begun = self._key_counts.get(key, 0), self._keys[KEY_BEGUN + int(key[4:])]
            assert found.data == value(found.count), f"{key}: torn"
            assert before < found.count <= begun, f"{key}: write {found.count} after {before}, of {begun}"
            self._key_counts[key] = found.count
            self.words[LOOKED] += 1

    def quiet(self) -> None:
        while self._entries:
            self._entries.popitem()[1].close()
        assert list(self._begun) == list(self._done), "every write has returned"

    def close(self) -> None:
        self._vector.close()
        self._board.close()

    @staticmethod
    def make() -> None:
        SeqlockVector(VECTOR, dtype(ITEM_BYTES), LENGTH).close()
        Board(BOARD).close()

    @staticmethod
    def audit(place: Place) -> None:
        keys = place.books.words(0, RECORDS)
        with SeqlockVector(VECTOR) as vector:
            counts = vector.counts().tolist()
            _check_last(place.books, stamps_of(vector.read()).tolist(), counts)
            for i, count in enumerate(counts):
                keys[TOTAL + i] = count
            vector[0] = stamped(vector.dtype, [1])[0]
            assert vector.counts([0])[0] == counts[0] + 1, "a vector that everybody left cannot be used"
        with Board(BOARD) as board:
            written = board.changes()
            for k in range(KEYS):
                found = written.get(f"key {k}")
                count = found.count if found else 0
                assert found is None or found.data == value(count), f"key {k}: torn"
                assert keys[KEY_DONE + k] <= count <= keys[KEY_BEGUN + k], f"key {k}: {count} writes"
                board.declare(f"key {k}").close()
        for name in (VECTOR, BOARD):
            stats = msgq.stats.record(name)
            assert not [one for one in stats.writers if one.participant.alive is not False], stats.writers

    @staticmethod
    def balance(outcome: Outcome) -> list[str]:
        accounts = [outcome.books.words(past.life, RECORDS) for past in outcome.pasts]
        totals, wrong = outcome.books.words(0, RECORDS)[TOTAL:], list[str]()
        for i in range(LENGTH):
            done, begun = (sum(account[part][i] for account in accounts) for part in (DONE, BEGUN))
            wrong += within(f"writes of element {i} of records/{VECTOR}", done, totals[i], begun)
        return wrong

    @staticmethod
    def figures(outcome: Outcome) -> list[Figures]:
        accounts = [outcome.books.words(past.life, RECORDS) for past in outcome.pasts]
        keys = outcome.books.words(0, RECORDS)
        elements, seen = sum(keys[TOTAL : TOTAL + LENGTH]), sum(account[SEEN] for account in accounts)
        values, looked = sum(keys[KEY_DONE : KEY_DONE + KEYS]), sum(account[LOOKED] for account in accounts)
        return [Figures("vector", elements, seen, 0, "state"), Figures("board", values, looked, 0, "state")]


def _check_last(books: Books, stamps: list[int], counts: list[int]) -> None:
    """The value that stands is the last one that its life wrote there."""
    for i, (found, count) in enumerate(zip(stamps, counts, strict=True)):
        if count == 0:
            continue
        life, index = found >> 32, found & 0xFFFFFFFF
        account = books.words(life, RECORDS)
        begun, done = account[BEGUN][i], account[DONE][i]
        assert done <= index <= begun, f"element {i}: write {index} of life {life} stands; it made {done} to {begun}"
