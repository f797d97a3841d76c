"""The verbs that look, on endpoints of all kinds at once: each is shown, nothing is made up, and nobody notices."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import stat
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

import msgq
from msgq import Board, Channel, MessageQueue, SeqlockVector, stats
from msgq.cli.app import app
from msgq.cli.common.endpoint_display import EndpointDisplay
from msgq.common import timing
from msgq.impl.channel.core import Publisher, Subscriber
from msgq.impl.records.core import RecordStatsReader
from msgq.kinds import list_stored_kinds
from msgq.kinds.cleanup import KindCleanup
from msgq.kinds.source import KindSource
from msgq.kinds.stats import AnyEndpointRow, KindStats
from msgq.monitor import live_endpoints
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.records.stats import STATS as RECORD_STATS
from tests import command
from tests.support import DEADLINE, SHM

TIMED = timing.make_timing_topic("stage", "car")
FRAMES = "visionipc_camerad_0"
SHOWN = ["car", FRAMES, "channel/scans", "records/nodes", "records/poses", "queue/jobs"]
AUXILIARY = [TIMED, "channel/jobs:events"]
KIND = {name: name.partition("/")[0] if "/" in name else "topic" for name in SHOWN} | {FRAMES: "frames"}
VERBS: tuple[tuple[str, ...], ...] = (
    ("list", "--duration", "0.01"),
    ("list", "--duration", "0", "--all", "--json"),
    ("info", ".*", "--duration", "0.01"),
    ("info", ".*", "--duration", "0.01", "--json"),
    ("stat", "--once", "--interval", "0.01"),
    ("top", "-n", "2", "--interval", "0.01", "--all"),
    ("top", "--once", "--interval", "0.01", "--json"),
    ("clean", "--dry-run"),
    ("doctor",),
)


@dataclass
class Bus:
    """One of each, in use."""

    pub: msgq.PubSocket
    sub: msgq.SubSocket
    publisher: Publisher
    copier: Subscriber
    viewer: Subscriber
    queue: MessageQueue
    vector: SeqlockVector
    entry: Any

    def move(self) -> None:
        """Publish, send and write something everywhere."""
        self.pub.send(b"12345")
        self.publisher.send_many([b"123"] * 2)
        self.queue.send_many([b"x"] * 3)
        self.vector[[0, 1, 2, 3]] = 1
        self.entry.write(b"abc")


@pytest.fixture
def bus(prefix: str) -> Iterator[Bus]:
    with ExitStack() as all_of:
        enter = all_of.enter_context
        for name in (TIMED, FRAMES):
            enter(msgq.pub_sock(name, 4096))
        channel = enter(Channel("scans", capacity=8, node="laser"))
        made = Bus(
            enter(msgq.pub_sock("car", 4096)),
            enter(msgq.sub_sock("car")),
            enter(channel.publisher()),
            enter(channel.subscriber()),
            enter(channel.subscriber()),
            enter(MessageQueue("jobs", max_messages=64, events=True)),
            enter(SeqlockVector("poses", "<f8", 100)),
            enter(enter(Board("nodes", 4, 100)).declare("camera")),
        )
        made.move()
        view = made.viewer.receive_view(0)
        job = made.queue.take(0)
        assert view is not None
        assert job is not None
        yield made
        view.release()
        job.ack()


def lines(*words: object, code: int | None = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run(*words, "--json", code=code).stdout.splitlines()]


def table_cells(text: str) -> dict[str, list[str]]:
    """Return the cells of a table, by the first of each line."""
    every = [re.split(r" {2,}", line) for line in text.splitlines()[1:]]
    return {one[0]: one[1:] for one in every}


def test_each_stored_kind_has_stats_source_and_cleanup() -> None:
    assert [kind.name for kind in list_stored_kinds()] == ["topic", "channel", "records", "queue"]
    assert all(
        isinstance(kind.stats, KindStats) and isinstance(kind.source, KindSource) for kind in list_stored_kinds()
    )
    assert all(isinstance(kind.cleanup, KindCleanup) for kind in list_stored_kinds())


def test_list_shows_endpoints_of_all_kinds_in_one_table(bus: Bus) -> None:
    found = table_cells(command.run("list", "--duration", "0").output.partition("hidden: ")[0])
    assert [*found] == SHOWN
    assert [found[name][0] for name in SHOWN] == [KIND[name] for name in SHOWN]
    me = str(os.getpid())
    assert all(found[name][1].endswith(me) for name in SHOWN)
    messages = {name: (found[name][3], found[name][4], found[name][6]) for name in SHOWN}  # messages, rate, lost
    assert messages == {
        "car": ("1", "-", "0"),
        FRAMES: ("0", "-", "0"),
        "channel/scans": ("2", "-", "0"),
        "records/nodes": ("1", "-", "-"),
        "records/poses": ("4", "-", "-"),
        "queue/jobs": ("3", "-", "0"),
    }
    assert (found["records/poses"][2], found["queue/jobs"][2].endswith(me)) == ("-", True)


def test_json_output_has_equal_keys_for_each_kind(bus: Bus) -> None:
    for verb in (("list", "--duration", "0.01"), ("info", *SHOWN, "--duration", "0.01"), ("top", "--once")):
        found = {one["endpoint"]: one for one in lines(*verb, *(["--interval", "0.01"] if verb[0] == "top" else []))}
        assert {name: found[name]["kind"] for name in SHOWN} == KIND
        for name in SHOWN:
            one = found[name]
            assert one["rate"] == 0
            assert one["memory"] > 0
            assert (one["byte_rate"] is None) == (name in ("records/nodes", "queue/jobs"))
            assert (one["lost"] is None) == (one["lost_rate"] is None) == name.startswith("records/")
        assert (found["records/poses"]["form"], found["channel/scans"]["use"]) == ("vector", "pubsub")
        assert (found["queue/jobs"]["sent"], found["queue/jobs"]["received"]) == (3, 1)


@pytest.mark.parametrize("verb", ["list", "top"])
def test_list_hides_auxiliary_endpoints_unless_requested(bus: Bus, verb: str) -> None:
    def names(*words: str) -> set[str]:
        pace = ["--once", "--interval", "0.01"] if verb == "top" else ["--duration", "0.01"]
        return {one["endpoint"] for one in lines(verb, *pace, *words)}

    assert names() == set(SHOWN)
    assert names("--all") == {*SHOWN, *AUXILIARY}
    assert names("channel/jobs:events") == {"channel/jobs:events"}
    assert names(f"{timing.TIMING_TOPIC_PREFIX}*") == {TIMED}
    text = command.run("list", "--duration", "0").output
    assert "hidden: 1 timing topic and 1 queue event channel; to list all, give --all" in text
    assert "hidden" not in command.run("list", "--duration", "0", "--all").output


@pytest.mark.parametrize(
    ("texts", "names", "code"),
    [
        (["channel/*", "channel/jobs:*"], ["channel/scans"], 1),
        (["car|records/.*"], ["car", "records/nodes", "records/poses"], 0),
        (["queue/jobs", "poses"], ["queue/jobs"], 1),
        (["*s", "channel/jobs:events"], ["channel/jobs:events", *SHOWN[2:]], 0),
    ],
)
def test_list_pattern_selects_endpoints_of_all_kinds(bus: Bus, texts: list[str], names: list[str], code: int) -> None:
    for verb in (["list", "--duration", "0"], ["top", "--once", "--interval", "0.01"]):
        shown = command.run(*verb, "--json", *texts, code=code).stdout.splitlines()
        assert sorted(json.loads(line)["endpoint"] for line in shown) == sorted(names)


def test_info_shows_each_endpoint_and_suggests_similar_names(bus: Bus) -> None:
    text = command.run("info", *SHOWN, "--duration", "0.01").output
    assert [line for line in text.splitlines() if not line.startswith(" ")] == SHOWN
    for name, what in (("scans", "channel/scans"), ("queue/poses", "records/poses")):
        said = command.run("info", "car", name, code=1).output
        assert f"no endpoint matches {name}; " in said
        assert (what in said) == (name == "scans")
    assert "is not a valid file name" in command.run("info", "topics/car", code=1).output


def test_stat_counts_endpoints_of_all_kinds(bus: Bus) -> None:
    (line,) = lines("stat", "--once", "--interval", "0.01")
    kinds = {key: line[key] for key in ("topics", "channels", "records", "queues")}
    assert kinds == {"topics": 2, "channels": 1, "records": 2, "queues": 1}
    assert (line["publishers"], line["subscribers"]) == (6, 4)
    assert (line["dead_participants"], line["silent_endpoints"]) == (0, 6)
    assert (line["rate"], line["byte_rate"], line["lost_rate"]) == (0, 0, 0)
    (line,) = lines("stat", "--once", "--interval", "0.01", "--all")
    assert (line["topics"], line["channels"]) == (3, 2)
    (line,) = lines("stat", "queue/jobs", "--once", "--interval", "0.01")
    assert (line["byte_rate"], line["rate"]) == (None, 0)
    head, figures = command.run("stat", "queue/jobs", "--once", "--interval", "0.01").output.splitlines()
    assert len(head) == len(figures)
    assert figures.split()[8] == "-"


def test_list_shows_rates_between_two_reads_of_counters(bus: Bus) -> None:
    board = live_endpoints.LiveEndpoints(EndpointSelection([], None))
    assert {row.rate for row in board.poll()} == {None}
    for times in (1, 3):
        for _ in range(times):
            bus.move()
        rows = {row.endpoint: row for row in board.poll()}
        moved = {name: _moved(rows[name], lambda row: row.rate) for name in SHOWN}
        each = {"car": 1, FRAMES: 0, "channel/scans": 2, "records/nodes": 1, "records/poses": 4, "queue/jobs": 3}
        assert moved == {name: times * count for name, count in each.items()}
        size = {name: _moved(rows[name], lambda row: row.byte_rate) for name in SHOWN}
        assert size == {
            "car": 5 * times,
            FRAMES: 0,
            "channel/scans": 6 * times,
            "records/nodes": None,
            "records/poses": 32 * times,
            "queue/jobs": None,
        }
    bus.publisher.send_many([b""] * 20)  # its two subscribers have not looked: 8 messages are there
    (lost,) = (row.lost for row in board.poll() if row.endpoint == "channel/scans")
    assert lost == stats.channel("scans").lost > 0


def _moved(row: AnyEndpointRow, rate: Callable[[AnyEndpointRow], float | None]) -> int | None:
    found = rate(row)
    return None if found is None else round(found * row.interval_s)


def test_live_endpoint_display_reads_participants_rarely(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Slow(RecordStatsReader):
        def stats(self) -> Any:
            asked.append(1)
            return super().stats()

    monkeypatch.setattr("msgq.records.stats.STATS", replace(RECORD_STATS, open_watch=Slow))
    board = live_endpoints.LiveEndpoints(EndpointSelection(["records/poses"], None))
    for _ in range(10):
        board.poll()
    assert len(asked) == 1
    board.poll(fresh=True)
    assert len(asked) == 2


@pytest.mark.parametrize("kind", ["queue", "records", "channel"])
def test_list_omits_endpoint_with_truncated_file(bus: Bus, kind: str, prefix: str) -> None:
    endpoint = {"queue": "queue/jobs", "records": "records/poses", "channel": "channel/scans"}[kind]
    board = live_endpoints.LiveEndpoints(EndpointSelection([], None))
    assert endpoint in [row.endpoint for row in board.poll()]
    path = Path(stats.endpoint(endpoint).path)
    whole = path.read_bytes()
    os.truncate(path, 0)
    try:
        assert endpoint not in [row.endpoint for row in board.poll()]
        assert endpoint not in [row.endpoint for row in board.poll(fresh=True)]
    finally:
        path.write_bytes(whole)


def test_top_aligns_columns_and_sorts_by_kind(bus: Bus) -> None:
    rows = live_endpoints.LiveEndpoints(EndpointSelection([], None, auxiliary=False)).poll()
    display = EndpointDisplay("kind")
    display.set_rows(rows)
    head, titles, *text = display.format_lines(None)
    assert head.startswith("6 endpoints, - messages/s, -/s; by kind")
    cells = {line.split()[0]: re.split(" {2,}", line) for line in text}
    assert sorted(cells) == sorted(SHOWN)
    assert [*cells] == sorted(SHOWN, key=KIND.__getitem__)
    assert [cells[name][1] for name in SHOWN] == [KIND[name] for name in SHOWN]
    assert [cells[name][3] for name in SHOWN] == ["1", "0", "2", "-", "-", "1"]  # readers of records leave no trace
    at = titles.index("messages/s") + len("messages/s")
    assert all(line[at - 1] == "-" for line in text)  # no rate: there was no look before
    assert cells["queue/jobs"][-1] == "2 of 64 waiting"
    shown = command.run("top", "--once", "--interval", "0.01", "--sort", "kind").output.splitlines()[2:]
    assert [line.split()[1] for line in shown] == sorted(KIND.values())


def test_completion_offers_names_of_all_kinds(bus: Bus) -> None:
    completion = ShellComplete(app, {}, "msgq", "_MSGQ_COMPLETE")
    for verb in ("list", "info", "stat", "top", "clean", "echo", "hz", "pub"):
        found = [item.value for item in completion.get_completions([verb], "")]
        assert sorted(found) == sorted([*SHOWN, *AUXILIARY])


def read_shared_files(prefix: str) -> dict[str, tuple[bytes, int, int]]:
    """Return all that is in memory under a prefix: names, bytes, modes, and when anybody wrote it by a system call."""
    found = {}
    for path in SHM.glob(f"*{prefix}*/*"):
        status = path.stat()
        assert stat.S_ISREG(status.st_mode)
        found[str(path)] = (path.read_bytes(), status.st_mode, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_observing_commands_do_not_change_files_or_counts(bus: Bus, prefix: str, words: tuple[str, ...]) -> None:
    before = read_shared_files(prefix)
    assert len(before) >= 2 * 3 + 2 + 1 + 2 + 1  # topics have two files, the channel a pool
    known = [(one.endpoint, one.participants, one.messages, one.lost) for one in stats.endpoints()]
    command.run(*words, code=None)
    assert read_shared_files(prefix) == before
    assert [(one.endpoint, one.participants, one.messages, one.lost) for one in stats.endpoints()] == known


def test_clean_removes_endpoints_that_are_only_observed(prefix: str) -> None:
    for made in (msgq.pub_sock("car", 4096), Channel("scans"), SeqlockVector("poses", "<f8", 3), MessageQueue("jobs")):
        made.close()
    board = live_endpoints.LiveEndpoints(EndpointSelection([], None))
    for _ in range(2):
        assert [row.endpoint for row in board.poll(fresh=True)] == [
            "car",
            "channel/scans",
            "records/poses",
            "queue/jobs",
        ]
    assert [one.participants for one in stats.endpoints()] == [()] * 4
    assert stats.channel("scans").opened is False
    found = lines("clean", "car", "channel/scans", "records/poses", "queue/jobs")
    assert {one["action"] for one in found} == {"removed"}
    assert board.poll() == []


def test_doctor_checks_endpoints_of_all_kinds(bus: Bus) -> None:
    found = {one["check"]: one["text"] for one in lines("doctor", code=None)}
    for kind, count in zip(list_stored_kinds(), (3, 2, 2, 1), strict=True):
        assert found[kind.plural_name].startswith(f"{count} {kind.plural_name}, ")
        assert found[kind.plural_name].endswith("no leftovers of dead processes")


def test_clean_needs_the_full_name_of_queues_and_records(bus: Bus) -> None:
    kept = {one["endpoint"]: one for one in lines("clean", ".*", code=1)}
    assert kept.keys() == {"car", FRAMES, TIMED, "channel/scans"}
    assert {one["action"] for one in lines("clean", "queue/*", "records/.*", code=1)} == {"kept"}
    assert [one.endpoint for one in stats.endpoints()] == [
        "car",
        TIMED,
        FRAMES,
        "channel/jobs:events",
        *SHOWN[2:],
    ]


class Screen:
    """`msgq top` in a terminal of its own, 60 columns wide."""

    def __init__(self) -> None:
        self.keyboard, side = os.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
        environment = {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
        words = "top", "--interval", "0.05"
        self.process = command.start(*words, stdin=side, stdout=side, stderr=side, env=environment)
        os.close(side)
        self.text = ""

    def shows(self, text: str) -> None:
        """Wait until it shows this."""
        until_s = time.monotonic() + DEADLINE
        while text not in self.text:
            left_s = until_s - time.monotonic()
            assert left_s > 0, self.text
            if select.select([self.keyboard], [], [], left_s)[0]:
                self.text += os.read(self.keyboard, 65536).decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)


def test_top_changes_sort_order_by_key_press(bus: Bus) -> None:
    with closing(Screen()) as screen:
        screen.shows("by rate")
        for key, title in (("k", "by kind"), ("n", "by name"), ("m", "by memory")):
            os.write(screen.keyboard, key.encode())
            screen.shows(title)
        screen.shows("records/poses")
        frames = screen.text.replace("\x1b[H", "\n")  # each begins at the top
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frames)
        assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 60
        os.write(screen.keyboard, b"q")
        assert screen.process.wait(DEADLINE) == 0
