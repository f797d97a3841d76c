"""A process whose signal handler forks while `close` waits for other threads: python -m tests.unit.close_forks KIND."""

from __future__ import annotations

import ctypes
import operator
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import msgq
from msgq.errors import IpcError
from tests.support import wait_until

ATTEMPTS = 5
WAITING_THREADS = 8
RAISE_SIGNAL = getattr(ctypes.CDLL(None), "raise")


def open_handle(kind: str, name: str) -> tuple[Any, Callable[[], object], int]:
    """Return a handle, a call that waits, and how many threads may wait at the same time."""
    if kind == "queue":
        queue = msgq.MessageQueue(name, create=True)
        return queue, queue.receive, WAITING_THREADS
    if kind == "publisher":
        publisher = msgq.Channel(name).publisher(slots=1, slot_bytes=64)
        loan = publisher.loan(8)
        return publisher, partial(wait_for_slot, publisher, loan), 1
    subscriber = msgq.sub_sock(name)
    return subscriber, partial(subscriber.receive, True), 1


def wait_for_slot(publisher: Any, _loan: Any) -> None:
    publisher.send(b"message", timeout=60)


def close_in_fork(kind: str) -> int:
    """Close a handle during waits; return the exit status of the child that the signal handler forked."""
    name = f"t{uuid4().hex[:12]}"
    handle, wait, count = open_handle(kind, name)
    entered: list[int] = []

    def wait_quietly() -> None:
        entered.append(1)
        with suppress(IpcError):
            wait()

    threads = [threading.Thread(target=wait_quietly, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(entered) == count)
    pids: list[int] = []

    def fork_once(*_: object) -> None:
        if not pids:
            pids.append(os.fork())

    signal.signal(signal.SIGUSR1, fork_once)
    # One call in C raises the signal and calls `close`, so that the handler runs inside `close`.
    calls = map(operator.call, [partial(RAISE_SIGNAL, signal.SIGUSR1), handle.close])
    deque(calls, maxlen=0)
    wait_until(lambda: pids)  # a close that waits for no thread runs no handler, and Python may run it later
    if not pids[0]:
        os._exit(0 if handle.closed else 3)
    status = wait_for_child(pids[0])
    for thread in threads:
        thread.join()
    return status


def wait_for_child(pid: int) -> int:
    ended: list[int] = []

    def poll() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.append(os.waitstatus_to_exitcode(status))
        return bool(found)

    try:
        wait_until(poll)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    return ended[0]


if __name__ == "__main__":
    statuses = [close_in_fork(sys.argv[1]) for _ in range(ATTEMPTS)]
    sys.exit(max(statuses))
