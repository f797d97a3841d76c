"""A board's reader and writer, written from docs/internals/record-protocol.md alone."""

from __future__ import annotations

from tests.independent.record import Writer
from tests.independent.record_file import (
    BOARD,
    HEADER_BYTES,
    KEY_BYTES,
    KEY_NAME_BYTES,
    Cell,
    RecordFile,
    create_vector,
)
from tests.independent.shared_file import CorruptFileError, file_lock, padded, unpadded

# "A key"
KEY_OWNER, NAMED, KEY_NAME = 0, 8, 16
LENGTH_BYTES = 8


def create_board(name: str, keys: int, value_bytes: int) -> None:
    create_vector(name, keys, Cell(LENGTH_BYTES + value_bytes, 2), None, BOARD)


class BoardFile(RecordFile):
    """The keys and values of a board."""

    def key(self, index: int) -> int:
        return HEADER_BYTES + index * KEY_BYTES

    def keys(self) -> list[str]:
        """Return the names of keys in turn; the first without a name is the end (EDGE key)."""
        names: list[str] = []
        while len(names) < self.length and self.file.load(self.key(len(names)) + NAMED):
            names.append(unpadded(self.file.read(self.key(len(names)) + KEY_NAME, KEY_NAME_BYTES)))
        return names

    def value(self, name: str) -> bytes | None:
        """Return the value of a key; None: it was never written, or has no key."""
        names = self.keys()
        if name not in names:
            return None
        data, _, count = self.read(names.index(name))
        length = int.from_bytes(data[:LENGTH_BYTES], "little")
        if length > self.cell.item_bytes - LENGTH_BYTES:
            raise CorruptFileError(f"a value of {length} bytes")
        return data[LENGTH_BYTES : LENGTH_BYTES + length] if count else None


class BoardReader(BoardFile):
    """Reads values; it leaves no trace."""

    def __init__(self, name: str) -> None:
        super().__init__(name, is_board=True)


class BoardWriter(BoardFile, Writer):
    """Owns keys, and writes their values."""

    is_owner = True

    def __init__(self, name: str) -> None:
        super().__init__(name, is_board=True)

    def _owner_words(self) -> list[int]:
        return [self.key(index) + KEY_OWNER for index in range(self.length)]

    def declare(self, name: str) -> int:
        """Own a key, which gets its name first; return its index ("Owners")."""
        with file_lock(self.file):
            names = self.keys()
            index = names.index(name) if name in names else len(names)
            if index == self.length:
                raise ValueError("the board has no room for another key")
            if index == len(names):
                self.file.write(self.key(index) + KEY_NAME, padded(name, KEY_NAME_BYTES))
                self.file.store(self.key(index) + NAMED, 1)  # EDGE key
            self._claim(self.key(index) + KEY_OWNER)
            return index

    def publish(self, index: int, value: bytes) -> None:
        """Write the value of a key that this handle owns."""
        self.write(index, (len(value).to_bytes(LENGTH_BYTES, "little") + value).ljust(self.cell.item_bytes, b"\0"))

    def withdraw(self, index: int) -> None:
        """Give a key back; its value stays."""
        self.file.exchange(self.key(index) + KEY_OWNER, self._name, 0)
