"""Orderly end after Ctrl-C, or after SIGTERM of a supervisor."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from msgq.cli.common.interruption import ENDING_SIGNALS, note_signal


@contextmanager
def call_on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Within the block, call `stop` on Ctrl-C and SIGTERM, so that the command can clean up before it ends.

    `stop` may set a `threading.Event` that this thread reads by `is_set`. This thread must not wait for the event: a
    signal within `Event.wait` could find its lock held, and hang.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        note_signal(number)
        stop()

    before = [signal.signal(number, handle) for number in ENDING_SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(ENDING_SIGNALS, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Leave the block on Ctrl-C or SIGTERM, for commands that run until an interrupt."""

    def raise_interrupt() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), call_on_interrupt(raise_interrupt):
        yield
