"""Our side of the interoperation tests, with the face of the stock side."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any, Self

import pytest

import msgq
from tests.stock import DATA_SIZE, Header, StockPublisher, Tally, message, segment_path, sequence_of
from tests.support import DEADLINE_MS, wait_asleep, wait_until

SMALL_RING = 1 << 16
LAP = 70_000  # bytes: more than one turn of the small ring
KINDS = pytest.mark.parametrize("kind", ["stock", "ours"])


def remove(endpoint: str) -> None:
    ring = segment_path(endpoint)
    for path in (ring, Path(str(ring).replace("/msgq_", "/msgqside_"))):
        path.unlink(missing_ok=True)


def subscriber(endpoint: str, timeout_ms: int = DEADLINE_MS, **options: Any) -> msgq.SubSocket:
    socket = msgq.SubSocket()
    socket.connect(msgq.Context(), endpoint, **options)
    socket.setTimeout(timeout_ms)
    return socket


class OurPublisher:
    """Our PubSocket with the face of a StockPublisher."""

    def __init__(self, endpoint: str, data_size: int = 0) -> None:
        self.socket = msgq.PubSocket()
        self.socket.connect(msgq.Context(), endpoint, data_size)

    def send(self, sequence: int, size: int = 64) -> None:
        self.socket.send(message(sequence, size))

    def flood(self, count: int, smallest: int = 64, largest: int = 64, *, first: int = 0, seed: int = 1) -> None:
        sizes = random.Random(seed)
        for sequence in range(first, first + count):
            self.socket.send(message(sequence, sizes.randint(smallest, largest)))

    def all_readers_updated(self) -> bool:
        return self.socket.all_readers_updated()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def publisher(kind: str, endpoint: str, data_size: int = DATA_SIZE) -> Any:
    return StockPublisher(endpoint, data_size) if kind == "stock" else OurPublisher(endpoint, data_size)


def sequences(socket: msgq.SubSocket) -> list[int | None]:
    """Take all that is there."""
    return [sequence_of(data) for data in socket.receive_many()]


def collect(socket: msgq.SubSocket, last: int, tally: Tally | None = None) -> Tally:
    tally = tally or Tally()
    while tally.last < last:
        messages = socket.receive_many(wait_for_one=True)
        assert messages, f"nothing came after {tally}"
        tally.add(messages)
    return tally


class Receiving(threading.Thread):
    """A thread that blocks in `receive` for ever, `rounds` times, or until its socket is closed."""

    def __init__(self, socket: msgq.SubSocket, rounds: int = 1) -> None:
        super().__init__(daemon=True)
        self.socket, self.rounds = socket, rounds
        self.got: list[int | None] = []
        socket.setTimeout(-1)
        self.start()

    def run(self) -> None:
        with contextlib.suppress(msgq.errors.EndpointClosedError):
            for _ in range(self.rounds):
                data = self.socket.receive()
                assert data is not None
                self.got.append(sequence_of(data))

    def wait_asleep(self) -> None:
        wait_asleep(os.getpid(), self.native_id)

    def wait_for(self, count: int) -> list[int | None]:
        wait_until(lambda: len(self.got) >= count, f"message {count} wakes the receiving thread, {self.got} came")
        return self.got


def wait_joined(pub: StockPublisher) -> None:
    """Wait until somebody noticed that this stock publisher started, and took a slot that it can signal."""
    wait_until(lambda: any(uid & 0xFFFF_FFFF for uid in pub.header().read_uids), "a reader joins the stock publisher")


def signal_state() -> tuple[Any, str, str]:
    """Return what Python and what the kernel hold for SIGUSR2: handler, caught set, blocked set of this thread."""
    fields = dict(
        line.split(":\t") for line in Path("/proc/thread-self/status").read_text().splitlines() if "\t" in line
    )
    return signal.getsignal(signal.SIGUSR2), fields["SigCgt"], fields["SigBlk"]


def new_slots(before: Header, after: Header) -> list[int]:
    """Return the slots that are owned after, by others than before."""
    return [i for i, uid in enumerate(after.read_uids) if uid not in (0, before.read_uids[i])]
