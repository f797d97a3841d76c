"""The demo as its user runs it: a real process with real children, whole, interrupted, and killed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from msgq import stats
from msgq.common.timing import TIMING_FIELDS, parse_timing_topic
from msgq.recording import LogReader
from msgq_demo.roles import KILLED_WORKER, PUBLISHERS, SHORT_RUN, SUBSCRIBERS, WORKERS
from tests.support import SHM, wait_until

DEADLINE_S = 120
ENDPOINTS = {role.endpoint for role in PUBLISHERS.values()}
SHORT_ENDPOINTS = {PUBLISHERS[name].endpoint for name in SHORT_RUN if name in PUBLISHERS}
REPLAYED = ("cpu", "channel/alerts", "records/gauges", "queue/jobs", "visionipc_load_0/image")
REPLAY_PATTERN = rf"[\d,]+ messages of {', '.join(REPLAYED)} led to the same [\d,]+ messages"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(prefix: str, tmp_path: Path) -> Iterator[Start]:
    """Start the full or the short demo for so many seconds, without a terminal."""
    started = []

    def start(duration: float, *options: str, full: bool = True) -> subprocess.Popen[str]:
        options = ("--full", *options) if full else options
        command = [sys.executable, "-m", "msgq", "demo", "--json", "--duration", str(duration), *options]
        env = {**os.environ, "TMPDIR": str(tmp_path)}  # one that is killed leaves files there
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def results_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of a demo; it must have ended well and printed one object and nothing else."""
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert errors == ""
    results: dict[str, Any] = json.loads(output)
    assert results["failures"] == []
    assert process.returncode == 0
    return results


def leftovers(prefix: str) -> list[str]:
    """Folders in shared memory, and sockets of frames, of demos under this prefix."""
    frames = Path("/tmp").glob(f"{prefix}-demo-*_visionipc_*")
    return sorted(map(str, (*SHM.glob(f"msgq*_{prefix}-demo-*"), *frames)))


def have_messages(prefix: str, endpoints: Collection[str]) -> bool:
    """Whether all of these endpoints of the running demo have messages."""
    own = next((path.name.partition("_")[2] for path in SHM.glob(f"msgqrec_{prefix}-demo-*")), None)
    return own is not None and {one.endpoint for one in stats.endpoints(own) if one.messages} >= set(endpoints)


def test_full_demo_accounts_for_all_published_messages(prefix: str, start: Start, tmp_path: Path) -> None:
    results = results_of(start(4, "--output", str(tmp_path / "recording")))
    assert not results["interrupted"]
    published = results["published"]
    assert published.keys() == ENDPOINTS
    for flow in results["flows"]:
        assert flow["received"] > 0
        if flow["subscriber"] not in WORKERS:
            assert flow["received"] + flow["lost"] == published[flow["endpoint"]]
        assert 0 < flow["p50_us"] <= flow["p99_us"]
    assert {flow["subscriber"] for flow in results["flows"]} == SUBSCRIBERS.keys() - {KILLED_WORKER}
    assert {flow["endpoint"] for flow in results["flows"]} == ENDPOINTS
    assert leftovers(prefix) == []
    check_losses(results)
    check_work(results)
    check_loop(LogReader(tmp_path / "recording"))
    assert re.fullmatch(REPLAY_PATTERN, results["replay"])


def check_losses(results: dict[str, Any]) -> None:
    """A restart loses nothing, and a slow subscriber counts what it lost."""
    assert results["restart"]["endpoint"] == "pulse"
    assert results["restart"]["outage_ms"] > 0
    lost = {flow["subscriber"]: flow["lost"] for flow in results["flows"]}
    assert lost["survivor"] == 0
    assert lost["slow"] > 0
    assert lost["display"] > 0


def check_work(results: dict[str, Any]) -> None:
    """Of three workers one was killed at work; all that it left was done by others, and nothing twice by them."""
    work = results["work"]
    done = sum(flow["received"] for flow in results["flows"] if flow["subscriber"] in WORKERS)
    assert work["sent"] == work["acknowledged"] >= done
    assert work["returned"] >= 1
    assert work["unfinished"] == 0
    assert work["killed_pid"] > 0


def check_loop(log: LogReader) -> None:
    """Each command follows from an estimate, and that from a message of the sensor, which all have its time."""
    times: dict[str, dict[int, int]] = {"sensor": {}, "estimate": {}, "command": {}}
    stages: dict[str, list[int]] = {"estimate": [], "command": []}
    for message in log:
        if found := parse_timing_topic(message.endpoint):
            stages[found[0]].append(int(np.frombuffer(message.data, "<i8")[TIMING_FIELDS.index("origin_time")]))
        elif message.endpoint in times:
            assert message.origin_time is not None
            times[message.endpoint][message.origin_time] = message.publish_time
    assert all(origin == published for origin, published in times["sensor"].items())
    assert times["sensor"].keys() >= times["estimate"].keys() >= times["command"].keys()
    assert len(times["command"]) > 50
    for name, origins in stages.items():
        assert origins == list(times[name])
    for origin, published in times["command"].items():
        assert origin <= times["estimate"][origin] <= published


def test_ctrl_c_during_short_demo_leaves_only_recording_that_it_names(
    prefix: str, start: Start, tmp_path: Path
) -> None:
    process = start(600, full=False)
    wait_until(lambda: have_messages(prefix, SHORT_ENDPOINTS), "every endpoint flows", DEADLINE_S, interval=0.1)
    process.send_signal(signal.SIGINT)
    results = results_of(process)
    assert results["interrupted"]
    assert results["published"].keys() == SHORT_ENDPOINTS
    assert [str(path) for path in tmp_path.iterdir()] == [results["recording_path"]]
    assert LogReader(results["recording_path"]).endpoints.keys() == SHORT_ENDPOINTS
    assert leftovers(prefix) == []


def test_ctrl_c_during_full_demo_prints_results_and_leaves_no_files(prefix: str, start: Start) -> None:
    process = start(600)
    wait_until(lambda: have_messages(prefix, ENDPOINTS), "every endpoint flows", DEADLINE_S, interval=0.1)
    process.send_signal(signal.SIGINT)
    results = results_of(process)
    assert results["interrupted"]
    assert all(results["published"].values())
    assert leftovers(prefix) == []


@pytest.mark.nightly
def test_ctrl_c_during_demo_start_leaves_no_files(prefix: str, start: Start) -> None:
    process = start(600)
    wait_until(lambda: bool(leftovers(prefix)), "the first segment exists", DEADLINE_S)
    process.send_signal(signal.SIGINT)
    assert results_of(process)["interrupted"]
    assert leftovers(prefix) == []


def test_children_of_killed_demo_exit_and_remove_their_files(prefix: str, start: Start) -> None:
    process = start(600)
    wait_until(lambda: have_messages(prefix, ENDPOINTS), "every endpoint flows", DEADLINE_S, interval=0.1)
    children = psutil.Process(process.pid).children()
    assert len(children) == len(PUBLISHERS) + len(SUBSCRIBERS)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert alive == []
    assert leftovers(prefix) == []


@pytest.mark.nightly
def test_two_concurrent_demos_do_not_interfere(prefix: str, start: Start) -> None:
    for process in (start(2), start(2)):
        results_of(process)
    assert leftovers(prefix) == []
