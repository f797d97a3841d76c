"""A vector's reader and writer, written from docs/internals/record-protocol.md alone."""

from __future__ import annotations

import struct
import time

from tests.independent.record_file import (
    AHEAD_NS,
    COUNT_MASK,
    COUNT_SHIFT,
    GENERATION,
    NAP_S,
    OWNER,
    ROW_BYTES,
    ROW_COUNT,
    ROW_SHIFT,
    ROWS,
    SPINS,
    WRITTEN,
    RecordFile,
)
from tests.independent.shared_file import (
    CorruptFileError,
    Deadline,
    atomics,
    file_lock,
    host_time_ns,
    is_byte_locked,
    lock_free_row,
    random_word,
    write_identity,
)


class WritersError(Exception):
    """Another handle that lives owns all elements, or all rows are taken."""


class Reader(RecordFile):
    """Reads values, and waits for changes. It leaves no trace."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._seen = [0] * self.length

    def changes(self) -> dict[int, bytes]:
        """Return the elements that were written since the last call."""
        changed = {}
        for index in range(self.length):
            if self.count(index) != self._seen[index]:
                changed[index], _, self._seen[index] = self.read(index)
        return changed

    def wait(self, timeout: float | None) -> bool:
        """Wait until an element differs from what `changes` returned last ("Waiting")."""
        deadline = Deadline(timeout)
        while not self._has_changed():
            seconds = deadline.next_sleep()
            if not seconds:
                return False
            announced = self.eventcount.announce()  # EDGE sleep
            if not self._has_changed():
                self.eventcount.sleep(announced, seconds)
        return True

    def _has_changed(self) -> bool:
        return any(self.count(index) != seen for index, seen in enumerate(self._seen))

    def snapshot(self) -> list[bytes]:
        """Return all elements as they were at one instant ("Snapshots")."""
        taken = [self.read(index) for index in range(self.length)]
        while differing := [index for index in range(self.length) if self.count(index) != taken[index][2]]:
            for index in differing:
                taken[index] = self.read(index)
        return [value for value, _, _ in taken]


class Writer(RecordFile):
    """Writes values: one handle of up to 128, or the owner of an exclusive vector."""

    def __init__(self, name: str, is_board: bool = False) -> None:
        super().__init__(name, is_board)
        with file_lock(self.file):
            self._take_row()
            if self.exclusive:
                try:
                    self._claim(OWNER)
                except WritersError:
                    self._lock.release()
                    raise

    @property
    def is_owner(self) -> bool:
        """Whether this handle alone writes."""
        return self.exclusive

    def _take_row(self) -> None:
        """Take a row ("Joining and leaving"): a free or dead row; what a dead owner left is given back before."""
        taken_row = lock_free_row(self.path, range(ROW_COUNT))
        if taken_row is None:
            raise WritersError("all rows are taken")
        row, self._lock = taken_row
        self._row = ROWS + row * ROW_BYTES
        if self.file.load(self._row):
            self._give_back(row)
        generation = self.file.load(self._row + GENERATION) + 1
        self.file.store(self._row + GENERATION, generation)
        self._name = row + 1 << ROW_SHIFT | generation & 0xFFFF
        write_identity(self.file, self._row, random_word())

    def _give_back(self, row: int) -> None:
        for index in range(self.length):
            element = self.element(index)
            version = self.file.load(element)
            if (version >> ROW_SHIFT & 0xFF) == row + 1:
                self.file.exchange(element, version, version >> COUNT_SHIFT << COUNT_SHIFT)
        for word in self._owner_words():
            owner = self.file.load(word)
            if owner >> ROW_SHIFT == row + 1:
                self.file.exchange(word, owner, 0)

    def _owner_words(self) -> list[int]:
        return [OWNER]

    def _claim(self, word: int) -> None:
        """Own a word ("Owners"): under the lock, if the word names nobody or a dead one."""
        owner = self.file.load(word)
        if owner and self._is_alive(owner):
            raise WritersError("another handle is the owner")
        self.file.store(word, self._name)

    def _is_alive(self, name: int) -> bool:
        """Whether the owner of a row and generation lives ("Writing", liveness)."""
        row = (name >> ROW_SHIFT & 0xFF) - 1
        if not 0 <= row < ROW_COUNT:
            return False
        generation = self.file.load(ROWS + row * ROW_BYTES + GENERATION)
        return generation & 0xFFFF == name & 0xFFFF and is_byte_locked(self.path, row)

    def write(self, index: int, value: bytes, timeout: float = 1.0) -> None:
        """Write one element ("Writing"; the numbers are those of its steps)."""
        if len(value) != self.cell.item_bytes:
            raise ValueError(f"a value has {self.cell.item_bytes} bytes")
        element, now = self.element(index), host_time_ns()
        held = self.file.load(element) if self.is_owner else self._hold(element, timeout)  # 1
        count = held >> COUNT_SHIFT
        atomics().fence_release()  # 2, EDGE cell
        next_count = count + 1 if count < COUNT_MASK else self.cell.copies
        before = self.file.load(self.copy_of(element, count)) if count else 0
        written = before if now < before < now + AHEAD_NS else now
        self.file.write(self.copy_of(element, next_count), struct.pack("<Q", written) + value)  # 3
        if self.is_owner:
            self.file.store(element, next_count << COUNT_SHIFT)
            atomics().fence()
        elif not self.file.exchange(element, held, next_count << COUNT_SHIFT):  # 4, EDGE value
            raise CorruptFileError("another writer wrote into a held element")
        self.file.store(self._row + WRITTEN, self.file.load(self._row + WRITTEN) + 1)  # 5
        if self.eventcount.has_waiters():  # EDGE sleep
            self.eventcount.notify()

    def _hold(self, element: int, timeout: float) -> int:
        until = time.monotonic() + timeout
        while True:
            for _ in range(SPINS):
                version = self.file.load(element)
                held = version >> COUNT_SHIFT << COUNT_SHIFT | self._name
                if not version >> ROW_SHIFT & 0xFF and self.file.exchange(element, version, held):
                    return held
            if not self._is_alive(version) and self.file.exchange(element, version, held):
                return held
            if time.monotonic() > until:
                raise TimeoutError("another writer holds the element")
            time.sleep(NAP_S)

    def close(self) -> None:
        """Leave: the owner word, the identity, the lock ("Joining and leaving")."""
        for word in self._owner_words():
            self.file.exchange(word, self._name, 0)
        self.file.store(self._row, 0)
        self._lock.release()
        super().close()
