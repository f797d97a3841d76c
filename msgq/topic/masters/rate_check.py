"""Expected rates of topics, and the limits that `SubMaster.freq_ok` allows."""

from __future__ import annotations

from msgq.topic.masters.topic_receiver import RateCheck

LOWEST_RATE_FACTOR, HIGHEST_RATE_FACTOR = 0.8, 1.2


def make_rate_check(
    rate: float, update_rate: float | None, is_update_rate_declared: bool, is_waited_for: bool
) -> RateCheck:
    """Return the check of the rate that a conflating subscriber sees.

    The subscriber gets at most one message per update, so the lower of two rates is expected. A sampling subscriber
    does not wait for the topic. If its rate and the topic's differ by less than a factor of 2, an update sometimes
    finds two messages and sometimes none, because the clocks drift. Half of the expected rate is then correct.

    Args:
        rate: publishing rate of the topic in Hz, above 0.
        update_rate: rate of the subscriber's updates in Hz; None: unknown, so the full rate is expected.
        is_update_rate_declared: True if the user gave the update rate. Otherwise the awaited topics determine the
            lowest update rate, and the upper limit follows from the topic's own rate.
        is_waited_for: True if the subscriber waits for this topic.
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
