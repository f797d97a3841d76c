"""A board of named values: each key has one owner, which writes it, and any number of readers."""

from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.base.waiting import Waitable
from msgq.impl.records.handle import Handle
from msgq.impl.records.values import Value

@disjoint_base
class Board(Handle):
    """Named values in shared memory: bytes of any length up to a limit, each written by the one who declared its key.

    A key stays where it is, and its value too, when its owner closes or dies: `declare` gives it to the next one.
    Reading stores nothing, and waits for nobody: an owner that is stopped, or killed in the middle of a write, leaves
    the value before.

    ``board[key]`` is the value as bytes, `BoardKeyError` if there is none; ``key in board``, ``len(board)`` and
    iteration are of the keys that were ever declared.

    Any thread may use a handle, several of them at the same time. In a forked child it goes on as a handle of the
    child's, without the keys that were declared. It can be pickled, and opens the board by its name elsewhere. One that
    is deleted, or open when the process ends, is closed. A closed one raises `EndpointClosedError`.
    """

    def __init__(
        self,
        name: str | bytes,
        keys: int | None = None,
        value_bytes: int | None = None,
        *,
        schema: Schema | None = None,
        create: bool | None = None,
        mode: int | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        passive: bool = False,
        spin_us: int | None = None,
    ) -> None:
        """Open a board, or make it.

        Parameters
        ----------
        name : of the board, as topics are named.
        keys : that it may have, 1 to 65536. None: as it is there; 256 for a new one.
        value_bytes : that a value may have, 1 to 2^30 - 8. None: as it is there; 1008 for a new one.
        schema : describes the values, in at most 11840 bytes of data. It is of a new one only.
        create : True only makes, False only opens, None does either.
        mode : permissions of a new one; None: MSGQ_MODE, or 0o600. Who writes also reads.
        prefix : instead of OPENPILOT_PREFIX, "" for none.
        trust : whose files are used as one's own are; None: MSGQ_TRUST.
        passive : only look on: the file is mapped read-only, a right to read is enough, and nobody notices. It
            cannot declare, and its waits look by the clock.
        spin_us : microseconds that a wait spins before it sleeps; None: MSGQ_SPIN_US, else 10.

        Raises
        ------
        RecordMismatchError : what is there has other sizes, or is a vector. The text names both.
        SegmentError : its errno says why: ENOENT there is no such board, EEXIST it is there already, EACCES the file is
            another user's, ENOSPC there is no space for a new one.
        EndpointNameError : the name cannot name a board.
        InvalidValueError : another argument that makes no sense; more than 2^40 bytes.
        TypeError : a number or the schema is none.
        LayoutVersionError, CorruptSegmentError : the file is of another version of this library, or is no board.
        """

    @property
    def capacity(self) -> int:
        """Keys that it may have."""

    @property
    def value_bytes(self) -> int:
        """Bytes that a value may have."""

    def declare(self, key: str) -> Entry:
        """Make a key this handle's, and return what writes it. What was written under it before stays.

        Parameters
        ----------
        key : 1 to 111 bytes of UTF-8, without NUL.

        Raises
        ------
        KeyTakenError : somebody who lives has it: another process, or this handle. The text names the process.
        BoardFullError : there is no room for another key. Keys stay for ever, whoever wrote them.
        TooManyWritersError : 128 handles have declared keys.
        StateError : the handle is passive.
        InvalidValueError, TypeError : it cannot be a key.
        EndpointClosedError : the board is closed.
        SegmentError : others have the lock for 5 s.

        Notes
        -----
        It takes the file's lock, and looks through the names: declare once, and keep the entry.
        """

    def observe(self, key: str) -> KeyObserver:
        """Return what reads a key, and waits for it. Nobody need have declared it so far.

        `Board.close` closes it, and so does its own `close`. If the board's handle is deleted without a `close`, it
        stays open.

        Raises
        ------
        InvalidValueError, TypeError : it cannot be a key.
        EndpointClosedError : the board is closed.
        """

    def keys(self) -> list[str]:
        """Return the keys that were ever declared, in that order."""

    def items(self) -> list[tuple[str, bytes]]:
        """Return the keys that were ever written, each with its value, a copy. They are not of one instant.

        Raises
        ------
        As `changes`, but for `ConcurrentUseError`.
        """

    def changes(self) -> dict[str, Value]:
        """Return what was written since the last call of this handle; the first one returns all that ever was.

        A key that was written several times comes once, as it is now. Also what this handle wrote itself comes.

        Raises
        ------
        ConcurrentUseError : another thread is in it; one at a time may.
        WaitTimeoutError : a value was written faster than it could be read, for a second.
        CorruptSegmentError : a value has a length that none can have: another program writes there.
        EndpointClosedError : the handle is closed.
        SegmentSizeError : another program made the file smaller: close the handle.

        Notes
        -----
        It compares the versions of all places, also of those without a key, a cache line each.
        """

    def receive(self, non_blocking: bool = False) -> dict[str, Value] | None:
        """Return `changes`, waiting until there is one; it is what pollers and event loops call.

        Parameters
        ----------
        non_blocking : True: do not wait; None when nothing was written.

        Raises
        ------
        What `wait` and `changes` raise.
        """

    def achanged(self) -> Coroutine[Any, Any, dict[str, Value]]:
        """Return `changes`, in a task of an asyncio loop; waiting only if nothing was written; so does ``async for``.

        For a time-out use asyncio's. A cancelled call takes nothing. One task at a time may wait with a handle.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits with this handle.
        """

    def __anext__(self) -> Coroutine[Any, Any, dict[str, Value]]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: str, /) -> bytes: ...
    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a name without opening what has it: a vector, a record or a board.

        Parameters
        ----------
        name : of what is to be removed.
        prefix : instead of OPENPILOT_PREFIX, "" for none.

        Raises
        ------
        EndpointNameError : the name is not possible.
        SegmentError : as `unlink`.
        """

@disjoint_base
class Entry:
    """A key that is a handle's own, from `Board.declare`, until one of the two is closed or the process ends.

    One thread at a time writes. After a fork it is the parent's: the child gets `StateError`, and may declare the key
    when the parent has given it back.
    """

    @property
    def key(self) -> str:
        """Its key."""

    def write(self, data: ReadableBuffer | npt.NDArray[Any]) -> None:
        """Write the value, and tell those who wait.

        Parameters
        ----------
        data : anything with contiguous bytes, also none at all: at most ``board.value_bytes``. It is copied.

        Raises
        ------
        MessageTooLargeError : it has more bytes than a value may have.
        StateError : the key was given back. ForkedSocketError : it is the parent's, of which this is a fork.
        ConcurrentUseError : another thread is in the middle of a write of 256 KiB or more.
        TypeError, BufferError : `data` has no contiguous bytes.
        EndpointClosedError : the board is closed.
        SegmentSizeError : another program made the file smaller.
        With each of them but the last the value before stays.

        Notes
        -----
        No lock, and no system call unless somebody sleeps who waits for a change of the board. The GIL is released for
        256 KiB or more.
        """

    def close(self) -> None:
        """Give the key back; its value stays. Closing twice does no harm.

        Raises
        ------
        ConcurrentUseError : another thread is in the middle of a write.
        """

    @property
    def closed(self) -> bool:
        """Whether the key was given back by `close`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class KeyObserver(Waitable):
    """One key of a board, for those who read it and wait for it; from `Board.observe`.

    Any thread may read. What was read counts as seen for `changed`, `wait`, pollers and asyncio, whoever read it with
    this object. It can be closed before its board, and is closed with it. In a forked child it goes on as the child's.
    """

    def __new__(cls, board: Board, key: str) -> Self: ...
    @property
    def key(self) -> str:
        """Its key."""

    @property
    def changed(self) -> bool:
        """Whether the key was written since this read it last. It asks no system call."""

    def read(self) -> Value | None:
        """Return the value with its time, count, age and owner; None: it was never written.

        Raises
        ------
        WaitTimeoutError : it was written faster than it could be read, for a second.
        CorruptSegmentError : it has a length that none can have: another program writes there.
        EndpointClosedError : this is closed.
        SegmentSizeError : another program made the file smaller.

        Notes
        -----
        Who owns the key, and whether that lives, is found out when the value is first asked for it: a system call.
        """

    def data(self) -> bytes | None:
        """Return the value, a copy, and nothing else; None: it was never written.

        Raises
        ------
        As `read`.
        """

    def read_into(self, buffer: WriteableBuffer | npt.NDArray[Any]) -> int | None:
        """Copy the value into memory of the caller's, and return its length in bytes; None: it was never written.

        What lies behind it in `buffer` may change.

        Raises
        ------
        MessageTooLargeError : it is larger than the buffer; it counts as not seen.
        TypeError, BufferError, ValueError : `buffer` is not writable, or not contiguous (what its exporter raises).
        As `read`; part of `buffer` may be filled.
        """

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the key was written after this read it last.

        Parameters
        ----------
        timeout : seconds; 0 looks once, None waits for ever.

        Returns
        -------
        True: there is something to read; False: the time is over.

        Raises
        ------
        InvalidValueError : a time that is not possible.
        EndpointClosedError : it or its board is closed, also while this waits.
        SegmentSizeError : another program made the file smaller.

        Notes
        -----
        A write of any key of the board wakes it for a look. The GIL is released while it sleeps, and signal handlers
        run; what they raise ends the wait.
        """

    def receive(self, non_blocking: bool = False) -> Value | None:
        """Return the value if it was not seen, waiting for one; it is what pollers and event loops call.

        Parameters
        ----------
        non_blocking : True: do not wait; None when nothing was written.

        Raises
        ------
        What `wait` and `read` raise.
        """

    def achanged(self) -> Coroutine[Any, Any, Value]:
        """Return the value, in a task of an asyncio loop; waiting only if it was seen; so does ``async for``.

        For a time-out use asyncio's. A cancelled call takes nothing. One task at a time may wait.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits with this.
        """

    def __anext__(self) -> Coroutine[Any, Any, Value]: ...
