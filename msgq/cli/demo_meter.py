"""Measuring what arrives: counts, sequence gaps, and latencies in a histogram of constant size."""

import time

from msgq.cli.demo_plan import EXACT, Flow, Reading, Restart

# published_ns (CLOCK_MONOTONIC, the same clock in every process), sequence, pid of the publisher
Stamp = tuple[int, int, int]

_SUB_BITS = 5  # 32 buckets an octave: a percentile is at most 3 % off


class Histogram:
    """Counts of durations in nanoseconds, in buckets that grow with their value."""

    def __init__(self) -> None:
        self._counts = [0] * ((65 - _SUB_BITS) << _SUB_BITS)

    def add(self, value_ns: int) -> None:
        """Count one duration of 0 to 2**64 - 1 ns."""
        shift = value_ns.bit_length() - _SUB_BITS - 1
        if shift < 0:
            shift = 0
        self._counts[(shift << _SUB_BITS) + (value_ns >> shift)] += 1

    def take_from(self, other: "Histogram") -> None:
        """Add what `other` counted, and empty it."""
        self._counts = [mine + its for mine, its in zip(self._counts, other._counts, strict=True)]
        other._counts = [0] * len(other._counts)

    def percentiles_us(self, *shares: float) -> tuple[float, ...]:
        """The durations (microseconds) that these shares of all (0 to 1, ascending) stay within; 0 for none."""
        found: list[float] = []
        total, passed = sum(self._counts), 0
        for bucket, count in enumerate(self._counts):
            passed += count
            while count and len(found) < len(shares) and passed >= shares[len(found)] * total:
                found.append(round(_middle_ns(bucket) / 1000, 1))
        return tuple(found) or (0.0,) * len(shares)


def _middle_ns(bucket: int) -> float:
    shift = max(0, (bucket >> _SUB_BITS) - 1)
    return ((bucket - (shift << _SUB_BITS)) + 0.5) * (1 << shift)


class Meter:
    """Watches the messages of one topic, from the first one ever published in it."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._received = self._bytes = self._missed = self._expected = 0
        self._first_ns = self._last_ns = self._pid = 0
        self._reported_ns, self._reported = time.monotonic_ns(), (0, 0)
        self._restarts: list[Restart] = []
        self._recent, self._all = Histogram(), Histogram()

    def take(self, stamp: Stamp, size: int, now_ns: int) -> None:
        """Count a message of `size` bytes, with the stamp that its publisher gave it."""
        published_ns, sequence, pid = stamp
        missed = sequence - self._expected
        if pid != self._pid:
            self._turn(published_ns, pid, missed if EXACT else None)
            missed = missed if EXACT else 0  # each publisher counts from 0
        self._received += 1
        self._bytes += size
        self._missed += missed
        self._expected = sequence + 1
        self._last_ns = published_ns
        self._recent.add(now_ns - published_ns)

    def _turn(self, published_ns: int, pid: int, missed: int | None) -> None:
        if self._pid:
            outage_ms = round((published_ns - self._last_ns) / 1e6, 1)
            self._restarts.append(Restart(self._pid, pid, missed, outage_ms))
        else:
            self._first_ns = published_ns
        self._pid = pid

    def reading(self, lost: int | None, now_ns: int) -> Reading:
        """What was seen so far. What is recent starts anew."""
        recent_s = (now_ns - self._reported_ns) / 1e9
        received, size = self._received - self._reported[0], self._bytes - self._reported[1]
        recent = _flow(received, size, recent_s, self._recent)
        self._all.take_from(self._recent)
        self._reported_ns, self._reported = now_ns, (self._received, self._bytes)
        span_s = (self._last_ns - self._first_ns) / 1e9
        overall = _flow(self._received, self._bytes, span_s, self._all)
        return Reading(
            self._topic, self._received, self._bytes, lost, self._missed, span_s, recent, overall, tuple(self._restarts)
        )


def _flow(received: int, size: int, seconds: float, latencies: Histogram) -> Flow:
    rate, byte_rate = (round(received / seconds, 1), round(size / seconds, 1)) if seconds else (0.0, 0.0)
    return Flow(rate, byte_rate, *latencies.percentiles_us(0.5, 0.99))
