"""Parts that may have a message in common are found by their ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("deltalake")
import pyarrow as pa

from msgq.lake.bronze.row_group_ranges import RANGES_SCHEMA, find_overlapping_files


def ranges(random: Any, name: Any, count: Any) -> Any:
    """Return ranges of parts at random, that often meet, in one coordinate or both; some have a part in common."""
    sides = np.sort(random.integers(0, 40, (2, count, 2)), axis=2).tolist()
    keys = random.integers(0, 2, (count, 2)).tolist()
    return [
        {
            "bronze_file": f"{name}{i // 2}",
            "run": "r",
            "endpoint": "ab"[key],
            "epoch": epoch,
            "start_time": begin,
            "end_time": begin + (end - begin) // 4,
            "first_sequence": first,
            "last_sequence": first + (last - first) // 4,
            "row_count": 1,
            "has_duplicates": False,
        }
        for i, ((begin, end), (first, last), (key, epoch)) in enumerate(zip(*sides, keys, strict=True))
    ]


def do_meet(one: Any, other: Any) -> Any:
    sides = (("start_time", "end_time"), ("first_sequence", "last_sequence"))
    return all(one[name] == other[name] for name in ("run", "endpoint", "epoch")) and all(
        one[first] <= other[last] and other[first] <= one[last] for first, last in sides
    )


def test_overlapping_parts_equal_result_of_pairwise_comparison() -> None:
    random = np.random.default_rng(6)
    found = 0
    for _ in range(300):
        new, known = (
            ranges(random, "n", int(random.integers(1, 12))),
            ranges(random, "k", int(random.integers(0, 12))),
        )
        mine = {
            one["bronze_file"]
            for i, one in enumerate(new)
            if any(do_meet(one, other) for other in [*new[:i], *new[i + 1 :], *known])
        }
        theirs = {one["bronze_file"] for one in known if any(do_meet(one, other) for other in new)}
        assert find_overlapping_files(*(pa.Table.from_pylist(some, RANGES_SCHEMA) for some in (new, known))) == (
            mine,
            theirs,
        )
        found += len(mine) + len(theirs)
    assert found > 300, "there was something to find"
