"""posix_ipc: the kernel's message queues."""

# The methods are described in base.py.
# ruff: noqa: D102

import contextlib
import resource
from pathlib import Path
from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Topic, Unsupported


class PosixQueue(System):
    """A queue as deep as the kernel allows this user."""

    name = "posix_ipc"
    lossless = True
    in_flight = 256
    readers = range(1, 2)

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import posix_ipc

        self.posix_ipc = posix_ipc
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def version(self) -> str:
        return str(self.posix_ipc.VERSION)

    def publisher(self) -> Publisher:
        queue = self._open(read=False)
        return Publisher(Call(queue.send, "message"))

    def subscriber(self) -> Subscriber:
        queue = self._open(write=False)
        receive, empty = queue.receive, self.posix_ipc.BusyError

        def poll() -> Any:
            try:
                return receive(0)
            except empty:
                return None

        return Subscriber(poll=Call(poll), block=Call(receive), stream=Call(receive))

    def open_both(self) -> Any:
        return self._open(read=False), self._open(write=False)

    def remove(self) -> None:
        self.sweep([self.topic.name])

    @classmethod
    def sweep(cls, names: list[str]) -> None:
        import posix_ipc

        for name in names:
            with contextlib.suppress(posix_ipc.ExistentialError):
                posix_ipc.unlink_message_queue(f"/{name}")

    def _open(self, **direction: bool) -> Any:
        create = self.posix_ipc.O_CREAT
        refused: Exception | None = None
        for depth in (min(self.topic.depth, self.in_flight), int(Path("/proc/sys/fs/mqueue/msg_max").read_text())):
            try:
                return self.posix_ipc.MessageQueue(
                    f"/{self.topic.name}", create, max_messages=depth, max_message_size=self.topic.size, **direction
                )
            except (ValueError, OSError, self.posix_ipc.Error) as error:
                refused = error
        raise Unsupported(f"messages of {self.topic.size} bytes: {refused}")
