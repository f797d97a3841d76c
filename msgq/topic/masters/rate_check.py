"""Checks of the rate of a topic: the arithmetic behind `SubMaster.alive` and `SubMaster.freq_ok`."""

from __future__ import annotations

import math
from collections import deque

ALIVE_PERIODS = 10
RATE_WINDOW_SECONDS = 10
LOWEST_RATE_FACTOR, HIGHEST_RATE_FACTOR = 0.8, 1.2


class RateCheck:
    """Times of receipt of one topic, and what they say about its rate.

    Alive: the newest message is younger than 10 periods, ``now - newest < 10 / rate``; at exactly 10 it is not, nor
    before the first message.

    The rate is right if the average over a window lies within ``low`` to ``high``, borders included. There are two
    windows, and one of them suffices: the latest 10 seconds' worth of messages, and the newest tenth of those. They are
    counted in intervals between messages, as many as the expected rate brings: ``n = round(10 * expected)`` and ``n //
    10``, the latter at least 1. The average over k intervals from the oldest time to the newest is ``k / (newest -
    oldest)``. A window that is not full averages over what it has, so two messages are the first that can have a rate.

    Silence counts, too: a window fails as soon as even a message now would make too low an average, that is when
    ``now > oldest + (k + 1) / low``.

    Each message costs the same, whatever the rate.

    Parameters
    ----------
    rate : Hz at which the topic is published, above 0.
    expected : Hz at which its messages arrive here, when all is well.
    low, high : Hz that are still right.

    Attributes
    ----------
    alive_until_s : it is alive while ``now < alive_before``.
    rate_ok_until_s : the rate is right while ``now <= rate_ok_until``.
    """

    __slots__ = ("_alive_seconds", "_high", "_low", "_receipt_windows", "alive_until_s", "rate_ok_until_s")

    def __init__(self, rate: float, expected: float, low: float, high: float) -> None:
        self._alive_seconds = ALIVE_PERIODS / rate
        self._low, self._high = low, high
        intervals = round(RATE_WINDOW_SECONDS * expected)
        self._receipt_windows: tuple[deque[float], ...] = (
            deque(maxlen=intervals + 1),
            deque(maxlen=max(1, intervals // 10) + 1),
        )
        self.alive_until_s = self.rate_ok_until_s = -math.inf

    def add_receipt(self, now: float) -> None:
        """A message came at `now`, in seconds, which is not before the former one."""
        self.alive_until_s = now + self._alive_seconds
        self.rate_ok_until_s = -math.inf
        for times in self._receipt_windows:
            times.append(now)
            intervals, span = len(times) - 1, now - times[0]
            # Multiplied, not divided: messages that were drained together have no time between them.
            if intervals and self._low * span <= intervals <= self._high * span:
                self.rate_ok_until_s = max(self.rate_ok_until_s, times[0] + (intervals + 1) / self._low)


def make_rate_check(
    rate: float, update_rate: float | None, is_update_rate_declared: bool, is_waited_for: bool
) -> RateCheck:
    """Return the check of the rate that a conflating subscriber sees.

    It gets at most one message an update, so of two rates the lower one is expected. Who samples, that is does not wait
    for the topic, and has nearly its rate (neither is twice the other or more) finds sometimes two messages, sometimes
    none, as the clocks drift; down to half of what is expected is then right.

    Parameters
    ----------
    rate : Hz at which the topic is published, above 0.
    update_rate : Hz at which the subscriber looks; None: unknown, so all is expected.
    is_update_rate_declared : the update rate was given. Otherwise it is what the awaited topics make it at least, and
        looking more often is no fault of this topic: its own rate sets the upper limit.
    is_waited_for : the subscriber waits for this topic.
    """
    expected = rate if update_rate is None else min(rate, update_rate)
    highest_rate = expected if is_update_rate_declared else rate
    samples_near_rate = not is_waited_for and update_rate is not None and update_rate / 2 < rate < update_rate * 2
    return RateCheck(
        rate,
        expected,
        LOWEST_RATE_FACTOR * expected / (2 if samples_near_rate else 1),
        HIGHEST_RATE_FACTOR * highest_rate,
    )
