"""Endpoints that appear while the recorder runs: noticed at once, by inotify, and recorded from their beginning."""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.common import settings, shm_paths, timing
from msgq.common.selection import SelectedEndpoints
from msgq.impl.ring.core import unlink_topic
from msgq.recording import LogReader, Recorder
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder import endpoints
from msgq.recording.recorder import recorder as recording
from msgq.recording.recorder.core import Capture, FileArrival, FileWatcher
from msgq.recording.recorder.endpoints import RecordedEndpoints
from tests.support import DEADLINE, Child, wait_until


@pytest.fixture
def start(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Recorder]]:
    """A function that starts a recorder which never looks by itself."""
    monkeypatch.setattr(recording, "_RESCAN_INTERVAL_S", float("inf"))
    made: list[Recorder] = []

    def started(log: str = "log", **options: Any) -> Recorder:
        made.append(Recorder(tmp_path / log, **{"chunk_seconds": 60.0, **options}))
        return made[-1]

    yield started
    for recorder in made:
        recorder.stop()


@pytest.fixture
def join_lock(monkeypatch: pytest.MonkeyPatch) -> threading.Lock:
    """A lock: as long as somebody has it, no recorder joins what appears; each opens it all the same."""
    lock = threading.Lock()
    notice, arrived = RecordedEndpoints.handle_changes, RecordedEndpoints._poll_watcher
    kept: defaultdict[RecordedEndpoints, list[tuple[list[FileArrival], bool]]] = defaultdict(list)  # by recorder

    def locked(sources: RecordedEndpoints) -> bool:
        while not lock.acquire(timeout=0.005):  # a run ends with the first file: others may come a while later
            kept[sources].append(arrived(sources))
        try:
            return notice(sources)
        finally:
            lock.release()

    def all_arrived(sources: RecordedEndpoints) -> tuple[list[FileArrival], bool]:
        every = [*kept.pop(sources, []), arrived(sources)]
        return [arrival for arrivals, _ in every for arrival in arrivals], any(look for _, look in every)

    monkeypatch.setattr(RecordedEndpoints, "handle_changes", locked)
    monkeypatch.setattr(RecordedEndpoints, "_poll_watcher", all_arrived)
    return lock


def make_directories() -> None:
    """Make those of the prefix: before them nothing can be watched there."""
    msgq.pub_sock("other").close()
    unlink_topic("other")


def wait_until_joined(recorder: Recorder, endpoint: str) -> None:
    wait_until(lambda: endpoint in recorder._recorded_endpoints._named_endpoints, f"{endpoint} is recorded")


def has_noticed(recorder: Recorder) -> bool:
    return recorder.stats().endpoints > 0


def wait_until_open(path: str, count: int = 1) -> None:
    """Wait until this process has the file open so many times, be it by a name that it has lost."""

    def seen() -> bool:
        links = []
        for name in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{name}"))
            except FileNotFoundError:
                continue
        return links.count(path) + links.count(f"{path} (deleted)") >= count

    wait_until(seen, f"{path} is open")


def wait_until_recorded(recorder: Recorder, count: int) -> None:
    """Wait until so many messages are recorded; runs that are under way end for that."""

    def seen() -> bool:
        recorder._capture.interrupt_capture()
        return recorder.stats().messages >= count

    wait_until(seen, f"{count} messages are recorded", interval=0.01)


def read_recorded_payloads(tmp_path: Path) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for message in LogReader(tmp_path / "log"):
        found.setdefault(message.endpoint, []).append(message.data)
    return found


def build_numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# ---- in other processes ----


def publish_and_exit(count: int) -> None:
    with msgq.pub_sock("e") as pub:
        for data in build_numbers(count):
            pub.send(data)


def publish_at(endpoint: str, hertz: float, count: int) -> None:
    pub = msgq.pub_sock(endpoint)
    begin = time.perf_counter()
    for number, data in enumerate(build_numbers(count)):
        while time.perf_counter() - begin < number / hertz:
            time.sleep(0)
        pub.send(data)


# ---- topics ----


def test_messages_of_short_lived_program_are_recorded(start: Any, tmp_path: Path) -> None:
    recorder = start()
    with Child(publish_and_exit, 3) as child:
        child.result()
    wait_until_joined(recorder, "e")
    stats = recorder.stop()
    assert (stats.messages, stats.lost, stats.endpoints, stats.refused) == (3, 0, 1, {})
    assert read_recorded_payloads(tmp_path) == {"e": build_numbers(3)}
    assert [message.sequence for message in LogReader(tmp_path / "log")] == [0, 1, 2]


def test_messages_of_short_lived_program_with_removed_topic_are_recorded(
    start: Any, join_lock: Any, tmp_path: Path, prefix: str
) -> None:
    """Tracked, with a schema: what belongs to the ring is had as well."""
    make_directories()
    recorder = start()
    schema = msgq.Schema("thing", "json", b'{"type": "object"}')
    with join_lock:
        with msgq.PubSocket() as pub:
            pub.connect(msgq.context, "e", schema=schema, tracked=True)
            for data in build_numbers(3):
                pub.send(data, origin_time=7)
            wait_until_open(shm_paths.ring_path("e", prefix))
            wait_until_open(shm_paths.side_segment_path("e", prefix))
        unlink_topic("e")
        with msgq.pub_sock("e") as pub:
            pub.send(b"another life")
    wait_until(lambda: recorder.stats().endpoints == 1)
    stats = recorder.stop()
    assert (stats.messages, stats.lost, stats.refused) == (4, 0, {})
    found = list(LogReader(tmp_path / "log"))
    first = [message for message in found if message.schema == schema]
    (other,) = [message for message in found if message.schema is None]
    assert [message.data for message in first] == build_numbers(3)
    assert {message.origin_time for message in first} == {7}
    assert (other.data, other.origin_time) == (b"another life", 0)
    assert {message.epoch for message in first} != {other.epoch}


def test_each_recorder_of_process_records_short_lived_topic(
    start: Any, join_lock: Any, tmp_path: Path, prefix: str
) -> None:
    make_directories()
    recorders = [start("first"), start("second")]
    with join_lock:
        with msgq.pub_sock("e") as pub:
            for data in build_numbers(3):
                pub.send(data)
            wait_until_open(shm_paths.ring_path("e", prefix), len(recorders))
            wait_until_open(shm_paths.side_segment_path("e", prefix), len(recorders))
        unlink_topic("e")
    for recorder in recorders:
        wait_until(partial(has_noticed, recorder))
        stats = recorder.stop()
        assert (stats.messages, stats.lost, stats.refused) == (3, 0, {})


def open_sources() -> RecordedEndpoints:
    """Return the endpoints of a recorder that has looked at the empty directories."""
    make_directories()
    sources = RecordedEndpoints(Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    return sources


def test_topic_removed_before_open_has_unknown_loss(prefix: str) -> None:
    """Nobody knows whether anything was published: that is said."""
    sources = open_sources()
    with msgq.pub_sock("e") as pub:
        pub.send(b"x")
    unlink_topic("e")
    assert sources.handle_changes()
    assert sources.count_losses() == {"e": None}
    assert sources.refusal_reasons["e"].startswith(
        "the endpoint was created and removed before the recorder could open it"
    )
    assert not sources.handle_changes()


def test_topic_recreated_before_open_has_unknown_loss(prefix: str) -> None:
    """Both events open the second file, which says nothing of the first one."""
    sources = open_sources()
    with msgq.pub_sock("e") as pub:
        pub.send(b"x")
    unlink_topic("e")
    with msgq.pub_sock("e"):
        assert sources.handle_changes()
        assert sources.count_losses() == {"e": None}
        assert sources._named_endpoints.keys() == {"e"}
        assert not sources.handle_changes()


def test_two_hundred_removed_topics_are_all_reported(prefix: str) -> None:
    sources = open_sources()
    names = [f"e{number}" for number in range(200)]
    for name in names:
        with msgq.pub_sock(name) as pub:
            pub.send(b"x")
        unlink_topic(name)
    while sources.handle_changes():
        continue
    assert sources.count_losses() == dict.fromkeys(names)


def publish_on_many_topics(capture: Capture) -> list[str]:
    """Publish on 40 topics, whose files then appear in a run: 64 are opened, of 32 topics. Return the names."""
    names = [f"e{number}" for number in range(40)]
    for name in names:
        with msgq.pub_sock(name, segment_size=4096) as pub:
            pub.send(b"x")
    capture.capture_messages(ChunkBuffer(4096, 4096), DEADLINE)
    return names


def test_topics_beyond_open_files_and_removed_have_unknown_loss(prefix: str) -> None:
    make_directories()
    sources = RecordedEndpoints(capture := Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    names = publish_on_many_topics(capture)
    for name in names:
        unlink_topic(name)
    assert sources.handle_changes()
    assert sources.count_losses() == {**dict.fromkeys(names[:32], 0), **dict.fromkeys(names[32:])}
    assert sources.refusal_reasons.keys() == set(names[32:])


def test_topic_beyond_open_files_and_recreated_has_unknown_loss(prefix: str) -> None:
    """Only its first life is missed. The others have their names."""
    make_directories()
    sources = RecordedEndpoints(capture := Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    names = publish_on_many_topics(capture)
    unlink_topic(names[-1])
    with msgq.pub_sock(names[-1]):
        assert sources.handle_changes()
        assert sources.count_losses() == {**dict.fromkeys(names, 0), names[-1]: None}
        assert sources._named_endpoints.keys() == set(names)
        assert not sources.handle_changes()


def test_topic_found_by_scan_and_removed_is_not_reported_lost(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was joined, although it is told only when it has gone."""
    sources = RecordedEndpoints(Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    scan = sources._scan_endpoints

    def scanned() -> None:
        scan()
        unlink_topic("e")

    with msgq.pub_sock("e"):
        monkeypatch.setattr(sources, "_scan_endpoints", scanned)
        sources.rescan_endpoints()
    assert (sources.count_losses(), sources.refusal_reasons, len(sources.endpoints_by_source)) == ({"e": 0}, {}, 1)


def test_ring_wrapped_before_open_counts_losses(start: Any, join_lock: Any, tmp_path: Path) -> None:
    recorder = start()
    with join_lock, msgq.pub_sock("e", segment_size=4096) as pub:
        for data in build_numbers(10_000):
            pub.send(data)
    wait_until_joined(recorder, "e")
    stats = recorder.stop()
    found = read_recorded_payloads(tmp_path)["e"]
    assert stats.messages + stats.lost == 10_000
    assert found == build_numbers(10_000)[-len(found) :]
    first = next(iter(LogReader(tmp_path / "log")))
    assert first.sequence == stats.lost > 0


def test_ring_recreated_with_larger_size_loses_no_message(start: Any, join_lock: Any, tmp_path: Path) -> None:
    """The former publisher goes on for a while in the file that has lost its name."""
    recorder = start()
    former = msgq.pub_sock("e", segment_size=1 << 16)
    wait_until_joined(recorder, "e")
    with join_lock:
        for number in range(100):
            former.send(b"old %d" % number)
        unlink_topic("e")
        with msgq.pub_sock("e", segment_size=1 << 20) as pub:
            for number in range(100):
                pub.send(b"new %d" % number)
                former.send(b"old %d" % (100 + number))
    wait_until(lambda: recorder._recorded_endpoints._unlinked_sources)
    former.send(b"old 200")
    former.close()
    wait_until_recorded(recorder, 301)
    wait_until(lambda: not recorder._recorded_endpoints._unlinked_sources)
    stats = recorder.stop()
    assert (stats.messages, stats.lost, stats.endpoints) == (301, 0, 1)
    found = read_recorded_payloads(tmp_path)["e"]
    assert [data for data in found if data.startswith(b"new")] == [b"new %d" % number for number in range(100)]
    assert [data for data in found if data.startswith(b"old")] == [b"old %d" % number for number in range(201)]


def test_removed_topic_is_unmapped(prefix: str) -> None:
    """Its memory is not kept for the rest of a recording."""
    sources = RecordedEndpoints(Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    for _ in range(5):
        with msgq.pub_sock("e"):
            sources.rescan_endpoints()
        assert sum(f"msgq_{prefix}/e" in line for line in Path("/proc/self/maps").read_text().splitlines()) == 1
        unlink_topic("e")
        sources.rescan_endpoints()
        sources.handle_changes()
        assert (len(sources.endpoints_by_source), sources.endpoint_count) == (0, 1)
        assert f"msgq_{prefix}/e" not in Path("/proc/self/maps").read_text()


def test_incomplete_endpoint_file_is_opened_when_complete(start: Any, tmp_path: Path, prefix: str) -> None:
    """As a stock process makes it: a name first, then the size."""
    recorder = start()
    os.mkdir(f"/dev/shm/msgq_{prefix}", 0o700)
    Path(shm_paths.ring_path("e", prefix)).touch(0o600)
    wait_until(lambda: recorder.stats().refused)
    with msgq.pub_sock("e") as pub:
        for data in build_numbers(3):
            pub.send(data)
    wait_until_joined(recorder, "e")
    stats = recorder.stop()
    assert (stats.messages, stats.lost, stats.refused) == (3, 0, {})


@pytest.mark.parametrize(("size", "lost"), [(0, 0), (100, None)])
def test_incomplete_endpoint_file_replaced_before_open_has_unknown_loss(
    prefix: str, size: int, lost: int | None
) -> None:
    """Nobody has used an empty file."""
    sources = open_sources()
    Path(shm_paths.ring_path("e", prefix)).write_bytes(bytes(size))
    assert sources.handle_changes()
    assert sources.refusal_reasons.keys() == {"e"}
    unlink_topic("e")
    with msgq.pub_sock("e"):
        assert sources.handle_changes()
        assert sources.count_losses() == {"e": lost}
        assert sources._named_endpoints.keys() == {"e"}


def test_incomplete_endpoint_file_removed_before_open_has_unknown_loss(prefix: str) -> None:
    sources = open_sources()
    Path(shm_paths.ring_path("e", prefix)).write_bytes(bytes(100))
    assert sources.handle_changes()
    unlink_topic("e")
    sources.rescan_endpoints()
    assert sources.count_losses() == {"e": None}


@pytest.mark.parametrize("is_opened", [False, True])
def test_incomplete_endpoint_file_found_by_scan_and_removed_has_unknown_loss(
    prefix: str, monkeypatch: pytest.MonkeyPatch, is_opened: bool
) -> None:
    make_directories()
    sources = RecordedEndpoints(capture := Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    scan = sources._scan_endpoints

    def scanned() -> None:
        scan()
        unlink_topic("e")

    Path(shm_paths.ring_path("e", prefix)).write_bytes(bytes(100))
    if is_opened:
        capture.capture_messages(ChunkBuffer(4096, 4096), DEADLINE)
    monkeypatch.setattr(sources, "_scan_endpoints", scanned)
    sources.rescan_endpoints()
    assert sources.count_losses() == {"e": None}


def test_incomplete_endpoint_file_removed_in_pause_is_no_loss(prefix: str) -> None:
    sources = open_sources()
    Path(shm_paths.ring_path("e", prefix)).write_bytes(bytes(100))
    assert sources.handle_changes()
    unlink_topic("e")
    sources.rejoin_at_present()
    assert sources.count_losses() == {}


def test_prefix_directories_created_and_removed_are_followed(start: Any, tmp_path: Path, prefix: str) -> None:
    recorder = start()
    for number in range(3):
        with msgq.pub_sock(f"e{number}") as pub:
            pub.send(b"x")
            wait_until_joined(recorder, f"e{number}")
        unlink_topic(f"e{number}")
        for directory in shm_paths.topic_directories(prefix):
            os.rmdir(directory)
    stats = recorder.stop()
    assert (stats.messages, stats.lost, stats.refused) == (3, 0, {})


def test_recorder_without_inotify_finds_all_endpoints_by_scan(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def exhausted(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(endpoints, "FileWatcher", exhausted)
    with Recorder(tmp_path / "log", chunk_seconds=0.01) as recorder:
        with msgq.pub_sock("e") as pub:
            for data in build_numbers(100):
                pub.send(data)
        wait_until_joined(recorder, "e")
        stats = recorder.stop()
    assert (stats.messages, stats.lost, recorder._recorded_endpoints.count_losses()) == (100, None, {"e": 0})
    assert "detected late, and some may be missed: Too many open files" in caplog.text


class FullWatcher:
    """A watcher that cannot watch another directory."""

    def __init__(self, watcher: FileWatcher | None) -> None:
        assert watcher is not None
        self.poll_arrivals = watcher.poll_arrivals

    def update_watches(self) -> None:
        raise OSError(28, "No space left on device")


def test_removed_topic_is_recorded_although_watcher_fails(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files were opened before the failure."""
    make_directories()
    sources = RecordedEndpoints(capture := Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    with msgq.pub_sock("e") as pub:
        pub.send(b"x")
    capture.capture_messages(ChunkBuffer(4096, 4096), DEADLINE)
    unlink_topic("e")
    monkeypatch.setattr(sources, "_file_watcher", FullWatcher(sources._file_watcher))
    assert sources.handle_changes()
    chunk = ChunkBuffer(4096, 4096)
    capture.capture_messages(chunk, 0)
    assert (len(chunk), sources.count_losses(), sources.refusal_reasons) == (1, {"e": 0}, {})


def test_directory_without_watch_is_scanned(
    prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sources = RecordedEndpoints(Capture(), SelectedEndpoints(), None)
    sources.rescan_endpoints()
    monkeypatch.setattr(sources, "_file_watcher", FullWatcher(sources._file_watcher))
    with msgq.pub_sock("e"):
        assert sources.handle_changes()
        assert set(sources.count_losses()) == {"e"}
    assert "detected late, and some may be missed: No space left on device" in caplog.text
    assert sources.may_have_missed_endpoints
    assert sources.handle_changes()  # the publisher of "e" has closed the topic
    with msgq.pub_sock("f"):
        assert not sources.handle_changes()
        sources.rescan_endpoints()
        assert set(sources.count_losses()) == {"e", "f"}


# ---- descriptions of messages ----


def test_schema_set_after_subscriber_creation_is_recorded_from_first_message(start: Any, tmp_path: Path) -> None:
    """The first message has the schema, and the time that is in it."""
    dtype = np.dtype([("publish_time", "<i8"), ("value", "<f8")])
    schema = msgq.Schema("sample", "struct", json.dumps(dtype.descr).encode())
    recorder = start()
    with msgq.sub_sock("e"):
        wait_until_joined(recorder, "e")
        with msgq.PubSocket() as pub:
            pub.connect(msgq.context, "e", schema=schema)
            pub.send(np.array([(5, 1.5)], dtype))
    recorder.stop()
    (message,) = LogReader(tmp_path / "log")
    assert (message.schema, message.publish_time, message.epoch) == (schema, 5, 1)


def test_schema_set_after_channel_creation_is_recorded(start: Any, tmp_path: Path) -> None:
    schema = msgq.Schema("thing", "json", b"{}")
    recorder = start()
    with msgq.Channel("c") as channel:
        wait_until_joined(recorder, "channel/c")
        with msgq.Channel("c", schema=schema) as described, described.publisher() as publisher:
            publisher.send(b"1")
        assert channel.name == "c"
    recorder.stop()
    (message,) = LogReader(tmp_path / "log")
    assert message.schema == schema


def test_recorded_schema_changes_at_first_message_of_new_schema(start: Any, tmp_path: Path) -> None:
    recorder = start()
    schemas = [msgq.Schema(f"s{number}", "json", b"{}") for number in range(5)]
    for number, schema in enumerate(schemas):
        with msgq.PubSocket() as pub:
            pub.connect(msgq.context, "e", schema=schema)
            for _ in range(3):
                pub.send(b"%d" % number)
        wait_until_recorded(recorder, 3 * (number + 1))
    recorder.stop()
    found = [(message.data, message.schema) for message in LogReader(tmp_path / "log")]
    assert found == [(b"%d" % number, schema) for number, schema in enumerate(schemas) for _ in range(3)]


def test_first_timings_of_tracked_program_are_recorded(start: Any, tmp_path: Path) -> None:
    """Its stages appear with their first messages, which have their times and origins."""
    recorder = start()
    source = msgq.PubSocket()
    source.connect(msgq.context, "quotes", tracked=True)
    orders = msgq.PubSocket()
    orders.connect(msgq.context, "orders", tracked=True)
    quotes = msgq.sub_sock("quotes")
    with msgq.StageTracer("planner") as planner:
        for number in range(3):
            source.send(b"%d" % number, origin_time=100 + number)
            for quote in planner.trace_messages(quotes, timeout=0):
                orders.send(quote.data)
    wait_until_joined(recorder, "timing:planner:quotes")
    assert recorder.stop().lost == 0
    log = LogReader(tmp_path / "log")
    found = {endpoint: [one for one in log if one.endpoint == endpoint] for endpoint in log.endpoints}
    origins = [100, 101, 102]
    for endpoint in ("quotes", "orders"):
        assert [message.origin_time for message in found[endpoint]] == origins
    timings = found["timing:planner:quotes"]
    assert [struct.unpack("<4q", message.data)[1] for message in timings] == origins
    assert [struct.unpack("<4q", message.data)[0] for message in timings] == [one.publish_time for one in timings]
    assert {message.schema for message in timings} == {timing.TIMING_SCHEMA}


# ---- other kinds ----


def test_short_lived_endpoints_of_all_kinds_are_recorded(start: Any, tmp_path: Path) -> None:
    recorder = start()
    with msgq.Channel("c") as channel, channel.publisher() as publisher:
        for data in build_numbers(3):
            publisher.send(data)
    with msgq.SeqlockVector("v", "<i8", 4) as vector:
        vector.write([0], [7])
    with msgq.Board("b", 4, 64) as board:
        board.declare("k").write(b"value")
    with msgq.MessageQueue("jobs", max_messages=8, max_message_size=64, events="payload") as jobs:
        jobs.send(b"job")
    for endpoint in ("channel/c", "records/v", "records/b", "queue/jobs"):
        wait_until_joined(recorder, endpoint)
    wait_until_recorded(recorder, 6)
    stats = recorder.stop()
    assert (stats.lost, stats.endpoints, stats.refused) == (0, 4, {})
    found = read_recorded_payloads(tmp_path)
    assert found["channel/c"] == build_numbers(3)
    assert found["records/v"][0].endswith(struct.pack("<q", 7))
    assert found["records/b"] == [b"value"]
    assert found["queue/jobs"][0].endswith(b"job")


# ---- with real processes ----


@pytest.mark.ci
def test_topic_at_1000_hz_is_recorded_from_first_message(start: Any, tmp_path: Path) -> None:
    recorder = start(chunk_seconds=0.25)
    with Child(publish_at, "e", 1000, 1000) as child:
        child.result()
    stats = recorder.stop()
    assert (stats.messages, stats.lost) == (1000, 0)
    assert read_recorded_payloads(tmp_path) == {"e": build_numbers(1000)}


@pytest.mark.ci
def test_ten_simultaneous_publishers_are_recorded(start: Any, tmp_path: Path) -> None:
    recorder = start(chunk_seconds=0.25)
    children = [Child(publish_at, f"e{number}", 5000, 2000) for number in range(10)]
    try:
        for child in children:
            child.result()
    finally:
        for child in children:
            child.__exit__()
    stats = recorder.stop()
    assert (stats.messages, stats.lost) == (20_000, 0)
    assert read_recorded_payloads(tmp_path) == {f"e{number}": build_numbers(2000) for number in range(10)}


def remake_topics(rounds: int) -> dict[str, int]:
    """Make topics, publish in them, and remove some; return what was published."""
    published: Counter[str] = Counter()
    for number in range(rounds):
        endpoint = f"e{number % 7}"
        is_there = os.path.exists(shm_paths.ring_path(endpoint, settings.get_prefix()))
        with msgq.pub_sock(endpoint, segment_size=0 if is_there else 4096 << number % 5) as pub:
            for _ in range(1 + number % 50):
                pub.send(b"%s %d" % (endpoint.encode(), published[endpoint]))
                published[endpoint] += 1
        if number % 3:
            time.sleep(0.002 * (number % 4))
            unlink_topic(endpoint)
    return published


@pytest.mark.ci
def test_repeatedly_recreated_topics_report_unknown_losses(start: Any, tmp_path: Path) -> None:
    """What is missing of a topic is said: a life of it was missed, and then its loss is unknown."""
    make_directories()
    recorder = start(chunk_seconds=0.25)
    with Child(remake_topics, 400) as child:
        published = child.result()
    stats = recorder.stop()
    losses = recorder._recorded_endpoints.count_losses()
    found = read_recorded_payloads(tmp_path)
    for endpoint, count in published.items():
        data = found.get(endpoint, [])
        assert len(set(data)) == len(data) <= count
        lost = losses[endpoint]
        assert lost is None or lost + len(data) == count, endpoint
    assert sum(len(data) for data in found.values()) == stats.messages > 0
