"""Work queues in a page of plain Python: lists, and a search for the first message. It stands for no implementation."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

from msgq.errors import (
    EndpointClosedError,
    MessageTooLargeError,
    QueueAccessError,
    QueueFullError,
    QueueMismatchError,
    SegmentError,
    StateError,
)
from msgq.impl.workqueue.options import O_CREAT, O_EXCL, O_NONBLOCK


@dataclass(eq=False)
class Letter:
    """A message: it waits, or somebody has it."""

    data: bytes
    priority: int
    origin_time: int
    order: int
    deliveries: int = 0
    taken: bool = False
    delayed: bool = False  # delayed for longer than the program runs


@dataclass(eq=False)
class Box:
    """A queue, which its name leads to until that is removed."""

    max_messages: int
    max_message_size: int
    has_chosen_sizes: bool  # False: both sizes are defaults, and the next request or message may choose others
    letters: list[Letter] = field(default_factory=list)
    sent: int = 0

    def waiting(self) -> list[Letter]:
        idle = (each for each in self.letters if not each.taken and not each.delayed)
        return sorted(idle, key=lambda each: (-each.priority, each.order))


class Model:
    """All queues there are, by name."""

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}

    def open(self, flags: int | None = None, *, name: str = "", **options: Any) -> Handle:
        bits = O_CREAT if flags is None else flags
        sizes = {"max_messages": options.get("max_messages"), "max_message_size": options.get("max_message_size")}
        box = self.boxes.get(name)
        if box is None and not bits & O_CREAT:
            raise SegmentError("", errno=errno.ENOENT)
        if box is not None and bits & O_CREAT and bits & O_EXCL:
            raise SegmentError("", errno=errno.EEXIST)
        new_sizes = sizes["max_messages"] or 128, sizes["max_message_size"] or 8192
        if box is None:
            box = self.boxes[name] = Box(*new_sizes, any(sizes.values()))
        elif not box.has_chosen_sizes and any(sizes.values()):
            (box.max_messages, box.max_message_size), box.has_chosen_sizes = new_sizes, True
        elif flags is None and any(size not in (None, getattr(box, what)) for what, size in sizes.items()):
            raise QueueMismatchError("")
        return Handle(self, name, box, not bits & O_NONBLOCK, options.get("read", True), options.get("write", True))

    def unlink(self, name: str) -> None:
        if self.boxes.pop(name, None) is None:
            raise SegmentError("", errno=errno.ENOENT)


@dataclass(eq=False)
class Handle:
    """What has a queue open. Nothing waits here: nobody else is there."""

    model: Model
    name: str
    box: Box
    block: bool
    read: bool
    write: bool
    closed: bool = False
    jobs: list[Job] = field(default_factory=list)

    def _check(self, may: bool = True) -> None:
        if self.closed:
            raise EndpointClosedError("")
        if not may:
            raise QueueAccessError("")

    @property
    def max_messages(self) -> int:
        return self.box.max_messages

    @property
    def max_message_size(self) -> int:
        return self.box.max_message_size

    @property
    def current_messages(self) -> int:
        self._check()
        return len(self.box.waiting())

    @property
    def in_flight(self) -> int:
        self._check()
        return sum(each.taken for each in self.box.letters)

    @property
    def delayed_messages(self) -> int:
        self._check()
        return sum(each.delayed for each in self.box.letters)

    def close(self) -> None:
        for job in self.jobs:
            job.forget()
        self.closed = True

    def unlink(self) -> None:
        self.model.unlink(self.name)

    def wait_space(self, _timeout: float) -> bool:
        self._check(self.write)
        self.box.has_chosen_sizes = True
        return len(self.box.letters) < self.box.max_messages

    def send(
        self, data: bytes, priority: int = 0, *, origin_time: int = 0, delay: float | None = None, **_wait: float
    ) -> None:
        self._check(self.write)
        self.box.has_chosen_sizes = True
        if len(data) > self.box.max_message_size:
            raise MessageTooLargeError("")
        if not self.wait_space(0):
            raise QueueFullError("")
        self.box.sent += 1
        self.box.letters.append(Letter(bytes(data), priority, origin_time, self.box.sent, delayed=bool(delay)))

    def send_many(self, messages: list[bytes], priority: int = 0, **_wait: float) -> int:
        self._check(self.write)
        for count, message in enumerate(messages):
            try:
                self.send(message, priority)
            except QueueFullError:
                return count
        return len(messages)

    def _first(self) -> Letter | None:
        self._check(self.read)
        return next(iter(self.box.waiting()), None)

    def _taken(self) -> Letter | None:
        letter = self._first()
        if letter is not None:
            letter.taken = True
            letter.deliveries += 1
        return letter

    def receive(self, _timeout: float | None = None, **_wait: float) -> Any:
        letter = self._taken()
        if letter is not None:
            self.box.letters.remove(letter)
        return letter

    def receive_many(self, limit: int | None = None) -> list[Any]:
        self._check(self.read)
        most = len(self.box.waiting())
        return [self.receive() for _ in range(most if limit is None else min(limit, most))]

    def receive_into(self, buffer: bytearray, _timeout: float) -> tuple[int, int] | None:
        letter = self._first()
        if letter is None:
            return None
        if len(letter.data) > len(buffer):
            raise MessageTooLargeError("")
        self.receive()
        buffer[: len(letter.data)] = letter.data
        return len(letter.data), letter.priority

    def peek(self, limit: int | None = None) -> list[Any]:
        self._check(self.read)
        return self.box.waiting()[:limit]

    def take(self, _timeout: float | None = None, **_wait: float) -> Job | None:
        letter = self._taken()
        if letter is None:
            return None
        self.jobs.append(job := Job(self, letter))
        return job


class Job:
    """A letter that is somebody's."""

    def __init__(self, handle: Handle, letter: Letter) -> None:
        self.handle, self.letter = handle, letter
        self.data, self.priority, self.origin_time = letter.data, letter.priority, letter.origin_time
        self.deliveries = letter.deliveries
        self.over = self.gone = False

    def _end(self) -> None:
        if self.over:
            raise StateError("")
        if self.handle.closed:
            raise EndpointClosedError("")
        self.over = True

    def ack(self) -> None:
        self._end()
        self.handle.box.letters.remove(self.letter)

    def nack(self, delay: float | None = None) -> None:
        self._end()
        self.letter.taken, self.letter.delayed = False, bool(delay)

    def forget(self) -> None:
        """Nobody has it any more."""
        if not self.over and not self.gone:
            self.letter.taken = False
        self.gone = True

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self.over:
            return
        if kind is None:
            self.ack()
        elif not self.handle.closed:
            self.nack()
