"""Ending when told to: Ctrl-C, and what a supervisor sends."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def call_on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Turn Ctrl-C and a polite kill into a call: everything is swept up before the process ends.

    `stop` may set a `threading.Event` that this thread looks at by `is_set`. Not one on which it waits: a signal in
    the wrong moment of `Event.wait` would find its lock held, and hang.
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
    """Leave the block when Ctrl-C or a polite kill comes, wherever it is; for what goes on until then."""

    def raise_interrupt() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), call_on_interrupt(raise_interrupt):
        yield
