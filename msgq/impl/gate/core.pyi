"""Gates of event-gated runs: their files, handles and events."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from typing_extensions import disjoint_base

def gate_owner(path: str) -> tuple[int, bool | None, int] | None:
    """Return the process that made the gate of this path, whether it lives (None: unknown), and the file's inode.

    None when there is no such gate, or it was closed. Raises `SegmentError` when the file is none of ours.
    """

def unlink_gate(path: str, inode: int) -> None:
    """Remove the gate of this path and its FIFOs, unless another file has the name by now."""

@disjoint_base
class Event:
    """A count in shared memory: two sets are two, and each clear takes one back.

    It keeps the handle that it came from alive. Any thread or process with a handle may use it at the same time. After
    a fork it goes on in the child. All methods raise `EventError` when nobody manages the endpoint, or the handle that
    did was closed or replaced, and `CorruptSegmentError` when somebody took the event's FIFO away.
    """

    def set(self) -> None:
        """Add one, and wake all who wait. The count ends at 2**30. It is added even if telling the FIFO fails."""

    def clear(self) -> bool:
        """Take one back. Never waits. False: there was none. After an error none is taken."""

    def wait(self, timeout_s: float = -1) -> None:
        """Wait until the count is above 0; it stays as it is.

        Parameters
        ----------
        timeout_s : seconds, 0 to 2**31 - 1; -1 waits for ever.

        Raises
        ------
        EventTimeoutError : the time is over. It is a RuntimeError, as stock's is, and a TimeoutError.
        ControllerDiedError : the process that made the handle with override is dead. Found out within 1 s.
        InvalidValueError : any other time-out.

        Notes
        -----
        Looks for up to 50 us, then sleeps; the GIL is released. Python's signal handlers run, and what they raise ends
        the wait.
        """

    def peek(self) -> bool:
        """Return whether the count is above 0."""

    @property
    def fd(self) -> int:
        """A descriptor for select, poll or epoll, readable while the count is above 0.

        Of a FIFO that is made when first asked for; from then on a `set` or `clear` that changes whether the event is
        set costs a few system calls. It stays the same, and open, as long as the handle or an event of it lives. Do not
        read from it, write to it or close it. -1 when nobody manages the endpoint.
        """

@disjoint_base
class SocketEventHandle:
    """Manages the gate of one endpoint: where its subscribers, if they connected with fake events on, stop to receive.

    The handle that made a gate owns it. When that is closed, deleted, or its process ends, nobody manages the endpoint
    any more: who waits at the gate goes on. If it is killed, they get `ControllerDiedError`. Safe to share between
    threads. After a fork it stays the parent's, and the child's copy is as one without override.
    """

    def __init__(self, endpoint: str | bytes, identifier: str | bytes, override: bool, enable: bool = False) -> None:
        """Make a handle.

        Parameters
        ----------
        endpoint : the topic's name; in the prefix (OPENPILOT_PREFIX) in force.
        identifier : handles and subscribers of different ones do not know each other; "" is one, too.
        override : make the gate, in place of any other, whose handles are told; who waits there goes to the new one.
            Otherwise take the one that is there now; without one the endpoint is not managed, for this handle.
        enable : whether receiving stops at the new gate; without `override` it stays as it is.

        Raises
        ------
        EndpointNameError : a name that cannot be part of a file's name, or the names are too long together.
        StateError : it was made already.
        InvalidValueError : MSGQ_MODE is not possible.
        CorruptSegmentError, LayoutVersionError : without override: the gate's file holds foreign bytes.
        SegmentError : a file cannot be created, opened, locked, mapped or removed.
        """

    @property
    def endpoint(self) -> str:
        """The endpoint's name."""

    @property
    def identifier(self) -> str:
        """The identifier of the gate; "" for none."""

    @property
    def enabled(self) -> bool:
        """Whether receiving stops at the gate; False when nobody manages the endpoint.

        When it is set to False, who waits there goes on, too, and its call stays counted: before the gate is enabled
        again, clear both events. Setting it raises `EventError` when nobody manages the endpoint.
        """

    @enabled.setter
    def enabled(self, value: bool) -> None: ...
    @property
    def recv_called_event(self) -> Event:
        """Set by a subscriber when it is about to receive."""

    @property
    def recv_ready_event(self) -> Event:
        """Lets one subscriber through, which clears it and then receives."""

    def close(self) -> None:
        """End the gate if this handle owns it, and remove its files. Closing twice does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def wait_for_one_event(events: Iterable[Event], timeout: float = -1) -> int:
    """Wait until one of the events is set; return the index of the first that is.

    Parameters
    ----------
    events : of any handles. Up to 128 are slept on; with more, and on Linux before 5.16, it looks every millisecond.
    timeout : seconds, as in `Event.wait`.

    Raises
    ------
    EventTimeoutError, EventError, ControllerDiedError, InvalidValueError : as `Event.wait`; also without events.
    """
