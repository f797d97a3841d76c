"""Counts of meters on endpoints of every kind, as values. `msgq.stats` exports the names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of a measured quantity. Percentiles are at most 0.8 % off; `mean`, `min` and `max` are exact."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Counts of a meter on one endpoint.

    Attributes:
        messages: number of counted messages.
        bytes: bytes of the counted messages; None: unknown sizes (a queue without events).
        lost: number of messages that were overwritten before the meter read them; None: unknown. For a vector or board,
            the number of values that a later write replaced.
        seconds: duration of the measurement.
        span_s: seconds from the first message to the last one. If messages preceded this measurement, seconds from the
            last of these.
        periods_us: microseconds between messages.
        delays_us: microseconds from the publishing time to the end given by `measured_until`.
        sizes: bytes of the messages.
        without_timestamp: number of messages too short for a publishing time.
        negative_delays: number of messages with a publishing time in the future.
        measured_until: end of a delay. "seen": the meter read the message. "taken": the first consumer took the message
            (a queue with events). "now": the message still waits (a queue without events).
    """

    endpoint: str
    messages: int
    bytes: int | None
    lost: int | None
    seconds: float
    span_s: float
    periods_us: Distribution | None
    sizes: Distribution | None
    delays_us: Distribution | None
    without_timestamp: int
    negative_delays: int
    measured_until: str = "seen"

    @property
    def rate(self) -> float | None:
        """Messages per second, including lost messages. None: too few messages."""
        if not self.periods_us or not self.span_s:
            return None
        return (self.periods_us.count + (self.lost or 0)) / self.span_s

    @property
    def byte_rate(self) -> float | None:
        """Payload bytes per second. Lost messages count with the average size. None: too few messages."""
        return self.rate * self.sizes.mean if self.rate and self.sizes else None
