"""Statistics of vectors and boards, as values. `msgq.stats` exports the names."""

from __future__ import annotations

from dataclasses import dataclass

from msgq.common.schema import Schema
from msgq.common.stats import Participant


@dataclass(frozen=True, slots=True)
class RecordWriterInfo:
    """A handle that writes, as observers see it, or the leftover row of a dead handle. Readers leave no trace.

    Attributes:
        participant: process of the handle.
        row: number of the row in the file, 0 to 127.
        written: number of elements that all owners of this row have written.
        locked: number of elements that the handle is writing now.
        keys: keys that the handle owns (boards only).
    """

    participant: Participant
    row: int
    written: int = 0
    locked: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class RecordKeyInfo:
    """A key of a board.

    Attributes:
        key: name of the key.
        owner: handle that owns the key; None: no owner now.
        count: number of writes.
        bytes: bytes of the value. None: never written, or changing during the whole read.
        time_ns: time of the last write, in nanoseconds of the host's clock; None as for `bytes`.
        age_ns: nanoseconds since the last write; None as for `bytes`.
    """

    key: str
    owner: Participant | None
    count: int = 0
    bytes: int | None = None
    time_ns: int | None = None
    age_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RecordStats:
    """A vector or a board at one moment. Each number is read separately.

    Attributes:
        name: name of the vector or board.
        prefix: prefix of the vector or board.
        path: path of its file.
        bytes: size of the file.
        mode: permissions of the file.
        kind: "vector" or "board".
        creator: name and pid of the process that created the records.
        created_ns: creation time, in nanoseconds of the host's clock.
        length: number of elements; for a board, the maximum number of keys.
        item_bytes: bytes of an element's value; for a board, the maximum bytes of a value.
        copies: number of copies of each value.
        exclusive: True if one handle at a time may write. Always False for boards, where each key has one owner.
        written: number of writes of all elements.
        elements_written: number of elements that were written at least once.
        locked: number of elements with an unfinished write. 0 if the elements are not shared between writers.
        locked_by_dead: number of locked elements whose writer is dead or closed. The next writer takes these elements
            over.
        last_ns: time of the last write, in nanoseconds of the host's clock; None: never written.
        last_age_ns: nanoseconds since the last write; None: never written.
        last_index: index of the element that was written last.
        has_waiters: True if a process may be sleeping until the next change.
        key_count: number of keys of a board.
        keys: the first 256 keys; see `RecordKeyInfo`.
        writers: writing handles and leftover rows; see `RecordWriterInfo`.
    """

    name: str
    prefix: str
    path: str
    bytes: int
    mode: int
    kind: str
    creator: tuple[str, int]
    created_ns: int
    length: int
    item_bytes: int
    copies: int
    exclusive: bool = False
    schema: Schema | None = None
    written: int = 0
    elements_written: int = 0
    locked: int = 0
    locked_by_dead: int = 0
    last_ns: int | None = None
    last_age_ns: int | None = None
    last_index: int | None = None
    has_waiters: bool = False
    key_count: int = 0
    keys: tuple[RecordKeyInfo, ...] = ()
    writers: tuple[RecordWriterInfo, ...] = ()

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Writing handles and leftover rows, each with the role "writer"."""
        return tuple(("writer", row.participant) for row in self.writers)

    @property
    def dtype(self) -> str | None:
        """NumPy dtype of an element as JSON: a text such as "<f8", or a list of fields. None: unknown."""
        if self.schema is None or self.schema.encoding != "struct":
            return None
        return self.schema.data.decode(errors="replace")
