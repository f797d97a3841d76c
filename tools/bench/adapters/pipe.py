"""multiprocessing.Pipe: the standard library's way to send bytes to another process."""

import os
from multiprocessing import Pipe as new_pipe
from multiprocessing.connection import Connection
from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Unsupported, WorkQueue, unlink

PIPE_BYTES = 65536
HEADER_BYTES = 4


class Pipe(System):
    """A named pipe whose ends are `Connection` objects, as the ends of `Pipe(duplex=False)`.

    The name is needed because the measured processes are not related.
    """

    name = "pipe"
    lossless = True
    readers = range(1, 2)
    keeps_segment = False

    def publisher(self) -> Publisher:
        end = self._end(readable=False)
        return Publisher(Call(end.send_bytes, "message"))

    def subscriber(self) -> Subscriber:
        end = self._end(readable=True)
        ready, receive = end.poll, end.recv_bytes

        def poll() -> bytes | None:
            return receive() if ready(0) else None

        return Subscriber(poll=Call(poll), block=Call(receive), stream=Call(receive))

    def queue(self, *, sends: bool = True, receives: bool = True) -> WorkQueue:
        """Return both ends; it has 64 KiB, whatever the depth."""
        send, receive = self._end(readable=False), self._end(readable=True)
        if self.topic.depth * (self.topic.size + HEADER_BYTES) > PIPE_BYTES:
            raise Unsupported("a pipe holds 64 KiB")
        return WorkQueue(Call(send.send_bytes, "message"), Call(receive.recv_bytes), b"", shared=False)

    def open_both(self) -> Any:
        return new_pipe(duplex=False)

    def remove(self) -> None:
        unlink(self._path())

    def _path(self) -> str:
        return str(self.topic.folder / self.topic.name)

    def _end(self, *, readable: bool) -> "Connection[Any, Any]":
        if not os.path.exists(self._path()):
            os.mkfifo(self._path())
        # Opened for both directions, so that neither process waits for the other here.
        return Connection(os.open(self._path(), os.O_RDWR | os.O_CLOEXEC), readable=readable, writable=not readable)
