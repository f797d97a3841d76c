"""What the levels in Python share: calls that must end, by a result or an IpcError, and rounds of them."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import random
import sys
import time
from collections.abc import Callable, Iterator

import msgq

CALL_SECONDS = 20.0  # a watchdog, not a measure; a call may wait 1 s for a lock, a publisher or a server


@contextlib.contextmanager
def watchdog() -> Iterator[None]:
    """Let a call raise an IpcError, and nothing else, and not last too long."""
    faulthandler.dump_traceback_later(CALL_SECONDS, exit=True)
    try:
        with contextlib.suppress(msgq.IpcError):
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def run_rounds(run_round: Callable[[random.Random], None]) -> None:
    """Run rounds, as the command line says, until the time or their number is over; say the number of each."""
    parser = argparse.ArgumentParser()
    for name in ("--seed", "--first", "--rounds"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    faulthandler.enable()
    end = time.monotonic() + options.seconds
    done = options.first
    while done < options.first + options.rounds and time.monotonic() < end:
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()
        run_round(random.Random(f"{options.seed}/{done}"))
        done += 1
