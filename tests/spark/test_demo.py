"""The demo, which uses all kinds of endpoints: what Spark makes of its recording is what the demo itself counted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
from msgq.common.timing import make_timing_topic
from msgq.recording import LogReader
from msgq.spark.lake import Lake
from msgq.spark.pipeline import run_pipeline
from tests.spark.deadline import DEADLINE
from tests.spark.demo_command import make_demo_command
from tests.spark.pages import sections, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.nightly


class Demo(NamedTuple):
    """A demo that has ended.

    Attributes:
        results: what it says of itself.
        recording: the directory.
        lake: lake of the recording.
        page: page of the recording.
        figures: of the report.
    """

    results: dict[str, Any]
    recording: Path
    lake: Lake
    page: Path
    figures: dict[str, Any]


@pytest.fixture(scope="module")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Four seconds of it, recorded, in a lake, and on a page."""
    where = tmp_path_factory.mktemp("demo")
    command = make_demo_command(4, where / "recording")
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    results = json.loads(done.stdout)
    assert (results["failures"], done.returncode) == ([], 0)
    figures = run_pipeline(where / "recording", where / "lake", where / "report.html", spark)
    return Demo(results, where / "recording", Lake(spark, where / "lake"), where / "report.html", figures)


def count_published(demo: Demo, endpoint: str) -> int:
    """Return how many messages the demo says that it published."""
    return int(demo.results["published"][endpoint])


def row(demo: Demo, of: str, condition: str) -> Any:
    """Return the one row of a table that a condition chooses."""
    (found,) = demo.lake.table(of).where(condition).collect()
    return found


def test_demo_endpoints_have_messages_losses_and_kind(demo: Demo) -> None:
    recorded = LogReader(demo.recording).endpoints
    found = {one.endpoint: one for one in demo.lake.table("endpoints").collect()}
    assert {name: (one.kind, one.messages, one.lost, one.size_bytes) for name, one in found.items()} == {
        name: (info.kind, info.messages, info.lost or 0, info.bytes) for name, info in recorded.items()
    }
    assert {one.kind for one in found.values()} == {"topic", "frames", "channel", "records", "queue"}
    assert demo.figures["messages"] == sum(info.messages for info in recorded.values())
    for topic in ("cpu", "sensor", "estimate", "command", "pulse"):
        assert found[topic].messages == count_published(demo, topic)


def test_demo_channel_publishers_have_messages(demo: Demo) -> None:
    found = {one.publisher: one for one in demo.lake.table("publishers").where("endpoint LIKE 'channel/%'").collect()}
    assert found.keys() == {"heat", "fill"}
    assert sum(one.messages for one in found.values()) == count_published(demo, "channel/alerts") > 0


def test_each_demo_vector_value_is_recorded_or_counted_as_overwritten(demo: Demo) -> None:
    one = row(demo, "endpoints", "endpoint = 'records/gauges'")
    first = demo.lake.silver("records/gauges").groupBy("index").agg({"count": "min"}).collect()
    before = sum(count - 1 for _, count in first)  # values that were overwritten before the recorder's first look
    assert one.messages + one.overwritten + before == count_published(demo, "records/gauges") > 0
    assert one.lost == 0


def test_demo_queue_summary_equals_counters_of_demo_programs(demo: Demo) -> None:
    """A worker was killed at work: what it had taken came back, and was taken again."""
    work = demo.results["work"]
    total = row(demo, "queue_summary", "queue = 'jobs'")
    assert (total.sent, total.acknowledged, total.requeued) == (work["sent"], work["acknowledged"], work["returned"])
    assert total.sent == count_published(demo, "queue/jobs")
    assert total.redelivered == total.requeued >= 1
    assert total.delivered == total.sent + total.requeued
    assert (total.rejected, total.backlog) == (0, work["unfinished"]) == (0, 0)
    assert total.queue_time_count == total.delivered
    assert total.processing_time_count == total.acknowledged + total.requeued
    returned = demo.lake.table("queue_deliveries").where("outcome = 'requeued'").collect()
    assert {one.pid for one in returned} == {work["killed_pid"]}
    assert {one.deliveries for one in returned} == {1}


def test_demo_stage_counts_equal_counts_of_demo_programs(demo: Demo) -> None:
    recorded = {one["endpoint"]: one["messages"] for one in demo.results["recording"]}
    stages = {one.stage: one for one in demo.lake.table("stage_summary").collect()}
    for name, cause in (("estimate", "sensor"), ("command", "estimate")):
        one = stages.pop(name)
        assert one.endpoint == cause
        assert (one.messages, one.malformed) == (recorded[make_timing_topic(name, cause)], 0)
        assert one.processing_time_count == one.e2e_latency_count == one.messages > 0
    assert stages == {}


def test_demo_report_shows_values(demo: Demo) -> None:
    found = sections(demo.page.read_text())
    work = demo.results["work"]
    (jobs,) = table(found["Queues"])
    counts = {name: jobs[name] for name in ("sent", "acknowledged", "requeued", "redelivered", "rejected", "backlog")}
    expected = {"sent": work["sent"], "acknowledged": work["acknowledged"], "rejected": 0, "backlog": 0}
    expected |= dict.fromkeys(("requeued", "redelivered"), work["returned"])
    assert counts == {name: f"{count:,}" for name, count in expected.items()}
    stages = {one["stage"]: one for one in table(found["Stages"])}
    assert set(stages) == {"estimate", "command"}
    recorded = {one["endpoint"]: one["messages"] for one in demo.results["recording"]}
    assert stages["estimate"]["messages"] == f"{recorded[make_timing_topic('estimate', 'sensor')]:,}"
    publishers = {one["publisher"]: one for one in table(found["Publishers"])}
    alerts = sum(int(publishers[name]["messages"].replace(",", "")) for name in ("heat", "fill"))
    assert alerts == count_published(demo, "channel/alerts")
    kinds = {one["endpoint"]: one["kind"] for one in table(found["Endpoints"])}
    assert kinds == {name: info.kind for name, info in LogReader(demo.recording).endpoints.items()}
    assert "Pictures" in found
