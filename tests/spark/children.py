"""What the tests run in other processes; apart from them, so that a child starts without Spark."""

from __future__ import annotations

from functools import partial

from msgq.recording import Recorder
from msgq.recording.output import Limits
from tests.support import hear, say, wait_until


def record(path: str) -> None:
    """Record all there is, in small segments; whenever the parent says a number, wait until there are so many."""
    limits = Limits(split_bytes=20_000)
    with Recorder(path, chunk_seconds=0.02, chunk_bytes=4096, limits=limits) as recorder:
        say()
        while (wanted := hear()) is not None:
            wait_until(partial(reached, recorder, wanted))
            say()


def reached(recorder: Recorder, messages: int) -> bool:
    return recorder.stats().messages >= messages
