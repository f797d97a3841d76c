"""multiprocessing.Queue: the standard library's queue."""

import os
import pickle
from multiprocessing import connection, get_context, queues, synchronize
from pathlib import Path
from queue import Empty
from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, WorkQueue, poll_or_none

_kept: list[Any] = []  # their names go with them


class MpQueue(System):
    """One queue in processes that are not related: its semaphores have names, and its pipe gets one.

    Sending is done by a thread of its own, so that a send that has returned may still be on its way.
    """

    name = "mp-queue"
    lossless = True
    keeps_segment = False

    def queue(self, *, sends: bool = True, receives: bool = True) -> WorkQueue:
        queue = self._open()
        return WorkQueue(Call(queue.put, "message"), Call(queue.get), b"")

    def publisher(self) -> Publisher:
        return Publisher(Call(self._open().put, "message"))

    def subscriber(self) -> Subscriber:
        queue = self._open()
        return Subscriber(poll=poll_or_none(queue.get_nowait, Empty), block=Call(queue.get))

    def _open(self) -> Any:
        """Return the queue like an unpickled one, with the semaphores and the pipe of the first process."""
        path = self.topic.folder / f"{self.topic.name}.locks"
        if not path.exists():
            self._make(path)
        states = pickle.loads(path.read_bytes())
        kinds = (synchronize.Lock, synchronize.Lock, synchronize.BoundedSemaphore)
        locks = [_restore(kind, state) for kind, state in zip(kinds, states, strict=True)]
        fifo = os.fspath(self.topic.folder / self.topic.name)
        # Opened for both directions, so that neither process waits for the other here.
        ends = [
            connection.Connection(os.open(fifo, os.O_RDWR | os.O_CLOEXEC), readable=reads, writable=not reads)
            for reads in (True, False)
        ]
        return _restore(queues.Queue, (False, self.topic.depth, *ends, *locks, os.getpid()))

    def _make(self, path: Path) -> None:
        context = get_context("spawn")  # its semaphores keep their names
        semaphores: tuple[Any, ...] = context.Lock(), context.Lock(), context.BoundedSemaphore(self.topic.depth)
        _kept.append(semaphores)
        states = [(0, lock._semlock.kind, lock._semlock.maxvalue, lock._semlock.name) for lock in semaphores]
        os.mkfifo(self.topic.folder / self.topic.name)
        draft = path.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(states))
        draft.rename(path)


def _restore(kind: Any, state: Any) -> Any:
    restored = kind.__new__(kind)
    restored.__setstate__(state)
    return restored
