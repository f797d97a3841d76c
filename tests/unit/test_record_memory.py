"""Values of vectors in a process without memory."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import msgq
from tests.support import Child

LARGE = np.dtype([("number", "i8"), ("room", "u1", (3 << 20,))])


def read_without_memory(endpoint: str) -> list[int]:
    """In a child: keep two values, fail to read the third one for want of memory, and read it again."""
    vector = msgq.SeqlockVector(endpoint, LARGE, 3)
    vector.write(range(3), np.array([(number, 0) for number in range(3)], LARGE))
    kept = [vector[0], vector[1]]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    filling = []
    resource.setrlimit(resource.RLIMIT_AS, (used, limits[1]))
    try:
        with suppress(MemoryError):
            while True:
                filling.append(np.empty(1 << 20, "u1"))  # takes memory that the process has freed
        with pytest.raises(MemoryError):
            _ = vector[2]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    vector.unlink()
    return [int(vector[2]["number"]), *(int(value["number"]) for value in kept)]


def test_values_keep_their_content_after_failed_allocation(token: str) -> None:
    with Child(read_without_memory, token) as child:
        assert child.result() == [2, 0, 1]
