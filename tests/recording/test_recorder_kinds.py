"""What a recorder writes of channels, vectors, boards and queues: read by the `mcap` library, and by LogReader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader

import msgq
from msgq import errors
from msgq.common import queue_events, shm_paths
from msgq.impl.channel.pool_files import list_pools
from msgq.recording import LogReader
from msgq.recording.merge.log_copy import write_merged_log
from msgq.recording.recorder.recorder import Recorder
from msgq.recording.recorder.rolling_writer import RecordingLimits
from msgq.recording.repair.recover import recover
from tests.support import Child, hear, run_child, say, wait_until

ITEM = [("x", "<f8"), ("n", "<i4")]


@pytest.fixture
def start(prefix: str, tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """A function that starts a recorder; it is stopped at the end in any case."""
    made: list[Recorder] = []

    def started(*endpoints: Any, **options: Any) -> Recorder:
        recorder = Recorder(tmp_path / "log", endpoints or None, **{"chunk_seconds": 0.02, **options})
        made.append(recorder)
        return recorder

    yield started
    for recorder in made:
        recorder.stop()


def read_channels(path: Path) -> list[tuple[str, dict[str, str], list[tuple[bytes, int]]]]:
    """Return topic, metadata, and data and sequence of the messages, of each MCAP channel, by the `mcap` library."""
    found: dict[int, tuple[str, dict[str, str], list[tuple[bytes, int]]]] = {}
    with next(path.glob("*.mcap")).open("rb") as file:
        for _, channel, message in make_reader(file, validate_crcs=True).iter_messages():
            row = found.setdefault(channel.id, (channel.topic, channel.metadata, []))
            row[2].append((message.data, message.sequence))
    return list(found.values())


def wait_until_recorded(recorder: Recorder, count: int) -> None:
    wait_until(lambda: recorder.stats().messages >= count or not recorder.running)


def send(name: str, node: str, count: int) -> int:
    """Child: publish, and leave."""
    with msgq.Channel(name, node=node).publisher(slots=2 * count) as publisher:
        for number in range(count):
            publisher.send(f"{node}{number}".encode())
    return os.getpid()


@pytest.mark.ci
def test_each_channel_publisher_has_one_mcap_channel(start: Any, tmp_path: Path) -> None:
    msgq.Channel("scans", capacity=4096)
    recorder = start()
    for node in ("front", "rear", "front"):
        run_child(send, "scans", node, 100)
    stats = recorder.stop()
    assert (stats.messages, stats.lost) == (300, 0)
    found = {
        metadata["publisher"]: (topic, metadata, rows) for topic, metadata, rows in read_channels(tmp_path / "log")
    }
    assert found.keys() == {"front", "rear"}
    assert [len(found[node][2]) for node in ("front", "rear")] == [200, 100]
    for topic, metadata, _ in found.values():
        assert topic == "channel/scans"
        assert (metadata["kind"], metadata["epoch"], metadata["sequence"]) == ("channel", "1", "published")
    assert [data for data, _ in found["rear"][2]] == [b"rear%d" % number for number in range(100)]
    positions = sorted(sequence for _, _, rows in found.values() for _, sequence in rows)
    assert positions == list(range(4096, 4396))
    info = LogReader(tmp_path / "log").endpoints["channel/scans"]
    assert (info.messages, info.lost, info.epochs, info.publishers) == (300, 0, 1, ("front", "rear"))
    assert info.options == {"capacity": 4096, "slot_bytes": info.options["slot_bytes"], "stamps": True}


@pytest.mark.ci
@pytest.mark.needs_shm(32 << 20)
def test_recorder_reuses_rows_of_closed_publishers(start: Any, tmp_path: Path) -> None:
    channel = msgq.Channel("c", capacity=2048)
    recorder = start()
    for number in range(150):  # there are 63 rows
        with msgq.Channel("c", node=f"node{number % 3}").publisher() as publisher:
            publisher.send(b"%d" % number)
            publisher.send(b"large" * 2000)  # its pool grows: another row
        wait_until_recorded(recorder, 2 * number + 2)
    assert (recorder.stop().lost, channel.messages) == (0, 300)
    log = LogReader(tmp_path / "log")
    assert [(m.publisher, m.data) for m in log][::2] == [(f"node{n % 3}", b"%d" % n) for n in range(150)]
    assert len(read_channels(tmp_path / "log")) == 3


def test_recorded_times_and_origins_equal_slot_values(start: Any, tmp_path: Path) -> None:
    publisher = msgq.Channel("c").publisher()
    plain = msgq.Channel("plain", stamps=False).publisher()
    recorder = start()
    publisher.send(b"x", origin_time=77)
    plain.send(b"y")
    wait_until_recorded(recorder, 2)
    recorder.stop()
    found = {message.endpoint: message for message in LogReader(tmp_path / "log")}
    assert found["channel/c"].origin_time == 77
    assert 0 < found["channel/c"].log_time - found["channel/c"].publish_time < 10**11
    assert found["channel/plain"].publish_time == found["channel/plain"].log_time
    assert found["channel/plain"].source.parse_options()["stamps"] is False


def test_recorder_counts_lapped_messages_exactly(start: Any, tmp_path: Path) -> None:
    publisher = msgq.Channel("c", capacity=8).publisher()
    recorder = start()
    for number in range(20_000):
        publisher.send(b"%d" % number)
    stats = recorder.stop()
    assert stats.lost is not None
    assert stats.messages + stats.lost == 20_000
    assert stats.lost > 0
    log = LogReader(tmp_path / "log")
    assert log.endpoints["channel/c"].lost == stats.lost
    assert all(int(message.data) == message.sequence - 8 for message in log)


def test_recreated_channel_begins_a_new_epoch(start: Any, tmp_path: Path) -> None:
    recorder = start()
    for life in (1, 2):
        channel = msgq.Channel("c")
        inode = channel._channel_file.inode
        endpoints = recorder._recorded_endpoints.endpoints_by_source
        wait_until(lambda: [recorded.source.inode for recorded in endpoints.values()] == [inode])  # noqa: B023
        publisher = channel.publisher()
        publisher.send(b"%d" % life)
        wait_until_recorded(recorder, life)
        publisher.close()
        channel.unlink()
    assert recorder.stop().lost == 0
    assert [(data, metadata["epoch"]) for _, metadata, [(data, _)] in read_channels(tmp_path / "log")] == [
        (b"1", "1"),
        (b"2", "2"),
    ]


@pytest.mark.needs_shm(80 << 20)
def test_recorder_on_unconfigured_channel_records_large_message(start: Any) -> None:
    channel = msgq.Channel("c")
    recorder = start(chunk_bytes=1024)
    wait_until(lambda: len(recorder._recorded_endpoints.endpoints_by_source) == 1)
    publisher = channel.publisher()
    publisher.send(b"small")
    publisher.send(b"large" * 1_000_000)
    wait_until_recorded(recorder, 2)
    assert recorder.stop().lost == 0


def test_recorder_pause_on_channel_is_not_counted_as_loss(start: Any, tmp_path: Path) -> None:
    publisher = msgq.Channel("c", capacity=16).publisher()
    recorder = start()
    publisher.send(b"before")
    wait_until_recorded(recorder, 1)
    recorder.pause()
    wait_until(lambda: recorder._is_capture_paused, "the receiving thread has noticed the pause")
    for _ in range(100):
        publisher.send(b"unwanted")
    (before,) = recorder._recorded_endpoints.endpoints_by_source.values()
    recorder.resume()
    # The recorder lets go of the source and joins the channel again. There is no source in between.
    wait_until(lambda: list(recorder._recorded_endpoints.endpoints_by_source.values()) not in ([], [before]))
    publisher.send(b"after")
    wait_until_recorded(recorder, 2)
    assert recorder.stop().lost == 0
    assert [message.data for message in LogReader(tmp_path / "log")] == [b"before", b"after"]
    assert LogReader(tmp_path / "log").endpoints["channel/c"].lost == 0


# ---- vectors and boards ----


def test_each_vector_change_is_recorded_as_message(start: Any, tmp_path: Path) -> None:
    vector = msgq.SeqlockVector("pose", ITEM, 1000)
    vector[7] = (0.5, 1)  # before the recorder: the state that it begins with
    recorder = start()
    wait_until_recorded(recorder, 1)
    for number in range(2, 50):
        vector[number % 10] = (number / 2, number)
        wait_until_recorded(recorder, number)
    stats = recorder.stop()
    assert (stats.messages, stats.lost) == (49, 0)
    log = LogReader(tmp_path / "log")
    values = [value for _, value in log.decoded()]
    assert [int(value["value"]["n"]) for value in values] == list(range(1, 50))
    assert [int(value["index"]) for value in values[1:]] == [number % 10 for number in range(2, 50)]
    assert int(values[-1]["count"]) == vector.counts([9])[0]
    assert [message.sequence for message in log] == list(range(49))
    assert all(message.publish_time == value["publish_time"] for message, value in log.decoded())
    info = log.endpoints["records/pose"]
    assert (info.kind, info.lost) == ("records", 0)
    assert info.options == {"form": "vector", "length": 1000, "copies": 2, "exclusive": False}


def test_recorded_counts_show_overwritten_values(start: Any, tmp_path: Path) -> None:
    vector = msgq.SeqlockVector("v", "<i8", 3)
    recorder = start()
    for number in range(1, 50_001):
        vector[1] = number
    wait_until(lambda: recorder.stats().messages >= 1)
    stats = recorder.stop()
    values = [value for _, value in LogReader(tmp_path / "log").decoded()]
    assert 1 <= stats.messages < 50_000
    assert stats.lost == 0
    assert (int(values[-1]["count"]), int(values[-1]["value"])) == (50_000, 50_000)
    assert all(value["count"] == value["value"] for value in values)


@pytest.mark.needs_shm(24 << 20)
def test_large_vector_does_not_delay_topics(start: Any, tmp_path: Path) -> None:
    vector = msgq.SeqlockVector("large", "<i8", 300_000)
    pub = msgq.pub_sock("topic")
    recorder = start()
    vector[299_999] = 5
    for number in range(20_000):
        pub.send(b"%d" % number)
    wait_until_recorded(recorder, 20_001)
    assert (recorder.stop().lost, recorder.stats().messages) == (0, 20_001)
    changes = [value for message, value in LogReader(tmp_path / "log").decoded() if message.kind == "records"]
    assert [(int(one["index"]), int(one["value"])) for one in changes] == [(299_999, 5)]


def test_each_board_key_has_separate_sequence(start: Any, tmp_path: Path) -> None:
    schema = msgq.Schema("Setting", "json")
    board = msgq.Board("settings", 16, 4096, schema=schema)
    first = board.declare("gain")
    first.write(b"1")
    recorder = start()
    wait_until_recorded(recorder, 1)
    late = board.declare("limit")  # appears later
    late.write(b"[1]" + b" " * 3000)
    wait_until_recorded(recorder, 2)
    first.write(b"22")
    wait_until_recorded(recorder, 3)
    recorder.stop()
    found = [(metadata["key"], metadata["epoch"], rows) for _, metadata, rows in read_channels(tmp_path / "log")]
    assert found == [
        ("gain", "1", [(b"1", 1), (b"22", 2)]),
        ("limit", "2", [(b"[1]" + b" " * 3000, 1)]),
    ]
    log = LogReader(tmp_path / "log")
    assert [(message.key, value) for message, value in log.decoded()] == [("gain", 1), ("limit", [1]), ("gain", 22)]
    assert log.endpoints["records/settings"].options == {"form": "board", "keys": 16, "value_bytes": 4096}


# ---- queues ----


def test_queue_events_are_recorded_under_queue_name(start: Any, tmp_path: Path) -> None:
    queue = msgq.MessageQueue("jobs", max_messages=4, max_message_size=64)
    channel = msgq.Channel("jobs:events", schema=queue_events.QUEUE_EVENT_SCHEMA)
    recorder = start()
    fields = {"event": queue_events.Event.SENT, "priority": 3, "number": 9, "size": 5, "pid": os.getpid()}
    event = np.zeros(1, np.dtype(list(queue_events.EVENT_FIELDS)))
    for name, value in fields.items():
        event[name] = value
    channel.publisher().send(event.tobytes() + b"hello")
    wait_until_recorded(recorder, 1)
    recorder.stop()
    queue.close()
    [(message, value)] = LogReader(tmp_path / "log").decoded()
    assert (message.endpoint, message.kind) == ("queue/jobs", "queue")
    assert message.source.parse_options() == {"max_messages": 4, "max_message_size": 64}
    assert (value["event"], value["priority"], value["number"], value["payload"]) == ("sent", 3, 9, b"hello")


# ---- all kinds ----


def open_all_kinds() -> Callable[[int], None]:
    """Return a function that publishes once on each kind."""
    pub, publisher = msgq.pub_sock("topic"), msgq.Channel("c", node="one").publisher()
    vector, entry = msgq.SeqlockVector("v", "<i8", 4), msgq.Board("b", 4, 64).declare("k")
    events = msgq.Channel("q:events").publisher()

    def publish(number: int) -> None:
        data = b"%d" % number
        for one in (pub, publisher, events):
            one.send(data)
        entry.write(data)
        vector[0] = number

    return publish


EVERYTHING = ["channel/c", "queue/q", "records/b", "records/v", "topic"]


def test_segments_and_copies_keep_message_sources(start: Any, tmp_path: Path) -> None:
    publish = open_all_kinds()
    recorder = start(limits=RecordingLimits(split_messages=20))
    for number in range(1, 31):
        publish(number)
        wait_until_recorded(recorder, 5 * number)
    assert recorder.stop().segments > 2
    log = LogReader(tmp_path / "log")
    assert {name: info.messages for name, info in log.endpoints.items()} == dict.fromkeys(EVERYTHING, 30)
    copy = tmp_path / "copy.mcap"
    write_merged_log([log, LogReader(tmp_path / "log")], copy)
    merged = LogReader(copy)
    assert {name: info.messages for name, info in merged.endpoints.items()} == dict.fromkeys(EVERYTHING, 60)
    assert {message.source for message in merged} == {message.source for message in log}
    assert {info.lost for info in merged.endpoints.values()} == {0}
    for segment in sorted((tmp_path / "log").glob("*.mcap")):
        alone = LogReader(segment)
        assert {message.source for message in alone} <= {message.source for message in log}
    rows = [row for batch in log.batches(["kind", "publisher", "key"]) for row in batch.to_pylist()]
    assert {(row["kind"], row["publisher"], row["key"]) for row in rows} == {
        (message.kind, message.publisher, message.key) for message in log
    }


def record_all(path: str) -> None:
    """Child: record all kinds, until it is killed."""
    publish = open_all_kinds()
    recorder = Recorder(path, chunk_seconds=0.01)
    for number in range(1, 11):
        publish(number)
        wait_until_recorded(recorder, 5 * number)
    wait_until(lambda: recorder.stats().written_bytes > 0 and recorder.stats().waiting_bytes == 0)
    say()
    hear()


def test_log_of_killed_recorder_has_all_kinds_before_and_after_recovery(prefix: str, tmp_path: Path) -> None:
    with Child(record_all, str(tmp_path / "log")) as child:
        child.hear()
        child.kill()
    [segment] = (tmp_path / "log").glob("*.mcap")
    before = [(m.endpoint, m.data, m.source) for m in LogReader(segment)]
    assert sorted(name for name, _, _ in before) == sorted(10 * EVERYTHING)
    assert recover(segment, in_place=True).messages == 50
    assert [(m.endpoint, m.data, m.source) for m in LogReader(segment)] == before


def test_recorder_selects_names_with_kind_prefix(start: Any, tmp_path: Path) -> None:
    publish = open_all_kinds()
    recorder = start("channel/c", "records/b")
    publish(1)
    wait_until_recorded(recorder, 2)
    recorder.stop()
    assert set(LogReader(tmp_path / "log").endpoints) == {"channel/c", "records/b"}


# ---- bytes of others ----


def overwrite_bytes(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def test_recorder_refuses_invalid_endpoint_files(start: Any, prefix: str) -> None:
    msgq.Channel("c"), msgq.SeqlockVector("v", "<i8", 4)
    overwrite_bytes(shm_paths.channel_path("c", prefix), 0, bytes(8))
    overwrite_bytes(shm_paths.records_path("v", prefix), 48, b"\xff" * 8)  # its length
    assert set(start().stats().refused) == {"channel/c", "records/v"}


def test_truncated_file_ends_only_its_endpoint(start: Any, prefix: str, tmp_path: Path) -> None:
    publish = open_all_kinds()
    recorder = start()
    publish(1)
    wait_until_recorded(recorder, 5)
    for path in (shm_paths.channel_path("c", prefix), shm_paths.records_path("b", prefix)):
        os.truncate(path, 4096)
    wait_until(lambda: {"channel/c", "records/b"} <= set(recorder.stats().refused))
    assert recorder.stats().corrupt >= 2
    with msgq.pub_sock("other") as pub:
        wait_until(lambda: len(recorder._recorded_endpoints.endpoints_by_source) == 6)
        pub.send(b"x")
        wait_until_recorded(recorder, 6)
    assert recorder.stop().messages >= 6


def test_invalid_channel_entries_lose_only_their_messages(start: Any, prefix: str, tmp_path: Path) -> None:
    publisher = msgq.Channel("c", capacity=8, node="one").publisher()
    recorder = start()
    publisher.send(b"0")
    wait_until_recorded(recorder, 1)
    entry = 9 << 20 | 5 << 14 | 3  # position 9 in row 5, which has no pool
    overwrite_bytes(shm_paths.channel_path("c", prefix), 36864 + 8 * (9 % 8), entry.to_bytes(8, "little"))
    wait_until(lambda: recorder.stats().corrupt >= 1)
    stats = recorder.stop()
    assert (stats.messages, stats.lost) == (1, 1)


def test_removed_pool_loses_only_its_messages(start: Any, prefix: str) -> None:
    channel = msgq.Channel("c")
    publisher = channel.publisher()
    recorder = start()
    for _, uid in list_pools(prefix):
        os.unlink(shm_paths.pool_path("c", prefix, uid))
    publisher.send(b"x")
    wait_until(lambda: recorder.stats().lost == 1)
    assert recorder.stop().messages == 0


def test_impossible_value_length_is_skipped(start: Any, prefix: str) -> None:
    board = msgq.Board("b", 4, 64)
    entry = board.declare("k")
    recorder = start()
    entry.write(b"good")
    wait_until_recorded(recorder, 1)
    path = shm_paths.records_path("b", prefix)
    with open(path, "r+b") as file:
        at = file.read().index(b"good") - 8
    overwrite_bytes(path, at, b"\xff" * 8)
    version = int.from_bytes(Path(path).read_bytes()[32768 + 4 * 128 : 32768 + 4 * 128 + 8], "little")
    overwrite_bytes(path, 32768 + 4 * 128, (version + (2 << 24)).to_bytes(8, "little"))
    wait_until(lambda: recorder.stats().corrupt >= 1)
    assert recorder.stop().messages == 1


def test_message_source_has_readable_names(prefix: str) -> None:
    from msgq.kinds.opening import open_source

    with pytest.raises(errors.SegmentError):
        open_source("channel/none")
    with pytest.raises(errors.EndpointNameError):
        open_source("channel/a/b")
    msgq.Channel("c")
    source = open_source("channel/c")
    assert (source.endpoint, source.kind, source.prefix) == ("channel/c", "channel", prefix)
