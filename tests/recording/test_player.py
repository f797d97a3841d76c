"""The player: what it sends, where, and when."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import errors, stats
from msgq.impl import fake
from msgq.recording import LogReader, Player, playback_messages
from msgq.recording.player.timed_messages import PlaybackSchedule
from tests.recording.logs import write_log
from tests.support import DEADLINE_MS, SHM, Child, Task, hear, in_fork, say, wait_until
from tests.unit.ringfile import STRANGER_UID, RingFile

NS = 1_000_000_000
BEGIN = 1_700_000_000 * NS


class VirtualClock:
    """Time that passes only while the player looks at it and waits; each wait takes longer than it was to."""

    def __init__(self) -> None:
        self.now = 5 * NS

    def now_ns(self) -> int:
        self.now += 700
        return self.now

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        self.now += round(seconds * NS) + 60_000


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, bytes]]:
    """What is sent on the fake backend: virtual time, endpoint, data."""
    found: list[tuple[int, str, bytes]] = []

    class Recorded(fake.PubSocket):
        def send(self: Any, data: Any, /, flags: int = 0, copy: bool = True, *, origin_time: int = 0) -> None:
            found.append((CLOCKS[-1].now, self.endpoint, data))
            super().send(data, flags, copy, origin_time=origin_time)

    monkeypatch.setattr(fake, "PubSocket", Recorded)
    return found


CLOCKS: list[Any] = []


def make_virtual_player(log: Any, **options: Any) -> Player:
    CLOCKS.append(VirtualClock())
    return Player(log, backend="fake", clock=CLOCKS[-1], **options)


@pytest.fixture
def make_unique(token: str) -> Callable[[str], str]:
    """Make names of endpoints unique: the fake backend's bus is one for all tests of a process."""
    return lambda name: f"{token}-{name}"


def write_numbered_log(path: Path, count: int, period_ns: int, *endpoints: str) -> Path:
    """Write a log whose messages are their numbers, on each endpoint in turn."""
    messages = ((endpoints[i % len(endpoints)], BEGIN + i * period_ns, b"%d" % i) for i in range(count))
    return write_log(path, *messages)


# ---- time ----


@pytest.mark.ci
def test_player_over_one_hour_does_not_drift(sent: Any, tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 36_000, NS // 10, token)
    with make_virtual_player(path) as player:
        begin = CLOCKS[-1].now
        done = player.run()
    off = [now - begin - i * (NS // 10) for i, (now, *_) in enumerate(sent)]
    assert done.messages == 36_000
    assert min(off) >= 0
    assert max(off) < NS // 1000
    assert done.late_max_ns < NS // 1000


def test_looping_player_does_not_drift(sent: Any, tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 11, NS // 10, token)
    begin = make_virtual_player(path, loops=1000, rate=3.0)
    start = CLOCKS[-1].now
    assert begin.run().passes == 1000
    assert [data for *_, data in sent] == [b"%d" % i for i in range(11)] * 1000
    off = [now - start - round((i // 11 + i % 11 / 10) * NS / 3) for i, (now, *_) in enumerate(sent)]
    assert max(map(abs, off)) < NS // 1000


class RealClock:
    """The real time, in the form that `sent` looks at."""

    @property
    def now(self) -> int:
        return time.monotonic_ns()


def test_real_time_player_does_not_drift(sent: Any, tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 300, NS // 100, token)
    with Player(path, backend="fake") as player:
        CLOCKS.append(RealClock())
        begin = time.monotonic_ns()
        done = player.run()
    off = [now - begin - i * NS // 100 for i, (now, *_) in enumerate(sent)]
    assert min(off) >= 0
    assert min(off[-100:]) < NS // 1000  # other load may delay many of them, but not all
    assert done.position == pytest.approx(2.99)


def test_first_message_with_late_log_time_is_played_on_time(sent: Any, tmp_path: Path, token: str) -> None:
    messages = ((token, BEGIN + i * NS + NS // 20, b"%d" % i, BEGIN + i * NS) for i in range(3))
    done = make_virtual_player(write_log(tmp_path / "a.mcap", *messages)).run()
    assert [round((now - sent[0][0]) / 1e6) for now, *_ in sent] == [0, 1000, 2000]
    assert done.late_max_ns < NS // 1000
    sent.clear()
    player = make_virtual_player(LogReader(tmp_path / "a.mcap", start=BEGIN + NS), start=0.5, duration=1)
    start = CLOCKS[-1].now
    player.run()
    assert [(round((now - start) / 1e6), data) for now, _, data in sent] == [(500, b"2")]


def test_player_rate_scales_time(sent: Any, tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 5, NS, token)
    for rate, wanted in ((2.0, 2 * NS), (0.5, 8 * NS), (math.inf, 0)):
        sent.clear()
        make_virtual_player(path, rate=rate).run()
        took = sent[-1][0] - sent[0][0]
        assert abs(took - wanted) < NS // 1000


def test_player_uses_publish_time_or_log_time(sent: Any, tmp_path: Path, make_unique: Any) -> None:
    a, b = make_unique("a"), make_unique("b")
    path = write_log(
        tmp_path / "a.mcap",
        (a, BEGIN, b"1", BEGIN),
        (b, BEGIN + 100_000_000, b"2", BEGIN + 90_000_000),
        (a, BEGIN + 110_000_000, b"3", BEGIN + 20_000_000),  # published before the one above, recorded after it
        (a, BEGIN + 120_000_000, b"4", BEGIN + 10_000_000),  # goes back: an endpoint keeps its order
        (b, BEGIN + 130_000_000, b"5", 77),  # no time at all
    )
    make_virtual_player(path).run()
    assert [data for *_, data in sent] == [b"1", b"3", b"4", b"2", b"5"]
    assert [round((now - sent[0][0]) / 1e6) for now, *_ in sent] == [0, 20, 20, 90, 130]
    sent.clear()
    make_virtual_player(path, time_source="log_time").run()
    assert [data for *_, data in sent] == [b"1", b"2", b"3", b"4", b"5"]
    assert [time_ns for time_ns, *_ in playback_messages(LogReader(path), "log_time")] == [
        m.log_time for m in LogReader(path)
    ]


def test_player_sends_message_published_before_start_at_start(sent: Any, tmp_path: Path, make_unique: Any) -> None:
    path = write_log(
        tmp_path / "a.mcap",
        (make_unique("a"), BEGIN, b"before", BEGIN),
        (make_unique("a"), BEGIN + 600_000_000, b"1", BEGIN + 100_000_000),  # published before the start
        (make_unique("a"), BEGIN + 700_000_000, b"2", BEGIN + 700_000_000),
    )
    make_virtual_player(path, start=0.5, clock_endpoint=make_unique("clock"), clock_rate=10).run()
    assert [name.rpartition("-")[2] for _, name, _ in sent] == ["clock", "a", "clock", "clock", "a"]


def test_schedule_omits_endpoint_that_index_does_not_list(tmp_path: Path) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 4, NS, "listed", "unlisted")
    schedule = PlaybackSchedule(LogReader(path), BEGIN, "log_time", {})
    del schedule.plan.endpoint_specs["unlisted"]
    assert [message.endpoint for message in schedule.iter_messages()] == ["listed"] * 2
    assert schedule.plan.skip_reasons.keys() == {"unlisted"}


def test_publish_times_are_monotonic_over_all_endpoints(tmp_path: Path, make_unique: Any) -> None:
    random = np.random.default_rng(3)
    late = random.integers(-2 * NS, 2 * NS, 2000).tolist()
    names = [make_unique(f"e{i}") for i in range(3)]
    times = [BEGIN + i * NS // 50 for i in range(2000)]
    messages = ((names[i % 3], times[i], b"%d" % i, times[i] - late[i]) for i in range(2000))
    path = write_log(tmp_path / "a.mcap", *messages)
    found = list(playback_messages(LogReader(path)))
    assert all(before[0] <= after[0] for before, after in pairwise(found))
    for i, name in enumerate(names):
        assert [int(message.data) for message in found if message.endpoint == name] == list(range(i, 2000, 3))


def test_player_start_and_duration_select_time_range(sent: Any, tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 100, NS // 10, token)
    player = make_virtual_player(path, start=2.05, duration=1.0)
    start = CLOCKS[-1].now
    player.run()
    assert [int(data) for *_, data in sent] == list(range(21, 31))
    assert sent[0][0] - start == pytest.approx(0.05 * NS, abs=NS // 1000)  # the silence before it is played
    with pytest.raises(errors.RecordingError, match=r"from 20 s.* 9\.9 s"):
        make_virtual_player(path, start=20)


def test_player_plays_split_files_as_one_log(sent: Any, tmp_path: Path, token: str) -> None:
    (tmp_path / "log").mkdir()
    for part in range(5):
        messages = ((token, BEGIN + i * NS // 10, b"%d" % i) for i in range(10 * part, 10 * part + 10))
        write_log(tmp_path / f"log/{part:06d}.mcap", *messages)
    start = make_virtual_player(tmp_path / "log")
    begin = CLOCKS[-1].now
    start.run()
    assert [int(data) for *_, data in sent] == list(range(50))
    assert max(now - begin - i * NS // 10 for i, (now, *_) in enumerate(sent)) < NS // 1000


# ---- destinations ----


def test_player_selects_and_renames_endpoints(sent: Any, tmp_path: Path, make_unique: Any) -> None:
    front, rear, other = map(make_unique, ("front", "rear", "other"))
    path = write_numbered_log(tmp_path / "a.mcap", 9, NS, front, rear, other)
    log = LogReader(path, endpoints=[re.compile("r")], exclude=[other])
    player = make_virtual_player(log, remap={front: make_unique("new")})
    assert player.endpoints == (make_unique("new"), rear)
    player.run()
    assert [(endpoint, int(data)) for _, endpoint, data in sent][:4] == [
        (make_unique("new"), 0),
        (rear, 1),
        (make_unique("new"), 3),
        (rear, 4),
    ]
    with pytest.raises(errors.InvalidValueError, match="not found in the recording: gone"):
        make_virtual_player(log, remap={"gone": "x"})
    with pytest.raises(errors.InvalidValueError, match="would both be played"):
        make_virtual_player(log, remap={front: rear})


def test_player_replaces_slashes_of_ros_topics_by_dots(sent: Any, tmp_path: Path, make_unique: Any) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 4, NS, make_unique("a"), f"/{make_unique('camera')}/image")
    player = make_virtual_player(path)
    assert player.endpoints == (f"{make_unique('camera')}.image", make_unique("a"))
    assert not player.skipped
    player.run()
    assert [(name, int(data)) for _, name, data in sent] == [(player.endpoints[(i + 1) % 2], i) for i in range(4)]
    sent.clear()
    make_virtual_player(path, remap={f"/{make_unique('camera')}/image": make_unique("image")}).run()
    assert [(name, int(data)) for _, name, data in sent][1] == (make_unique("image"), 1)


def test_player_skips_invalid_endpoint_names_without_remap(sent: Any, tmp_path: Path, make_unique: Any) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 4, NS, make_unique("a"), "/..")
    player = make_virtual_player(path)
    assert list(player.skipped) == ["/.."]
    player.run()
    assert [int(data) for *_, data in sent] == [0, 2]
    sent.clear()
    make_virtual_player(path, remap={"/..": make_unique("image")}).run()
    assert [int(data) for *_, data in sent] == [0, 1, 2, 3]
    with pytest.raises(errors.RecordingError, match="no endpoint can be played; remap"):
        make_virtual_player(LogReader(path, exclude=[make_unique("a")]))


def test_player_remap_pattern_renames_many_endpoints(sent: Any, tmp_path: Path, make_unique: Any) -> None:
    names = [f"/{make_unique('ros')}/{name}" for name in ("camera/front", "camera/rear", "lidar")]
    path = write_numbered_log(tmp_path / "a.mcap", 3, NS, *names)
    pattern = re.compile(rf"^/{make_unique('ros')}/camera/")
    player = make_virtual_player(path, remap={pattern: "/old/", names[2]: make_unique("laser")})
    assert player.endpoints == ("old.front", "old.rear", make_unique("laser"))
    player.run()
    assert [name for _, name, _ in sent] == list(player.endpoints)
    assert [m.endpoint for m in playback_messages(LogReader(path), remap={pattern: r"/old/"})][:2] == [
        "old.front",
        "old.rear",
    ]
    with pytest.raises(errors.InvalidValueError, match=r"remapped endpoint not found in the recording: nowhere"):
        make_virtual_player(path, remap={re.compile("nowhere"): "x"})
    with pytest.raises(errors.InvalidValueError, match="invalid group reference"):
        make_virtual_player(path, remap={pattern: r"\1"})
    with pytest.raises(errors.InvalidValueError, match=r"endpoints .*front.* and .*rear.* would both be played"):
        make_virtual_player(path, remap={re.compile(".*camera.*"): "both"})


def test_player_remap_to_equal_names_is_refused(tmp_path: Path, make_unique: Any) -> None:
    names = f"/{make_unique('a')}/b", f"{make_unique('a')}.b"
    path = write_numbered_log(tmp_path / "a.mcap", 2, NS, *names)
    with pytest.raises(
        errors.InvalidValueError, match=re.escape(f"endpoints {names[0]!r} and {names[1]!r} would both be played")
    ):
        make_virtual_player(path)
    assert make_virtual_player(path, remap={names[0]: make_unique("c")}).endpoints == (make_unique("c"), names[1])


def test_player_publishes_clock_endpoint(sent: Any, tmp_path: Path, make_unique: Any) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 3, NS, make_unique("a"))
    done = make_virtual_player(path, clock_endpoint=make_unique("clock"), clock_rate=4).run()
    ticks = [(now, int.from_bytes(data, "little")) for now, endpoint, data in sent if endpoint == make_unique("clock")]
    assert [value for _, value in ticks] == [BEGIN + i * NS // 4 for i in range(9)]
    assert all(abs(now - ticks[0][0] - (value - BEGIN)) < NS // 1000 for now, value in ticks)
    assert done.messages == 3
    sent.clear()
    path = write_numbered_log(tmp_path / "b.mcap", 3, NS // 1000, make_unique("a"))
    make_virtual_player(path, clock_endpoint=make_unique("clock"), clock_rate=750, rate=math.inf).run()
    assert [endpoint for _, endpoint, _ in sent] == [make_unique(name) for name in ("clock", "a", "a", "clock", "a")]
    with pytest.raises(errors.InvalidValueError, match="clock"):
        make_virtual_player(path, clock_endpoint=make_unique("a"))


def test_player_sets_schema_and_ring_size(prefix: str, tmp_path: Path) -> None:
    schema = msgq.Schema("sample", "struct", json.dumps([["x", "<f8"]]).encode())
    path = write_log(
        tmp_path / "a.mcap", ("small", BEGIN, bytes(8)), ("large", BEGIN, bytes(2_000_000)), schemas={"small": schema}
    )
    with Player(path):
        small, large = stats.topic("small"), stats.topic("large")
    assert small.schema == schema
    assert small.data_bytes == 1 << 20
    assert 6_000_000 < large.data_bytes < 6_010_000


def test_player_with_too_small_ring_is_refused(prefix: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("large", BEGIN, bytes(2_000_000)))
    msgq.pub_sock("large", 1 << 20).close()
    with pytest.raises(errors.SegmentSizeError, match=r"1048576 bytes.* 2000000 bytes needs"):
        Player(path)
    assert stats.topic("large").publisher is None


def test_player_keeps_large_enough_ring(prefix: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("e", BEGIN, b"x"))
    msgq.pub_sock("e", 1 << 16).close()
    sub = msgq.sub_sock("e", timeout=DEADLINE_MS)
    Player(path).run()
    assert sub.receive() == b"x"
    assert stats.topic("e").data_bytes == 1 << 16


def publish_and_wait(endpoint: str) -> None:
    """Child: publish, and stay."""
    with msgq.pub_sock(endpoint):
        say()
        hear()


def test_player_does_not_replace_live_publisher_by_default(prefix: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("e", BEGIN, b"x"), ("other", BEGIN, b"y"))
    live = msgq.pub_sock("e")
    with pytest.raises(errors.MultiplePublishersError, match="remap"):
        Player(path)
    live.send(b"still here")
    assert [topic.endpoint for topic in stats.topics()] == ["e"]
    Player(path, take_over=True).run()
    with pytest.raises(errors.MultiplePublishersError):
        live.send(b"gone")


def test_player_does_not_replace_stock_publisher_by_default(prefix: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("e", BEGIN, b"x"))
    msgq.pub_sock("e").close()
    with RingFile(f"{prefix}/e") as ring:
        ring.start_stranger()
        with pytest.raises(errors.MultiplePublishersError, match="a stock process publishes this topic"):
            Player(path)
        assert ring.write_uid == STRANGER_UID
    assert Player(path, take_over=True).run().messages == 1


def test_player_replaces_dead_publisher(prefix: str, tmp_path: Path) -> None:
    with Child(publish_and_wait, "e") as child:
        child.hear()
        child.kill()
    assert Player(write_log(tmp_path / "a.mcap", ("e", BEGIN, b"x"))).run().messages == 1


def test_player_publishes_under_prefix(prefix: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("e", BEGIN, b"x"))
    with pytest.raises(errors.EndpointNameError):
        Player(path, prefix="a/b")
    with Player(path, prefix=prefix):
        assert [topic.endpoint for topic in stats.topics(prefix)] == ["e"]


# ---- while it plays ----


def run_in_thread(player: Player) -> Task:
    return Task(player.run)


def test_player_waits_for_readers(prefix: str, tmp_path: Path) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 2, 1000, "a", "b")
    player = Player(path, wait_for_readers=["a"])
    task = run_in_thread(player)
    with pytest.raises(errors.InvalidValueError, match="not played"):
        Player(path, wait_for_readers=["c"], remap={"a": "x", "b": "y"})
    assert player.stats().messages == 0
    sub = msgq.sub_sock("a", timeout=DEADLINE_MS)
    assert sub.receive() == b"0"
    assert task.result().messages == 2


def test_player_waiting_for_readers_can_be_stopped(prefix: str, tmp_path: Path) -> None:
    player = Player(write_numbered_log(tmp_path / "a.mcap", 2, 1000, "a"), wait_for_readers=True)
    task = run_in_thread(player)
    player.close()
    assert task.result().messages == 0


@pytest.mark.parametrize("count", [0, -1])
def test_player_step_below_one_message_is_refused(prefix: str, tmp_path: Path, count: Any) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 4, NS // 100, "e")
    with (
        Player(path, start_paused=True) as player,
        pytest.raises(errors.InvalidValueError, match=f"step is {count} messages"),
    ):
        player.step(count)


class HandlerError(Exception):
    """Raised by a signal handler."""


def raise_at(point: int) -> Callable[[Any, str, Any], None]:
    """Return a profiler that raises where a signal handler may run: at the start of a function or after one of C."""
    points = itertools.count()

    def profile(_frame: Any, event: str, _function: Any) -> None:
        if event in ("call", "c_return") and next(points) == point:
            raise HandlerError

    return profile


@pytest.mark.parametrize(
    "change",
    [Player.pause, Player.resume, Player.step, lambda player: player.seek(0.01), lambda player: player.skip(0.01)],
)
def test_exception_of_handler_at_each_call_leaves_player_usable(
    prefix: str, tmp_path: Path, change: Callable[[Player], None]
) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 4, NS // 100, "e")
    with Player(path, start_paused=True) as player:
        for point in itertools.count():
            sys.setprofile(raise_at(point))
            try:
                change(player)
            except HandlerError:
                is_interrupted = True
            else:
                is_interrupted = False
            finally:
                sys.setprofile(None)
            assert not player._waiting_callers
            assert Task(player.stats).result()
            Task(player.pause).result()  # another thread gets the lock
            if not is_interrupted:
                break
        assert point > 5


def test_forked_child_does_not_change_player(prefix: str, tmp_path: Path) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 4, NS // 100, "e")
    with Player(path, start_paused=True) as player:
        task = Task(player.run)
        wait_until(lambda: player._is_running)
        assert in_fork(player.close) == 0
        player.resume()
        assert task.result().messages == 4


def test_players_in_one_process_have_separate_prefixes(prefix: str, tmp_path: Path) -> None:
    """Failure would mean: what one thread chooses is in force in another one, and rings are made in the wrong place."""
    names = [f"e{number}" for number in range(40)]
    path = write_numbered_log(tmp_path / "a.mcap", 80, NS // 1000, *names)
    places = [f"{prefix}-{number}" for number in range(2)]
    begin = threading.Barrier(2)

    def played_in(place: str) -> int:
        begin.wait(10)
        with Player(path, rate=math.inf, prefix=place) as player:
            return player.run().messages

    try:
        assert [task.result() for task in [Task(played_in, place) for place in places]] == [80, 80]
        assert all(set(stats.topic_inodes(place)) == set(names) for place in places)
        assert not stats.topic_inodes()
        assert os.environ["OPENPILOT_PREFIX"] == prefix
    finally:
        for kind in ("msgq_", "msgqside_"):
            for place in places:
                shutil.rmtree(SHM / f"{kind}{place}", ignore_errors=True)


def test_player_pauses_steps_and_resumes(prefix: str, tmp_path: Path) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 50, NS // 100, "a")
    sub = msgq.sub_sock("a", timeout=DEADLINE_MS)
    with Player(path, start_paused=True, clock_endpoint="clock") as player:
        task = run_in_thread(player)
        for number in range(3):
            player.step()
            assert sub.receive() == b"%d" % number
        player.step(2)
        assert [sub.receive(), sub.receive()] == [b"3", b"4"]
        assert player.paused
        assert player.stats().position == pytest.approx(0.04)
        assert sub.receive(non_blocking=True) is None
        before = time.monotonic()
        player.resume()
        assert task.result().messages == 50
        assert time.monotonic() - before >= 0.44  # the rest takes its time, and no more was skipped
    assert [int(data) for data in msgq.drain_sock_raw(sub)] == list(range(5, 50))


def test_player_pause_stops_time(sent: Any, tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 3, NS, token)
    player = make_virtual_player(path)
    clock = CLOCKS[-1]
    waited = clock.wait
    waits: list[float] = []

    def wait(changed: threading.Condition, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:  # half a second before the second message
            clock.now += NS // 2
            player.pause()
            clock.now += 100 * NS
            player.resume()
        else:
            waited(changed, seconds)

    clock.wait = wait
    begin = clock.now
    player.run()
    assert [round((now - begin) / NS, 2) for now, *_ in sent] == [0, 101, 102]


def test_player_seeks_to_time(prefix: str, tmp_path: Path) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 100, NS, "a")
    sub = msgq.sub_sock("a", timeout=DEADLINE_MS)
    with Player(path) as player:
        task = run_in_thread(player)
        assert sub.receive() == b"0"
        player.pause()
        player.seek(70)
        player.step()
        assert sub.receive() == b"70"
        player.seek(10.5)
        player.step()
        assert sub.receive() == b"11"
        player.seek(1000)  # to the end
        player.resume()
        assert sub.receive() == b"99"
        assert task.result().passes == 1


def count_published(*topics: str) -> int:
    """Return how many messages were published on some topics."""
    return sum(stats.topic(topic).messages or 0 for topic in topics)


def has_sent(player: Player, count: int) -> bool:
    return player.stats().messages >= count


def test_player_sends_no_message_after_pause(prefix: str, tmp_path: Path) -> None:
    """Also when it plays as fast as it can, and comes to its turn again and again before the one who asks."""
    path = write_numbered_log(tmp_path / "a.mcap", 20_000, 1000, "a", "b")
    with Player(path, rate=math.inf, loops=None) as player:
        task = run_in_thread(player)
        wait_until(lambda: player.stats().messages)
        for _ in range(20):
            player.pause()
            sent = count_published("a", "b")
            assert sent == player.stats().messages
            time.sleep(0.002)  # in which it would send thousands
            assert count_published("a", "b") == sent
            player.step(3)
            wait_until(partial(has_sent, player, sent + 3))
            assert player.stats().messages == sent + 3
            player.resume()
            wait_until(partial(has_sent, player, sent + 4))
        player.stop()
        assert task.result().unplayed == {}


def test_player_at_infinite_rate_handles_pause_request(tmp_path: Path, monkeypatch: Any, token: str) -> None:
    """Failure would mean: a player that plays as fast as it can is paused when it has nothing to do, and not before."""
    asked: list[Task] = []
    count = 0

    class Asking(fake.PubSocket):
        def send(self: Any, data: Any, /, flags: int = 0, copy: bool = True, *, origin_time: int = 0) -> None:
            nonlocal count
            count += 1
            if count == 1000:
                asked.append(Task(player.pause))
                wait_until(lambda: player._waiting_callers)

    monkeypatch.setattr(fake, "PubSocket", Asking)
    path = write_log(tmp_path / "a.mcap", *((token, BEGIN + i, b"") for i in range(5000)))
    with Player(path, backend="fake", rate=math.inf) as player:
        task = run_in_thread(player)
        wait_until(lambda: asked)
        asked[0].result()
        assert count < 1100
        player.stop()
        assert task.result().messages == count


def test_player_bursts_arrive_in_order(prefix: str, tmp_path: Path) -> None:
    """Small and large ones, more than a part of a burst, beside messages that go one by one."""
    random = np.random.default_rng(1)
    sizes = np.where(random.random(3000) < 0.01, 300_000, random.integers(0, 50, 3000)).tolist()
    names = [f"e{i}" for i in random.integers(0, 4, 3000)]
    messages = [(name, BEGIN + i * 1000, b"%d " % i + bytes(sizes[i])) for i, name in enumerate(names)]
    path = write_log(tmp_path / "a.mcap", *messages)
    subs = {f"e{i}": msgq.SubSocket() for i in range(4)}
    for name, sub in subs.items():
        sub.connect(msgq.context, name, segment_size=8 << 20)
    done = Player(path, rate=math.inf, clock_endpoint="clock", clock_rate=1e5).run()
    assert (done.messages, done.bytes) == (3000, sum(len(data) for *_, data in messages))
    for name, sub in subs.items():
        assert msgq.drain_sock_raw(sub) == [data for there, _, data in messages if there == name]


def test_player_counts_too_large_messages_and_plays_other_messages(
    prefix: str, tmp_path: Path, monkeypatch: Any
) -> None:
    sizes = [10, 500_000, 20, 500_000, 30]
    path = write_log(tmp_path / "a.mcap", *(("e", BEGIN + i, bytes(size)) for i, size in enumerate(sizes)))
    monkeypatch.setattr(
        "msgq.recording.player.log_index.LogIndex._raise_largest_payload",
        lambda self, *_: self._largest_payloads.update({0: 1}),
    )
    sub = msgq.sub_sock("e")
    done = Player(path).run()
    assert [len(data) for data in msgq.drain_sock_raw(sub)] == [10, 20, 30]
    assert (done.messages, done.bytes) == (3, 60)
    assert [(count, "500000 bytes does not fit" in what) for what, count in done.unplayed.items()] == [(2, True)]


def test_player_rate_can_be_changed(sent: Any, tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 6, NS, token)
    player = make_virtual_player(path)
    clock = CLOCKS[-1]
    waited = clock.wait

    def wait(changed: threading.Condition, seconds: float) -> None:
        if len(sent) == 2 and player.rate == 1:  # a quarter of a second behind the second message
            clock.now += NS // 4
            player.set_rate(2)
        elif len(sent) == 4 and player.rate == 2:
            player.set_rate(math.inf)
        else:
            waited(changed, seconds)

    clock.wait = wait
    player.run()
    assert [round((now - sent[0][0]) / NS, 3) for now, *_ in sent] == [0, 1, 1.625, 2.125, 2.125, 2.125]
    for rate in (0, -1, 1e-300, math.nan):
        with pytest.raises(errors.InvalidValueError, match="rate"):
            player.set_rate(rate)
    for seconds in (math.nan, math.inf, 1e300):
        for move in (player.seek, player.skip):
            with pytest.raises(errors.InvalidValueError, match="out of range"):
                move(seconds)


def test_paused_player_rate_can_be_changed(prefix: str, tmp_path: Path) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 100, NS, "a")
    with Player(path, start_paused=True) as player:
        task = run_in_thread(player)
        player.step(3)
        wait_until(lambda: player.stats().messages == 3)
        player.set_rate(1e6)
        assert (player.paused, player.stats().position, player.rate) == (True, 2, 1e6)
        player.resume()
        assert task.result().messages == 100


def test_player_skip_moves_forward_and_backward_in_time(prefix: str, tmp_path: Path) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 100, NS, "a")
    sub = msgq.sub_sock("a", timeout=DEADLINE_MS)
    with Player(path, start_paused=True) as player:
        task = run_in_thread(player)
        player.skip(20)
        player.skip(20.5)
        player.step()
        assert sub.receive() == b"41"
        player.skip(-11)
        player.step()
        assert sub.receive() == b"30"
        player.skip(-1000)
        player.step()
        assert sub.receive() == b"0"
        player.skip(1000)
        player.resume()
        assert sub.receive() == b"99"
        assert task.result().passes == 1


def test_player_stop_from_other_thread_can_be_repeated(prefix: str, tmp_path: Path) -> None:
    player = Player(write_numbered_log(tmp_path / "a.mcap", 100, 100 * NS, "a"), loops=None)
    task = run_in_thread(player)
    wait_until(lambda: player.stats().messages == 1)
    player.stop()
    assert task.result().messages == 1
    player.close()
    with pytest.raises(errors.StateError, match="has played already"):
        player.run()
    assert stats.topic("a").publisher is None


def play_until_interrupted(path: str) -> list[object]:
    """Child: play in the main thread until Ctrl-C."""
    player = Player(path)
    say("connected")
    try:
        player.run()
    except KeyboardInterrupt:
        return ["interrupted", stats.topic("a").publisher is None]
    return []


def test_player_after_ctrl_c_closes_publishers(prefix: str, tmp_path: Path) -> None:
    sub = msgq.sub_sock("a", timeout=DEADLINE_MS)
    with Child(play_until_interrupted, str(write_numbered_log(tmp_path / "a.mcap", 10, 100 * NS, "a"))) as child:
        assert child.hear() == "connected"
        assert sub.receive() == b"0"
        child.kill(signal.SIGINT)
        assert child.result() == ["interrupted", True]


@pytest.mark.parametrize(
    "options",
    [
        {"rate": 0},
        {"rate": -1},
        {"rate": math.nan},
        {"rate": 1e-300},
        {"start": -1},
        {"start": math.inf},
        {"start": 1e300},
        {"duration": math.inf},
        {"duration": 0},
        {"loops": 0},
        {"time_source": "time"},
        {"clock_rate": 0},
        {"clock_rate": 1e-300},
        {"clock_rate": math.inf},
    ],
)
def test_player_with_wrong_options_is_refused(tmp_path: Path, token: str, options: Any) -> None:
    with pytest.raises(errors.InvalidValueError):
        make_virtual_player(write_numbered_log(tmp_path / "a.mcap", 3, NS, token), **options)


def test_player_without_messages_is_refused(tmp_path: Path, token: str) -> None:
    path = write_numbered_log(tmp_path / "a.mcap", 3, NS, token)
    with pytest.raises(errors.RecordingError, match="nothing to play"):
        make_virtual_player(LogReader(path, exclude=re.compile("")))
