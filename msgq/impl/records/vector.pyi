"""Elements of one NumPy dtype in shared memory: any number of processes read them, one or many write them."""

from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from msgq.impl.records.handle import Handle
from msgq.impl.records.values import Changes

_Selection = slice | range | Sequence[int] | Sequence[bool] | npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

@disjoint_base
class Vector(Handle):
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

    def changes(self) -> Changes:
        """Return what was written since the last call of this handle; the first one returns all that ever was.

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

    def receive(self, non_blocking: bool = False) -> Changes | None:
        """Return `changes`, waiting until there is one; it is what pollers and event loops call.

        Parameters
        ----------
        non_blocking : True: do not wait; None when nothing was written.

        Raises
        ------
        What `wait` and `changes` raise.
        """

    def achanged(self) -> Coroutine[Any, Any, Changes]:
        """Return `changes`, in a task of an asyncio loop; waiting only if nothing was written; so does ``async for``.

        For a time-out use asyncio's. A cancelled call takes nothing. One task at a time may wait with a handle.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits with this handle.
        """

    def __anext__(self) -> Coroutine[Any, Any, Changes]: ...

class SeqlockVector(Vector):
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

class Seqlock(Vector):
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
