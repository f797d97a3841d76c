"""A subscriber that was lapped a moment ago lets messages gather before it has itself woken by the next one."""

from __future__ import annotations

from typing import Any

import pytest

from msgq.channel import Channel
from tests.support import SHM, wait_until

ATTENTION = 320  # offset of the word in which sleepers announce themselves
WAITERS = 1  # flag of this word
MOMENT = 1e-6  # shorter than a nap, so no second sleep follows it


def has_waiting_flag(channel: Channel) -> bool:
    """Return whether publishers have a subscriber to wake."""
    word = (SHM / f"msgqchan_{channel.name}").read_bytes()[ATTENTION : ATTENTION + 4]
    return bool(int.from_bytes(word, "little") & WAITERS)


def receive_all_and_wait(sub: Any) -> None:
    """Receive all that is there, and wait for more."""
    sub.receive_many()
    assert sub.receive(MOMENT) is None


def test_lapped_subscriber_sleeps_without_waiting_flag(endpoint: str) -> None:
    with Channel(endpoint, capacity=16) as channel, channel.subscriber() as sub, channel.publisher() as pub:
        pub.send_many([b""] * 17)
        receive_all_and_wait(sub)
        assert sub.resets == 1
        assert not has_waiting_flag(channel)
        channel.unlink()


def test_subscriber_without_loss_sets_waiting_flag_before_sleep(endpoint: str) -> None:
    with Channel(endpoint, capacity=16) as channel, channel.subscriber() as sub, channel.publisher() as pub:
        pub.send_many([b""] * 16)
        receive_all_and_wait(sub)
        assert sub.resets == 0
        assert has_waiting_flag(channel)
        channel.unlink()


def test_lapped_subscriber_of_small_channel_sets_waiting_flag_before_sleep(endpoint: str) -> None:
    """They would not gather: a nap brings less than wakes do."""
    with Channel(endpoint, capacity=8) as channel, channel.subscriber() as sub, channel.publisher() as pub:
        pub.send_many([b""] * 9)
        receive_all_and_wait(sub)
        assert sub.resets == 1
        assert has_waiting_flag(channel)
        channel.unlink()


@pytest.mark.parametrize("timeout", [0.02, 0.3])
def test_subscriber_sets_waiting_flag_after_short_sleep_without_messages(endpoint: str, timeout: float) -> None:
    with Channel(endpoint, capacity=16) as channel, channel.subscriber() as sub, channel.publisher() as pub:
        pub.send_many([b""] * 17)
        sub.receive_many()
        # again, because a process that waits for its core can wake from the short sleep after the time-out
        wait_until(lambda: sub.receive(timeout) is None and has_waiting_flag(channel))
        channel.unlink()
