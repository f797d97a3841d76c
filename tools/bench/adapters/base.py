"""What every measured system looks like to the benchmark.

An adapter gives *calls*: a function of the system itself and the arguments a user would write. The loops are compiled
around them, so no wrapper of ours is timed, except where a system needs several steps for one message.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

WAIT_S = 0.05
BOARD_KEYS = 16  # in the boards of all systems


class Unsupported(Exception):
    """The system has nothing like what this case measures."""


class Call(NamedTuple):
    """A function and the text of its arguments, in which senders may say ``message``; `form` is how it is called."""

    function: Any
    arguments: str = ""
    form: str = "CALL(ARGUMENTS)"


@dataclass(frozen=True)
class Topic:
    """One channel between two processes.

    Attributes
    ----------
    name : unique in the machine, and it contains the run's tag, so that left-overs can be found.
    size : bytes in a message.
    depth : how many messages must fit.
    subscribers : how many will come.
    lossless : nothing may be dropped; otherwise the newest messages win.
    kind : which of the things that a system has for it, where there are several.
    folder : the run's temporary folder, the same in all processes of the run.
    tag : begins every name that the run leaves outside of `folder`.
    """

    name: str
    size: int
    depth: int
    subscribers: int
    lossless: bool
    kind: str
    folder: Path
    tag: str


@dataclass
class Publisher:
    """The calls of a publisher; what is not given falls back to `send`.

    Attributes
    ----------
    send : publishes a message; nobody sleeps.
    stream : publishes without loss, when the system itself can wait for a slow subscriber.
    wake : publishes and wakes a sleeping subscriber.
    in_place : publishes with the fewest copies the system offers.
    many : publishes `message`, then what `rows` makes of a two-dimensional array of bytes, one message a row.
    await_subscribers : blocks until that many subscribers are connected; only for systems that connect late.
    """

    send: Call
    stream: Call | None = None
    wake: Call | None = None
    in_place: Call | None = None
    many: Call | None = None
    rows: Callable[[Any], Any] = lambda block: block
    await_subscribers: Callable[[int], None] = lambda count: None


@dataclass
class Subscriber:
    """The calls of a subscriber. Each returns None for "nothing there", and something else with a message.

    Attributes
    ----------
    poll : returns at once.
    block : sleeps until there is a message (or until a long time is up).
    wait : sleeps until there is a message, `WAIT_S` at most.
    stream : the better of the two for taking message after message; `poll` when not given.
    in_place : takes a message with the fewest copies, and looks at its first and last byte where it is a view.
    array : takes all pending messages as one NumPy array; its argument is the dtype.
    lost : how many messages were lost, where the system counts them.
    """

    poll: Call
    block: Call
    wait: Call | None = None
    stream: Call | None = None
    in_place: Call | None = None
    array: Callable[[Any], Any] | None = None
    lost: Callable[[], int | None] = lambda: None


@dataclass
class Exchange:
    """The calls of a program that sends messages to itself. A user would write the same calls.

    Attributes
    ----------
    send : sends `message`. receive : takes a waiting message; None: no message waits.
    batch : returns a list of `count` messages. many : sends this list.
    each : the object of a ``for`` loop over `count` waiting messages.
    """

    send: Call
    receive: Call
    many: Call
    batch: Callable[[int], Any]
    each: Call


def _no_ranks(rank: int) -> Call:
    raise Unsupported("no priorities")


@dataclass
class WorkQueue:
    """The calls of one who has a queue open. All of them wait: for room, or for a message.

    Attributes
    ----------
    send, receive : one message.
    end : what `receive` returns for an empty message.
    ranked : gives the call that sends with a priority.
    take : receives a message whose ``ack()`` must be called.
    shared : there may be several senders and receivers.
    """

    send: Call
    receive: Call
    end: Any
    send_ranked: Callable[[int], Call] = _no_ranks
    take: Call | None = None
    shared: bool = True


@dataclass
class Values:
    """The calls on `depth` values at once.

    Attributes
    ----------
    rows : what `write` writes, its ``message``. room : what `read` and `instant` fill, their ``message``.
    write, read : all of them, each whole. instant : reads all as of one instant.
    touch : overwrites a few of them. changes : tells which were overwritten since it was called last.
    """

    rows: Any
    room: Any
    write: Call
    read: Call
    instant: Call | None = None
    touch: Call | None = None
    changes: Call | None = None


@dataclass
class Handling:
    """The calls of one who publishes messages and handles them: `plain`, and as a stage that tells what it did."""

    send: Call
    plain: Call
    tracked: Call


class System:
    """Base of the adapters. One instance in each measured process, for one topic.

    Attributes
    ----------
    name : column of the table, and the word on the command line.
    lossless : the publisher's `stream` waits for a slow subscriber; otherwise the benchmark's credits do.
    in_flight : most messages of 64 bytes on their way; chosen for each system where it is fastest.
    writers : how many publishers a topic can have.
    readers : how many subscribers a topic can have; where 0 is not in it, sending needs somebody to take the messages.
    shares_values : two processes may write one value.
    keeps_segment : something of the topic stays when all have closed it, which the next open finds.
    """

    name: ClassVar[str]
    lossless: ClassVar[bool] = False
    in_flight: ClassVar[int] = 4096
    writers: ClassVar[range] = range(2)
    readers: ClassVar[range] = range(16)
    shares_values: ClassVar[bool] = False
    keeps_segment: ClassVar[bool] = True

    def __init__(self, topic: Topic) -> None:
        """Import the system; ImportError says that it is absent."""
        self.topic = topic

    def version(self) -> str:
        """Return the version of the measured system, or an empty text."""
        return ""

    def publisher(self) -> Publisher:
        """Create the topic if needed, and return its publisher."""
        raise Unsupported("no publisher")

    def subscriber(self) -> Subscriber:
        """Attach to the topic that a publisher has created."""
        raise Unsupported("no subscriber")

    def frame_publisher(self) -> Publisher:
        """Make `depth` buffers for frames of `size` bytes; `in_place` publishes one that is rendered already."""
        raise Unsupported("no frames")

    def frame_subscriber(self) -> Subscriber:
        """Attach to them; `in_place` looks at one byte in 1024."""
        raise Unsupported("no frames")

    def queue(self, *, sends: bool = True, receives: bool = True) -> WorkQueue:
        """Open or create a queue with `depth` slots, for sending, for receiving, or for both."""
        raise Unsupported("no queue that gives each message to one receiver")

    def writing(self, number: int = 0) -> Call:
        """Return the call that makes `message` one of the values; whoever comes first makes them."""
        raise Unsupported("no values")

    def reading(self, number: int = 0) -> Call:
        """Return the call that gives one of the values as its user wants it; somebody writes it."""
        raise Unsupported("no values")

    def values(self) -> Values:
        """Make `depth` values."""
        raise Unsupported("no call for many values")

    def write_values(self, message: bytes) -> Any:
        """Return what a user of the system would hand over to have these bytes sent, or written."""
        return message

    def exchange(self, message: bytes) -> Exchange:
        """Open a sender and a receiver in this process."""
        raise Unsupported("no loop over messages")

    def handling(self) -> Handling:
        """Publish, subscribe, and track."""
        raise Unsupported("no tracking")

    def open_both(self) -> Any:
        """Open a publisher and a subscriber, as bare objects: this is timed."""
        raise Unsupported("no open")

    def close_both(self, both: Any) -> None:
        """Close what `open_both` returned: not timed."""
        for end in both:
            end.close()

    def create(self) -> None:
        """Make the topic exist, with nobody attached."""
        self.close_both(self.open_both())

    def remove(self) -> None:
        """Remove the topic, so that the next open creates it."""

    @classmethod
    def raise_limits(cls) -> None:
        """Let this process, and those that it starts, have larger queues than the kernel allows at first."""

    @classmethod
    def sweep(cls, names: list[str]) -> None:
        """Remove what these topics may have left where the run's own clean-up cannot see it."""


def unlink(path: str | Path) -> None:
    """Remove a file that may not be there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
