"""The loop at a steady rate, on a clock of the test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from msgq.common import rate_loop as module
from msgq.common.rate_loop import rate_loop


class Clock:
    """A clock that only waits advance, and a stop signal that is set at a time."""

    def __init__(self, stop_s: float = 10.0) -> None:
        self.now_s, self.stop_s = 100.0, 100.0 + stop_s
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def is_set(self) -> bool:
        return self.now_s >= self.stop_s

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        self.now_s = min(self.now_s + timeout, max(self.now_s, self.stop_s))
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_rate_loop_waits_one_period_between_ticks(clock: Clock) -> None:
    assert list(rate_loop(4, clock)) == list(range(40))
    assert clock.waits == [0.25] * 40


def test_rate_loop_with_slow_body_keeps_its_rate(clock: Clock) -> None:
    ticks = 0
    for _ in rate_loop(4, clock):
        ticks += 1
        clock.now_s += 0.125
    assert ticks == 40
    assert clock.waits == [0.125] * 40


def test_rate_loop_after_long_delay_makes_up_for_one_period_only(clock: Clock) -> None:
    for tick in rate_loop(4, clock):
        clock.now_s += 3.0 if tick == 0 else 0.0
    assert clock.waits[:3] == [0.0, 0.0, 0.25]


def test_rate_loop_stops_during_its_wait(clock: Clock) -> None:
    clock.stop_s = clock.now_s + 0.1
    assert list(rate_loop(4, clock)) == [0]
    assert list(rate_loop(4, clock)) == []
