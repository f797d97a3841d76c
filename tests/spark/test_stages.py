"""Stages and hops: what the tables are, and that what is shown live is the same."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("plotly")
from msgq.common import settings, timing
from msgq.lake.report import report_plots as plots
from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from msgq.monitor.hop_tree import HopTreeCollector, compute_hops
from msgq.monitor.stage_timings import StageCollector
from msgq.spark import tables
from msgq.spark.lake import Lake
from tests.spark.demo_command import make_demo_command
from tests.spark.rows import SECOND, message, messages, sorted_rows
from tests.support import SHM, wait_until
from tests.unit.stage_children import timing_record

NAMES = ("planner", "a b", "100%", "%3A", "%253A", "x:y/z", "channel/scans", "@solve", "grüße")


def said(sequence: int, log_time: int, data: bytes, stage: str = "planner", endpoint: str = "orders") -> dict[str, Any]:
    return message(timing.make_timing_topic(stage, endpoint), sequence, log_time, data=data)


def test_stages_are_grouped_by_window_and_endpoint(spark: Any) -> None:
    rows = [said(i, i, timing_record(1000, 1000 + i, 5000 + 2 * i, 500 + 2 * i)) for i in range(1, 101)]
    rows += [
        said(200, SECOND + 1, timing_record(10, 20, 40, 5)),
        said(0, 3, timing_record(10, 11, 13, 7), endpoint="channel/scans"),
    ]
    rows += [
        message("orders", 0, 3, data=timing_record(1, 2, 3, 4)),
        message("timing:a", 0, 3),
        message("timing:a:b:c", 0, 3),
    ]
    found = tables.stages(messages(spark, rows))
    counts = (
        "stage",
        "endpoint",
        "window_start",
        "messages",
        "malformed",
        "queue_time_count",
        "processing_time_count",
        "e2e_latency_count",
    )
    assert sorted_rows(found, *counts) == [
        ("planner", "channel/scans", 0, 1, 0, 1, 1, 1),
        ("planner", "orders", 0, 100, 0, 100, 100, 100),
        ("planner", "orders", SECOND, 1, 0, 1, 1, 1),
    ]
    (row,) = found.where("endpoint = 'orders' AND window_start = 0").collect()
    for name, least in (("queue_time", 1), ("processing_time", 4001), ("e2e_latency", 4500)):
        most = least + 99 if name != "e2e_latency" else least
        assert row[f"{name}_max"] == most
        assert row[f"{name}_min"] == least
        assert row[f"{name}_p50"] == pytest.approx((least + most) / 2, rel=0.03)
        assert most - 1 == pytest.approx(row[f"{name}_p99"], rel=0.022)
    totals = tables.stage_summary(found)
    assert sorted_rows(
        totals,
        "endpoint",
        "messages",
        "processing_time_count",
        "queue_time_max",
        "processing_time_max",
        "e2e_latency_max",
    ) == [
        ("channel/scans", 1, 1, 1, 2, 6),
        ("orders", 101, 101, 100, 4100, 4500),
    ]
    assert [name for name in found.columns if name not in ("window_start", "window_ns")] == totals.columns


def test_malformed_stage_records_are_counted_separately(spark: Any) -> None:
    bad = [
        b"",
        timing_record(5, 6, 7, 4)[:-1],
        timing_record(5, 6, 7, 4) * 2,
        timing_record(-1, 6, 7, 4),
        timing_record(5, -6, 7, 4),
        timing_record(5, 0, 7, 4),
        timing_record(5, 8, 7, 4),
        timing_record(5, 6, 7, -4),
        timing_record(-(1 << 63), 6, 7, 4),
    ]
    rows = [said(i, i, data) for i, data in enumerate([timing_record(5, 6, 8, 4), *bad, timing_record(0, 6, 9, 0)])]
    rows += [said(i, SECOND + i, data) for i, data in enumerate(bad)]
    found = tables.stages(messages(spark, rows))
    figures = (
        "queue_time_count",
        "queue_time_max",
        "processing_time_p50",
        "processing_time_max",
        "e2e_latency_count",
        "e2e_latency_p99",
        "e2e_latency_max",
    )
    assert sorted_rows(found, "window_start", "messages", "malformed", *figures) == [
        (0, 2, len(bad), 1, 1, 2, 3, 1, 4, 4),
        (SECOND, 0, len(bad), 0, None, None, None, 0, None, None),
    ]
    assert sorted_rows(tables.stage_summary(found), "messages", "malformed", *figures) == [
        (2, 2 * len(bad), 1, 1, 2, 3, 1, 4, 4)
    ]
    none = tables.stage_summary(found.where("messages = 0"))
    assert sorted_rows(none, "messages", "malformed", "processing_time_count", "processing_time_p50") == [
        (0, len(bad), 0, None)
    ]


def test_stage_times_of_all_sizes_are_read(spark: Any) -> None:
    times = [1, 255, 256, 1 << 31, (1 << 56) + 0x0102030405, (1 << 62) + 7]
    rows = [said(i, i * SECOND, timing_record(0, time, (1 << 63) - 1, 0)) for i, time in enumerate(times)]
    found = tables.stages(messages(spark, rows))
    assert sorted_rows(found, "window_start", "processing_time_max") == [
        (i * SECOND, (1 << 63) - 1 - time) for i, time in enumerate(times)
    ]


def test_stages_have_given_names(spark: Any) -> None:
    pairs = [(stage, endpoint) for stage in NAMES for endpoint in NAMES]
    rows = [said(0, 1, timing_record(1, 2, 3, 1), *pair) for pair in pairs]
    assert set(sorted_rows(tables.stages(messages(spark, rows)), "stage", "endpoint")) == set(pairs)


def test_hops_exclude_timing_topics(spark: Any) -> None:
    rows = [("camera", 1, 1), ("timing:model:camera", 2, 1), ("model", 3, 1), ("timing", 5, 1)]
    table = spark.createDataFrame(
        [("r", *row) for row in rows], "run string, endpoint string, publish_time long, origin_time long"
    )
    assert sorted_rows(tables.hops(table), "parent", "endpoint", "p50") == [
        (None, "camera", None),
        ("camera", "model", 2),
        ("model", "timing", 2),
    ]


def close(rows: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> bool:
    """Return whether edges are the same, and their percentiles by histograms as right as these can be."""
    same = [(*row[:3], row[5]) for row in rows] == [(*row[:3], row[5]) for row in others]
    pairs = [(row[at], other[at]) for row, other in zip(rows, others, strict=True) for at in (3, 4, 6)]
    return same and all(
        one == (other if other is None else pytest.approx(other, rel=0.03, abs=1)) for one, other in pairs
    )


@pytest.mark.parametrize("count", [1, 2, 100, 4000])
def test_live_stage_tree_equals_table(spark: Any, count: int) -> None:
    """Chains that turn back, stand still and come at the same time; percentiles of few and of many."""
    random = np.random.default_rng(count)
    names = ["plan", "camera", "model", "ä", "Z", "camera/front"]
    endpoint = random.integers(0, len(names), count)
    origin = random.integers(1, max(2, count // 6), count) * 1000 + 1_700_000_000 * SECOND
    publish = origin + random.integers(0, 400, count)
    rows = [("r", names[e], int(p), int(o)) for e, p, o in zip(endpoint, publish, origin, strict=True)]
    table = spark.createDataFrame(rows, "run string, endpoint string, publish_time long, origin_time long").repartition(
        3
    )
    columns = ("parent", "endpoint", "messages", "p50", "p99", "max", "e2e_p50")
    live = [tuple(getattr(hop, name) for name in columns) for hop in compute_hops(names, endpoint, publish, origin)]
    in_order = sorted(live, key=lambda row: [(value is not None, value) for value in row])
    assert close(in_order, sorted_rows(tables.hops(table), *columns))


def test_lake_and_report_have_stages(spark: Any, tmp_path: Path) -> None:
    begin = 1_700_000_000 * SECOND
    rows = [said(i, begin + i, timing_record(begin, begin + i, begin + 3 * i, begin), "slow<1>") for i in range(1, 50)]
    lake = Lake(spark, tmp_path / "lake")
    lake.append(messages(spark, [*rows, message("camera", 0, begin)]))
    lake.build_gold()
    found = lake.sql(
        "SELECT stage, endpoint, messages, processing_time_p50, processing_time_max FROM stage_summary"
    ).collect()
    assert [tuple(row) for row in found] == [("slow<1>", "orders", 49, 50, 98)]
    assert sorted_rows(lake.sql("SELECT sum(messages) FROM stages"), "*") == [(49,)]
    write_report(open_lake_tables(lake.uri), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<h2>Stages</h2>") == 1
    assert "slow<1>: orders" in page.replace("\\u003c", "<").replace("\\u003e", ">")
    assert "<td>slow&lt;1&gt;</td>" in page


@pytest.mark.nightly
def test_live_tree_of_demo_equals_recorded_tree(spark: Any, prefix: str, tmp_path: Path) -> None:
    """Every figure, of the same messages: seen while they were sent, and recorded, ingested, aggregated."""
    loop = ("sensor", "estimate", "command")
    tree, said = HopTreeCollector(loop.__contains__, 600.0), StageCollector(lambda _: True, 600.0)
    command = make_demo_command(2, tmp_path / "log")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        (folder,) = wait_until(lambda: [*SHM.glob(f"msgq_{prefix}-demo-*")], "the demo has a prefix")
        with settings.overrides(folder.name.removeprefix("msgq_")):
            while demo.poll() is None:
                tree.poll()
                said.poll()
                time.sleep(0.005)
        assert demo.stdout is not None
        assert json.loads(demo.stdout.read())["failures"] == []
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest([tmp_path / "log"])
    lake.build_gold()
    live, columns = tree.build_tree(), ("parent", "endpoint", "messages", "p50", "p99", "max", "e2e_p50")
    assert (live.cut_chain_count, set(live.lost.values())) == (0, {0})
    hops = [tuple(getattr(hop, name) for name in columns) for hop in live.hops]
    assert len(hops) == 3
    recorded = lake.table("hops").where(f"endpoint IN {loop}")
    assert close(hops, sorted_rows(recorded, *columns))
    rows = [(row.stage, row.endpoint) for row in said.compute_rows() if row.messages and not row.malformed]
    assert [stage for stage, _ in rows] == ["command", "estimate"]
    assert rows == sorted_rows(lake.table("stage_summary").where("messages > 0 AND malformed = 0"), "stage", "endpoint")


def test_stage_plot_has_bar_for_each_stage() -> None:
    row: dict[str, Any] = {
        f"{name}_{title}": 2000 for name in ("queue_time", "processing_time", "e2e_latency") for title in ("p50", "p99")
    }
    text = plots.plot_stages(
        [{"stage": "planner", "endpoint": "orders", **row, "e2e_latency_p50": None, "e2e_latency_p99": None}]
    )
    assert text is not None
    assert '"name":"processing time p99"' in text
    assert "planner: orders" in text
    assert plots.plot_stages([]) is None
