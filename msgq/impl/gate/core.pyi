"""Event gates: their files, handles and events."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from typing_extensions import disjoint_base

def gate_owner(path: str) -> tuple[int, bool | None, int] | None:
    """Return the pid of the process that created the gate, its liveness (None: unknown), and the inode of the file.

    Return None if the gate does not exist, or is closed. Raises `SegmentError` if the file is not a gate.
    """

def unlink_gate(path: str, inode: int) -> None:
    """Remove the gate with this path and inode, and its FIFOs. A newer file with the same path stays."""

@disjoint_base
class Event:
    """A counter in shared memory. `set` adds one to the count, and `clear` subtracts one.

    Any number of threads and processes may use an event at the same time. An event works in a forked child, and keeps
    its handle alive. If the endpoint has no gate, or if the gate was closed or replaced, all methods raise
    `EventError`. If the FIFO of the event was removed, all methods raise `CorruptSegmentError`.
    """

    def set(self) -> None:
        """Add one to the count, and wake all waiting calls.

        The maximum count is 2**30. The count increases even if the write to the FIFO fails.
        """

    def clear(self) -> bool:
        """Subtract one from the count without waiting.

        Return False if the count was 0. An error leaves the count unchanged.
        """

    def wait(self, timeout_s: float = -1) -> None:
        """Wait until the count is above 0. The count does not change.

        Args:
            timeout_s: seconds, 0 to 2**31 - 1; -1 waits without limit.

        Raises:
            EventTimeoutError: the time-out passed. The error is a TimeoutError, and also a RuntimeError as in stock.
            ControllerDiedError: the process that created the gate is dead. Detected within 1 s.
            InvalidValueError: an invalid time-out.

        Notes:
            Polls for up to 50 us, then sleeps, with the GIL released. Signal handlers run; an exception of a handler
            ends the wait.
        """

    def peek(self) -> bool:
        """Return True if the count is above 0."""

    @property
    def fd(self) -> int:
        """File descriptor for select, poll or epoll, readable while the count is above 0.

        The first access creates a FIFO. Afterwards a `set` from 0 and a `clear` to 0 cost a few system calls. The
        descriptor stays open and unchanged while the handle or one of its events lives. Do not read, write or close the
        descriptor. -1 if the endpoint has no gate.
        """

@disjoint_base
class SocketEventHandle:
    """Manages the gate of one topic. Subscribers that connected with fake events enabled stop at the gate.

    The handle that created a gate owns the gate. The gate ends when the owner is closed or deleted, or when the owner's
    process ends. Waiting subscribers then continue. If the owner is killed, waiting subscribers get
    `ControllerDiedError`. Threads may share a handle. After a fork, the parent stays the owner.
    """

    def __init__(self, endpoint: str | bytes, identifier: str | bytes, override: bool, enable: bool = False) -> None:
        """Open or create the gate of a topic.

        Args:
            endpoint: name of the topic in the current prefix (OPENPILOT_PREFIX).
            identifier: group of handles and subscribers. Different groups do not see each other. The empty identifier
                is a group, too.
            override: True: create a gate. If a gate exists, the new gate replaces this gate, and waiting subscribers
                move to the new gate. False: open the existing gate. If the gate does not exist, the endpoint is not
                gated for this handle.
            enable: True: subscribers stop at the new gate. The argument is used only with `override`.

        Raises:
            EndpointNameError: a name is not valid in a file name, or the total length of the names is too large.
            StateError: the handle was initialized before.
            InvalidValueError: MSGQ_MODE is invalid.
            CorruptSegmentError, LayoutVersionError: without `override`: the file is not a gate of this version.
            SegmentError: a file cannot be created, opened, locked, mapped or removed.
        """

    @property
    def endpoint(self) -> str:
        """Name of the topic."""

    @property
    def identifier(self) -> str:
        """Identifier of the gate."""

    @property
    def enabled(self) -> bool:
        """True if subscribers stop at the gate. False if the endpoint has no gate.

        The value False also releases waiting subscribers, but the events keep the counts of their calls. Clear both
        events before you enable the gate again. Setting raises `EventError` if the endpoint has no gate.
        """

    @enabled.setter
    def enabled(self, value: bool) -> None: ...
    @property
    def recv_called_event(self) -> Event:
        """Event that a subscriber sets before each receive."""

    @property
    def recv_ready_event(self) -> Event:
        """Event that the controller sets to release one subscriber.

        The subscriber clears the event, and then receives.
        """

    def close(self) -> None:
        """Close the handle. If the handle owns the gate, end the gate and remove its files.

        A second close has no effect.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def wait_for_one_event(events: Iterable[Event], timeout: float = -1) -> int:
    """Wait until one of the events is set, and return the index of the first set event.

    Args:
        events: events of any handles. With more than 128 events, and on Linux before 5.16, the wait polls once per
            millisecond.
        timeout: seconds, as in `Event.wait`.

    Raises:
        InvalidValueError: no events, or an invalid time-out.
        EventTimeoutError, EventError, ControllerDiedError: as `Event.wait`.
    """
