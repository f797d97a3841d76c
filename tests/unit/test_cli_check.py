"""`msgq check`: what a file expects, against live topics."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import msgq
from msgq.cli.app import app
from msgq.errors import QueueFullError
from msgq.impl.meter import run_meters
from msgq.kinds.opening import open_meter
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.expectations import Expectation, check_endpoint
from msgq.monitor.live_endpoints import LiveEndpoint
from msgq.stats import topic
from tests import command
from tests.support import Child, Task, wait_until
from tests.unit import publisher_children


@pytest.fixture
def traffic(prefix: str) -> Iterator[Child]:
    with Child(publisher_children.publish_steadily, ["camera", "wheel.left", "wheel.right"], 0.01) as child:
        assert child.hear() == "up"
        wait_until(lambda: topic("wheel.right").messages)
        yield child


@pytest.fixture
def check(tmp_path: Path) -> Any:
    def check(text: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        file = tmp_path / "expected.toml"
        file.write_text(text)
        result = CliRunner().invoke(app, ["check", str(file), "--json", *arguments], catch_exceptions=False)
        return result.exit_code, [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]

    return check


GOOD = """
duration = 0.3
only = true
[endpoints.camera]
subscribers = 0
rate = [1, 1000]
size = 10
lost = 0
[endpoints."wheel.*"]
rate = 1
size = [1, 100]
[endpoints.radar]
optional = true
"""


def test_check_command_succeeds_if_all_expectations_are_met(traffic: Child, check: Any) -> None:
    code, found = check(GOOD)
    assert code == 0, found
    assert {(line["endpoint"], line["condition"]) for line in found} >= {("camera", "lost"), ("wheel.left", "rate")}
    assert all(line["ok"] for line in found)


@pytest.mark.parametrize(
    ("expected", "endpoint", "what"),
    [
        ("[endpoints.radar]", "radar", "exists"),
        ("[endpoints.camera]\nrate = 5000", "camera", "rate"),
        ("[endpoints.camera]\nrate = [0, 2]", "camera", "rate"),
        ("[endpoints.camera]\nsize = [0, 9]", "camera", "size"),
        ("[endpoints.camera]\nsubscribers = 2", "camera", "subscribers"),
        ("[endpoints.camera]\npublisher = false", "camera", "publisher"),
        ("only = true\n[endpoints.camera]", "wheel.left", "only"),
    ],
)
def test_check_command_fails_if_expectation_is_not_met(
    traffic: Child, check: Any, expected: str, endpoint: str, what: str
) -> None:
    code, found = check(f"duration = 0.2\n{expected}")
    assert code == 1
    assert (endpoint, what) in {(line["endpoint"], line["condition"]) for line in found if not line["ok"]}


@pytest.mark.parametrize(
    ("expected", "ok"),
    [((10, 1000), True), ((10, None), True), ((10, 999), False), ((11, 1000), False), ((11, None), False)],
)
def test_size_expectation_is_compared_with_smallest_and_largest_message(
    prefix: str, expected: tuple[float, float | None], ok: bool
) -> None:
    with msgq.pub_sock("camera") as publisher:
        meter = open_meter("camera")
        publisher.send_many([bytes(10), bytes(1000)])
        run_meters([meter], 0)
        size_only = Expectation(
            EndpointSelection(["camera"], prefix), None, (None, None), (None, None), expected, None, False
        )
        found = list(check_endpoint(size_only, LiveEndpoint("camera", prefix).poll(), meter.take_reading()))
    assert [(one.condition, one.ok) for one in found] == [("size", ok)]


def test_check_command_reports_losses_of_stopped_subscriber(prefix: str, check: Any) -> None:
    """It has not noticed them itself."""
    over = threading.Event()

    def publish() -> None:
        with msgq.pub_sock("camera", 4096) as pub:
            while not over.wait(0.001):
                pub.send_many([bytes(100)] * 50)

    with msgq.sub_sock("camera", segment_size=4096) as hanging:
        task = Task(publish)
        wait_until(lambda: topic("camera").messages)
        code, found = check("duration = 0.3\n[endpoints.camera]\nlost = 0")
        over.set()
        task.result()
        assert (code, hanging.lost) == (1, 0)
    assert [line["condition"] for line in found if not line["ok"]] == ["lost"]


def test_check_command_reports_dead_publisher(prefix: str, check: Any) -> None:
    with Child(publisher_children.die_publishing, "camera") as child:
        child.process.wait()
    code, found = check("duration = 0.01\n[endpoints.camera]")
    assert code == 1
    assert [(line["condition"], line["ok"]) for line in found] == [("publisher", False)]


def test_check_command_reports_losses_of_subscribers(prefix: str, check: Any) -> None:
    with msgq.pub_sock("camera") as publisher, msgq.sub_sock("camera", timeout=0) as subscriber:
        code, _ = check("duration = 0.01\n[endpoints.camera]\nlost = 0")
        assert code == 0
        publisher.send_many([bytes(1000)] * 3000)
        subscriber.receive_many()
        assert subscriber.lost
        code, _ = check("duration = 0.01\n[endpoints.camera]\nlost = 0")
        assert code == 0  # losses before the measurement do not count


def test_check_command_waits_for_late_endpoints(prefix: str, check: Any) -> None:
    with Child(publisher_children.publish_steadily, ["camera"]):
        code, _ = check("duration = 0.1\n[endpoints.camera]\nrate = 1", "--timeout", "20")
    assert code == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "duration = 'two'\n[endpoints.a]",
        "duration = 0\n[endpoints.a]",
        "endpoints = 3",
        "[endpoints]\na = 3",
        "[endpoints.a]\nspeed = 3",
        "[endpoints.a]\nrate = 'fast'",
        "[endpoints.a]\nrate = [3, 1]",
        "[endpoints.a]\nlost = true",
        "[endpoints.'(']",
        "[endpoint.a]",
    ],
)
def test_check_command_with_invalid_file_exits_with_usage_error(prefix: str, check: Any, text: str) -> None:
    assert check(text)[0] == 2


def test_check_command_with_missing_file_exits_with_usage_error(prefix: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(tmp_path / "none")], catch_exceptions=False)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


ALL_KINDS = """
duration = 0.2
only = true
[endpoints."channel/scans"]
subscribers = 1
rate = 1
lost = 0
[endpoints."records/poses"]
rate = 1
size = 8
[endpoints."queue/jobs"]
subscribers = [0, 0]
rate = 1
lost = 0
"""


@pytest.fixture
def kinds(prefix: str) -> Iterator[None]:
    """A channel with a subscriber that never looks, a vector and a queue, all of them busy."""
    over = threading.Event()

    def work() -> None:
        with (
            msgq.Channel("scans", capacity=8) as channel,
            channel.publisher() as publisher,
            channel.subscriber(),
            msgq.SeqlockVector("poses", "<f8", 10) as vector,
            msgq.MessageQueue("jobs", max_messages=1000) as queue,
        ):
            while not over.wait(0.01):
                publisher.send(b"123")
                vector[:] = 1
                with contextlib.suppress(QueueFullError):
                    queue.send(b"x", timeout=0)
                ready.set()

    ready = threading.Event()
    task = Task(work)
    assert ready.wait(20)
    yield
    over.set()
    task.result()


def test_check_command_compares_endpoints_of_each_kind(kinds: None, check: Any) -> None:
    code, found = check(ALL_KINDS)
    wrong = {(line["endpoint"], line["condition"]): line["text"] for line in found if not line["ok"]}
    assert wrong.keys() == {("channel/scans", "lost")}
    assert code == 1
    lost = wrong["channel/scans", "lost"]
    assert int(lost.split()[0]) > 0
    right = {(line["endpoint"], line["condition"]) for line in found if line["ok"]}
    assert right == {
        ("channel/scans", "publisher"),
        ("channel/scans", "subscribers"),
        ("channel/scans", "rate"),
        *(("records/poses", what) for what in ("publisher", "rate", "size")),
        *(("queue/jobs", what) for what in ("publisher", "subscribers", "rate", "lost")),
    }


def test_check_command_with_expected_queue_accepts_its_events_channel(prefix: str, check: Any) -> None:
    with msgq.MessageQueue("jobs", events=True) as queue, msgq.MessageQueue("others", events=True) as others:
        queue.send(b"x")
        others.send(b"x")
        code, found = check('duration = 0.1\nonly = true\n[endpoints."queue/jobs"]')
    assert code == 1
    unexpected = [line["endpoint"] for line in found if line["condition"] == "only"]
    assert sorted(unexpected) == ["channel/others:events", "queue/others"]


@pytest.mark.parametrize(
    ("expected", "endpoint", "what"),
    [
        ('[endpoints."channel/scans"]\nrate = 1e9', "channel/scans", "rate"),
        ('[endpoints."channel/scans"]\nsubscribers = 2', "channel/scans", "subscribers"),
        ('[endpoints."queue/jobs"]\npublisher = false', "queue/jobs", "publisher"),
        ('[endpoints."queue/jobs"]\nsubscribers = 1', "queue/jobs", "subscribers"),
        ('[endpoints."records/poses"]\nsize = [1, 7]', "records/poses", "size"),
        ('[endpoints."records/.*"]\nsubscribers = [0, 9]', "records/poses", "subscribers"),
        ('[endpoints."rec.*"]\nlost = 9', "records/poses", "lost"),
        ('[endpoints."queue/.*"]\nsize = [0, 99]', "queue/jobs", "size"),
        ('[endpoints."records/jobs"]', "records/jobs", "exists"),
        ('only = true\n[endpoints."records/poses"]', "queue/jobs", "only"),
    ],
)
def test_check_command_fails_if_non_topic_expectation_is_not_met(
    kinds: None, check: Any, expected: str, endpoint: str, what: str
) -> None:
    code, found = check(f"duration = 0.1\n{expected}")
    assert code == 1
    assert (endpoint, what) in {(line["endpoint"], line["condition"]) for line in found if not line["ok"]}


@pytest.mark.parametrize(
    ("name", "key", "why"),
    [
        ("channel/scans", "size = 1", "channels do not count the sizes of messages"),
        ("queue/jobs", "size = 1", "queues do not count the sizes of messages"),
        ("records/poses", "subscribers = 1", "readers of records leave no trace"),
        ("records/poses", "lost = 1", "records do not count the values that readers miss"),
    ],
)
def test_check_command_with_unmeasurable_expectation_exits_with_usage_error(
    prefix: str, tmp_path: Path, name: str, key: str, why: str
) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(f'[endpoints."{name}"]\n{key}\n')
    assert why in command.run("check", file, code=2).output
