"""What tests of frames share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from visionipc import VisionIpcClient, VisionIpcServer
from visionipc.server import SPARE_BUFFERS

WIDTH, HEIGHT = 64, 48
BUFFERS = 4  # buffers of the stream of `server`
ALL_BUFFERS = BUFFERS + SPARE_BUFFERS
SOCKETS = Path("/tmp")
LOCKS = Path(f"/dev/shm/msgqframes_{os.geteuid()}")


def mappings(kib: int) -> list[tuple[str, int]]:
    """Return rights and resident KiB of this process's mappings of memfds of this size."""
    found: list[tuple[str, int]] = []
    rights, size = "", 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, value, *_ = line.split()
        if not key.endswith(":"):
            rights = value if "/memfd:" in line else ""
        elif key == "Size:":
            size = int(value)
        elif key == "Rss:" and rights and size == kib:
            found.append((rights, int(value)))
    return sorted(found)


@pytest.fixture
def name(prefix: str, token: str) -> str:
    """A server's name, under a prefix of the test alone."""
    return token


@pytest.fixture
def server(name: str) -> Iterator[VisionIpcServer]:
    """A server that listens, with one stream, 0: four buffers of NV12."""
    with VisionIpcServer(name) as made:
        made.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
        made.start_listener()
        yield made


@pytest.fixture
def connect(name: str) -> Iterator[Callable[..., VisionIpcClient]]:
    """A function that returns another connected client of the server."""
    made: list[VisionIpcClient] = []

    def connected(kind: int = 0, conflate: bool = False) -> VisionIpcClient:
        client = VisionIpcClient(name, kind, conflate)
        made.append(client)
        assert client.connect(True)
        return client

    yield connected
    for client in made:
        client.close()
