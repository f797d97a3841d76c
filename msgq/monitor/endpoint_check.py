"""Measures endpoints, and compares them with expectations."""

import time
from collections.abc import Iterator

from msgq.impl.backend import resolve_prefix
from msgq.impl.meter import run_meters
from msgq.kinds import find_carrier_endpoint, kind_of
from msgq.kinds.opening import open_meter
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointSelection, is_shown_by_subject
from msgq.monitor.expectations import CheckFinding, Expectations, check_endpoint
from msgq.monitor.live_endpoints import LiveEndpoint
from msgq.stats import endpoint_inodes

_POLL_PERIOD_S = 0.05


class _CheckedEndpoint:
    """An endpoint under measurement. If a meter measures more than the counters, the endpoint has a meter."""

    def __init__(self, name: str) -> None:
        self.live = LiveEndpoint(name, resolve_prefix())
        self.meter = open_meter(name) if kind_of(name).stats.row_class.has_better_meter else None
        self.live.poll()


def wait_for_expected_endpoints(expected: Expectations, timeout: float) -> None:
    """Wait up to `timeout` seconds until all required endpoints exist."""
    until_s = time.monotonic() + timeout
    needed = [endpoint.selection for endpoint in expected.endpoints if not endpoint.is_optional]
    while time.monotonic() < until_s and not all(names.find_existing() for names in needed):
        time.sleep(0.02)


def check_expectations(expected: Expectations) -> Iterator[CheckFinding]:
    """Measure for `duration_s`, and yield the result of each comparison."""
    measured = _measure_endpoints(expected)
    readings = {name: endpoint.meter.take_reading() for name, endpoint in measured.items() if endpoint.meter}
    rows = {name: endpoint.live.poll(fresh=True) for name, endpoint in measured.items()}
    claimed: set[str] = set()
    for expectation in expected.endpoints:
        matching = [name for name in measured if name in expectation.selection]
        claimed.update(matching)
        if not matching and not expectation.is_optional:
            yield CheckFinding(str(expectation.selection), "exists", False, "no endpoint matches")
        for name in matching:
            yield from check_endpoint(expectation, rows[name], readings.get(name))
    if expected.is_exclusive:
        # The channel of a queue's events is part of the queue: it comes and goes with it.
        claimed |= set(map(find_carrier_endpoint, claimed))
        for name in endpoint_inodes():
            if name not in claimed and not is_shown_by_subject(name, claimed):
                yield CheckFinding(name, "only", False, "unexpected endpoint")


def _measure_endpoints(expected: Expectations) -> dict[str, _CheckedEndpoint]:
    """Measure all expected endpoints, including those that appear during the measurement."""
    names = EndpointSelection([str(endpoint.selection) for endpoint in expected.endpoints], None)
    followed: EndpointFollower[_CheckedEndpoint] = EndpointFollower(names, _CheckedEndpoint)
    until_s = time.monotonic() + expected.duration_s
    while (left_s := until_s - time.monotonic()) > 0:
        followed.refresh()
        run_meters(
            [endpoint.meter for endpoint in followed.by_name.values() if endpoint.meter], min(left_s, _POLL_PERIOD_S)
        )
    return dict(sorted(followed.by_name.items()))
