"""Endpoints of all kinds looked at again and again, as cheaply as it goes: what moved since the last look."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

from msgq.cli.common.endpoint_rows import ROWS, AnyRow
from msgq.cli.common.endpoint_selection import EndpointFollower, EndpointSelection
from msgq.common import naming
from msgq.errors import SegmentError
from msgq.impl.channel.core import open_channel_file
from msgq.impl.records.core import RecordWatch
from msgq.impl.ring.core import TopicObserver
from msgq.impl.workqueue.snapshot import QueueWatch
from msgq.kinds import CHANNEL, KINDS, QUEUE, RECORDS, TOPIC, Kind, kind_of

_STATS_PERIOD_S = 2.0  # who takes part, and whether they live, is asked of the kernel: that is the dear part
_STATS_SHARE = 50  # and so many times what it takes: all elements of a vector are looked at


class Watch(Protocol):
    """An endpoint that is kept mapped, without a trace."""

    def counts(self) -> Any:
        """Return what moves, within microseconds."""

    def stats(self) -> Any:
        """Return all that is known, as `msgq.stats` has it of this kind."""


#: What watches an endpoint of each kind, made with its name without the mark, and the prefix.
WATCHES: dict[Kind, Callable[[str, str], Watch]] = {
    TOPIC: TopicObserver,
    CHANNEL: open_channel_file,
    RECORDS: RecordWatch,
    QUEUE: QueueWatch,
}


class LiveEndpoint:
    """One endpoint of any kind.

    Raises
    ------
    SegmentError : there is no such endpoint, or its files cannot be read; by its methods: others cut its file.
    """

    def __init__(self, endpoint: str, prefix: str) -> None:
        self._kind = kind_of(endpoint)
        self._name = self._kind.plain(endpoint)
        self._watch = WATCHES[self._kind](self._name, prefix)
        self._before: Any = None
        self._polled_s = 0.0
        self._ask()

    def poll(self, fresh: bool = False) -> AnyRow:
        """Return how it is; rates are those since the last look. `fresh`: who takes part is asked now in any case."""
        now_s, now = time.monotonic(), self._watch.counts()
        if fresh or now_s >= self._next_s:
            self._ask()
        row = ROWS[self._kind](self._name, self._stats, now, self._before, now_s - self._polled_s)
        self._before, self._polled_s = now, now_s
        return row

    def _ask(self) -> None:
        began_s = time.monotonic()
        self._stats = self._watch.stats()
        took_s = time.monotonic() - began_s
        self._next_s = began_s + max(_STATS_PERIOD_S, _STATS_SHARE * took_s)


class LiveEndpoints:
    """The endpoints that a verb is about, as they come and go."""

    def __init__(self, names: EndpointSelection) -> None:
        prefix = naming.resolve_prefix(names.prefix)
        self._endpoints: EndpointFollower[LiveEndpoint] = EndpointFollower(
            names, lambda name: LiveEndpoint(name, prefix)
        )

    def poll(self, fresh: bool = False) -> list[AnyRow]:
        """Return how things are, by kind and name; rates are since the last call. `fresh` as of `LiveEndpoint`."""
        self._endpoints.refresh()
        rows = []
        for name in sorted(self._endpoints.by_name, key=lambda name: (KINDS.index(kind_of(name)), name)):
            with contextlib.suppress(SegmentError):  # somebody cuts its file: that is no endpoint any more
                rows.append(self._endpoints.by_name[name].poll(fresh))
        return rows

    def measure(self, seconds: float) -> list[AnyRow]:
        """Return how things are, with the rates of some seconds from now; 0 for no rates."""
        rows = self.poll()
        if not seconds or not rows:
            return rows
        time.sleep(seconds)
        return self.poll(fresh=True)
