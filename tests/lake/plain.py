"""Tables of gold message by message, as a person would make them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tests.lake.bronze_rows import HOUR, SECOND, TURN, Row

HALF = TURN // 2
WIDTHS = (1, 10, 60, 600, 3600)


def by(rows: Iterable[Row], *keys: str) -> dict[Any, list[Row]]:
    found = defaultdict(list)
    for one in rows:
        found[tuple(one[key] for key in keys)].append(one)
    return found


def late(one: Row) -> int | None:
    """Return the latency of a message; None: nobody knows it."""
    published = one["publish_time"]
    if one["kind"] == "records" or published in (None, one["log_time"]):
        return None
    return int(one["log_time"] - published)


def widths(rows: Sequence[Row]) -> dict[tuple[str, str, int], int]:
    """Return how long the windows of each endpoint are in each hour, seconds."""
    found = {}
    for run, endpoint in by(rows, "run", "endpoint"):
        mine = [one["log_time"] for one in rows if (one["run"], one["endpoint"]) == (run, endpoint)]
        for hour in {time // HOUR for time in mine}:
            times = [time for time in mine if time // HOUR == hour]
            filled = (width for width in WIDTHS if len(times) >= 64 * len({time // (width * SECOND) for time in times}))
            found[run, endpoint, hour] = next(filled, 3600)
    return found


def windows(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    keys = ("run", "endpoint", "epoch", "host", "encoding", "schema", "kind", "publisher")
    wide, found = widths(rows), defaultdict(list)
    for one in rows:
        width = wide[one["run"], one["endpoint"], one["log_time"] // HOUR] * SECOND
        found[(*(one[key] for key in keys), one["log_time"] // width * width, width)].append(one)
    made = []
    for key, mine in found.items():
        sizes, times = [len(one["data"]) for one in mine], [one["log_time"] for one in mine]
        known = [value for one in mine if (value := late(one)) is not None]
        most = (min(known, default=None), max(known, default=None))
        made.append((*key, len(mine), sum(sizes), max(sizes), min(times), max(times), len(known), *most))
    return made


def gaps(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Unroll the numbers of each epoch in the order of time, and look at each two that follow each other."""
    found = []
    for key, mine in by([one for one in rows if one["kind"] != "records"], "run", "endpoint", "epoch").items():
        recorded = sorted((one["log_time"], one["sequence"]) for one in mine)
        times, number, before = defaultdict(list), 0, recorded[0][1]
        for time, sequence in recorded:
            step = (sequence - before) % TURN
            number, before = number + (step if step < HALF else step - TURN), sequence
            times[number].append(time)
        for one, other in itertools.pairwise(sorted(times)):
            if other - one > 1:
                ends = (recorded[0][1] + one) % TURN, (recorded[0][1] + other) % TURN
                found.append((*key, *ends, other - one - 1, max(times[one]), min(times[other])))
    return found


def period(intervals: Sequence[int]) -> int:
    """Return the interval in which the middle of the time lies; of n, the longest root of n are left out."""
    count = len(intervals)
    kept = sorted(intervals)[: count - min(math.isqrt(count), count - 1)]
    return next(one for place, one in enumerate(kept) if 2 * sum(kept[: place + 1]) >= sum(kept))


def dropouts(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Of topics that are so slow that each message has a second for itself, or shares it with one at most."""
    found = []
    for key, mine in by(rows, "run", "endpoint").items():
        pairs = list(itertools.pairwise(sorted(one["log_time"] for one in mine)))
        if not pairs:
            continue
        usual = period([other - one for one, other in pairs])
        hours = {time // HOUR for pair in pairs for time in pair}
        inside = {hour: [b - a for a, b in pairs if a // HOUR == b // HOUR == hour] for hour in hours}
        for one, other in pairs:
            own = inside[one // HOUR] if one // HOUR == other // HOUR else []
            needed = max(SECOND, 5 * usual, 2 * period(own) if len(own) >= 16 else 0)
            if other - one >= needed:
                found.append((*key, one, other, other - one))
    return found


def hops(rows: Sequence[Row]) -> dict[tuple[str, str | None, str], tuple[int, int | None]]:
    """Return how many messages each edge has, and how long the longest one took."""
    found: dict[tuple[str, str | None, str], tuple[int, int | None]] = {}
    known = [one for one in rows if (one["origin_time"] or 0) > 0 and one["publish_time"] is not None]
    for (run, _), mine in by(known, "run", "origin_time").items():
        chain = sorted((one["publish_time"], one["endpoint"]) for one in mine)
        for place, (time, endpoint) in enumerate(chain):
            before = [one for one in chain[:place] if one[1] != endpoint]
            key = (run, before[-1][1] if before else None, endpoint)
            count, longest = found.get(key, (0, None))
            found[key] = count + 1, max(longest or 0, time - before[-1][0]) if before else None
    return found
