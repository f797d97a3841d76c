"""Entries that lead from one to the next, round and round: each call on a channel of such words ends."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import pytest

from msgq.channel import Channel
from msgq.errors import CorruptSegmentError, MessageTooLargeError
from tests.support import SHM

CAPACITY = 16
TAIL, ENTRIES = 256, 36864  # offsets in the channel file
POSITIONS = 2**44
WITHDRAWN = 63  # the row of an entry without a message


@pytest.fixture
def channel(endpoint: str) -> Iterator[Channel]:
    with Channel(endpoint, capacity=CAPACITY, create=True) as channel:
        yield channel
        channel.unlink()


def lead_round(channel: Channel, row: int, start: int, margin: int, tail: int) -> None:
    """Write entries that send a cursor from `start` ahead, to an entry of this row, ahead again, and back to `start`.

    An entry that is ahead of the cursor tells it that it was lapped; it goes on `margin` behind the oldest message.
    """
    with (SHM / f"msgqchan_{channel.name}").open("r+b") as file:
        channel_file = mmap.mmap(file.fileno(), 0)

    def write(cursor: int, position: int, row: int) -> None:
        at = ENTRIES + 8 * (cursor % CAPACITY)
        channel_file[at : at + 8] = (position % POSITIONS << 20 | row << 14).to_bytes(8, "little")

    cursor = start
    for ahead in (*[POSITIONS // 4 - margin] * 3, POSITIONS // 4 + 56 - margin):
        write(cursor, cursor + ahead, 0)
        cursor += ahead + 1 - CAPACITY + margin
        write(cursor, cursor, row)
        cursor += 1
    assert cursor == start + POSITIONS
    channel_file[TAIL : TAIL + 8] = tail.to_bytes(8, "little")


@pytest.mark.watchdog(30.0)
@pytest.mark.parametrize("passive", [False, True])
def test_receive_raises_if_corrupt_file_has_endless_withdrawn_messages(channel: Channel, passive: bool) -> None:
    with channel.publisher() as pub, Channel(channel.name, passive=passive) as other, other.subscriber() as sub:
        for _ in range(6):  # brings the subscriber to its maximum distance behind the oldest message
            pub.send_many([b"x"] * 2 * CAPACITY)
            with pytest.raises(MessageTooLargeError):
                sub.receive_into(bytearray(0), 0)
        lead_round(channel, WITHDRAWN, sub.position, CAPACITY // 2, sub.position)
        for timeout in (0, 5.0, None):
            with pytest.raises(CorruptSegmentError, match="another program wrote into the file"):
                sub.receive(timeout)


@pytest.mark.watchdog(30.0)
@pytest.mark.parametrize("receive", ["receive_many", "receive_array"])
def test_receive_many_returns_at_most_capacity_messages_of_corrupt_file(channel: Channel, receive: str) -> None:
    with channel.publisher() as pub, Channel(channel.name, passive=True) as other, other.subscriber() as sub:
        pub.send(b"1")
        lead_round(channel, 0, sub.position, 0, 2**63)
        taken: Any = sub.receive_many() if receive == "receive_many" else sub.receive_array("u1")
        assert 0 < len(taken) <= CAPACITY
        assert 0 < len(sub.receive_many(2**62)) <= CAPACITY
