"""Hostile bytes in a channel's files, under real publishers and subscribers: errors of our own tree, or nothing."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
from typing import Any

import numpy as np
import pytest

from msgq.channel import Channel
from msgq.errors import CorruptSegmentError, IpcError
from tests.support import SHM, run_child

CAPACITY = 16
CONFIG, TAIL, PUBLISHERS, ENTRIES = 128, 256, 4096, 36864  # offsets in the channel file
HEADER_WORDS = [CONFIG, TAIL, *range(PUBLISHERS, PUBLISHERS + 512, 8), *range(ENTRIES, ENTRIES + 8 * CAPACITY, 8)]


class Scribbler:
    """Writes words where they steer: into the channel file, and into the heads and slots of pools."""

    def __init__(self, endpoint: str, rng: random.Random) -> None:
        self._endpoint, self._rng = endpoint, rng
        self._header = self._map(f"msgqchan_{endpoint}")

    def _map(self, name: str) -> mmap.mmap:
        with (SHM / name).open("r+b") as file:
            return mmap.mmap(file.fileno(), 0)

    def _value(self) -> int:
        rng, tail = self._rng, int.from_bytes(self._header[TAIL : TAIL + 8], "little")
        entry = (tail + rng.randrange(-40, 40)) << 20 | rng.randrange(64) << 14 | rng.randrange(40)
        return rng.choice((rng.getrandbits(64), rng.randrange(70), -rng.randrange(70), 1 << 63, tail, entry)) % 2**64

    def write(self, count: int) -> None:
        for _ in range(count):
            where, words = self._header, HEADER_WORDS
            names = [name for name in os.listdir(SHM) if name.startswith(f"msgqpool_{self._endpoint}:")]
            if names and self._rng.random() < 0.4:
                where = self._map(self._rng.choice(names))
                words = [*range(0, 256, 8), *range(256, 256 + 64 * 20, 64), *range(4096, len(where) - 8, 192)]
            at = self._rng.choice(words)
            where[at : at + 8] = self._value().to_bytes(8, "little")


def call_ignoring_ipc_errors(call: Any, *args: Any, **options: Any) -> Any:
    with contextlib.suppress(IpcError):
        return call(*args, **options)
    return None


def round_of(endpoint: str, rng: random.Random) -> None:
    """Do all that there is on a channel that somebody scribbles on; only errors of ours may come of it."""
    with Channel(endpoint, capacity=CAPACITY, create=True) as channel, contextlib.ExitStack() as stack:
        stack.callback(call_ignoring_ipc_errors, channel.unlink)
        scribbler = Scribbler(endpoint, rng)
        publishers = [channel.publisher(slot_bytes=64) for _ in range(2)]
        subscribers = [channel.subscriber(history=rng.randrange(40), conflate=i == 2) for i in range(4)]
        views = []
        for _ in range(60):
            scribbler.write(rng.randrange(3))
            publisher, subscriber = rng.choice(publishers), rng.choice(subscribers)
            match rng.randrange(12):
                case 0 | 1 | 2 | 3:
                    call_ignoring_ipc_errors(publisher.send, bytes(rng.randrange(65)))
                case 4:
                    call_ignoring_ipc_errors(publisher.send, bytes(rng.randrange(1000)))
                case 5:
                    if (view := call_ignoring_ipc_errors(subscriber.receive_view, 0)) is not None:
                        views.append(view)
                        bytes(view)
                case 6:
                    while views:
                        views.pop().release()
                case 7:
                    call_ignoring_ipc_errors(subscriber.receive_many)
                case 8:
                    call_ignoring_ipc_errors(subscriber.receive_array, np.dtype("u8"))
                case 9:
                    if (newcomer := call_ignoring_ipc_errors(channel.publisher)) is not None:
                        publishers[rng.randrange(2)].close()
                        publishers = [*publishers[1:], newcomer]
                case 10:
                    call_ignoring_ipc_errors(channel.diagnose)
                    call_ignoring_ipc_errors(lambda: (channel.messages, channel.schema, channel.capacity))
                case _:
                    call_ignoring_ipc_errors(subscriber.receive, 0)
        for each in (*views, *publishers, *subscribers):
            call_ignoring_ipc_errors(each.release if each in views else each.close)


def run_hostile_rounds(endpoint: str, seed: int, count: int) -> int:
    """Child: so many rounds; it dies of anything but our errors."""
    for number in range(count):
        round_of(f"{endpoint}-{number}", random.Random(f"{seed}/{number}"))
    return count


def sweep_up(endpoint: str) -> None:
    for path in SHM.glob(f"msgq*_{endpoint}-*"):
        path.unlink()


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.ci)])
def test_corrupt_channel_file_raises_only_msgq_errors(endpoint: str, seed: int, count: int) -> None:
    """What: two publishers and four subscribers work while words of their files are rewritten.

    Why: each of these words can be written by any process of the user.

    Failure would mean: a process dies, hangs, or gets an error that nobody expects, because of a bad word.
    """
    try:
        assert run_child(run_hostile_rounds, endpoint, seed, count) == count
    finally:
        sweep_up(endpoint)


def write_channel_word(endpoint: str, offset: int, value: int) -> None:
    with (SHM / f"msgqchan_{endpoint}").open("r+b") as channel_file:
        channel_file.seek(offset)
        channel_file.write(value.to_bytes(8, "little"))


def test_channel_file_with_invalid_capacity_raises_and_stays_unchanged(endpoint: str) -> None:
    with Channel(endpoint, create=True) as channel:
        try:
            for capacity in (1, 48, 16384, 65535):
                write_channel_word(endpoint, CONFIG, capacity)
                with pytest.raises(CorruptSegmentError, match=f"invalid capacity {capacity}"):
                    channel.publisher()
                assert channel.messages == 0
            write_channel_word(endpoint, CONFIG, 0)
            channel.publisher().close()
        finally:
            channel.unlink()


def test_receive_array_allocates_at_most_channel_capacity(endpoint: str) -> None:
    with Channel(endpoint, capacity=CAPACITY, create=True) as channel:
        try:
            subscriber = channel.subscriber()
            with channel.publisher() as publisher:
                publisher.send(bytes(8))
            write_channel_word(endpoint, TAIL, 1 << 62)
            assert len(subscriber.receive_array("u8")) == 1
            subscriber.close()
        finally:
            channel.unlink()


def test_receive_many_returns_message_before_corrupt_tail(endpoint: str) -> None:
    """Its publisher was killed between its entry and the tail."""
    with Channel(endpoint, capacity=CAPACITY, create=True) as channel:
        try:
            subscriber = channel.subscriber()
            with channel.publisher() as publisher:
                publisher.send(b"whole")
            write_channel_word(endpoint, TAIL, CAPACITY)
            assert subscriber.receive_many() == [b"whole"]
            assert subscriber.receive_many() == []
            subscriber.close()
        finally:
            channel.unlink()
