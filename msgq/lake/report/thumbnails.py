"""Thumbnails of pictures of each endpoint."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.lake.metrics.images import make_thumbnail
from msgq.lake.report.gold_reader import GoldReader

_PICTURES_PER_ENDPOINT = 6
_PICTURES_MAX = 40
_KEY_COLUMNS = ("run", "endpoint", "log_time")


def choose_pictures(gold: GoldReader) -> list[dict[str, Any]]:
    """Return pictures of the first endpoints with pictures, evenly spread over time: endpoint, log_time, picture.

    `picture` is a small JPEG. Unreadable pictures are omitted.

    Raises:
        ModuleNotFoundError: pictures exist, and OpenCV is not installed.
    """
    aggregations = {"first": "min", "last": "max"}
    spans = gold.aggregate_rows(
        "frames",
        list(_KEY_COLUMNS),
        ["run", "endpoint"],
        aggregations,
        lambda piece: piece.append_column("first", piece["log_time"]).append_column("last", piece["log_time"]),
    )
    first = spans.sort_by([("endpoint", "ascending"), ("run", "ascending")])[
        : -(-_PICTURES_MAX // _PICTURES_PER_ENDPOINT)
    ].to_pylist()
    images = [picture for span in first for picture in _choose_endpoint_pictures(gold, span)]
    return sorted(images, key=lambda row: (row["endpoint"], row["log_time"]))[:_PICTURES_MAX]


def _choose_endpoint_pictures(gold: GoldReader, span: dict[str, Any]) -> list[dict[str, Any]]:
    is_endpoint = (ds.field("run") == span["run"]) & (ds.field("endpoint") == span["endpoint"])
    times = pc.unique(gold.read_rows("frames", ["log_time"], is_endpoint)["log_time"]).sort().to_pylist()
    chosen = (
        [times[number * len(times) // _PICTURES_PER_ENDPOINT] for number in range(_PICTURES_PER_ENDPOINT)]
        if len(times) > _PICTURES_PER_ENDPOINT
        else times
    )
    spans = [(time, time + 1) for time in chosen]
    rows = gold.read_messages(["endpoint", "log_time", "data"], span["run"], [span["endpoint"]], spans)
    by_time = {row["log_time"]: row for row in rows.to_pylist()}  # one picture for each time
    small = ({**row, "picture": make_thumbnail(row.pop("data"))} for row in by_time.values())
    return [row for row in small if row["picture"] is not None]
