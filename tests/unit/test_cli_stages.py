"""`msgq stages`: what stages say of themselves, and the ways of messages."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from msgq.common import timing
from msgq.common.thread_samples import SAMPLES_SCHEMA
from msgq.impl.base import clock
from msgq.monitor import stage_timings
from msgq.monitor.hop_tree import HopEdge, HopTreeCollector, compute_hops, walk_branches
from msgq.monitor.sliding_window import DurationSpread, SlidingWindow, compute_spread
from msgq.monitor.stage_timings import StageCollector
from msgq.stats import topic
from tests.command import run, start
from tests.support import DEADLINE, Child, repeating, wait_until
from tests.unit import stage_children
from tests.unit.stage_children import publisher, step, step_publisher, timing_publisher, timing_record

SECOND = 1_000_000_000


def match_all_names(_name: str) -> bool:
    return True


def run_stages(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("stages", "--window", "0.2", "--json", *arguments).stdout.splitlines()]


def lines_with(text: str, *arguments: str) -> str | None:
    """Return what the command says, if that is in it: on a busy machine nothing may come within the window."""
    said = run("stages", "--window", "0.2", *arguments).stdout
    return said if text in said else None


# ---- figures ----


@pytest.mark.parametrize("count", [1, 2, 3, 99, 100, 101, 1000])
def test_percentile_is_element_at_requested_rank(count: int) -> None:
    values = np.random.default_rng(count).permutation(np.arange(count) * 7 - 3)
    found = compute_spread(values)
    assert (found.count, found.max) == (count, 7 * (count - 1) - 3)
    for share, value in ((0.5, found.p50), (0.99, found.p99)):
        assert value is not None
        assert (values < value).sum() < share * count <= (values <= value).sum()


def test_empty_sample_has_no_percentiles() -> None:
    assert compute_spread(np.empty(0, np.int64)) == DurationSpread(0, None, None, None)


def test_sliding_window_drops_old_samples_and_reports_duration() -> None:
    window = SlidingWindow(10.0, began_s=100.0, most=5)
    window.add_sample(101.0, [np.arange(2)], lost=3, left_out=1)
    assert window.compute_duration_s(104.0) == 4.0
    window.add_sample(110.0, [np.arange(2)], lost=1)
    assert (window.concatenate_rows(np.dtype(int)).tolist(), window.lost, window.left_out) == ([0, 1, 0, 1], 4, 1)
    window.drop_old_samples(111.5)
    assert (window.concatenate_rows(np.dtype(int)).tolist(), window.lost, window.left_out) == ([0, 1], 1, 0)
    window.add_sample(112.0, [np.arange(4)], lost=None)
    assert (len(window.concatenate_rows(np.dtype(int))), window.lost, window.compute_duration_s(113.0)) == (
        4,
        None,
        3.0,
    )
    window.drop_old_samples(122.0)
    assert not window.is_empty
    window.drop_old_samples(200.0)
    assert window.is_empty
    assert (window.lost, window.compute_duration_s(200.0)) == (0, 10.0)


def test_sliding_window_drops_oldest_samples_beyond_the_maximum_of_rows() -> None:
    window = SlidingWindow(10.0, began_s=100.0, most=5)

    def count_after(sample: int) -> int:
        window.add_sample(101.0, [np.arange(sample)])
        return len(window.concatenate_rows(np.dtype(int)))

    assert [count_after(3), count_after(2), count_after(1), count_after(6), count_after(1)] == [3, 5, 3, 6, 1]
    window.drop_old_samples(120.0)
    assert [count_after(3), count_after(2)] == [3, 5]


def by_hand(messages: list[tuple[str, int, int]]) -> dict[tuple[str | None, str], tuple[Any, ...]]:
    """What the table `compute_hops` says it is, message by message."""
    chains: dict[int, list[tuple[int, str]]] = {}
    for endpoint, published, origin in messages:
        chains.setdefault(origin, []).append((published, endpoint))
    edges: dict[tuple[str | None, str], list[tuple[int, int]]] = {}
    for origin, chain in chains.items():
        before: tuple[int, str] | None = None
        parent: tuple[int, str] | None = None
        for published, endpoint in sorted(chain):
            if before is not None and before[1] != endpoint:
                parent = before
            hop = published - parent[0] if parent else 0
            edges.setdefault((parent and parent[1], endpoint), []).append((hop, published - origin))
            before = published, endpoint
    found = {}
    for edge, both in edges.items():
        times, ages = sorted(hop for hop, _ in both), sorted(age for _, age in both)
        half, most = math.ceil(0.5 * len(both)) - 1, math.ceil(0.99 * len(both)) - 1
        figures = (None, None, None) if edge[0] is None else (times[half], times[most], times[-1])
        found[edge] = (len(both), *figures, ages[half])
    return found


def test_computed_hops_equal_hops_of_reference_implementation() -> None:
    random = np.random.default_rng(3)
    names = ["plan", "camera", "model", "ä", "z"]
    messages = [
        (names[random.integers(5)], int(origin + random.integers(0, 40)), int(origin))
        for origin in random.integers(1, 200, 2000)
    ]
    columns = [[names.index(name) for name, *_ in messages], *zip(*(times for _, *times in messages), strict=True)]
    found = compute_hops(names, *(np.array(column, np.int64) for column in columns))
    assert {
        (hop.parent, hop.endpoint): (hop.messages, hop.p50, hop.p99, hop.max, hop.e2e_p50) for hop in found
    } == by_hand(messages)


def test_stage_tree_shows_each_edge_below_its_parent() -> None:
    edges = [(None, "a"), ("a", "b"), ("b", "c"), ("a", "c"), ("c", "a"), (None, "x"), ("lost", "y")]
    shown = [(depth, hop.parent, hop.endpoint) for depth, hop in walk_branches([HopEdge(*edge, 1) for edge in edges])]
    assert shown == [
        (0, None, "a"),
        (1, "a", "b"),
        (2, "b", "c"),
        (3, "c", "a"),
        (1, "a", "c"),
        (0, None, "x"),
        (0, "lost", "y"),
    ]


# ---- stages ----


def test_stages_command_shows_one_row_per_stage_and_endpoint(prefix: str) -> None:
    view = StageCollector(match_all_names, 10.0)
    with (
        timing_publisher("planner", "channel/scans") as scans,
        timing_publisher("planner", "orders") as orders,
        step_publisher("orders"),
    ):
        view.poll()
        for i in range(1, 101):
            scans.send(timing_record(1000, 1000 + i, 5000 + 2 * i, 500 + 2 * i))
        orders.send(timing_record(0, 7, 9, 0))  # nobody told when it was sent, nor of what it is a consequence
        view.poll()
        first, second = view.compute_rows()
    assert (first.stage, first.endpoint, first.messages, first.lost, first.malformed) == (
        "planner",
        "channel/scans",
        100,
        0,
        0,
    )
    assert (first.queue_time, first.processing_time, first.e2e_latency) == (
        DurationSpread(100, 50, 99, 100),
        DurationSpread(100, 4050, 4099, 4100),
        DurationSpread(100, 4500, 4500, 4500),
    )
    assert (second.endpoint, second.queue_time, second.processing_time, second.e2e_latency) == (
        "orders",
        DurationSpread(0),
        DurationSpread(1, 2, 2, 2),
        DurationSpread(0),
    )
    assert second.rate == pytest.approx(1 / second.seconds)


def test_stages_command_shows_mean_time_without_processor(prefix: str) -> None:
    with timing_publisher("planner", "orders") as orders:

        def send_record() -> None:
            now = clock.time_ns()
            orders.send(timing_record(now - 900_000, now - 600_000, now, now - 1_000_000))

        with repeating(send_record, 0.01):
            (row,) = wait_until(lambda: [row for row in run_stages() if row["age_parts"]])
            shown = wait_until(lambda: lines_with("planner", "orders"))
    assert row["thread_problem"] == ""
    assert row["age_parts"]["sender"] == 100_000
    assert 0 <= row["age_parts"]["no_cpu"] <= 900_000
    assert sum(row["age_parts"].values()) == pytest.approx(1_000_000, abs=10)
    assert "no CPU" in shown


def test_work_is_known_if_the_clock_of_the_sender_is_ahead(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage worked 20 of the 50 ms of its span, and the message was sent a second later by its sender's clock."""
    begin = clock.time_ns()
    received, ended = begin + SECOND // 100, begin + 6 * SECOND // 100

    class Threads:
        find_thread, find_problem, poll = (lambda *_: (1, 2)), (lambda *_: ""), (lambda *_: None)

        def get_samples(self, _thread: object) -> np.ndarray[Any, Any]:
            sample = np.zeros(1, SAMPLES_SCHEMA.dtype)
            sample["begin_time"], sample["publish_time"], sample["ran_ns"] = begin, begin + SECOND // 10, SECOND // 50
            return sample

    monkeypatch.setattr(stage_timings, "StageThreads", lambda _: Threads())
    with timing_publisher("planner", "orders") as orders:
        collector = StageCollector(match_all_names, DEADLINE)
        collector.poll()
        orders.send(timing_record(received + SECOND, received, ended, 0))
        collector.poll()
        (row,) = collector.compute_rows()
    assert row.age_parts is not None
    assert (row.age_parts.worked, row.age_parts.asleep) == (SECOND // 50, 3 * SECOND // 100)


def test_stages_command_says_why_time_without_processor_is_unknown(prefix: str) -> None:
    with timing_publisher("planner", "orders"):
        pass
    done = run("stages", "--window", "0.1")
    assert done.stderr == "msgq: no CPU is unknown: timing:planner:orders: the stage has no living publisher\n"
    assert done.stdout.splitlines()[2].split()[9] == "-"


def test_stages_command_counts_invalid_timing_records(prefix: str) -> None:
    view = StageCollector(match_all_names, 10.0)
    bad = [
        timing_record(5, 6, 7, 4)[:-1],
        timing_record(5, 6, 7, 4) * 2,
        b"",
        timing_record(-1, 6, 7, 4),
        timing_record(5, -6, 7, 4),
        timing_record(5, 0, 7, 4),
        timing_record(5, 8, 7, 4),
        timing_record(5, 6, 7, -4),
    ]
    with timing_publisher("a", "b") as socket:
        view.poll()
        for one in (timing_record(5, 6, 7, 4), *bad, timing_record(5, 6, 7, 4)):
            socket.send(one)
        view.poll()
    (row,) = view.compute_rows()
    assert (row.messages, row.malformed, row.queue_time, row.processing_time, row.e2e_latency) == (
        2,
        len(bad),
        DurationSpread(2, 1, 1, 1),
        DurationSpread(2, 1, 1, 1),
        DurationSpread(2, 3, 3, 3),
    )


def test_stages_command_counts_overwritten_timing_records(prefix: str) -> None:
    view = StageCollector(match_all_names, 10.0)
    with timing_publisher("a", "b", size=4096) as socket:
        view.poll()
        for _ in range(1000):
            socket.send(timing_record(5, 6, 7, 4))
        view.poll()
        for _ in range(3):
            socket.send(timing_record(5, 6, 7, 4))
        view.poll()
        (row,) = view.compute_rows()
    assert (row.messages, row.lost, row.malformed) == (3, 1000, 0)
    assert row.rate == pytest.approx(1003 / row.seconds)


def test_stages_command_reads_timing_topics_created_later(prefix: str) -> None:
    from msgq.impl.ring.core import unlink_topic

    view = StageCollector(match_all_names, 10.0)
    view.poll()
    for count in (3, 4):
        with timing_publisher("a", "b") as socket:
            socket.send(timing_record(5, 6, 7, 4))  # before we know of it
            view.poll()
            for _ in range(count):
                socket.send(timing_record(5, 6, 7, 4))
        unlink_topic(socket.endpoint)  # the last ones are still in the ring that we have
    view.poll()
    (row,) = view.compute_rows()
    assert (row.messages, row.lost) == (7, 2)


def test_stage_is_shown_until_its_last_record_is_too_old(prefix: str) -> None:
    from msgq.impl.ring.core import unlink_topic

    view = StageCollector(match_all_names, 0.2)
    with timing_publisher("a", "b") as socket:
        view.poll()
        (row,) = view.compute_rows()  # it is there, and did nothing yet
        assert (row.messages, row.processing_time) == (0, DurationSpread(0))
        socket.send(timing_record(5, 6, 7, 4))
        view.poll()
    unlink_topic(socket.endpoint)
    view.poll()
    wait_until(lambda: not view.compute_rows())


@contextmanager
def going_on(send: Callable[[int], object]) -> Iterator[None]:
    """Send, given the time, again and again."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.005):
            send(clock.time_ns())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_stages_command_shows_processing_times(prefix: str) -> None:
    with timing_publisher("planner", "channel/scans") as socket, timing_publisher("other", "orders"):

        def send(now: int) -> None:
            socket.send(timing_record(now - 3000, now - 1000, now, now - 5000))

        with going_on(send):
            (row,) = wait_until(lambda: [row for row in run_stages("planner") if row["messages"] > 1])
            assert (row["stage"], row["endpoint"], row["lost"], row["malformed"]) == ("planner", "channel/scans", 0, 0)
            assert row["rate"] == pytest.approx(row["messages"] / row["seconds"])
            assert (row["queue_time"]["p50"], row["processing_time"]["p99"], row["e2e_latency"]["max"]) == (
                2000,
                1000,
                5000,
            )
            assert [row["stage"] for row in run_stages()] == ["other", "planner"]
            assert [row["stage"] for row in run_stages("channel/.*")] == ["planner"]
            assert [row["stage"] for row in run_stages("timing:o.*")] == ["other"]
            head, titles, _, line = wait_until(lambda: lines_with(" 5.0 ")).splitlines()
            assert head.startswith("2 stages, 2 timing topics")
            assert titles.split()[:3] == ["stage", "endpoint", "messages/s"]
            assert line.split()[:2] == ["planner", "channel/scans"]
            times = "wait p50, wait p99, wait max, work p50, work p99, work max, no CPU, age p50, age p99, age max"
            assert ", ".join(re.split(" {2,}", titles)[3:]) == f"{times}, lost, malformed"
            figures = line.split()[3:]
            assert [*figures[:6], *figures[7:]] == ["2.0"] * 3 + ["1.0"] * 3 + ["5.0"] * 3 + ["0", "0"]
            assert topic("timing:planner:channel%2Fscans").subscribers == ()


def test_stages_command_reads_topics_of_prefix_option(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with timing_publisher("a", "b"), step_publisher("camera"):
        monkeypatch.delenv("OPENPILOT_PREFIX")
        assert [row["endpoint"] for row in run_stages("--prefix", prefix)] == ["b"]
        assert [row["endpoint"] for row in run_stages("--tree", "--prefix", prefix)] == ["camera"]
        assert not run_stages("--prefix", f"{prefix}-other")


def test_stages_command_without_topics_prints_reason(prefix: str) -> None:
    said = {(): "no topic of a stage with a `msgq.StageTracer` found", ("--tree",): "no topic with timestamps found"}
    for arguments, text in said.items():
        result = run("stages", "--window", "0.1", "--json", *arguments)
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
        assert text in result.stderr


def test_stages_command_names_unreadable_topic(prefix: str) -> None:
    from tests.support import SHM

    with timing_publisher("a", "b"), timing_publisher("a", "c"):
        (SHM / f"msgq_{prefix}" / "timing:a:c").write_bytes(b"no ring")
        result = run("stages", "--window", "0.1", "--json")
    assert [json.loads(line)["endpoint"] for line in result.stdout.splitlines()] == ["b"]
    assert "left out: timing:a:c" in result.stderr


def test_stages_command_escapes_control_characters_in_names(prefix: str) -> None:
    evil = "\x1b[2J\u202e"
    with timing_publisher(evil, "orders") as socket, step_publisher(evil + "topic") as beside:

        def send(now: int) -> None:
            socket.send(timing_record(now, now, now, now))
            beside.send(step(now, now))

        with going_on(send):
            for arguments in ((), ("--tree",)):
                shown = run("stages", "--window", "0.1", *arguments).stdout
                assert r"\x1b[2J\u202e" in shown
                assert evil[0] not in shown
    assert run("stages", "--window", "0.1", "*").exit_code == 0
    assert "not a regular expression" in run("stages", "(", code=2).stderr


def test_stages_command_in_terminal_runs_until_key_q(prefix: str) -> None:
    ours, theirs = pty.openpty()
    terminal: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    environment = {"TERM": "xterm", "COLUMNS": "200", "LINES": "30"}
    with (
        timing_publisher("planner", "orders") as socket,
        going_on(lambda now: socket.send(timing_record(now - 9000, now - 7000, now, 0))),
        start("stages", env=environment, **terminal) as process,
    ):
        os.close(theirs)
        shown = b""
        while b"planner" not in shown or shown.count(b"7.0") < 6:  # twice its three figures of work
            shown += os.read(ours, 4096)
        os.write(ours, b"xq")
        with suppress(OSError):  # it is gone
            while os.read(ours, 4096):
                pass
        assert process.wait(DEADLINE) == 0
    os.close(ours)


# ---- the tree ----


def edges(view: HopTreeCollector) -> list[tuple[Any, ...]]:
    return [(hop.parent, hop.endpoint, hop.messages) for hop in view.build_tree().hops]


def test_stage_tree_equals_chain_of_sent_messages(prefix: str) -> None:
    names = ["camera", "model", "plan"]
    view = HopTreeCollector(match_all_names, 60.0)
    with Child(stage_children.publish_chain, names, 500) as child, timing_publisher("planner", "model") as beside:
        child.hear()
        view.poll()
        child.say()
        view.poll()  # in the middle of it
        assert child.hear() == "sent"
        beside.send(timing_record(5, 6, 7, 4))
        view.poll()
        tree = view.build_tree()
        child.say()
        sent = [tuple(one) for one in child.result()]
    found = {(hop.parent, hop.endpoint): (hop.messages, hop.p50, hop.p99, hop.max, hop.e2e_p50) for hop in tree.hops}
    assert found == by_hand(sent)
    assert (tree.topic_count, tree.stamped_topic_count, tree.messages, tree.cut_chain_count) == (3, 3, 1500, 0)
    assert tree.lost == tree.left_out == dict.fromkeys(names, 0)


def test_poll_during_message_chain_adds_no_wrong_tree_edge(prefix: str) -> None:
    """What is published after a look began waits for the next one, which sees what led to it as well."""
    view = HopTreeCollector(match_all_names, 60.0)
    with step_publisher("parent") as parent, step_publisher("child") as child:
        view.poll()
        parent.send(step())
        later = clock.time_ns() + SECOND // 2
        child.send(step(later - 5, later))  # simulates a parent that came just after a look at that topic
        view.poll()
        assert edges(view) == [(None, "child", 0), (None, "parent", 1)]
        parent.send(step(later - 5, later - 5))
        wait_until(lambda: clock.time_ns() > later)
        view.poll()
        assert edges(view) == [(None, "parent", 2), ("parent", "child", 1)]


def test_message_chains_started_before_window_are_counted_but_not_shown(prefix: str) -> None:
    view = HopTreeCollector(match_all_names, 60.0)
    with step_publisher("camera") as camera, step_publisher("plan") as plan:
        before = clock.time_ns()
        camera.send(step(before, before))
        view.poll()
        now = clock.time_ns()
        camera.send(step(now, now))
        plan.send(step(before))
        plan.send(step(now))
        view.poll()
        tree = view.build_tree()
    assert [(hop.parent, hop.endpoint, hop.messages) for hop in tree.hops] == [
        (None, "camera", 1),
        ("camera", "plan", 1),
    ]
    assert (tree.cut_chain_count, tree.messages) == (1, 2)


def test_message_chains_with_times_of_another_clock_are_shown(prefix: str) -> None:
    """As when a recording is played, or a publisher counts from when it started."""
    view = HopTreeCollector(match_all_names, 60.0)
    with step_publisher("camera") as camera, step_publisher("plan") as plan:
        view.poll()
        for number in range(5):
            camera.send(step(1000 + number, 7000 * SECOND + number))
            plan.send(step(1000 + number, 1 << 62))
        view.poll()
        assert edges(view) == [(None, "camera", 5), ("camera", "plan", 5)]


def test_stage_tree_counts_messages_without_origin(prefix: str) -> None:
    view = HopTreeCollector(match_all_names, 60.0)
    with (
        step_publisher("a") as socket,
        publisher("plain") as plain,
        publisher("short", stage_children.STEP_SCHEMA) as short,
    ):
        view.poll()
        now = clock.time_ns()
        socket.send(np.array((0, now, 0, 0), stage_children.STEP).tobytes())
        socket.send(np.array((0, -now, now, 0), stage_children.STEP).tobytes())
        socket.send(step(now, now) + step(now - 1, now - 1))  # two elements: the first one counts, as in recordings
        short.send(step()[:23])
        short.send(step()[:24])
        plain.send(b"no schema")
        view.poll()
        tree = view.build_tree()
    assert [(hop.parent, hop.endpoint, hop.messages) for hop in tree.hops] == [(None, "a", 1), (None, "short", 1)]
    assert (tree.left_out, tree.topic_count, tree.stamped_topic_count) == ({"a": 2, "short": 1}, 3, 2)


def test_stage_tree_detects_schema_set_by_later_publisher(prefix: str) -> None:
    import msgq

    view = HopTreeCollector(match_all_names, 60.0)
    with msgq.sub_sock("late"):  # makes the ring, before anybody publishes
        view.poll()
        assert view.build_tree().stamped_topic_count == 0
        with step_publisher("late") as socket:
            socket.send(step())
            view.poll()
            assert edges(view) == [(None, "late", 1)]


def test_stage_tree_reads_each_message_by_its_own_schema(prefix: str) -> None:
    view = HopTreeCollector(match_all_names, 60.0)
    with publisher("a") as plain:
        plain.send(step(1, 2))
        view.poll()
        plain.send(step(1, 2))
    with step_publisher("a") as socket:
        socket.send(step())

        def noticed() -> bool:
            view.poll()
            return bool(view.build_tree().stamped_topic_count)

        wait_until(noticed)
        assert (edges(view), view.build_tree().left_out) == ([(None, "a", 0)], {"a": 2})
        socket.send(step())
        view.poll()
        assert edges(view) == [(None, "a", 1)]


def test_stage_tree_contains_tracked_topics(prefix: str) -> None:
    import msgq

    view = HopTreeCollector(match_all_names, 60.0)
    with msgq.sub_sock("camera"):  # makes the ring, before anybody says that it is tracked
        view.poll()
        with msgq.pub_sock("camera", tracked=True) as camera, step_publisher("plan") as plan:
            view.poll()
            plan.send(step())
            now = clock.time_ns()
            for number in range(3):
                camera.send(b"data", origin_time=now + number)
                plan.send(step(now + number))
            view.poll()
            assert edges(view) == [(None, "camera", 3), (None, "plan", 1), ("camera", "plan", 3)]
            assert (view.build_tree().stamped_topic_count, view.build_tree().left_out) == (2, {"camera": 0, "plan": 0})
            view = HopTreeCollector(match_all_names, 60.0)
            view.poll()
            camera.send(b"alone")
            view.poll()
            assert edges(view) == [(None, "camera", 1), (None, "plan", 0)]


def test_stages_command_with_tree_option_shows_tree(prefix: str) -> None:
    with (
        step_publisher("camera") as camera,
        step_publisher("plan") as plan,
        timing_publisher("planner", "camera") as beside,
    ):

        def send(now: int) -> None:
            camera.send(step(now - 3000, now - 3000))
            plan.send(step(now - 3000, now - 1000))
            beside.send(timing_record(now, now, now, now))

        with going_on(send):
            root, edge = wait_until(lambda: [row for row in run_stages("--tree") if row["messages"] > 1][:2] or None)
            assert (root["parent"], root["endpoint"], root["p50"], root["e2e_p50"]) == (None, "camera", None, 0)
            assert (edge["parent"], edge["endpoint"], edge["max"], edge["e2e_p50"]) == (
                "camera",
                "plan",
                2000,
                2000,
            )
            assert (edge["lost"], edge["left_out"]) == (0, 0)
            assert [row["endpoint"] for row in run_stages("--tree", "pl.*")] == ["plan"]
            *_, first, second = wait_until(lambda: lines_with(" 2.0 ", "--tree")).splitlines()
            assert first.startswith("camera ")
            assert second.startswith("  plan ")
            assert second.split()[2:] == ["2.0", "2.0", "2.0", "2.0", "0", "0"]


# ---- other verbs ----


def test_list_hides_timing_topics_unless_requested(prefix: str) -> None:
    def listed(*arguments: str) -> list[str]:
        done = run("list", "--duration", "0", "--json", *arguments)
        return [json.loads(line)["endpoint"] for line in done.stdout.splitlines()]

    with timing_publisher("a", "b"), step_publisher("camera"), step_publisher("timing"):
        every = ["camera", "timing", "timing:a:b"]
        assert listed() == ["camera", "timing"]
        assert listed("--all") == listed("-a") == listed(".*") == every
        assert listed("timing:a:b") == ["timing:a:b"]
        assert "hidden: 1 timing topic; to list all" in run("list", "--duration", "0").stdout
        assert "hidden" not in run("list", "--duration", "0", "--all").stdout


def test_completion_of_stages_command_offers_stages_and_topics(prefix: str) -> None:
    from types import SimpleNamespace

    from msgq.cli.common.options import complete_stage

    def completed(incomplete: str, **params: Any) -> list[str]:
        context: Any = SimpleNamespace(params=params)
        parameter: Any = None
        return [item.value for item in complete_stage(context, parameter, incomplete)]

    with (
        timing_publisher("planner", "a"),
        timing_publisher("planner", "b"),
        timing_publisher("x:y", "b"),
        step_publisher("plane"),
    ):
        assert completed("") == ["planner", "x:y"]
        assert completed("pl", tree=True) == ["plane"]
        assert completed("t", tree=True) == []


def test_timing_topic_name_is_parsed_for_any_stage_name() -> None:
    assert timing.parse_timing_topic(timing.make_timing_topic("timing:", "timing:a:b")) == ("timing:", "timing:a:b")
