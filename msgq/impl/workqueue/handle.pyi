"""An open queue, apart from what it offers: opening, closing, waiting. `MessageQueue` derives from it."""

from typing import Literal, Self

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.base.waiting import Waitable

@disjoint_base
class Handle(Waitable):
    """An open queue, and the row in it of whoever opened it. Not to be used by itself."""

    def __new__(
        cls,
        name: str | bytes,
        flags: int | None = None,
        mode: int | None = None,
        max_messages: int | None = None,
        max_message_size: int | None = None,
        *,
        read: bool = True,
        write: bool = True,
        schema: Schema | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        spin_us: int | None = None,
        events: Literal[True, "payload"] | None = None,
    ) -> Self:
        """Open a queue, or make it; `MessageQueue` says how."""

    @property
    def block(self) -> bool:
        """Whether calls may wait. False: each returns at once, whatever time-out it is given. It may be set."""

    @block.setter
    def block(self, value: bool) -> None: ...
    @property
    def signals_end_waits(self) -> bool:
        """Whether a wait ends with `InterruptedWaitError` after a signal's handler ran; it may be set.

        False unless somebody sets it: a wait goes on after a handler that raises nothing.
        """

    @signals_end_waits.setter
    def signals_end_waits(self, value: bool) -> None: ...
    def close(self) -> None:
        """Leave the queue; messages stay in it. Closing twice does no harm.

        Jobs of this handle that are open go back to the queue. Threads that wait with it are woken and get
        `EndpointClosedError`; one that is in the middle of a large copy is waited for. In a forked child only the
        child's own is closed.
        """

    def fileno(self) -> int:
        """Return a descriptor that is readable while a message waits, for select, epoll and event loops.

        It is the same one until this closes, and must not be read or closed. A receive that follows should not wait
        (``receive(0)``): another consumer may have been faster. In a forked child ask again.

        Raises
        ------
        EndpointClosedError : it is closed.
        QueueAccessError : it was opened with ``read=False``.
        IpcError : no descriptor, memory or thread is left.

        Notes
        -----
        The first call in a process starts a thread, one for all, which sleeps until something comes. Senders wake all
        sleepers of the queue then, not only one.
        """
