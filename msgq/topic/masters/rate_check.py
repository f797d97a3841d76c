"""Check of a topic's rate, used by `SubMaster.alive` and `SubMaster.freq_ok`."""

from __future__ import annotations

import math
from collections import deque

ALIVE_PERIODS = 10
RATE_WINDOW_SECONDS = 10
LOWEST_RATE_FACTOR, HIGHEST_RATE_FACTOR = 0.8, 1.2


class RateCheck:
    """Receipt times of one topic, and the check of its rate.

    Alive: the newest message is younger than 10 periods, ``now - newest < 10 / rate``. A topic is not alive at exactly
    10 periods, and not before its first message.

    Rate: the average rate over a window must be ``low`` to ``high``, limits included. Of two windows, one is enough.
    The windows have ``n = round(10 * expected)`` and ``max(1, n // 10)`` intervals between messages. The average over k
    intervals is ``k / (newest - oldest)``. A window that is not full uses its messages, so two messages are the first
    that have a rate.

    Silence: a window fails when a message that arrives now would give a too low average, ``now > oldest + (k + 1) /
    low``.

    Each message costs the same time at any rate.

    Parameters
    ----------
    rate : publishing rate of the topic in Hz, above 0.
    expected : expected rate of arrival in Hz.
    low, high : lowest and highest correct rate in Hz.

    Attributes
    ----------
    alive_until_s : end of the alive state, in seconds of the clock: alive while ``now < alive_until_s``.
    rate_ok_until_s : end of the correct rate, in seconds of the clock: right while ``now <= rate_ok_until_s``.
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
        """Add a message that arrived at `now` seconds. Times must not go back."""
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

    The subscriber gets at most one message per update, so the lower of two rates is expected. A sampling subscriber
    does not wait for the topic. If its rate and the topic's differ by less than a factor of 2, an update sometimes
    finds two messages and sometimes none, because the clocks drift. Half of the expected rate is then correct.

    Parameters
    ----------
    rate : publishing rate of the topic in Hz, above 0.
    update_rate : rate of the subscriber's updates in Hz; None: unknown, so the full rate is expected.
    is_update_rate_declared : True if the user gave the update rate. Otherwise the awaited topics determine the lowest
        update rate, and the upper limit follows from the topic's own rate.
    is_waited_for : True if the subscriber waits for this topic.
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
