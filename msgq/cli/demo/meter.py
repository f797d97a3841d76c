"""Measures received messages: counts, sequence gaps, and latencies."""

from msgq.cli.demo.plan import COUNTS_ARE_EXACT, FlowRates, PublisherRestart, TopicReading
from msgq.common.histogram import Histogram

# published_ns (CLOCK_MONOTONIC, the same clock in every process), sequence, pid of the publisher
MessageStamp = tuple[int, int, int]


class DemoMeter:
    """Measures the messages of one topic, from the first message of the run."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._received = self._bytes = self._missed = self._expected = 0
        self._first_ns = self._last_ns = self._pid = 0
        self._restarts: list[PublisherRestart] = []
        self._latencies = Histogram()

    def count_message(self, stamp: MessageStamp, size: int, now_ns: int) -> None:
        """Count a message of `size` bytes with its publisher's stamp."""
        published_ns, sequence, pid = stamp
        missed = sequence - self._expected
        if pid != self._pid:
            self._record_restart(published_ns, pid, missed if COUNTS_ARE_EXACT else None)
            missed = missed if COUNTS_ARE_EXACT else 0  # each publisher counts from 0
        self._received += 1
        self._bytes += size
        self._missed += missed
        self._expected = sequence + 1
        self._last_ns = published_ns
        self._latencies.add(now_ns - published_ns)

    def _record_restart(self, published_ns: int, pid: int, missed: int | None) -> None:
        if self._pid:
            outage_ms = round((published_ns - self._last_ns) / 1e6, 1)
            self._restarts.append(PublisherRestart(self._pid, pid, missed, outage_ms))
        else:
            self._first_ns = published_ns
        self._pid = pid

    def make_reading(self, lost: int | None) -> TopicReading:
        """Return the results."""
        span_s = (self._last_ns - self._first_ns) / 1e9
        overall = _compute_rates(self._received, self._bytes, span_s, self._latencies)
        return TopicReading(
            self._topic, self._received, self._bytes, lost, self._missed, span_s, overall, tuple(self._restarts)
        )


def _compute_rates(received: int, size: int, seconds: float, latencies: Histogram) -> FlowRates:
    rate, byte_rate = (round(received / seconds, 1), round(size / seconds, 1)) if seconds else (0.0, 0.0)
    return FlowRates(rate, byte_rate, *latencies.percentiles_us(0.5, 0.99))
