"""Each way to wait in a work queue, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgq.workqueue import MessageQueue
from tests.support import DEADLINE

PLACES = 4  # places of the queues in which processes wait

WAITS: dict[str, Callable[[MessageQueue], Any]] = {
    "receive": lambda queue: queue.receive(DEADLINE),
    "receive for ever": lambda queue: queue.receive(),
    "take": lambda queue: queue.take(DEADLINE),
    "receive_into": lambda queue: queue.receive_into(bytearray(64), DEADLINE),
    "iterate": next,
    "send": lambda queue: queue.send(b"late", timeout=DEADLINE),
    "send_many": lambda queue: queue.send_many([b"late"], timeout=DEADLINE),
    "wait_space": lambda queue: queue.wait_space(DEADLINE),
}
RECEIVES = ("receive", "receive for ever", "take", "receive_into", "iterate")


def prepare(queue: MessageQueue, wait: str) -> None:
    """Make it wait."""
    if wait not in RECEIVES:
        queue.send_many([b"early"] * PLACES)


def let_go_on(other: MessageQueue, wait: str, times: int = 1) -> None:
    """Give what is waited for."""
    for _ in range(times):
        if wait in RECEIVES:
            other.send(b"late")
        else:
            assert other.receive(DEADLINE) is not None
