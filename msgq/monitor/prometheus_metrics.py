"""Metrics of all endpoints for Prometheus. The endpoints are read when a server asks for the metrics."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from msgq.common.shm_paths import SHARED_MEMORY
from msgq.kinds.stats import AnyEndpointRow
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints

_LABEL_NAMES = ("kind", "name")


class EndpointMetrics(Collector):
    """Reads the counters of a selection of endpoints. Use from any thread.

    A metric without a value for an endpoint, such as the subscribers of records, is omitted for this endpoint.
    """

    def __init__(self, names: EndpointSelection) -> None:
        self._endpoints, self._lock = LiveEndpoints(names), threading.Lock()
        self._totals: dict[tuple[str, str], tuple[int, int]] = {}  # the last value, and the sum of its growth

    def collect(self) -> Iterator[Metric]:
        """Return the present values."""
        with self._lock:
            rows = self._endpoints.poll(fresh=True)
            lost = self._sum_growth("lost", [(row.endpoint, row.lost) for row in rows])
            size = self._sum_growth("bytes", [(row.endpoint, row.current_counts.bytes) for row in rows])
        messages = {row.endpoint: row.messages for row in rows}
        yield _make_counter("messages", "Published or sent messages, or written elements.", rows, messages)
        yield _make_counter("bytes", "Payload bytes of these messages.", rows, size)
        yield _make_counter("lost_messages", "Messages lost by subscribers.", rows, lost)
        yield from _make_gauges(rows)
        space = shutil.disk_usage(SHARED_MEMORY)
        yield GaugeMetricFamily("msgq_shared_memory_used_bytes", "Used bytes of the shared memory.", space.used)
        yield GaugeMetricFamily("msgq_shared_memory_free_bytes", "Free bytes of the shared memory.", space.free)

    def _sum_growth(self, metric: str, values: Sequence[tuple[str, int | None]]) -> dict[str, int | None]:
        """Return counters that never decrease, although a value decreases when a participant leaves."""
        sums: dict[str, int | None] = {}
        for endpoint, value in values:
            if value is not None:
                before, total = self._totals.get((metric, endpoint), (0, 0))
                total += max(0, value - before)
                self._totals[metric, endpoint] = value, total
                sums[endpoint] = total
        existing = {endpoint for endpoint, _ in values}
        self._totals = {key: total for key, total in self._totals.items() if key[0] != metric or key[1] in existing}
        return sums


def _make_counter(
    name: str, text: str, rows: Sequence[AnyEndpointRow], values: dict[str, int | None]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"msgq_endpoint_{name}", text, labels=_LABEL_NAMES)
    for row in rows:
        value = values.get(row.endpoint)
        if value is not None:
            family.add_metric((row.kind, row.endpoint), value)
    return family


def _make_gauges(rows: Sequence[AnyEndpointRow]) -> Iterator[GaugeMetricFamily]:
    for name, text, attribute in (
        ("memory_bytes", "Memory of the endpoint.", "memory"),
        ("publishers", "Living publishers, senders or writers.", "live_publisher_count"),
        ("subscribers", "Living subscribers or receivers.", "live_subscriber_count"),
        ("dead_participants", "Registered participants that are dead.", "dead_participant_count"),
    ):
        family = GaugeMetricFamily(f"msgq_endpoint_{name}", text, labels=_LABEL_NAMES)
        for row in rows:
            value = getattr(row, attribute)
            if value is not None:
                family.add_metric((row.kind, row.endpoint), value)
        yield family
    for unit in ("messages", "bytes"):
        family = GaugeMetricFamily(f"msgq_endpoint_backlog_{unit}", f"Waiting {unit}.", labels=_LABEL_NAMES)
        for row in rows:
            if row.backlog is not None and row.backlog.unit == unit:
                family.add_metric((row.kind, row.endpoint), row.backlog.amount)
        yield family


def render_metrics(metrics: EndpointMetrics, accept: str) -> tuple[bytes, str]:
    """Return the present values in a text format of Prometheus, and the content type of this format.

    `accept`: HTTP header with the formats that the client accepts.
    """
    encode, content_type = choose_encoder(accept)
    return encode(metrics), content_type
