"""Vectors and boards in shared memory, their statistics, and spans of a stage."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, SupportsIndex, overload

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.records import RecordStats
from msgq.impl.base.core import EndpointFile, ThreadSharedHandle, Waitable
from msgq.impl.records.values import ChangeIterator, Changes, Value

@disjoint_base
class RecordFile(EndpointFile):
    """A mapped vector or board, for as long as somebody has this. Made between the compiled modules only."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the process that made it."""

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """What describes the values."""

def unlink_records(name: str, in_prefix: str) -> None:
    """Remove the name of a vector or board. Those that have it open go on among themselves.

    Raises
    ------
    SegmentError : it is not there, or may not be removed.
    """

@disjoint_base
class RecordHandle(ThreadSharedHandle):
    """An open vector or board, and the row in it of whoever writes with it. Not to be used by itself."""

    @property
    def name(self) -> str | None:
        """Its name; None: private memory of this process."""

    @property
    def prefix(self) -> str:
        """The prefix that it lives in; "": none."""

    @property
    def path(self) -> str:
        """Its file; "" of private memory."""

    @property
    def mode(self) -> int:
        """Permissions of the file, as they were when this was opened."""

    @property
    def schema(self) -> Schema | None:
        """What describes the values: of a vector its dtype, of a board what its maker gave, or None."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the process that made it."""

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock (clock.md)."""

    @property
    def passive(self) -> bool:
        """Whether it only looks on: mapped read-only, without a trace in the file, and cannot write."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the file: what is made anew under the same name has another one. None: private memory."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until something was written that ``changes()`` of this handle, or `Seqlock.read`, has not returned.

        Parameters
        ----------
        timeout : seconds; 0 looks once, None waits for ever.

        Returns
        -------
        True as soon as ``changes()`` has something to return; False: the time is over.

        Raises
        ------
        InvalidValueError : a time that is not possible.
        EndpointClosedError : it is closed, also while this waits.
        SegmentSizeError : another program made the file smaller.

        Notes
        -----
        The GIL is released while it sleeps, and signal handlers run; what they raise ends the wait. Several threads
        may wait with one handle. Each look compares the versions of all elements, a cache line each. A passive handle
        looks once in 1 to 10 ms.
        """

    def stats(self) -> RecordStats:
        """Return writers, counters and keys; see `msgq.stats.record`. EndpointClosedError: it is closed."""

    def unlink(self) -> None:
        """Remove the name, and what is in it once nobody has it open. Who has it open goes on.

        Raises
        ------
        SegmentError : there is no such name any more (ENOENT), or it may not be removed (EACCES, EPERM).
        EndpointClosedError : it is closed.
        """

_Selection = slice | range | Sequence[int] | Sequence[bool] | npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

@disjoint_base
class VectorBase(RecordHandle):
    """What vectors and single records have in common. Not to be used by itself."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of an element."""

    @property
    def exclusive(self) -> bool:
        """Whether one handle writes, as long as it is open."""

    @property
    def copies(self) -> int:
        """Of each element: 2 or 4."""

    def claim(self) -> None:
        """Become a writer now: of an exclusive one the only one, until this is closed. The first write does it, too.

        Raises
        ------
        MultipleWritersError : it is exclusive, and a handle that lives has claimed it. The text names its process.
        TooManyWritersError : 128 handles write already.
        StateError : the handle is passive.
        EndpointClosedError : it is closed.
        """

    def snapshot(self, atomic: bool = False, out: _Array | None = None, timeout: float | None = 1.0) -> _Array:
        """Return all elements, each of them whole.

        Parameters
        ----------
        atomic : True: all as they were at one instant; what was written while it was taken is read again, until
            nothing was. False: each as it was when it was its turn.
        out : where to put them: as long as this, of its dtype, C-contiguous and writable. None: a new array.
        timeout : seconds to try, while others write; None: for ever.

        Returns
        -------
        Shape (len,), a copy; `out` if it was given.

        Raises
        ------
        WaitTimeoutError : something was written all the time, so that there was no instant; or one element was written
            faster than it could be read. Part of `out` may be filled.
        InvalidValueError, RecordTypeError : `out` has another shape or dtype, or is not contiguous or writable; the
            time is not possible.
        EndpointClosedError, SegmentSizeError : as `changes`.

        Notes
        -----
        It stores nothing and waits for no writer. The GIL is released for 256 KiB or more, and while it looks whether
        all is of one instant. That takes 8 bytes for each element, and one more look at each version.
        """

    @property
    def changed(self) -> bool:
        """Whether ``changes()`` would return something: `wait` without waiting. EndpointClosedError: it is closed."""

    def changes(self, limit: int | None = None) -> Changes:
        """Return the elements written since the last call of this handle; the first call returns all that were written.

        `limit` bounds their number; later calls return the others first.

        An element that was written several times comes once, as it is now. Also what this handle wrote itself comes.
        What `read` and the like of a vector returned comes again: they leave no mark, but those of a `Seqlock` do.

        Returns
        -------
        Arrays of one length: ``indices`` ascending, ``rows`` of the dtype, ``times`` in nanoseconds of the host's clock
        (clock.md), ``counts`` of writes ever. They are copies.

        Raises
        ------
        ConcurrentUseError : another thread is in it; one at a time may.
        WaitTimeoutError : an element was written faster than it could be read, for a second.
        EndpointClosedError : the handle is closed.
        SegmentSizeError : another program made the file smaller: close the handle.

        Notes
        -----
        It compares the versions of all elements, a cache line each, and copies only those that differ.
        """

    def receive(self, timeout: float | None = None) -> Changes | None:
        """Wait `timeout` seconds for a change, by default without end; return `changes`, or None if there was none.

        Raises
        ------
        What `wait` and `changes` raise.
        """

    def watch(self, timeout: float | None = None) -> ChangeIterator[Changes]:
        """Iterate over changes: ``for`` ends when nothing changes for `timeout` seconds, ``async for`` never.

        Each item is what `receive` returns. InvalidValueError: a time-out that is not possible.
        """

    def areceive(self) -> Coroutine[Any, Any, Changes]:
        """Return `changes`, in a task of an asyncio loop; waiting only if nothing was written; so does ``async for``.

        For a time-out use asyncio's. A cancelled call takes nothing. One task at a time may wait with a handle.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits with this handle.
        """

    def __anext__(self) -> Coroutine[Any, Any, Changes]: ...

class SeqlockVector(VectorBase):
    """Elements of one dtype in shared memory, which many read while others write, and nobody ever sees half of one.

    Reading an element stores nothing, and waits for nobody: a writer that is stopped, or killed in the middle of a
    write, leaves the value before. Its next writer takes the element over.

    ``v[i]`` is one element, 0 to ``len(v) - 1``: a NumPy scalar, and a copy. ``v[selection]`` is an array of several,
    by a slice, a list or array of indexes, or a mask of ``len(v)`` bools. Indexes are not negative; the ends of slices
    may be. ``v[i] = value`` and ``v[selection] = values`` write, as NumPy's assignments do, within a second (`write`).

    Any thread may use a handle, several of them at the same time. In a forked child it goes on as a handle of the
    child's. It can be pickled if it has a name, and opens that elsewhere. One that is deleted, or open when the process
    ends, is closed. A closed one raises `EndpointClosedError`.
    """

    def __init__(
        self,
        name: str | bytes | None,
        dtype: npt.DTypeLike | None = None,
        length: int | None = None,
        *,
        exclusive: bool | None = None,
        copies: int | None = None,
        create: bool | None = None,
        mode: int | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        passive: bool = False,
        spin_us: int | None = None,
    ) -> None:
        """Open a vector, or make it of zeros.

        Parameters
        ----------
        name : of the vector, as topics are named. None: private memory of this process, for its threads.
        dtype : of an element: 1 byte to 1 GiB, without Python objects. None: as it is there.
        length : elements, 1 to 2^31 - 1. None: as many as there are. Fewer than there are: the first so many.
        exclusive : True: one handle writes, as long as it is open. None: as it is there; False for a new one.
        copies : of each element, 2 or 4. 4 are for large elements with fast writers: a reader begins anew only if three
            writes were completed meanwhile, instead of one. None: as it is there; 2 for a new one.
        create : True only makes, False only opens. None: makes it if it is not there, and dtype and length are given.
        mode : permissions of a new one; None: MSGQ_MODE, or 0o600. Who writes also reads.
        prefix : instead of OPENPILOT_PREFIX, "" for none.
        trust : whose files are used as one's own are; None: MSGQ_TRUST.
        passive : only look on: the file is mapped read-only, a right to read is enough, and nobody notices. It
            cannot write, and its waits look by the clock.
        spin_us : microseconds that a wait spins before it sleeps; None: MSGQ_SPIN_US, else 10.

        Raises
        ------
        RecordMismatchError : what is there differs from what was asked for, or is a board. The text names both.
        RecordTypeError : a dtype that is not possible.
        SegmentError : its errno says why: ENOENT there is no such vector and too little is given to make it, EEXIST it
            is there already, EACCES the file is another user's, ENOSPC there is no space for a new one.
        EndpointNameError : the name cannot name a vector.
        InvalidValueError : another argument that makes no sense; more than 2^40 bytes.
        LayoutVersionError, CorruptSegmentError : the file is of another version of this library, or is no vector.
        """

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, selection: SupportsIndex, /) -> Any:
        """Return one element or several: a read-only copy.

        So ``vector[3]["bid"] = 7.0``, which could not change the vector, raises ValueError. To change a field, copy the
        element, change the copy, and write it: ``quote = vector[3].copy()``, ``vector[3] = quote``. `read` returns
        arrays that can be changed.
        """

    @overload
    @overload
    def __getitem__(self, selection: _Selection, /) -> _Array: ...
    def __setitem__(self, selection: SupportsIndex | _Selection, value: Any, /) -> None: ...
    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over a snapshot, which is read-only."""

    def read(self, indices: _Selection | None = None, out: _Array | None = None) -> _Array:
        """Return several elements, each of them whole.

        Parameters
        ----------
        indices : a slice or range, whole numbers, or a mask, as a list or array of one dimension; None: all.
        out : where to put them: shape (n,), of this dtype, C-contiguous and writable. None: a new array.

        Returns
        -------
        Shape (n,), a copy; `out` if it was given.

        Raises
        ------
        RecordIndexError : an index is negative or too large, a mask has another length, or it is no selection.
        InvalidValueError, RecordTypeError : `out` has another shape or dtype, or is not contiguous or writable.
        WaitTimeoutError : an element was written faster than it could be read, for a second.
        EndpointClosedError, SegmentSizeError : as `changes`.

        Notes
        -----
        It stores nothing and waits for no writer. The GIL is released for 256 KiB or more. Elements are not of one
        instant; see `snapshot`.
        """

    def write(self, indices: _Selection | None, values: Any, *, timeout: float | None = 1.0) -> None:
        """Write several elements, one after the other, and tell those who wait.

        Parameters
        ----------
        indices : as in `read`. One that comes twice is written twice.
        values : an array of ``same_kind``, with the same fields, or what NumPy converts to the dtype; one for each
            index, or one for all. It is copied. In a tracked dtype the two times are filled in.
        timeout : seconds to wait for an element that another handle, which lives, is writing; None: for ever.

        Raises
        ------
        WaitTimeoutError : an element was held so long, by a process that is stopped. The text names both. Those before
            it in the order of `indices` were written, the others were not.
        MultipleWritersError, TooManyWritersError, StateError : as `claim`, at the first write of a handle.
        RecordIndexError : as `read`. Nothing was written.
        RecordTypeError, InvalidValueError : values of another kind or number, or that cannot be converted. Nothing was
            written.
        ConcurrentUseError : it is exclusive, and another thread is in the middle of a write of 256 KiB or more.
        CorruptSegmentError : another program writes into the elements.
        EndpointClosedError, SegmentSizeError : as `changes`.

        Notes
        -----
        A reader sees each element before or after, and may see the first ones written and the last ones not. No system
        call unless somebody sleeps who waits for changes: one wake for the whole call. The GIL is released for 256 KiB
        or more, and while it waits.
        """

    def times(self, indices: _Selection | None = None) -> npt.NDArray[np.int64]:
        """Return when elements were written last, nanoseconds of the host's clock (clock.md); 0: never.

        Parameters
        ----------
        indices : as in `read`.

        Raises
        ------
        What `read` raises.

        Notes
        -----
        Times of one element do not go back, whoever writes it.
        """

    def counts(self, indices: _Selection | None = None) -> npt.NDArray[np.uint64]:
        """Return how often elements were written since they were made, modulo 2^40.

        Parameters
        ----------
        indices : as in `read`.

        Raises
        ------
        What `read` raises.
        """

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

class Seqlock(VectorBase):
    """One record in shared memory, which many read while others write, and nobody ever sees half of it.

    It is a vector of one, and lies in a file like that of a `SeqlockVector`, which says more about both.
    """

    def __init__(
        self,
        name: str | bytes | None,
        dtype: npt.DTypeLike | None = None,
        *,
        exclusive: bool | None = None,
        copies: int | None = None,
        create: bool | None = None,
        mode: int | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        passive: bool = False,
        spin_us: int | None = None,
    ) -> None:
        """Open a record, or make it of zeros: as `SeqlockVector`, of length 1.

        Parameters
        ----------
        name : of the record. None: private memory of this process, for its threads.
        dtype : of the record; None: as it is there.
        exclusive, copies, create, mode, prefix, trust, passive, spin_us : as of `SeqlockVector`.

        Raises
        ------
        RecordMismatchError : what is there differs from what was asked for, has more than one element, or is a board.
        What `SeqlockVector` raises.
        """

    @property
    def value(self) -> Any:
        """The record: a NumPy scalar, a copy. Setting it writes it, within a second."""

    @value.setter
    def value(self, value: Any) -> None: ...
    @property
    def time(self) -> int:
        """When it was written last, nanoseconds of the host's clock (clock.md); 0: never."""

    @property
    def count(self) -> int:
        """How often it was written since it was made, modulo 2^40."""

    def read(self, out: _Array | None = None) -> Any:
        """Return the record, whole: a NumPy scalar, a read-only copy; or `out`, an array of shape (1,), filled with it.

        It counts as told to this handle from then on, also by `value`: `changed` is false, and `wait` waits, until it
        is written again.

        Raises
        ------
        WaitTimeoutError : it was written faster than it could be read, for a second.
        InvalidValueError, RecordTypeError : `out` has another shape or dtype, or is not contiguous or writable.
        EndpointClosedError, SegmentSizeError : as `changes`.
        """

    def write(self, value: Any, timeout: float | None = 1.0) -> None:
        """Write the record, and tell those who wait.

        Parameters
        ----------
        value : what NumPy converts to the dtype. In a tracked dtype the two times are filled in.
        timeout : seconds to wait for another handle, which lives, to finish its write; None: for ever.

        Raises
        ------
        What `SeqlockVector.write` raises; nothing was written.
        """

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a name without opening what has it, as `SeqlockVector.unlink_name`.

        Parameters
        ----------
        name : of what is to be removed.
        prefix : instead of OPENPILOT_PREFIX, "" for none.

        Raises
        ------
        EndpointNameError, SegmentError : as there.
        """

@disjoint_base
class Board(RecordHandle):
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

    def changes(self, limit: int | None = None) -> dict[str, Value]:
        """Return the keys written since the last call of this handle; the first call returns all that were written.

        `limit` bounds their number; later calls return the others first.

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

    def receive(self, timeout: float | None = None) -> dict[str, Value] | None:
        """Wait `timeout` seconds for a change, by default without end; return `changes`, or None if there was none.

        Raises
        ------
        What `wait` and `changes` raise.
        """

    def watch(self, timeout: float | None = None) -> ChangeIterator[dict[str, Value]]:
        """Iterate over changes: ``for`` ends when nothing changes for `timeout` seconds, ``async for`` never.

        Each item is what `receive` returns. InvalidValueError: a time-out that is not possible.
        """

    def areceive(self) -> Coroutine[Any, Any, dict[str, Value]]:
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

    def receive(self, timeout: float | None = None) -> Value | None:
        """Wait `timeout` seconds for a new value, by default without end; None: the value did not change.

        Raises
        ------
        What `wait` and `read` raise.
        """

    def watch(self, timeout: float | None = None) -> ChangeIterator[Value]:
        """Iterate over new values: ``for`` ends when none comes for `timeout` seconds, ``async for`` never.

        InvalidValueError: a time-out that is not possible.
        """

    def areceive(self) -> Coroutine[Any, Any, Value]:
        """Return the value, in a task of an asyncio loop; waiting only if it was seen; so does ``async for``.

        For a time-out use asyncio's. A cancelled call takes nothing. One task at a time may wait.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits with this.
        """

    def __anext__(self) -> Coroutine[Any, Any, Value]: ...

@disjoint_base
class RecordStatsReader:
    """One vector or board, kept mapped, read-only and without a trace; unmapped with the last reference.

    One thread at a time. When it is made anew this goes on with the old one (see `msgq.stats.record_inodes`).

    Raises
    ------
    SegmentError : it is not there (ENOENT), or its file cannot be read; by the methods, when it was cut.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...
    def counts(self) -> EndpointCounts:
        """Return what moves, of a vector in bytes as well; takes a microsecond, however many elements it has."""

    def stats(self) -> RecordStats:
        """Return all of it, with each element looked at, and who lives; see `msgq.stats.record`."""

def remove_record(name: str, in_prefix: str, wanted: Callable[[RecordStats], bool]) -> bool:
    """Remove the name of a vector or board if `wanted` says so; returns whether it did.

    It is asked under the lock that all take who begin to write: who has it open goes on with the removed one, and who
    comes meanwhile makes another one.

    Raises
    ------
    SegmentError : it is not there (ENOENT), or it cannot be opened or removed.
    """

@disjoint_base
class SpanStack:
    """The open spans of a tracer. When a span ends, the origin of the span below it is restored."""

    def __new__(cls, name: str, now: Callable[[], int] | None) -> Self:
        """Start empty. `name` is for errors; `now` returns the time in ns; None: the host's clock."""

@disjoint_base
class Span:
    """The handling of one message, from a ``with`` to its end, which publishes the times, also when the block raised.

    Then it may be entered again; within its block that is a `ConcurrentUseError`.

    Attributes
    ----------
    untold : whether the times are published no more: another process publishes the timing topic, or it is closed.
    """

    superseded: bool

    def __new__(cls, stack: SpanStack, send: Callable[[bytes], object], reader: object = None) -> Self:
        """Start without a message. `send` publishes a record; `reader` is a subscriber that has the timestamps."""

    def set_stamps(self, published: int, origin_time: int) -> Self:
        """Let the next message have these stamps, nanoseconds of the host's clock.

        Parameters
        ----------
        published : when it was published; 0: nobody said. -1: it begins when it is taken.
        origin_time : its origin; 0 and -1 as for `published`.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class TracedMessageIterator:
    """An iterator with a span for each message. It ends a span before it receives the next message."""

    def __new__(
        cls,
        take: Callable[[Any], Any] | None,
        timeout: object,
        stamps: Callable[[Any], tuple[int, int]] | None,
        span: Span,
        later: Callable[[], tuple[Callable[[Any], Any], Callable[[Any], tuple[int, int]] | None] | None] | None = None,
    ) -> Self:
        """Take messages by calling with `timeout`; None ends it.

        Parameters
        ----------
        stamps : tells those of a message; None: the reader does, if there is one.
        later : instead of `take`: waits for the first message, and returns `take` and `stamps`; None: there was none.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def end_span(self) -> None:
        """End the open span, if there is one."""
