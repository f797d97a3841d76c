"""Pipes and epoll: a named pipe for each subscriber, and the system calls of the module `os`."""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tools.bench.adapters.base import Call, Polled, Publisher, Subscriber, System


class Pipes(System):
    """A publisher writes each message into the pipes of all subscribers, and waits for room in a full pipe.

    Short messages are written as one piece.
    """

    name = "pipe"
    lossless = True
    readers = range(64)
    keeps_segment = False

    def publisher(self) -> Publisher:
        ends = [self._end(number) for number in range(self.topic.subscribers)]

        def send(message: bytes) -> None:
            for end in ends:
                os.write(end, message)

        return Publisher(Call(send, "message"))

    def subscriber(self) -> Subscriber:
        read = Call(os.read, f"{self._claim()}, {self.topic.size}")
        return Subscriber(poll=read, block=read)

    @classmethod
    def poll(cls, systems: Sequence[Any]) -> Polled:
        epoll = select.epoll()
        for system in systems:
            epoll.register(system._claim(), select.EPOLLIN)
        return Polled(Call(epoll.poll, "timeout / 1000"), Call(os.read, f"ready[0], {systems[0].topic.size}"))

    def watch(self, take: Callable[[Any], None]) -> None:
        end = self._claim()
        read = partial(os.read, end, self.topic.size)
        asyncio.get_running_loop().add_reader(end, lambda: take(read()))

    def _claim(self) -> int:
        """Return the end of the next subscriber."""
        for number in range(self.topic.subscribers):
            try:
                os.close(os.open(f"{self._path(number)}.claim", os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                continue
            return self._end(number)
        raise FileExistsError(f"{self.topic.name} has {self.topic.subscribers} subscribers already")

    def _end(self, number: int) -> int:
        path = self._path(number)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        # Opened for both directions, so that neither process waits for the other here.
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def _path(self, number: int) -> str:
        return f"{self.topic.folder / self.topic.name}.{number}"
