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
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def late(row: Row) -> int | None:
    """Return the latency of a message; None: nobody knows it."""
    published = row["publish_time"]
    if row["kind"] == "records" or published in (None, row["log_time"]):
        return None
    return int(row["log_time"] - published)


def widths(rows: Sequence[Row]) -> dict[tuple[str, str, int], int]:
    """Return how long the windows of each endpoint are in each hour, seconds."""
    widths = {}
    for run, endpoint in by(rows, "run", "endpoint"):
        times_of_endpoint = [row["log_time"] for row in rows if (row["run"], row["endpoint"]) == (run, endpoint)]
        for hour in {time // HOUR for time in times_of_endpoint}:
            times = [time for time in times_of_endpoint if time // HOUR == hour]
            filled = (width for width in WIDTHS if len(times) >= 64 * len({time // (width * SECOND) for time in times}))
            widths[run, endpoint, hour] = next(filled, 3600)
    return widths


def windows(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    keys = ("run", "endpoint", "epoch", "host", "encoding", "schema", "kind", "publisher")
    wide, windows = widths(rows), defaultdict(list)
    for row in rows:
        width = wide[row["run"], row["endpoint"], row["log_time"] // HOUR] * SECOND
        windows[(*(row[key] for key in keys), row["log_time"] // width * width, width)].append(row)
    made = []
    for key, messages in windows.items():
        sizes, times = [len(row["data"]) for row in messages], [row["log_time"] for row in messages]
        known = [value for row in messages if (value := late(row)) is not None]
        most = (min(known, default=None), max(known, default=None))
        made.append((*key, len(messages), sum(sizes), max(sizes), min(times), max(times), len(known), *most))
    return made


def gaps(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Unroll the numbers of each epoch in the order of time, and look at each two that follow each other."""
    gaps = []
    for key, messages in by([one for one in rows if one["kind"] != "records"], "run", "endpoint", "epoch").items():
        recorded = sorted((one["log_time"], one["sequence"]) for one in messages)
        times, number, before = defaultdict(list), 0, recorded[0][1]
        for time, sequence in recorded:
            step = (sequence - before) % TURN
            number, before = number + (step if step < HALF else step - TURN), sequence
            times[number].append(time)
        for one, other in itertools.pairwise(sorted(times)):
            if other - one > 1:
                ends = (recorded[0][1] + one) % TURN, (recorded[0][1] + other) % TURN
                gaps.append((*key, *ends, other - one - 1, max(times[one]), min(times[other])))
    return gaps


def period(intervals: Sequence[int]) -> int:
    """Return the interval in which the middle of the time lies; of n, the longest root of n are left out."""
    count = len(intervals)
    kept = sorted(intervals)[: count - min(math.isqrt(count), count - 1)]
    return next(length for place, length in enumerate(kept) if 2 * sum(kept[: place + 1]) >= sum(kept))


def dropouts(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Of topics that are so slow that each message has a second for itself, or shares it with one at most."""
    dropouts = []
    for key, messages in by(rows, "run", "endpoint").items():
        pairs = list(itertools.pairwise(sorted(one["log_time"] for one in messages)))
        if not pairs:
            continue
        usual = period([other - one for one, other in pairs])
        hours = {time // HOUR for pair in pairs for time in pair}
        inside = {hour: [b - a for a, b in pairs if a // HOUR == b // HOUR == hour] for hour in hours}
        for one, other in pairs:
            own = inside[one // HOUR] if one // HOUR == other // HOUR else []
            needed = max(SECOND, 5 * usual, 2 * period(own) if len(own) >= 16 else 0)
            if other - one >= needed:
                dropouts.append((*key, one, other, other - one))
    return dropouts


def hops(rows: Sequence[Row]) -> dict[tuple[str, str | None, str], tuple[int, int | None]]:
    """Return how many messages each edge has, and how long the longest one took."""
    edges: dict[tuple[str, str | None, str], tuple[int, int | None]] = {}
    known = [one for one in rows if (one["origin_time"] or 0) > 0 and one["publish_time"] is not None]
    for (run, _), messages in by(known, "run", "origin_time").items():
        chain = sorted((one["publish_time"], one["endpoint"]) for one in messages)
        for place, (time, endpoint) in enumerate(chain):
            before = [one for one in chain[:place] if one[1] != endpoint]
            key = (run, before[-1][1] if before else None, endpoint)
            count, longest = edges.get(key, (0, None))
            edges[key] = count + 1, max(longest or 0, time - before[-1][0]) if before else None
    return edges
