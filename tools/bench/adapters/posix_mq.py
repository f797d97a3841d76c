"""posix_ipc: the kernel's message queues."""

import contextlib
import ctypes
import resource
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Topic, Unsupported, WorkQueue, poll_or_none

LIMITS = Path("/proc/sys/fs/mqueue")
HIGHEST = {"msg_max": 65536, "msgsize_max": 1 << 24}  # no kernel allows more
NEW_IPC = 0x08000000  # CLONE_NEWIPC


def _limit(name: str) -> int:
    try:
        return int((LIMITS / name).read_text())
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

    def queue(self, *, sends: bool = True, receives: bool = True) -> WorkQueue:
        queue = self._open(exact=True, read=receives, write=sends)

        def send_ranked(rank: int) -> Call:
            return Call(queue.send, f"message, None, {rank}")

        return WorkQueue(Call(queue.send, "message"), Call(queue.receive), (b"", 0), send_ranked)

    def publisher(self) -> Publisher:
        queue = self._open(read=False)
        return Publisher(Call(queue.send, "message"))

    def subscriber(self) -> Subscriber:
        queue = self._open(write=False)
        poll = poll_or_none(partial(queue.receive, 0), self.posix_ipc.BusyError)
        block = Call(queue.receive, form="CALL()[0]")  # without the priority
        return Subscriber(poll, block, stream=Call(queue.receive))

    def open_both(self) -> Any:
        return self._open(read=False), self._open(write=False)

    def remove(self) -> None:
        self.sweep([self.topic.name])

    @classmethod
    def raise_limits(cls) -> None:
        """Take a table of queues of one's own, so that nothing of the machine is changed. Superusers may."""
        if _limit("msg_max") < HIGHEST["msg_max"] and not ctypes.CDLL(None).unshare(NEW_IPC):
            for name, value in HIGHEST.items():
                with contextlib.suppress(OSError):
                    (LIMITS / name).write_text(str(value))

    @classmethod
    def sweep(cls, names: list[str]) -> None:
        import posix_ipc

        for name in names:
            with contextlib.suppress(posix_ipc.ExistentialError):
                posix_ipc.unlink_message_queue(f"/{name}")

    def _open(self, *, exact: bool = False, **direction: bool) -> Any:
        """Open the queue. If the kernel does not allow `depth` messages, allow fewer messages, except with `exact`."""
        create, size = self.posix_ipc.O_CREAT, self.topic.size
        depth = self.topic.depth
        while True:
            try:
                return self.posix_ipc.MessageQueue(
                    f"/{self.topic.name}", create, max_messages=depth, max_message_size=size, **direction
                )
            except (ValueError, OSError, self.posix_ipc.Error) as error:
                if exact or depth == 1:
                    messages = f"{depth:,} messages" if exact else "a message"
                    raise Unsupported(f"{messages} of {size:,} bytes: {self._explain(depth, error)}") from error
            depth //= 2

    def _explain(self, depth: int, error: Exception) -> str:
        """Return the exceeded limit of the kernel, because the error does not name the limit."""
        requested = {"msg_max": depth, "msgsize_max": self.topic.size}
        for name, value in requested.items():
            if value > _limit(name):
                return f"the kernel allows {_limit(name):,} (fs.mqueue.{name})"
        if str(error).endswith("files open"):  # EMFILE: the message queues of the user are too large
            allowed = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[0]
            return f"the queues of a user may have {allowed:,} bytes (RLIMIT_MSGQUEUE)"
        return str(error)
