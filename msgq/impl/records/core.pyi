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
    """A mapped vector or board. Only compiled modules create this object."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and process id of the creator."""

    @property
    def created_ns(self) -> int:
        """Creation time, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """Schema of the values, or None."""

def is_board(name: str, in_prefix: str) -> bool:
    """Return True if the name is that of a board, and False if it is that of a vector.

    Raises:
        SegmentError: the name does not exist.
    """

def unlink_records(name: str, in_prefix: str) -> None:
    """Remove the name of a vector or board. Processes with open handles can still exchange data.

    Raises:
        SegmentError: the name does not exist, or the process has no permission to remove it.
    """

@disjoint_base
class RecordHandle(ThreadSharedHandle):
    """Base of `VectorBase` and `Board`: an open handle with a row for its writer. Do not use this class directly."""

    @property
    def _state(self) -> Any:
        """The object whose method `publish` gets each `RecordWrite`; None: not in a simulation."""

    def _observe(self, state: Any) -> None: ...
    @property
    def _file_memory(self) -> object:
        """An object that keeps the memory of the file. On a bus, no other file then gets the same `identity`."""

    @property
    def _held_writes(self) -> int:
        """Number of writes that a simulation holds. A closed handle leaves its row after them."""

    @property
    def name(self) -> str | None:
        """Name of the vector or board; None: private memory of this process."""

    @property
    def prefix(self) -> str:
        """Prefix of the vector or board; "": no prefix."""

    @property
    def path(self) -> str:
        """Path of the file; "" for private memory."""

    @property
    def mode(self) -> int:
        """Permissions of the file when the handle was opened."""

    @property
    def schema(self) -> Schema | None:
        """Schema of the values.

        For a vector, the schema describes the dtype. For a board, the creator sets the schema; None: no schema.
        """

    @property
    def creator(self) -> tuple[str, int]:
        """Name and process id of the creator."""

    @property
    def created_ns(self) -> int:
        """Creation time, nanoseconds of the host's clock (clock.md)."""

    @property
    def passive(self) -> bool:
        """True if the handle is passive: the handle maps the file read-only, and cannot write."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the file; None: private memory. A new file with the same name has another identity."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until ``changes()`` or `Seqlock.read` would return a new value.

        Args:
            timeout: seconds; 0 checks once, None waits forever.

        Returns:
            True if ``changes()`` would return a change, False at the timeout.

        Raises:
            InvalidValueError: the timeout is invalid.
            EndpointClosedError: the handle is closed, before or during the wait.
            SegmentSizeError: another program truncated the file.

        Notes:
            The GIL is released during the sleep, and signal handlers run. An exception of a handler ends the wait.
            Several threads may wait with one handle. Each check compares the versions of all elements, and loads one
            cache line for each element. A passive handle polls every 1 to 10 ms.
        """

    def stats(self) -> RecordStats:
        """Return writers, counters and keys; see `msgq.stats.record`.

        Raises:
            EndpointClosedError: the handle is closed.
        """

    def unlink(self) -> None:
        """Remove the name. The content is removed when the last handle closes. Open handles continue.

        Raises:
            SegmentError: the name was removed before (ENOENT), or the process has no permission to remove it (EACCES,
                EPERM).
            EndpointClosedError: the handle is closed.
        """

_Selection = slice | range | Sequence[int] | Sequence[bool] | npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

@disjoint_base
class VectorBase(RecordHandle):
    """Base of `SeqlockVector` and `Seqlock`. Do not use this class directly."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of an element."""

    @property
    def exclusive(self) -> bool:
        """True if only one open handle may write."""

    @property
    def copies(self) -> int:
        """Number of copies of each element: 2 or 4."""

    def claim(self) -> None:
        """Become a writer now, or the only writer of an exclusive vector, until this handle closes.

        Without `claim`, the handle becomes a writer at its first write.

        Raises:
            MultipleWritersError: the vector is exclusive, and another living handle has claimed the vector. The error
                text names the process of that handle.
            TooManyWritersError: 128 other handles are writers.
            StateError: the handle is passive.
            EndpointClosedError: the handle is closed.
        """

    def snapshot(self, atomic: bool = False, out: _Array | None = None, timeout: float | None = 1.0) -> _Array:
        """Return all elements. Each element is consistent.

        Args:
            atomic: True: return the elements as of one instant. If elements are written during the call, the call reads
                these elements again, until all values belong to one instant. False: read the elements one after
                another.
            timeout: maximum duration of the call in seconds; None: no limit.
            out: array for the result, of this length and dtype, C-contiguous and writable. None: a new array.

        Returns:
            A copy of shape (len,), or `out` if `out` was given.

        Raises:
            WaitTimeoutError: elements were written during each attempt, or one element was written faster than the call
                could read it. Part of `out` may be filled.
            InvalidValueError, RecordTypeError: `out` has another shape or dtype, or is not contiguous or writable; or
                the timeout is invalid.
            EndpointClosedError, SegmentSizeError: as `changes`.

        Notes:
            Reading stores nothing and waits for no writer. The GIL is released during a read of 256 KiB or more, and
            during the comparison of an atomic snapshot. An atomic snapshot allocates 8 bytes for each element, and
            loads each version once more.
        """

    @property
    def changed(self) -> bool:
        """True if ``changes()`` would return a change. The property never waits.

        Raises:
            EndpointClosedError: the handle is closed.
        """

    def changes(self, limit: int | None = None) -> Changes:
        """Return the elements written since the last call of this handle.

        The first call returns all elements that were ever written. `limit` is the maximum number of elements. The next
        call then begins with the elements that did not fit.

        An element with several writes is returned once, with its newest value. Elements written by this handle are
        returned, too. `read` of a vector does not mark elements as seen, but `read` of a `Seqlock` does.

        Returns:
            Four arrays with one entry for each element: ``indices`` (ascending), ``rows`` (the values), ``times`` (of
            the last write, nanoseconds of the host's clock, see clock.md), and ``counts`` (number of writes). The
            arrays are copies.

        Raises:
            ConcurrentUseError: another thread is in this method.
            WaitTimeoutError: for 1 s, an element was written faster than the call could read it.
            EndpointClosedError: the handle is closed.
            SegmentSizeError: another program truncated the file. Close the handle.

        Notes:
            The call compares the versions of all elements, and loads one cache line for each element. Only changed
            elements are copied.
        """

    def receive(self, timeout: float | None = None) -> Changes | None:
        """Wait up to `timeout` seconds for a change. Return the result of `changes`, or None at the timeout.

        The default timeout is None, which waits forever.

        Raises:
            Exception: errors of `wait` and `changes`.
        """

    def watch(self, timeout: float | None = None) -> ChangeIterator[Changes]:
        """Iterate over changes.

        Each item is a result of `receive`. ``for`` ends if there is no change for `timeout` seconds. ``async for``
        never ends.

        Raises:
            InvalidValueError: the timeout is invalid.
        """

    def areceive(self) -> Coroutine[Any, Any, Changes]:
        """In a task of an asyncio loop, return the result of `changes`.

        The call waits only if there is no change. ``async for`` does the same. For a timeout, use `asyncio.timeout`. If
        a call is cancelled, the next call returns the changes. One task at a time may wait with a handle.

        Raises:
            EndpointClosedError: the handle is closed, before or during the wait.
            ConcurrentUseError: another task waits with this handle.
        """

    def __anext__(self) -> Coroutine[Any, Any, Changes]: ...

class SeqlockVector(VectorBase):
    """Elements of one dtype in shared memory. Readers never see a partial write of an element.

    Reading an element stores nothing and waits for no process. If a writer is stopped or killed during a write, readers
    see the previous value. The next writer takes over the element.

    ``v[i]`` is a copy of one element (0 to ``len(v) - 1``) as a NumPy scalar. ``v[selection]`` is an array of several
    elements, selected by a slice, a list or array of indexes, or a mask of ``len(v)`` bools. Indexes must not be
    negative. The ends of slices may be negative. ``v[i] = value`` and ``v[selection] = values`` assign as NumPy does.
    If another process writes an element for longer than 1 s, the assignment raises `WaitTimeoutError` (see `write`).

    Threads: several threads may use a handle at the same time.

    Fork: in a forked child, the handle continues as a separate handle.

    Lifetime: deleted handles close, and open handles close when the process ends. A closed handle raises
    `EndpointClosedError`. A pickled handle opens the vector by its name.
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
        """Open a vector, or create a vector of zeros.

        Args:
            name: name of the vector, with the rules of topic names. None: private memory of this process, for its
                threads.
            dtype: dtype of an element, 1 byte to 1 GiB, without Python objects. None: the existing dtype.
            length: number of elements, 1 to 2^31 - 1. None: the existing length. If the vector has more elements, the
                handle uses the first `length` elements.
            exclusive: True: only one open handle may write. None: the existing setting; False for a new vector.
            copies: copies of each element, 2 or 4. Use 4 for large elements with fast writers. With 2 copies, a read
                starts over if one write completes during the read; with 4 copies, if three writes complete. None: the
                existing value; 2 for a new vector.
            create: True: create a new vector; False: open an existing vector; None: open the vector, or create it if
                dtype and length are given.
            mode: permissions of a new file; None: MSGQ_MODE, or 0o600. Writers also need read permission.
            prefix: prefix of the vector, "" for none; None: OPENPILOT_PREFIX.
            trust: users whose files are accepted in addition to own files and root's; None: MSGQ_TRUST.
            passive: observe only. The file is mapped read-only, so read permission is enough. Writes raise
                `StateError`, and waits poll.
            spin_us: microseconds that a wait polls before it sleeps; None: MSGQ_SPIN_US, else 10.

        Raises:
            RecordMismatchError: the existing file differs from the request, or is a board. The error text names the
                requested and the existing values.
            RecordTypeError: the dtype is invalid.
            SegmentError: its errno is ENOENT (the vector does not exist, and dtype or length is missing), EEXIST (the
                vector exists already), EACCES (the file belongs to another user), or ENOSPC (no space for a new
                vector).
            EndpointNameError: the name is invalid.
            InvalidValueError: another argument is invalid, or the file would exceed 2^40 bytes.
            LayoutVersionError, CorruptSegmentError: the file has another version, or is not a vector.
        """

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, selection: SupportsIndex, /) -> Any:
        """Return a read-only copy of one element or several.

        ``vector[3]["bid"] = 7.0`` raises ValueError, because this assignment would change only the copy. To change a
        field, copy the element, change the copy, and write it: ``quote = vector[3].copy()``, ``vector[3] = quote``.
        `read` returns writable arrays.
        """

    @overload
    @overload
    def __getitem__(self, selection: _Selection, /) -> _Array: ...
    def __setitem__(self, selection: SupportsIndex | _Selection, value: Any, /) -> None: ...
    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over a read-only snapshot."""

    def read(self, indices: _Selection | None = None, out: _Array | None = None) -> _Array:
        """Return several elements. Each element is consistent.

        Args:
            indices: a slice, a range, or a one-dimensional list or array of integers or of a mask; None: all elements.
            out: array for the result: shape (n,), of this dtype, C-contiguous and writable. None: a new array.

        Returns:
            A copy of shape (n,), or `out` if `out` was given.

        Raises:
            RecordIndexError: an index is negative or too large, a mask has the wrong length, or `indices` has an
                unsupported type.
            InvalidValueError, RecordTypeError: `out` has another shape or dtype, or is not contiguous or writable.
            WaitTimeoutError: for 1 s, an element was written faster than the call could read it.
            EndpointClosedError, SegmentSizeError: as `changes`.

        Notes:
            Reading stores nothing and waits for no writer. The GIL is released during a copy of 256 KiB or more. The
            elements may belong to different instants; see `snapshot`.
        """

    def write(self, indices: _Selection | None, values: Any, *, timeout: float | None = 1.0) -> None:
        """Write several elements, one after the other, and wake waiting readers.

        Args:
            indices: as in `read`. An index that occurs twice is written twice.
            values: one value for each index, or one value for all indices. Give an array with the same fields and a
                ``same_kind`` dtype, mappings from all field names to values, or values that NumPy converts. The values
                are copied. If the dtype is tracked, the library sets both timestamps.
            timeout: seconds to wait for an element that another living handle is writing; None: no limit.

        Raises:
            WaitTimeoutError: another process, which was probably stopped, was writing an element. The error text names
                the process and the element. Elements that precede this element in `indices` were written, and later
                elements were not.
            MultipleWritersError, TooManyWritersError, StateError: as `claim`, at the first write of a handle.
            RecordIndexError: as `read`. Nothing was written.
            RecordTypeError, InvalidValueError: the values have another kind or number, or cannot be converted. Nothing
                was written.
            ConcurrentUseError: the vector is exclusive, and another thread writes 256 KiB or more.
            CorruptSegmentError: another program wrote invalid data to the elements.
            EndpointClosedError, SegmentSizeError: as `changes`.

        Notes:
            A reader sees each element as before or as after the write. During the call, a reader may see new values of
            the first elements and old values of the later elements. The call makes a system call only if readers sleep.
            The GIL is released during a copy of 256 KiB or more, and during a wait.
        """

    def times(self, indices: _Selection | None = None) -> npt.NDArray[np.int64]:
        """Return the times of the last writes, nanoseconds of the host's clock (clock.md); 0: never.

        Args:
            indices: as in `read`.

        Raises:
            Exception: errors of `read`.

        Notes:
            The times of one element never decrease, even if several processes write the element.
        """

    def counts(self, indices: _Selection | None = None) -> npt.NDArray[np.uint64]:
        """Return the number of writes of elements, modulo 2^40.

        Args:
            indices: as in `read`.

        Raises:
            Exception: errors of `read`.
        """

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove the name of a vector, record or board without opening the file.

        Args:
            name: name to remove.
            prefix: prefix of the name, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name is invalid.
            SegmentError: as `unlink`.
        """

class Seqlock(VectorBase):
    """One record in shared memory. Readers never see a partial write.

    A record is a vector of one element, in the same file format. `SeqlockVector` describes both.
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
        """Open a record, or create a record of zeros. The record is a `SeqlockVector` of length 1.

        Args:
            name: name of the record. None: private memory of this process, for its threads.
            dtype: dtype of the record; None: the existing dtype.
            exclusive: as in `SeqlockVector`.
            copies: as in `SeqlockVector`.
            create: as in `SeqlockVector`.
            mode: as in `SeqlockVector`.
            prefix: as in `SeqlockVector`.
            trust: as in `SeqlockVector`.
            passive: as in `SeqlockVector`.
            spin_us: as in `SeqlockVector`.

        Raises:
            RecordMismatchError: the existing file differs from the request, has more than one element, or is a board.
            Exception: other errors, as `SeqlockVector`.
        """

    @property
    def value(self) -> Any:
        """The record: a copy, as a NumPy scalar.

        An assignment to this property writes the record. If another process writes the record for longer than 1 s, the
        assignment raises `WaitTimeoutError`.
        """

    @value.setter
    def value(self, value: Any) -> None: ...
    @property
    def time(self) -> int:
        """Time of the last write, nanoseconds of the host's clock (clock.md); 0: never."""

    @property
    def count(self) -> int:
        """Number of writes, modulo 2^40."""

    def read(self, out: _Array | None = None) -> Any:
        """Return a read-only copy of the record as a NumPy scalar.

        If you give `out`, an array of shape (1,), the copy is stored in `out`, and `out` is returned.

        The value then counts as seen by this handle, as after `value`: `changed` is False, and `wait` waits for the
        next write.

        Raises:
            WaitTimeoutError: for 1 s, the record was written faster than the call could read it.
            InvalidValueError, RecordTypeError: `out` has another shape or dtype, or is not contiguous or writable.
            EndpointClosedError, SegmentSizeError: as `changes`.
        """

    def write(self, value: Any, timeout: float | None = 1.0) -> None:
        """Write the record, and wake waiting readers.

        Args:
            value: a value that NumPy converts to the dtype, or a mapping from all field names to values. If the dtype
                is tracked, the library sets both timestamps.
            timeout: seconds to wait for the write of another living handle; None: no limit.

        Raises:
            Exception: errors of `SeqlockVector.write`. Nothing was written.
        """

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove the name of a record without opening the file, as `SeqlockVector.unlink_name` does.

        Args:
            name: name to remove.
            prefix: prefix of the name, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError, SegmentError: as `SeqlockVector.unlink_name`.
        """

@disjoint_base
class Board(RecordHandle):
    """Named values in shared memory: bytes of any length up to a limit. Only the owner of a key writes its value.

    If the owner of a key closes its handle or dies, the key and its value stay. Another process can then become the
    owner with `declare`. Reading stores nothing and waits for no process. If an owner is stopped, or killed during a
    write, readers see the previous value.

    ``board[key]`` is the value as bytes, or raises `BoardKeyError` if the key has no value. ``key in board``,
    ``len(board)`` and iteration use all keys that were ever declared.

    Threads: several threads may use a handle at the same time.

    Fork: in a forked child, the handle continues as a separate handle, without the declared keys.

    Lifetime: deleted handles close, and open handles close when the process ends. A closed handle raises
    `EndpointClosedError`. A pickled handle opens the board by its name.
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
        """Open or create a board.

        Args:
            name: name of the board, with the rules of topic names.
            keys: maximum number of keys, 1 to 65536. None: the existing value; 256 for a new board.
            value_bytes: maximum bytes of a value, 1 to 2^30 - 8. None: the existing value; 1008 for a new board.
            schema: schema of the values of a new board, with at most 11840 bytes of data.
            create: True: create a new file; False: open an existing file; None: open the file, or create it if it does
                not exist.
            mode: permissions of a new file; None: MSGQ_MODE, or 0o600. Writers also need read permission.
            prefix: prefix of the board, "" for none; None: OPENPILOT_PREFIX.
            trust: users whose files are accepted in addition to own files and root's; None: MSGQ_TRUST.
            passive: observe only. The file is mapped read-only, so read permission is enough. `declare` raises
                `StateError`, and waits poll.
            spin_us: microseconds that a wait polls before it sleeps; None: MSGQ_SPIN_US, else 10.

        Raises:
            RecordMismatchError: the existing file has other sizes, or is a vector. The error text names the requested
                and the existing values.
            SegmentError: its errno is ENOENT (the board does not exist), EEXIST (the board exists already), EACCES (the
                file belongs to another user), or ENOSPC (no space for a new board).
            EndpointNameError: the name is invalid.
            InvalidValueError: another argument is invalid, or the file would exceed 2^40 bytes.
            TypeError: a number or the schema has another type.
            LayoutVersionError, CorruptSegmentError: the file has another version, or is not a board.
        """

    @property
    def capacity(self) -> int:
        """Maximum number of keys."""

    @property
    def value_bytes(self) -> int:
        """Maximum bytes of a value."""

    def declare(self, key: str) -> Entry:
        """Become the owner of a key, and return the entry that writes it. An existing value stays.

        Args:
            key: 1 to 111 bytes of UTF-8, without NUL.

        Raises:
            KeyTakenError: another living process, or this handle, owns the key. The error text names the process.
            BoardFullError: the board has no free key. Keys stay forever.
            TooManyWritersError: 128 handles have declared keys.
            StateError: the handle is passive.
            InvalidValueError, TypeError: the key is invalid.
            EndpointClosedError: the board is closed.
            SegmentError: another process held the lock for 5 s.

        Notes:
            The call takes the file's lock, and searches all keys. Therefore declare a key once, and keep the entry.
        """

    def observe(self, key: str) -> KeyObserver:
        """Return an observer that reads a key and waits for its changes. The key need not be declared yet.

        `Board.close` and `close` of the observer close the observer. If the board's handle is only deleted, the
        observer stays open.

        Raises:
            InvalidValueError, TypeError: the key is invalid.
            EndpointClosedError: the board is closed.
        """

    def keys(self) -> list[str]:
        """Return all keys that were ever declared, in the order of their declaration."""

    def items(self) -> list[tuple[str, bytes]]:
        """Return all written keys, each with a copy of its value. The values may belong to different instants.

        Raises:
            Exception: errors of `changes`, except `ConcurrentUseError`.
        """

    def changes(self, limit: int | None = None) -> dict[str, Value]:
        """Return the keys written since the last call of this handle.

        The first call returns all keys that were ever written. `limit` is the maximum number of keys. The next call
        then begins with the keys that did not fit.

        A key with several writes is returned once, with its newest value. Keys written by this handle are returned,
        too.

        Raises:
            ConcurrentUseError: another thread is in this method.
            WaitTimeoutError: for 1 s, a value was written faster than the call could read it.
            CorruptSegmentError: a value has an invalid length, because another program wrote to the file.
            EndpointClosedError: the handle is closed.
            SegmentSizeError: another program truncated the file. Close the handle.

        Notes:
            The call compares the versions of all elements, including elements without a key, and loads one cache line
            for each element.
        """

    def receive(self, timeout: float | None = None) -> dict[str, Value] | None:
        """Wait up to `timeout` seconds for a change. Return the result of `changes`, or None at the timeout.

        The default timeout is None, which waits forever.

        Raises:
            Exception: errors of `wait` and `changes`.
        """

    def watch(self, timeout: float | None = None) -> ChangeIterator[dict[str, Value]]:
        """Iterate over changes.

        Each item is a result of `receive`. ``for`` ends if there is no change for `timeout` seconds. ``async for``
        never ends.

        Raises:
            InvalidValueError: the timeout is invalid.
        """

    def areceive(self) -> Coroutine[Any, Any, dict[str, Value]]:
        """In a task of an asyncio loop, return the result of `changes`.

        The call waits only if there is no change. ``async for`` does the same. For a timeout, use `asyncio.timeout`. If
        a call is cancelled, the next call returns the changes. One task at a time may wait with a handle.

        Raises:
            EndpointClosedError: the handle is closed, before or during the wait.
            ConcurrentUseError: another task waits with this handle.
        """

    def __anext__(self) -> Coroutine[Any, Any, dict[str, Value]]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: str, /) -> bytes: ...
    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove the name of a vector, record or board without opening the file.

        Args:
            name: name to remove.
            prefix: prefix of the name, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name is invalid.
            SegmentError: as `unlink`.
        """

@disjoint_base
class Entry:
    """A key owned by a handle, returned by `Board.declare`.

    The handle owns the key until the entry is closed or deleted, the board is closed, or the process ends.

    Threads: one thread at a time writes.

    Fork: the key belongs to the parent, and the child's copy of the entry raises `ForkedSocketError`. After the parent
    has released the key, the child may declare the key.
    """

    @property
    def key(self) -> str:
        """Name of the key."""

    def write(self, data: ReadableBuffer | npt.NDArray[Any]) -> None:
        """Write the value, and wake waiting readers.

        Args:
            data: any object with 0 to ``board.value_bytes`` contiguous bytes. The bytes are copied.

        Raises:
            MessageTooLargeError: the value exceeds the maximum.
            StateError: the key was released.
            ForkedSocketError: the key belongs to the parent.
            ConcurrentUseError: another thread writes 256 KiB or more.
            TypeError, BufferError: `data` has no contiguous bytes.
            EndpointClosedError: the board is closed.
            SegmentSizeError: another program truncated the file. After any other error, the previous value stays.

        Notes:
            The call takes no lock, and makes a system call only to wake readers that wait for the board. The GIL is
            released during a copy of 256 KiB or more.
        """

    def close(self) -> None:
        """Release the key. Its value stays. A second close has no effect.

        Raises:
            ConcurrentUseError: another thread writes.
        """

    @property
    def closed(self) -> bool:
        """True if `close` released the key."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class EntryOnBus(Entry):
    """An entry on a bus of the fake backend."""

@disjoint_base
class RecordWrite:
    """A write on a bus of the fake backend, in the two steps of the real one: fill the copy, then commit it.

    A simulation may stop or kill the writer between both steps.
    """

    @property
    def handle(self) -> RecordHandle:
        """Handle that writes."""

    @property
    def data(self) -> bytes:
        """Values of all elements, or value of the key."""

    @property
    def time_ns(self) -> int:
        """Virtual time of the call."""

    @property
    def is_held(self) -> bool:
        """True between `hold` and the end of the write."""

    def is_unlocked(self) -> bool:
        """Return True if no living writer has the next element."""

    def complete(self) -> None:
        """Do both steps. While another writer has an element, let other nodes run.

        Raises:
            WaitTimeoutError: another living writer had the element for the timeout of the call, in virtual time.
            DeadlockError: the node cannot wait.
        """

    def stop_in_middle(self) -> None:
        """Do the first step, after the same wait. `finish` does the second one. Raises as `complete`."""

    def hold(self) -> None:
        """Let the handle keep its row until the write has ended, even if the program closes the handle."""

    def finish(self) -> bool:
        """Do what is left of the write. Return False if another living writer has the next element."""

    def abandon(self) -> None:
        """End the write after its first step, as the death of the writer does."""

@disjoint_base
class VectorWrite(RecordWrite):
    """A write of elements. Of several elements, the first one is written in two steps, and the others after it."""

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """Indexes of the elements."""

@disjoint_base
class ValueWrite(RecordWrite):
    """A write of a key's value. A key has one writer, so the write never waits."""

    @property
    def key(self) -> str:
        """Name of the key."""

@disjoint_base
class KeyObserver(Waitable):
    """Reads one key of a board, and waits for changes of its value. From `Board.observe`.

    A value that was read with this object counts as seen for `changed`, `wait`, pollers and asyncio.

    Threads: one thread at a time reads or waits.

    Fork: in a forked child, the observer is independent of the parent's observer.

    Lifetime: the observer closes when its board closes, or when its `close` is called.
    """

    def __new__(cls, board: Board, key: str) -> Self: ...
    @property
    def key(self) -> str:
        """Name of the key."""

    @property
    def changed(self) -> bool:
        """True if the key was written after this object's last read. The property makes no system call."""

    def read(self) -> Value | None:
        """Return the value with its time, count, age and owner. Return None if the key was never written.

        Raises:
            WaitTimeoutError: for 1 s, the value was written faster than the call could read it.
            CorruptSegmentError: the value has an invalid length, because another program wrote to the file.
            EndpointClosedError: the observer is closed.
            SegmentSizeError: another program truncated the file.

        Notes:
            The owner and its liveness are determined at the first access to them, with one system call.
        """

    def data(self) -> bytes | None:
        """Return a copy of the value without its time, count, age and owner. Return None if the key was never written.

        Raises:
            Exception: as `read`.
        """

    def read_into(self, buffer: WriteableBuffer | npt.NDArray[Any]) -> int | None:
        """Copy the value into your own memory.

        Return the value's length in bytes, or None if the key was never written.

        The bytes of `buffer` after the value may change.

        Raises:
            MessageTooLargeError: the value is larger than the buffer. The value does not count as seen.
            TypeError, BufferError, ValueError: `buffer` is not writable, or not contiguous.
            Exception: other errors, as `read`. Part of `buffer` may be filled.
        """

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the key is written after the last read of this object.

        Args:
            timeout: seconds; 0 checks once, None waits forever.

        Returns:
            True if a new value exists, False at the timeout.

        Raises:
            InvalidValueError: the timeout is invalid.
            EndpointClosedError: the observer or its board is closed, before or during the wait.
            SegmentSizeError: another program truncated the file.

        Notes:
            A write of any key of the board wakes the wait for a check. The GIL is released during the sleep, and signal
            handlers run. An exception of a handler ends the wait.
        """

    def receive(self, timeout: float | None = None) -> Value | None:
        """Wait up to `timeout` seconds for a new value. Return the value, or None at the timeout.

        The default timeout is None, which waits forever.

        Raises:
            Exception: errors of `wait` and `read`.
        """

    def watch(self, timeout: float | None = None) -> ChangeIterator[Value]:
        """Iterate over new values. ``for`` ends if no value arrives for `timeout` seconds. ``async for`` never ends.

        Raises:
            InvalidValueError: the timeout is invalid.
        """

    def areceive(self) -> Coroutine[Any, Any, Value]:
        """In a task of an asyncio loop, return the value. The call waits only if the current value was seen before.

        ``async for`` does the same. For a timeout, use `asyncio.timeout`. If a call is cancelled, the next call returns
        the value. One task at a time may wait.

        Raises:
            EndpointClosedError: the observer is closed, before or during the wait.
            ConcurrentUseError: another task waits with this object.
        """

    def __anext__(self) -> Coroutine[Any, Any, Value]: ...

@disjoint_base
class RecordStatsReader:
    """A mapped vector or board for repeated reads: read-only, without a trace, unmapped with the last reference.

    One thread at a time. If a new file with the same name is created, this object still reads the old file (see
    `msgq.stats.record_inodes`).

    Raises:
        SegmentError: the name does not exist (ENOENT), or the file is unreadable. If the file was truncated, all
            methods raise `SegmentError`.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...
    def counts(self) -> EndpointCounts:
        """Return the counters: the number of writes, and for a vector also the written bytes.

        The call takes 1 us for any number of elements.
        """

    def stats(self) -> RecordStats:
        """Return all statistics, with a scan of all elements and the liveness of writers; see `msgq.stats.record`."""

def remove_record(name: str, in_prefix: str, wanted: Callable[[RecordStats], bool]) -> bool:
    """Remove the name of a vector or board if `wanted` returns True. Returns True if the name was removed.

    `wanted` is called under the writers' lock. Handles that are already open keep the unlinked file. A later open
    creates a new file.

    Raises:
        SegmentError: the name does not exist (ENOENT), or cannot be opened or removed.
    """

@disjoint_base
class SpanStack:
    """The open spans of a tracer. When a span ends, the origin of the enclosing span is restored."""

    def __new__(cls, name: str, now: Callable[[], int] | None) -> Self:
        """Start empty. `name` is used in error texts. `now` returns the time in ns; None: use the host's clock."""

@disjoint_base
class Span:
    """The handling of one message in a ``with`` block.

    The end of the block publishes the times, even if the block raises.

    A span may be entered again after its block. Entering within the block raises `ConcurrentUseError`.

    Attributes:
        superseded: True if the span no longer publishes times, because the timing topic is closed or another process
            publishes on it.
    """

    superseded: bool

    def __new__(cls, stack: SpanStack, send: Callable[[bytes], object], reader: object = None) -> Self:
        """Start without a message. `send` publishes a record. `reader` is a subscriber that has the timestamps."""

    def set_stamps(self, published: int, origin_time: int) -> Self:
        """Set the stamps of the next message, nanoseconds of the host's clock.

        Args:
            published: publish time; 0: unknown; -1: the time when the message is taken.
            origin_time: origin time; 0 and -1 have the same meaning as for `published`.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class TracedMessageIterator:
    """An iterator with a span for each message. The iterator ends each span before the next message is received."""

    def __new__(
        cls,
        take: Callable[[Any], Any] | None,
        timeout: object,
        stamps: Callable[[Any], tuple[int, int]] | None,
        span: Span,
        later: Callable[[], tuple[Callable[[Any], Any], Callable[[Any], tuple[int, int]] | None] | None] | None = None,
    ) -> Self:
        """Take messages by calling `take` with `timeout`. If `take` returns None, the iteration ends.

        Args:
            stamps: function that returns the stamps of a message; None: use the stamps of the span's reader, if the
                span has a reader.
            later: alternative to `take` and `stamps`. The function waits for the first message, and returns `take` and
                `stamps`, or None if no message arrived.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def end_span(self) -> None:
        """If a span is open, end the span."""
