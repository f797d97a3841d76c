"""The tables of the protocol pages in docs/internals: the structs and constants of all files in shared memory.

The pages are the pinned layout. A failure of a test that uses them means that other processes would misread the files:
stock programs the ring, other versions of this library all other files (which then need another version).
"""

from __future__ import annotations

import os
import re
import struct
import threading
from pathlib import Path
from typing import Any, NamedTuple

from msgq.impl.base.process import process_name as process_name
from tests.independent.shared_file import is_byte_locked
from tests.meta.sources import INTERNALS

PROTOCOL_PAGES = ("layout.md", "channel-protocol.md", "queue-protocol.md", "record-protocol.md")
_STRUCT = re.compile(
    r"Struct `(\w+)`(?:, (\d+) bytes)?:\n\n\| offset \| bytes \| field \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE
)
_FIELD = re.compile(r"^\| (\d+) \| (\d+|rest) \| `(\w+)` \|", re.MULTILINE)
_CONSTANT = re.compile(r"^\| `(MQ_\w+)` \| (\w+) \|", re.MULTILINE)
_INTEGERS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


class Field(NamedTuple):
    """Where a field is in its struct. `size` None: the field ends with the file."""

    offset: int
    size: int | None


class Struct(NamedTuple):
    """A struct of a page. `size` None: the last field ends with the file."""

    size: int | None
    fields: dict[str, Field]


def read_structs(page: str) -> dict[str, Struct]:
    """Return the structs that a page has tables of."""
    found = {}
    for name, total, rows in _STRUCT.findall((INTERNALS / page).read_text()):
        fields = {
            field: Field(int(offset), None if size == "rest" else int(size))
            for offset, size, field in _FIELD.findall(rows)
        }
        assert len(fields) == rows.count("\n"), f"{page}: a row of `{name}` is not understood"
        found[name] = Struct(int(total) if total else None, fields)
    return found


STRUCTS = {name: found for page in PROTOCOL_PAGES for name, found in read_structs(page).items()}
CONSTANTS = {
    name: int(value, 0) for page in PROTOCOL_PAGES for name, value in _CONSTANT.findall((INTERNALS / page).read_text())
}


def offset_of(name: str, field: str) -> int:
    """Return the offset of a field in a struct."""
    return STRUCTS[name].fields[field].offset


def size_of(name: str, field: str = "") -> int:
    """Return the bytes of a struct of fixed size, or of one of its fields."""
    size = STRUCTS[name].fields[field].size if field else STRUCTS[name].size
    assert size is not None
    return size


def read(name: str, data: bytes, at: int = 0) -> dict[str, Any]:
    """Return the fields of a struct that are not 0: numbers, or the bytes of a field that is no number."""
    found: dict[str, Any] = {}
    for field, (offset, size) in STRUCTS[name].fields.items():
        part = data[at + offset : None if size is None else at + offset + size]
        if any(part):
            found[field] = struct.unpack(_INTEGERS[len(part)], part)[0] if len(part) in _INTEGERS else part
    return found


def read_rows(name: str, data: bytes) -> dict[int, dict[str, Any]]:
    """Return the rows of a table that are not all 0, by their numbers."""
    size = size_of(name)
    return {at // size: row for at in range(0, len(data), size) if (row := read(name, data, at))}


def cell_strides(item_bytes: int, copies: int) -> tuple[int, int]:
    """Return the bytes from one element of a vector to the next, and from one copy of an element to the next."""
    copy = 8 + (item_bytes + 7 & -8)
    own_line = 8 + copies * copy > 64 >= 8 + copy
    copy_stride = 64 if own_line else copy
    return 8 + (copies - 1) * copy_stride + copy + 63 & -64, copy_stride


def locked_bytes(path: Path) -> list[int]:
    """Return the bytes of a file that participants have locked."""
    return [byte for byte in range(256) if is_byte_locked(path, byte)]


def words(data: bytes) -> tuple[int, ...]:
    """Return the words of some bytes."""
    return struct.unpack(f"<{len(data) // 8}Q", data)


def text(value: str, size: int) -> bytes:
    """Return a text as it is in a field."""
    return value.encode().ljust(size, b"\0")


def own_identity(data: bytes) -> int:
    """Check that an identity is of this thread, and return its uid."""
    found = read("mq_participant", data)
    uid = found.pop("uid")
    assert found == {
        "pid": os.getpid(),
        "thread_id": threading.get_native_id(),
        "start_time": start_time(),
        "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
        "name": text(process_name(), CONSTANTS["MQ_NAME"]),
        "locked_uid": uid,
    }
    return int(uid)


def start_time() -> int:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
