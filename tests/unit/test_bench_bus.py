"""The benchmark's rows of buses: each message reaches its subscribers, and the columns have figures of all systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_bench import measure
from tools.bench import members
from tools.bench.cases import Case
from tools.bench.report import format_costs
from tools.bench.summary import Row, summarize
from tools.bench.tables import TABLES

pytestmark = pytest.mark.usefixtures("prefix")  # begins all names of a run, so that `token` finds leftovers
BUS = {case.key: case for case in TABLES["bus"].cases}


def check_costs(row: Row, systems: set[str]) -> None:
    """Check the columns of a bus."""
    assert systems == set(row.medians)
    for system in systems:
        costs = row.costs[system]
        assert row.medians[system] > 1000  # a sleep and a wake-up take longer
        assert 0 < costs["switches"] < 20
        assert costs["private"] > 0
        assert costs["shared"] > 0
        assert 0 < row.curves[system][0.5] < 1e9


def test_bus_bench_shows_costs_of_all_processes(tmp_path: Path) -> None:
    printed, result = measure(tmp_path, "bus_poll,queue_bus", "--peers", "pipe")
    queue, poll = summarize(result)
    check_costs(poll, {"msgq", "floor", "pipe"})
    check_costs(queue, {"msgq"})
    head = "row: context switches for each delivery, private and shared MiB of a process"
    assert f"| {head} | msgq | floor | pipe |" in printed
    assert not [sample for sample in result.samples if sample.get("lost")]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rows", "systems"),
    [
        ("bus_services,bus_fan_out", {"msgq", "floor", "pipe"}),
        ("bus_poll_asyncio,bus_fan_out_asyncio", {"msgq", "pipe"}),
        ("channel_bus,frame_bus", {"msgq", "floor"}),
    ],
)
def test_bus_bench_measures_each_row(tmp_path: Path, rows: str, systems: set[str]) -> None:
    _, result = measure(tmp_path, rows, "--peers", "pipe")
    assert result.failed == {}
    for row in summarize(result):
        check_costs(row, systems)


@pytest.mark.nightly
@pytest.mark.watchdog(900)
def test_bus_bench_measures_program_in_c(tmp_path: Path) -> None:
    """The compiler takes ten seconds for the C library, and minutes on a busy machine."""
    _, result = measure(tmp_path, "bus_poll_c,bus_fan_out_c", "--peers", "pipe", limit_s=800)
    for row in summarize(result):
        check_costs(row, {"msgq", "floor"})


@pytest.mark.nightly
def test_bus_bench_measures_sockets_of_zeromq_in_both_loops(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    _, result = measure(tmp_path, "bus_poll,bus_poll_asyncio", "--peers", "zmq-ipc")
    assert result.failed == {}
    assert all({"msgq", "zmq-ipc"} <= set(row.medians) for row in summarize(result))


@pytest.mark.parametrize("key", ["bus_poll", "bus_services", "bus_fan_out_asyncio"])
def test_each_topic_of_a_bus_has_one_owner_and_its_subscribers(key: str) -> None:
    case = BUS[key]
    every = range(1 + len(case.crew))
    topics = [str(topic) for topic in range(case.endpoints)]
    owned = [str(topic) for member in every for topic in members.list_owned(case, member)]
    polled = [topic for member in every for topic in members.list_polled(case, member)]
    assert sorted(owned) == sorted(topics)
    assert sorted(polled) == sorted(topics * case.subscribers)


def make_part(**changes: Any) -> dict[str, Any]:
    """Return the result of a process that did nothing."""
    return {
        **dict.fromkeys(("deliveries", "sent", "cpu_ns", "switches", "private", "shared"), 0),
        "processes": 1,
        "samples": [],
        **changes,
    }


def test_costs_of_a_bus_are_sums_of_processes_for_each_delivery() -> None:
    sender = make_part(sent=10, cpu_ns=2000, switches=10, private=100)
    takers = [make_part(deliveries=10, cpu_ns=1000, switches=5, private=400, samples=[7] * 10) for _ in range(2)]
    joined = members.join([sender, *takers], copies=2)
    assert joined["value"] == 200
    assert joined["costs"] == {"switches": 1.0, "private": 300, "shared": 0}
    assert joined["samples"] == [7] * 20
    assert joined["lost"] == 0


def test_missing_deliveries_of_a_bus_are_lost_if_they_are_more_than_late_ones() -> None:
    parts = [make_part(sent=100), make_part(deliveries=60, cpu_ns=1)]
    assert members.join(parts, copies=1)["lost"] == 100 - 60 - 2


def test_rows_without_processes_of_a_bus_have_no_table_of_costs() -> None:
    row = Row(Case("send_0", "send", "ns", ""), {}, {}, {}, "", {}, frozenset(), (), {}, {}, None, None)
    assert format_costs([row]) == ""
