"""What the page shows: rows of gold added up, compared with plain Python."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
from msgq.lake.report import gold_reader
from msgq.lake.report import report_data as data
from msgq.lake.report.endpoint_windows import read_endpoint_windows
from msgq.lake.report.gold_reader import GoldReader
from tests.report.gold import BEGIN, SECOND, Tables, endpoint, histogram

_WIDTHS = (1, 10, 60, 600, 3600)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every table come in several pieces."""
    monkeypatch.setattr(gold_reader, "_READ_PIECE_ROWS", 7)


def rates_of(random: random.Random, endpoints: int) -> list[dict[str, Any]]:
    """Windows of endpoints, each of a width of its own, on its grid, within some hours."""
    rows = []
    for number in range(endpoints):
        width = _WIDTHS[number % len(_WIDTHS)]
        for window in random.sample(range(3 * 3600 // width), min(3, 3 * 3600 // width)):
            row = {
                "run": random.choice("rs"),
                "endpoint": f"e{number}",
                "window_start": BEGIN + window * width * SECOND,
            }
            rows.append(row | {"window_ns": width * SECOND, "messages": random.randrange(1, 1000)})
    return rows


@pytest.mark.parametrize("step_s", [1, 5, 30, 120, 3600])
def test_report_distributes_window_messages_evenly_over_page_steps(step_s: int) -> None:
    rows = rates_of(random.Random(step_s), 30)
    names = [f"e{number}" for number in range(20)]
    step, expected = step_s * SECOND, Counter[tuple[str, int]]()
    for row in rows:
        parts = max(1, row["window_ns"] // step)
        for part in range(parts):
            name = row["endpoint"] if row["endpoint"] in names else "(others)"
            expected[name, row["window_start"] - row["window_start"] % step + part * step] += (
                row["messages"] / parts / step_s
            )
    found = data.read_throughput(GoldReader(Tables(throughput=rows)), names, step, BEGIN, BEGIN + 24 * 3600 * SECOND)
    assert {(row["endpoint"], row["window_start"]): row["rate"] for row in found} == pytest.approx(expected)
    assert sum(row["rate"] for row in found) * step_s == pytest.approx(sum(row["messages"] for row in rows))
    assert [(row["endpoint"], row["window_start"]) for row in found] == sorted(expected)


def test_endpoint_windows_have_rates_and_latencies_of_each_endpoint() -> None:
    """A window of a minute is spread over the seconds that the recording covers, also over a part of a second."""
    begin, end = BEGIN + 500 * SECOND, BEGIN + 504 * SECOND + SECOND * 6 // 10
    slow = {"run": "r", "endpoint": "slow", "window_start": BEGIN + 480 * SECOND, "window_ns": 60 * SECOND}
    fast = {"run": "r", "endpoint": "fast", "window_start": BEGIN + 502 * SECOND, "window_ns": SECOND}
    rates = [slow | {"messages": 46}, fast | {"messages": 80}, fast | {"endpoint": "other", "messages": 9}]
    gold = GoldReader(Tables(throughput=rates, latency=[fast | {"p90": 7000}, fast | {"run": "s", "p90": 9000}]))
    found = read_endpoint_windows(gold, ["slow", "fast"], SECOND, begin, end)
    assert found.rates.tolist() == [pytest.approx([10] * 5), [0, 0, 80, 0, 0]]
    assert [value for value in found.latencies[1] if value == value] == [9000]
    assert found.starts.tolist() == [begin + second * SECOND for second in range(5)]


def test_report_window_longer_than_recording_is_cut_to_recording() -> None:
    """An endpoint that speaks seldom has windows of an hour: its messages came within the recording all the same."""
    row = {"run": "r", "endpoint": "a", "window_start": BEGIN, "window_ns": 3600 * SECOND, "messages": 30}
    begin = BEGIN + 1000 * SECOND
    found = data.read_throughput(GoldReader(Tables(throughput=[row])), ["a"], SECOND, begin, begin + 9 * SECOND + 5)
    assert [((one["window_start"] - begin) // SECOND, one["rate"]) for one in found] == [(i, 3.0) for i in range(10)]


def test_report_page_has_at_most_240_steps_that_fit_gold_windows() -> None:
    for seconds in (0, 1, 239, 240, 241, 86_400, 7 * 86_400, 400 * 86_400):
        step = data.choose_page_window_ns(BEGIN, BEGIN + seconds * SECOND) // SECOND
        assert seconds <= 240 * step
        assert step == 1 or seconds > 240 * step / 3 or step == 3600
        assert all(width % step == 0 or step % width == 0 for width in _WIDTHS)
    assert data.choose_page_window_ns(None, None) == SECOND


def test_report_counts_only_selected_runs() -> None:
    rows = rates_of(random.Random(1), 10)
    tables = Tables(throughput=rows, endpoints=[endpoint("a", messages=3), endpoint("b", run="s", messages=5, lost=2)])
    found = data.read_throughput(GoldReader(tables, ["s"]), [], 3600 * SECOND, BEGIN, BEGIN)
    wanted = sum(row["messages"] for row in rows if row["run"] == "s")
    assert sum(row["rate"] for row in found) * 3600 == pytest.approx(wanted)
    assert data.read_report_summary(GoldReader(tables, ["s"]))["messages"] == 5
    assert data.read_report_summary(GoldReader(tables, ["r", "s"]))["runs"] == 2


def test_report_percentiles_equal_merged_histogram_percentiles() -> None:
    chance = random.Random(2)
    rows: list[dict[str, Any]] = []
    expected: dict[int, Counter[int]] = {}
    for number in range(200):
        counts = {chance.randrange(1, 400): chance.randrange(1, 50) for _ in range(5)}
        time = BEGIN + number * SECOND
        rows.append(
            {"run": "r", "endpoint": "a", "window_start": time, "window_ns": SECOND, "max": 10**10 + number}
            | {"histogram": histogram(counts)}
        )
        expected.setdefault(time - time % (30 * SECOND), Counter()).update(counts)
    found = data.read_latency(GoldReader(Tables(latency=rows)), 30 * SECOND, BEGIN, BEGIN + 200 * SECOND)
    assert [row["window_start"] for row in found] == sorted(expected)
    for row in found:
        values = sorted(expected[row["window_start"]].elements())
        for title, rank in (("p50", 0.5), ("p99", 0.99)):
            bucket = values[max(0, -(-len(values) * int(rank * 100) // 100) - 1)]
            assert row[title] == pytest.approx(bucket_middle(bucket), rel=0.001, abs=1)
        assert row["max"] == max(
            one["max"] for one in rows if one["window_start"] // (30 * SECOND) * 30 * SECOND == row["window_start"]
        )


def test_report_percentile_is_at_most_longest_duration() -> None:
    row = {"run": "r", "endpoint": "a", "window_start": BEGIN, "window_ns": SECOND, "max": 700, "min": 700}
    row["histogram"] = histogram({152: 1})
    gold = GoldReader(Tables(latency=[row], latency_summary=[row]))
    assert bucket_middle(152) > 700
    assert (
        data.read_latency(gold, SECOND, BEGIN, BEGIN)[0]["p99"]
        == data.read_endpoint_latency(gold, ["a"])[0]["p50"]
        == 700
    )


def test_report_latency_of_long_window_is_clipped_to_recording() -> None:
    """A window of an hour counts in each second of the recording."""
    hour = {"run": "r", "endpoint": "a", "window_start": BEGIN, "window_ns": 3600 * SECOND, "max": 900}
    second = {"run": "r", "endpoint": "b", "window_start": BEGIN + 1002 * SECOND, "window_ns": SECOND, "max": 90_000}
    rows = [hour | {"histogram": histogram({150: 40})}, second | {"histogram": histogram({260: 1000})}]
    begin = BEGIN + 1000 * SECOND + 5
    found = data.read_latency(GoldReader(Tables(latency=rows)), SECOND, begin, begin + 9 * SECOND)
    assert [row["window_start"] - begin for row in found] == [0, *(i * SECOND - 5 for i in range(1, 10))]
    assert [row["max"] for row in found] == [900, 900, 90_000, *[900] * 7]
    assert found[2]["p50"] == pytest.approx(bucket_middle(260), abs=1)


def bucket_middle(bucket: int) -> float:
    return float(2.0 ** ((bucket - 0.5) / 16))


def test_report_shows_endpoints_with_losses_before_endpoints_with_most_messages() -> None:
    rows = [endpoint(f"e{number:03}", messages=number, lost=int(number == 5)) for number in range(100)]
    rows += [endpoint("e000", run="s", messages=1000)]
    names = data.choose_endpoints(GoldReader(Tables(endpoints=rows)))
    assert names == ["e005", "e000", *(f"e{number:03}" for number in range(99, 61, -1))]


def test_report_losses_are_at_first_message_after_gap() -> None:
    rows = [{"run": "r", "endpoint": "ab"[i % 2], "to_time": BEGIN + i * SECOND, "lost": i} for i in range(20)]
    found = data.read_losses(GoldReader(Tables(sequence_gaps=rows)), ["a"], 10 * SECOND)
    expected = {("a", 0): 20, ("a", 10): 70, ("(others)", 0): 25, ("(others)", 10): 75}
    assert {(row["endpoint"], (row["window_start"] - BEGIN) // SECOND): row["lost"] for row in found} == expected


def test_report_adds_up_queue_windows_and_uses_last_backlog() -> None:
    chance = random.Random(3)
    rows = []
    for number in chance.sample(range(40), 40):
        row = {
            "run": "r",
            "queue": "jk"[number % 2],
            "epoch": 1,
            "window_start": BEGIN + number * SECOND,
            "backlog": number,
        }
        row |= dict.fromkeys(("sent", "delivered", "acknowledged", "requeued", "rejected", "redelivered"), number)
        row |= {"queue_time_max": 100 + number, "queue_time_histogram": histogram({10: 1}), "processing_time_max": None}
        rows.append(row | {"processing_time_histogram": []})
    gold = GoldReader(Tables(queue_windows=rows))
    first, second = data.read_queues(gold)
    assert (first["queue"], first["sent"], first["backlog"], first["queue_time_max"]) == ("k", 400, 39, 139)
    assert (second["queue"], second["sent"], second["backlog"]) == ("j", 380, 38)
    assert first["queue_time_p50"] == pytest.approx(bucket_middle(10), abs=1)
    assert (first["processing_time_p50"], first["processing_time_max"]) == (None, None)
    steps = data.read_queue_timelines(gold, ["j"], 20 * SECOND)
    assert [(row["queue"], row["step"] - BEGIN, row["sent"], row["backlog"]) for row in steps] == [
        ("j", 0, 90, 18),
        ("j", 20 * SECOND, 290, 38),
    ]


def test_report_stages_of_all_runs_are_sorted_by_processing_time() -> None:
    rows = []
    for run, stage, bucket in (("r", "x", 10), ("s", "x", 10), ("r", "y", 200)):
        row = {"run": run, "stage": stage, "endpoint": "e", "messages": 2, "malformed": 1}
        for name in ("queue_time", "processing_time", "e2e_latency"):
            row |= {f"{name}_max": 5, f"{name}_histogram": histogram({bucket: 2})}
        rows.append(row)
    found = data.read_stages(GoldReader(Tables(stage_summary=rows)))
    assert [(row["stage"], row["messages"], row["malformed"], row["e2e_latency_max"]) for row in found] == [
        ("y", 2, 1, 5),
        ("x", 4, 2, 5),
    ]


def test_report_hops_of_several_runs_are_merged() -> None:
    edge = {"run": "r", "parent": "a", "endpoint": "b", "messages": 1, "p50": 5, "p99": 9}
    rows = [edge, edge | {"run": "s", "messages": 4, "p50": 7, "p99": 8}, edge | {"parent": None, "endpoint": "a"}]
    found = data.read_hops(GoldReader(Tables(hops=rows)))
    assert found == [{"parent": "a", "endpoint": "b", "messages": 5, "share": 1.0, "p50": 7, "p99": 9}]


def test_report_hops_of_few_shared_messages_are_omitted() -> None:
    """Unrelated messages can have the same origin_time by chance."""
    edge = {"run": "r", "parent": "a", "endpoint": "b", "p50": 5, "p99": 9}
    roots = [edge | {"parent": None, "endpoint": name, "messages": 1000} for name in "abc"]
    chance, real = edge | {"messages": 46}, edge | {"endpoint": "c", "messages": 1000}
    (found,) = data.read_hops(GoldReader(Tables(hops=[*roots, chance, real])))
    assert (found["parent"], found["endpoint"], found["share"]) == ("a", "c", 0.5)
    few = edge | {"endpoint": "d", "messages": 4}
    assert data.read_hops(GoldReader(Tables(hops=[few]))) == []


def test_report_lists_worst_failed_checks() -> None:
    rows = [
        {"run": "r", "endpoint": f"e{i}", "check_name": "lost", "passed": i < 5, "value": i, "threshold": 4}
        for i in range(9)
    ]
    kinds, failed = data.read_checks(GoldReader(Tables(checks=rows)), 2)
    assert kinds == [{"check_name": "lost", "endpoints": 9, "failed": 4}]
    assert [row["endpoint"] for row in failed] == ["e8", "e7"]


def test_report_without_tables_is_empty() -> None:
    gold = GoldReader(Tables())
    assert data.read_report_summary(gold)["messages"] == 0
    assert data.read_report_summary(gold)["begin"] is None
    assert (
        data.read_throughput(gold, [], SECOND, 0, 0)
        == data.read_losses(gold, [], SECOND)
        == data.read_endpoint_latency(gold, [])
        == []
    )
    assert (
        data.read_latency(gold, SECOND, 0, 0)
        == data.read_hops(gold)
        == data.read_stages(gold)
        == data.read_queues(gold)
        == []
    )
    assert data.read_endpoints(gold) == data.read_publishers(gold) == []
    assert data.choose_endpoints(gold) == []
    assert data.read_checks(gold, 1) == ([], [])
