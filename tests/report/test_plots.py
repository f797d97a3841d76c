"""The plots of the report, from rows."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("plotly")
from msgq.lake.report import report_plots as plots

SECOND = 1_000_000_000


def test_plot_without_rows_is_none() -> None:
    draws = (plots.plot_throughput, plots.plot_losses, plots.plot_latency, plots.plot_distribution, plots.plot_hops)
    assert [draw([]) for draw in draws] == [None] * 5
    assert plots.plot_hops([{"parent": None, "endpoint": "a", "messages": 1, "p50": None, "p99": None}]) is None


def test_plot_has_line_for_each_endpoint_in_row_order() -> None:
    rows = [{"endpoint": name, "window_start": time * SECOND, "rate": time + 0.5} for name in "ba" for time in (1, 2)]
    drawn = json.loads(plots.plot_throughput(rows) or "")["data"]
    assert [(line["name"], line["y"]) for line in drawn] == [("b", [1.5, 2.5]), ("a", [1.5, 2.5])]
    assert drawn[0]["x"] == ["1970-01-01T00:00:01+00:00", "1970-01-01T00:00:02+00:00"]


def test_hop_plot_names_each_endpoint_once() -> None:
    edges = [("a", "b"), ("a", "c"), ("b", "c")]
    rows = [{"parent": p, "endpoint": e, "messages": 7, "share": 0.5, "p50": 1500, "p99": 2_000_000} for p, e in edges]
    (tree,) = json.loads(plots.plot_hops(rows) or "")["data"]
    assert tree["node"]["label"] == ["a", "b", "c"]
    assert list(zip(tree["link"]["source"], tree["link"]["target"], strict=True)) == [(0, 1), (0, 2), (1, 2)]
    assert tree["link"]["label"][0] == "p50 2 us, p99 2,000 us, 50% of the messages of b"
