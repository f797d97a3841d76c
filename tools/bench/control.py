"""A few words of shared memory beside the measured channel: how far the subscriber is, and where the end is.

They carry the credits of systems that would otherwise lose messages, and the end of every measurement. They are
touched once a batch of messages, not once a message, and alike for all systems.
"""

import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECEIVED = 0
TOTAL = 8
OWN = 16  # and following: a word for each process beside the first one
STAMP = RECEIVED  # time of the newest frame, in rows without credits
SIZE = 512  # bytes
LOOK_S = 0.0002


def create(path: Path) -> memoryview:
    """Make the file of the words, all 0, and map it."""
    path.write_bytes(bytes(SIZE))
    return words(path)


def words(path: Path) -> memoryview:
    """Map the words of an existing file.

    Returns:
        Unsigned 64-bit integers. ``words[RECEIVED]`` is written by the subscriber: messages taken so far.
        ``words[TOTAL]`` is written by the publisher before it sends its last batch: when that many are taken, all is
        over; until then 0. They are 64 bytes apart, a cache line each.
    """
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), SIZE)).cast("Q")


def wait_until(happened: Callable[[], Any], look_s: float = LOOK_S) -> None:
    """Wait for another process; this process's own limit ends it when the other has failed."""
    while not happened():
        time.sleep(look_s)
