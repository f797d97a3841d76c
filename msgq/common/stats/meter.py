"""What meters count of endpoints of every kind, as values. Their public names are in `msgq.stats`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distribution:
    """How figures are spread; percentiles are at most 0.8 % off, `mean`, `min` and `max` exact."""

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
    """What a meter counted on an endpoint.

    Attributes
    ----------
    messages, bytes : seen; None bytes: the sizes are not known, as of a queue without events.
    lost : messages that were published meanwhile, but overwritten before they were seen; None when unknown. Of a vector
        or board these are writes of an element that was written again.
    seconds : for how long it counted.
    span_s : from the first message (or the last one before this count) to the last one.
    periods_us, delays_us : microseconds between messages, and from their publish time until what `measured_until` says.
    sizes : bytes.
    without_timestamp, negative_delays : messages too short to hold a publish time, and with one that is yet to come.
    measured_until : the end of a delay. "seen": when the meter saw the message; "taken": when it was taken first, for a
        queue with events; "now": for the messages that wait in a queue without events.
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
        """Messages a second, also those that were lost; None: too few were seen."""
        if not self.periods_us or not self.span_s:
            return None
        return (self.periods_us.count + (self.lost or 0)) / self.span_s

    @property
    def byte_rate(self) -> float | None:
        """Payload bytes a second, those that were lost taken to be as large as the others; None: too few were seen."""
        return self.rate * self.sizes.mean if self.rate and self.sizes else None
