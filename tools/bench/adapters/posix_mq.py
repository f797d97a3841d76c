"""posix_ipc: the kernel's message queues."""

# The methods are described in base.py.
# ruff: noqa: D102

import contextlib
import ctypes
import resource
from pathlib import Path
from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Topic, Unsupported, WorkQueue

MOST = 65536  # no kernel allows more
LIMIT = Path("/proc/sys/fs/mqueue/msg_max")
NEW_IPC = 0x08000000  # CLONE_NEWIPC


def _most_messages() -> int:
    try:
        return int(LIMIT.read_text())
    except OSError:
        return 0


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

    def queue(self) -> WorkQueue:
        most = _most_messages()
        if self.topic.depth > most:
            raise Unsupported(f"the kernel allows {most} messages (fs.mqueue.msg_max)")
        queue = self._open()

        def send_ranked(rank: int) -> Call:
            return Call(queue.send, f"message, None, {rank}")

        return WorkQueue(Call(queue.send, "message"), Call(queue.receive), (b"", 0), send_ranked)

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
    def raise_limits(cls) -> None:
        """Take a table of queues of one's own, so that nothing of the machine is changed. Superusers may."""
        if _most_messages() < MOST and not ctypes.CDLL(None).unshare(NEW_IPC):
            with contextlib.suppress(OSError):
                LIMIT.write_text(str(MOST))

    @classmethod
    def sweep(cls, names: list[str]) -> None:
        import posix_ipc

        for name in names:
            with contextlib.suppress(posix_ipc.ExistentialError):
                posix_ipc.unlink_message_queue(f"/{name}")

    def _open(self, **direction: bool) -> Any:
        create = self.posix_ipc.O_CREAT
        refused: Exception | None = None
        for depth in (self.topic.depth, _most_messages()):
            try:
                return self.posix_ipc.MessageQueue(
                    f"/{self.topic.name}", create, max_messages=depth, max_message_size=self.topic.size, **direction
                )
            except (ValueError, OSError, self.posix_ipc.Error) as error:
                refused = error
        raise Unsupported(f"messages of {self.topic.size} bytes: {refused}")
