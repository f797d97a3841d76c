"""Orderly end after Ctrl-C, or after SIGTERM of a supervisor."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def call_on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Within the block, call `stop` on Ctrl-C and SIGTERM, so that the command can clean up before it ends.

    `stop` may set a `threading.Event` that this thread reads by `is_set`. This thread must not wait for the event: a
    signal within `Event.wait` could find its lock held, and hang.
    """
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda *_: stop()) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Leave the block on Ctrl-C or SIGTERM, for commands that run until an interrupt."""

    def raise_interrupt() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), call_on_interrupt(raise_interrupt):
        yield
