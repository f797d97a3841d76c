"""Repeated polls of endpoints of all kinds at low cost, with the changes since the previous poll."""

import contextlib
import time
from typing import Any

from msgq.errors import SegmentError
from msgq.impl.backend import resolve_prefix
from msgq.kinds import find_announced_kind, kind_of, list_stored_kinds
from msgq.kinds.stats import AnyEndpointRow
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointSelection

_STATS_PERIOD_S = 2.0  # the list of living participants needs expensive system calls
_STATS_COST_FACTOR = 50  # the period is at least this multiple of the time for statistics, which scan whole vectors


class LiveEndpoint:
    """One endpoint of any kind, for repeated polls.

    Raises:
        SegmentError: the endpoint does not exist, or its files are not readable. Methods raise it if a file was
            truncated.
    """

    def __init__(self, endpoint: str, prefix: str) -> None:
        kind = kind_of(endpoint)
        self._endpoint, self._kind_name = endpoint, find_announced_kind(endpoint).name
        self._row_class = kind.stats.row_class
        self._watch = kind.stats.open_watch(kind.bare_name(endpoint), prefix)
        self._before: Any = None
        self._polled_s = 0.0
        self._refresh_stats()

    def poll(self, fresh: bool = False) -> AnyEndpointRow:
        """Return the current state, with rates since the previous poll.

        `fresh`: True to read the participants again.
        """
        now_s, now = time.monotonic(), self._watch.counts()
        if fresh or now_s >= self._next_s:
            self._refresh_stats()
        row = self._row_class(self._endpoint, self._kind_name, self._stats, now, self._before, now_s - self._polled_s)
        self._before, self._polled_s = now, now_s
        return row

    def _refresh_stats(self) -> None:
        began_s = time.monotonic()
        self._stats = self._watch.stats()
        took_s = time.monotonic() - began_s
        self._next_s = began_s + max(_STATS_PERIOD_S, _STATS_COST_FACTOR * took_s)


class LiveEndpoints:
    """The endpoints of a selection, for repeated polls. Follows new and removed endpoints.

    Args:
        names: see `EndpointFollower`.
        skips_named: see `EndpointFollower`.
    """

    def __init__(self, names: EndpointSelection, skips_named: bool = False) -> None:
        prefix = resolve_prefix(names.prefix)
        self._endpoints: EndpointFollower[LiveEndpoint] = EndpointFollower(
            names, lambda name: LiveEndpoint(name, prefix), skips_named=skips_named
        )

    @property
    def refused(self) -> dict[str, str]:
        """Reasons by endpoint that cannot be read."""
        return self._endpoints.refused

    def poll(self, fresh: bool = False) -> list[AnyEndpointRow]:
        """Return the current states by kind and name, with rates since the previous poll.

        `fresh`: as in `LiveEndpoint`.
        """
        self._endpoints.refresh()
        rows = []
        kinds = list_stored_kinds()
        for name in sorted(self._endpoints.by_name, key=lambda name: (kinds.index(kind_of(name)), name)):
            with contextlib.suppress(SegmentError):  # another program truncates the file, so the endpoint is unusable
                rows.append(self._endpoints.by_name[name].poll(fresh))
        return rows

    def measure(self, seconds: float) -> list[AnyEndpointRow]:
        """Return the states with the rates of the next `seconds`; 0: without rates."""
        rows = self.poll()
        if not seconds or not rows:
            return rows
        time.sleep(seconds)
        return self.poll(fresh=True)
