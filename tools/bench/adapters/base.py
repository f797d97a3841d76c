"""Interface of the measured systems.

An adapter returns *calls*. A call is a function of the system itself with the arguments that a user would write. The
benchmark compiles its loops around the calls, so no wrapper is timed, unless a system needs several steps for one
message.
"""

import contextlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

WAIT_S = 0.05
BOARD_KEYS = 16  # keys of a board in all systems
SERVICE_RATES = (100.0, 50.0, 20.0, 20.0, 10.0, 10.0, 5.0, 2.0, 1.0)  # messages/s of the services of a bus, in turns


class Unsupported(Exception):
    """The system lacks the feature that a case measures."""


class Call(NamedTuple):
    """A function and the text of its arguments. The text may contain ``message``. `form`: expression of the call."""

    function: Any
    arguments: str = ""
    form: str = "CALL(ARGUMENTS)"


@dataclass(frozen=True)
class Topic:
    """One channel between two processes.

    Attributes:
        name: unique on the machine. The name contains the tag of the run, so leftovers can be found.
        size: bytes of a message.
        depth: minimum capacity in messages.
        subscribers: number of subscribers.
        lossless: True: no message may be lost. False: new messages may replace old messages.
        kind: kind of endpoint, if a system has several.
        folder: temporary folder of the run, the same in all its processes.
        tag: beginning of all names outside of `folder`.
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
    """The calls of a publisher. `send` replaces missing calls.

    Attributes:
        send: publishes a message. No subscriber sleeps.
        stream: publishes without loss, if the system can wait for a slow subscriber.
        wake: publishes a message, and wakes a sleeping subscriber.
        patient: waits until no slow subscriber loses a message, and then publishes as `wake`.
        in_place: publishes with the fewest copies that the system offers.
        many: publishes several messages. Its ``message`` is the result of `rows` for a two-dimensional array of bytes
            with one message per row.
        await_subscribers: waits until this number of subscribers is connected. Only systems that connect late need it.
    """

    send: Call
    stream: Call | None = None
    wake: Call | None = None
    patient: Call | None = None
    in_place: Call | None = None
    many: Call | None = None
    rows: Callable[[Any], Any] = lambda block: block
    await_subscribers: Callable[[int], None] = lambda count: None


@dataclass
class Subscriber:
    """The calls of a subscriber. A call without a message returns None.

    Attributes:
        poll: returns at once.
        block: sleeps until a message arrives, or until a long timeout.
        wait: sleeps until a message arrives, at most `WAIT_S`.
        stream: the faster call to receive many messages; None: `poll`.
        in_place: receives a message with the fewest copies, and reads the first and the last byte of a view.
        array: receives all waiting messages as one NumPy array. The argument is the dtype.
        lost: returns the number of lost messages; None: the system does not count losses.
    """

    poll: Call
    block: Call
    wait: Call | None = None
    stream: Call | None = None
    in_place: Call | None = None
    array: Callable[[Any], Any] | None = None
    lost: Callable[[], int | None] = lambda: None


@dataclass
class Polled:
    """The calls of a program that waits for several topics at once.

    Attributes:
        wait: waits at most `timeout` ms, and returns the topics with a message.
        take: receives a message of the topic `ready` of this result.
    """

    wait: Call
    take: Call


@dataclass
class Exchange:
    """The calls of a program that sends messages to itself. A user would write the same calls.

    Attributes:
        send: sends `message`.
        receive: takes a waiting message; None: no message waits.
        batch: returns a list of `count` messages.
        many: sends this list.
        each: the object of a ``for`` loop over `count` waiting messages.
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
    """The calls of an open queue. All calls wait, for a free slot or for a message.

    Attributes:
        send: sends one message.
        receive: receives one message.
        end: result of `receive` for an empty message.
        send_ranked: returns the call that sends with a priority.
        take: receives a job. The caller calls the job's ``ack()``.
        shared: True: a queue may have several senders and receivers.
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

    Attributes:
        rows: array to write, the ``message`` of `write`.
        room: array to fill, the ``message`` of `read` and `instant`.
        write: writes all values.
        read: reads all values. Each value is intact.
        instant: reads all values at one instant.
        touch: overwrites a few values.
        changes: returns the values that were overwritten since its last call.
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
    """The calls of a stage: publish a message, and handle it without (`plain`) or with tracking (`tracked`)."""

    send: Call
    plain: Call
    tracked: Call


class System:
    """Base of the adapters. One instance in each measured process, for one topic.

    Attributes:
        name: column of the table, and name on the command line.
        package: name of the installed package; "": none.
        lossless: True: the publisher's `stream` waits for a slow subscriber. False: the benchmark limits the messages.
        in_flight: maximum number of messages of 64 bytes on their way, chosen for the best speed of each system.
        writers: possible numbers of publishers of a topic.
        readers: possible numbers of subscribers of a topic. Without 0, sending needs a subscriber.
        shares_values: True: two processes may write one value.
        keeps_segment: True: after all processes have closed a topic, its files stay for the next open.
    """

    name: ClassVar[str]
    package: ClassVar[str] = ""
    lossless: ClassVar[bool] = False
    in_flight: ClassVar[int] = 4096
    writers: ClassVar[range] = range(2)
    readers: ClassVar[range] = range(16)
    shares_values: ClassVar[bool] = False
    keeps_segment: ClassVar[bool] = True

    def __init__(self, topic: Topic) -> None:
        """Import the system. Raises ImportError if the system is not installed."""
        self.topic = topic

    def version(self) -> str:
        """Return the version of the measured system, or an empty text."""
        return importlib.metadata.version(self.package) if self.package else ""

    def publisher(self) -> Publisher:
        """Create the topic if needed, and return its publisher."""
        raise Unsupported("no publisher")

    def subscriber(self) -> Subscriber:
        """Attach to the topic that a publisher has created."""
        raise Unsupported("no subscriber")

    @classmethod
    def poll(cls, systems: Sequence[Any]) -> Polled:
        """Subscribe to the topics of several instances, and wait for all of them."""
        raise Unsupported("no poll of several topics")

    def watch(self, take: Callable[[Any], None]) -> None:
        """Subscribe, and call a function with each message as long as the running asyncio loop runs."""
        raise Unsupported("no asyncio")

    def frame_publisher(self) -> Publisher:
        """Create `depth` buffers for frames of `size` bytes. `in_place` publishes a frame that is already rendered."""
        raise Unsupported("no frames")

    def frame_subscriber(self) -> Subscriber:
        """Attach to the buffers. `in_place` reads every 1,024th byte of a frame."""
        raise Unsupported("no frames")

    def queue(self, *, sends: bool = True, receives: bool = True) -> WorkQueue:
        """Open or create a queue with `depth` slots, for sending, for receiving, or for both."""
        raise Unsupported("no queue that gives each message to one receiver")

    def writing(self, number: int = 0) -> Call:
        """Return the call that writes `message` as value `number`. The first process creates the values."""
        raise Unsupported("no values")

    def reading(self, number: int = 0) -> Call:
        """Return the call that reads value `number` in the usual form. Another process writes the value."""
        raise Unsupported("no values")

    def values(self) -> Values:
        """Create `depth` values."""
        raise Unsupported("no call for many values")

    def write_values(self, message: bytes) -> Any:
        """Return the object that a user of the system would pass to send or write these bytes."""
        return message

    def exchange(self, message: bytes) -> Exchange:
        """Open a sender and a receiver in this process."""
        raise Unsupported("no loop over messages")

    def handling(self) -> Handling:
        """Publish, subscribe, and track."""
        raise Unsupported("no tracking")

    def open_both(self) -> Any:
        """Open a publisher and a subscriber. This call is timed."""
        return self._publish(), self._subscribe()

    def _publish(self) -> Any:
        raise Unsupported("no open")

    def _subscribe(self) -> Any:
        raise Unsupported("no open")

    def close_both(self, both: Any) -> None:
        """Close the result of `open_both`. This call is not timed."""
        for end in both:
            end.close()

    def create(self) -> None:
        """Create the topic without participants."""
        self.close_both(self.open_both())

    def remove(self) -> None:
        """Remove the topic, so that the next open creates it."""

    @classmethod
    def raise_limits(cls) -> None:
        """Raise the kernel's limits of queues for this process and its children."""

    @classmethod
    def sweep(cls, names: list[str]) -> None:
        """Remove files of these topics that the clean-up of the run cannot find."""


def take_in_task(receive: Callable[[], Coroutine[Any, Any, Any]], take: Callable[[Any], None]) -> Any:
    """Start a task that receives messages, and return it."""
    import asyncio

    async def take_all() -> None:
        while True:
            take(await receive())

    return asyncio.get_running_loop().create_task(take_all())


def poll_or_none(receive: Callable[[], Any], empty: type[Exception]) -> Call:
    """Return a call that returns None where a function of the system raises an error."""

    def poll() -> Any:
        try:
            return receive()
        except empty:
            return None

    return Call(poll)


def read_ends(take_view: Callable[[], Any]) -> Call:
    """Return a call that takes a view of a message, and reads its first and its last byte."""

    def look() -> Any:
        view = take_view()
        if view is None:
            return None
        data = memoryview(view)
        return data[0] + data[-1]

    return Call(look)


def read_lines(receive: Callable[[], Any], as_array: Callable[[Any], Any]) -> Call:
    """Return a call that receives a frame, and reads every 1,024th byte."""
    import numpy as np

    mix = np.bitwise_or.reduce

    def look() -> Any:
        frame = receive()
        return None if frame is None else mix(as_array(frame)[::1024])

    return Call(look)


def unlink(path: str | Path) -> None:
    """Remove a file or a folder that may not be there."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
