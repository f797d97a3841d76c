"""What is measured of vectors and boards, as values. Their public names are in `msgq.stats`."""

from __future__ import annotations

from dataclasses import dataclass

from msgq.common.schema import Schema
from msgq.common.stats import Participant


@dataclass(frozen=True, slots=True)
class RecordWriterInfo:
    """A handle that writes, as others see it, or a row that a dead one left. Who only reads leaves no trace.

    Attributes
    ----------
    participant : the process.
    row : its number in the file, of 128.
    written : elements that the owners of this row wrote, ever.
    locked : elements that it writes just now.
    keys : of a board, those that it owns.
    """

    participant: Participant
    row: int
    written: int = 0
    locked: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class RecordKeyInfo:
    """A key of a board.

    Attributes
    ----------
    key : its name.
    owner : whose it is; None: nobody's now.
    count : how often it was ever written.
    bytes : of its value; None: it was never written, or it changed as long as it was looked at.
    time_ns : when it was written, by the host's clock; None as of `bytes`.
    age_ns : since then.
    """

    key: str
    owner: Participant | None
    count: int = 0
    bytes: int | None = None
    time_ns: int | None = None
    age_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RecordStats:
    """A vector or a board, at one moment; each figure is read on its own.

    Attributes
    ----------
    name, prefix, path : of the vector or board, and of its file.
    bytes, mode : of the file.
    kind : "vector" or "board".
    creator, created_ns : name and pid of who made it; when, by the host's clock.
    length : elements; of a board the keys that it has room for.
    item_bytes : of an element's value; of a board the most that a value has.
    copies : of each value.
    exclusive : whether one handle at a time may write; of a board False: each key has one owner.
    written : elements that were written so far, each as often as it was.
    elements_written : elements that were ever written.
    locked : elements that somebody writes just now, or died at; 0 where no element is shared.
    locked_by_dead : those of them whose writer is dead or gone. The next who writes there takes them.
    last_ns, last_age_ns : when an element was written last, by the host's clock, and how long ago; None: never.
    last_index : which element that was.
    has_waiters : whether somebody may sleep until something changes.
    key_count : keys of a board.
    keys : the first 256 of them, see `RecordKeyInfo`.
    writers : who writes, and rows of the dead, see `RecordWriterInfo`.
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
        """Who writes, and rows of the dead, each with its role, "writer"."""
        return tuple(("writer", row.participant) for row in self.writers)

    @property
    def dtype(self) -> str | None:
        """What NumPy calls an element, as JSON: a text as "<f8", or a list of fields. None: no schema says it."""
        if self.schema is None or self.schema.encoding != "struct":
            return None
        return self.schema.data.decode(errors="replace")
