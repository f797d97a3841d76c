"""What tests of posix_ipc run in other processes, and the fixture's helper that opens queues of either module."""

from __future__ import annotations

import contextlib
import errno
import importlib
from typing import Any

from tests.support import hear, say


def kernel_has_queues() -> bool:
    """Whether posix_ipc can work here at all. Anything but a kernel without message queues is an error."""
    posix_ipc = importlib.import_module("posix_ipc")
    try:
        queue = posix_ipc.MessageQueue(None, posix_ipc.O_CREX, max_messages=1, max_message_size=1)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return False
        raise
    queue.unlink()
    queue.close()
    return True


class Queues:
    """Opens queues of one module by one name, and closes and unlinks them in the end."""

    def __init__(self, module: str, name: str) -> None:
        self.posix = importlib.import_module(module)
        self.module, self.name = module, name
        self.opened: list[Any] = []

    def open(self, flags: int | None = None, *args: Any, **kwargs: Any) -> Any:
        """Open the queue, or make it, for a few small messages unless something else is said."""
        flags = self.posix.O_CREAT if flags is None else flags
        sizes = {"max_messages": 4, "max_message_size": 64} if len(args) < 2 else {}
        queue = self.posix.MessageQueue(self.name, flags, *args, **{**sizes, **kwargs})
        self.opened.append(queue)
        return queue

    def end(self) -> None:
        for queue in self.opened:
            with contextlib.suppress(self.posix.Error):
                queue.close()
        with contextlib.suppress(self.posix.Error):
            self.posix.unlink_message_queue(self.name)


def opened(module: str, name: str) -> tuple[Any, Any]:
    """In a child: the module and the queue."""
    posix = importlib.import_module(module)
    return posix, posix.MessageQueue(name)


def receive_one(module: str, name: str) -> list[Any]:
    """Wait for one message; say when it is about to."""
    _, queue = opened(module, name)
    say("waits")
    message, priority = queue.receive()
    return [message.decode(), priority]


def send_one(module: str, name: str, text: str) -> None:
    """Wait for room; say when it is about to."""
    _, queue = opened(module, name)
    say("waits")
    queue.send(text)


def send_many(module: str, name: str, first: int, count: int) -> None:
    """Send so many numbers, when told to."""
    _, queue = opened(module, name)
    say("ready")
    hear()
    for number in range(first, first + count):
        queue.send(str(number), priority=number % 3)


def ask_for_notification(module: str, name: str) -> None:
    """Say what becomes of a request each time when told to, with the file open until the end."""
    posix, queue = opened(module, name)
    while (said := hear()) is not None:
        try:
            if said == "close":
                queue.close()
            else:
                queue.request_notification(10 if said == "request" else None)
            say("done")
        except posix.BusyError:
            say("busy")
