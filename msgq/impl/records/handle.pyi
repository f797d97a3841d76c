"""An open vector or board, apart from what it offers: opening, closing, waiting. What has values derives from it."""

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.base.waiting import Waitable

@disjoint_base
class Handle(Waitable):
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

    def close(self) -> None:
        """Leave; what was written stays. Closing twice does no harm.

        The handle's place among the writers is free again, and with it what it alone might write. Threads that wait
        with it are woken and get `EndpointClosedError`; one that is in the middle of a large copy is waited for. In a
        forked child only the child's own is closed. Arrays and values that were read are copies, and stay.
        """

    def unlink(self) -> None:
        """Remove the name, and what is in it once nobody has it open. Who has it open goes on.

        Raises
        ------
        SegmentError : there is no such name any more (ENOENT), or it may not be removed (EACCES, EPERM).
        EndpointClosedError : it is closed.
        """
