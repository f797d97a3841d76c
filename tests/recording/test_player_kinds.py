"""The player puts what was recorded back where it came from, whatever kind of endpoint that is."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import errors
from msgq.common.message_source import MessageSource
from msgq.common.record_changes import RecordChange, make_record_change_schema, pack_change
from msgq.common.schema import schema_of
from msgq.impl import backend as backends
from msgq.kinds.opening import open_feed, open_writer
from msgq.kinds.playback import EndpointSpec, PlaybackMessage, PlaybackTarget, UnplayableError
from msgq.recording import LogReader, Player, Writer
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.player.remapping import EndpointRemapping
from msgq.recording.player.timed_messages import find_latest_state
from tests.recording.all_kinds import BEGIN, CHANNEL, MS, NS, QUEUE, QUOTE, VECTOR, Log, fill_all, write
from tests.support import DEADLINE_MS, Child, Task, hear, say, wait_until
from visionipc import FrameFormat, VisionIpcClient

CHANGES = make_record_change_schema(np.dtype("f8"))
pytestmark = pytest.mark.usefixtures("prefix")


@pytest.fixture
def log(tmp_path: Path) -> Callable[[Callable[[Log], None]], Path]:
    numbers = count()
    return lambda fill: write(tmp_path / f"{next(numbers)}.mcap", fill)


def play_with_player(path: Path, **options: Any) -> Any:
    with Player(path, rate=float("inf"), **options) as player:
        return player.run(), player


# ---- each kind ----


def test_player_restores_all_kinds_to_their_endpoints(log: Any) -> None:
    path = log(fill_all)
    with Player(path, rate=float("inf")) as player:
        assert player.endpoints == ("channel/lidar", "queue/jobs", "records/quotes", "records/state", "topic")
        assert player.skipped == {}
        topic = msgq.sub_sock("topic")
        lidar = msgq.Channel("lidar").subscriber()
        done = player.run()
    assert done.messages == 50  # events of taken jobs are not played
    assert done.by_kind == {"channel": 10, "queue": 10, "records": 20, "topic": 10}
    assert done.unplayed == {}
    assert msgq.drain_sock_raw(topic) == [b'{"n": %d}' % i for i in range(10)]
    scans = [lidar.receive(0) for _ in range(10)]
    assert scans == [b"scan %d" % i for i in range(10)]
    with msgq.SeqlockVector("quotes") as quotes, msgq.Board("state", create=False) as state:
        assert (len(quotes), quotes.dtype) == (8, QUOTE)
        assert quotes.read()[:5].tolist() == [(8.5, 8.0), (9.5, 9.0), (6.5, 6.0), (7.5, 7.0), (0.0, 0.0)]
        assert quotes.counts()[:5].tolist() == [3, 3, 2, 2, 0]
        assert dict(state.items()) == {"mode": b"8", "pose": b"9"}
        assert (state.capacity, state.value_bytes) == (4, 64)
    with msgq.MessageQueue("jobs", 0) as jobs:
        received = [(message.data, message.priority) for message in jobs.receive_many()]
        assert received == [(b"job %d" % i, p) for p in (2, 1, 0) for i in range(10) if i % 3 == p]
        assert (jobs.max_messages, jobs.max_message_size) == (32, 128)


def test_played_channel_has_recorded_publishers_and_configuration(log: Any) -> None:
    def fill(log: Log) -> None:
        for i in range(4):
            log.channel(i, b"x" * 100 * i, ("front", "rear")[i % 2], age_ns=20 * MS)

    path = log(fill)
    with Player(path, rate=float("inf")) as player:
        channel = msgq.Channel("lidar", create=False)
        assert (channel.capacity, channel.stamps) == (CHANNEL["capacity"], CHANNEL["stamps"])
        assert channel.schema is not None
        assert channel.schema.encoding == "json"
        lidar = channel.subscriber()
        player.run()
    views: Any = [lidar.receive_view(0) for _ in range(4)]
    assert [view.publisher.name for view in views] == ["front", "rear", "front", "rear"]
    assert [len(view) for view in views] == [0, 100, 200, 300]
    ages = [view.publish_time - view.origin_time for view in views]
    assert all(20 * MS <= age < 20 * MS + NS for age in ages)
    for view in views:
        view.release()


def test_player_restores_broadcast_channel(log: Any) -> None:
    def fill(log: Log) -> None:
        log.add(0, "channel/all:broadcast", b"x", MessageSource("channel", "a"), None)

    path = log(fill)
    _, player = play_with_player(path)
    assert player.endpoints == ("channel/all:broadcast",)


def test_player_skips_queue_without_payloads_with_reason(log: Any) -> None:
    def fill(log: Log) -> None:
        log.topic(0, b"1")
        log.queue(1, b"job", payload=False)

    done, player = play_with_player(log(fill))
    assert player.endpoints == ("topic",)
    assert list(player.skipped) == ["queue/jobs"]
    assert "payload" in player.skipped["queue/jobs"]
    assert done.messages == 1


def test_player_counts_queue_event_without_payload(log: Any) -> None:
    def fill(log: Log) -> None:
        log.queue(0, b"first")
        log.queue(1, b"second", payload=False)
        log.queue(2, b"")

    done, player = play_with_player(log(fill))
    assert (done.messages, player.skipped) == (2, {})
    assert list(done.unplayed.values()) == [1]
    assert next(iter(done.unplayed)).startswith("queue/jobs: ")
    with msgq.MessageQueue("jobs", 0) as jobs:
        assert [message.data for message in jobs.receive_many()] == [b"first", b""]


def test_player_restores_empty_queue_messages(log: Any) -> None:
    done, player = play_with_player(log(lambda log: log.queue(0, b"", priority=9)))
    assert (done.messages, player.skipped) == (1, {})


def test_player_continues_after_full_queue(log: Any) -> None:
    def fill(log: Log) -> None:
        for i in range(QUEUE["max_messages"] + 5):
            log.queue(i, b"%d" % i)
        log.topic(1000, b"last")

    done, _ = play_with_player(log(fill))
    assert done.unplayed == {"queue/jobs: the queue was full": 5}
    assert done.messages == QUEUE["max_messages"] + 1


def test_played_exclusive_vector_is_exclusive(log: Any) -> None:
    path = log(lambda log: log.vector(0, 1, (1, 2), exclusive=True, copies=4))
    with Player(path, rate=float("inf")) as player:
        with msgq.SeqlockVector("quotes") as quotes:
            assert (quotes.exclusive, quotes.copies) == (True, 4)
            with pytest.raises(errors.MultipleWritersError):
                quotes[0] = (1, 1)
        player.run()
    with msgq.SeqlockVector("quotes") as quotes:
        quotes[0] = (1, 1)


def test_played_tracked_records_keep_their_age(log: Any) -> None:
    item = np.dtype([("publish_time", "<i8"), ("origin_time", "<i8"), ("x", "<f8")])

    play_with_player(log(lambda log: log.vector(0, 1, (BEGIN, BEGIN - 30 * MS, 4.5), item)))
    with msgq.SeqlockVector("quotes") as rows:
        published, origin, x = rows[1]
        assert (x, 30 * MS <= published - origin < 30 * MS + NS) == (4.5, True)


# ---- schemas ----

FIRST, SECOND = (msgq.Schema(name, "json", b"{}") for name in ("First", "Second"))


def test_topic_writer_publishes_each_message_with_its_schema(prefix: str) -> None:
    target = PlaybackTarget("msgq", prefix)
    writer = open_writer(EndpointSpec("topic", schema=SECOND, changes_schema=True), target)
    feed = open_feed("topic")
    for number, schema in enumerate((FIRST, SECOND, SECOND, None, FIRST)):
        writer.send(PlaybackMessage(BEGIN, "topic", b"%d" % number, schema=schema))
        (item,) = feed.take_items()
        assert (item.data, item.schema) == (b"%d" % number, schema or SECOND)
    writer.close()


def test_topic_writer_refuses_message_whose_schema_cannot_be_stored(prefix: str) -> None:
    writer = open_writer(EndpointSpec("topic", schema=FIRST), PlaybackTarget("msgq", prefix))
    nameless = schema_of("", "json", b"")
    with pytest.raises(UnplayableError, match="schema of some messages"):
        writer.send(PlaybackMessage(BEGIN, "topic", b"1", schema=nameless))
    writer.close()


@pytest.mark.parametrize("backend", ["msgq", "zmq", "fake"])
def test_player_plays_topic_whose_schema_changes(log: Any, backend: str) -> None:
    def write_changes(log: Log) -> None:
        for number, schema in enumerate((FIRST, SECOND, FIRST)):
            log.add(number, "topic", b"%d" % number, MessageSource(), schema)

    with Player(log(write_changes), rate=float("inf"), backend=backend) as player:
        done = player.run()
        assert (done.messages, done.unplayed) == (3, {})
        if backend == "msgq":
            assert msgq.stats.topic("topic").schema == FIRST


# ---- state ----


def write_state_changes(log: Log) -> None:
    """Two elements and a key that change over three seconds, and a topic that says how far it is."""
    for second in range(4):
        log.topic(1000 * second, b"%d" % second)
        log.vector(1000 * second + 10, 0, (second, second))
        log.board(1000 * second + 20, "mode", b"%d" % second)
    log.vector(3500, 5, (9, 9))
    log.topic(3600, b"end")


def state() -> tuple[Any, dict[str, bytes]]:
    """Return the elements 0 and 5 of the vector, and the board."""
    with msgq.SeqlockVector("quotes", passive=True) as quotes, msgq.Board("state", passive=True) as board:
        return [quotes[0].tolist()[0], quotes[5].tolist()[0]], dict(board.items())


def test_played_records_start_with_values_at_start_time(log: Any) -> None:
    with Player(log(write_state_changes), start=2.5, start_paused=True) as player:
        task = Task(player.run)
        wait_until(lambda: state() == ([2.0, 0.0], {"mode": b"2"}))
        assert player.stats().messages == 0
        player.stop()
        assert task.result().messages == 0


def test_played_records_include_values_written_before_start(log: Any) -> None:
    reader = LogReader(log(write_state_changes), start=BEGIN + 3600 * MS, exclude=["records/state"])
    with Player(reader, rate=float("inf")) as player:
        assert player.endpoints == ("records/quotes", "topic")
        assert player.run().messages == 1
    with msgq.SeqlockVector("quotes") as quotes:
        assert [quotes[0].tolist()[0], quotes[5].tolist()[0]] == [3.0, 9.0]
    with pytest.raises(errors.SegmentError):
        msgq.Board("state", create=False)


def test_find_latest_state_returns_last_changes_in_time_order(log: Any) -> None:
    def fill(log: Log) -> None:
        for at, key in enumerate(("mode", "pose", "mode")):
            log.board(10 * at, key, b"%d" % at)
        for at, index in enumerate((4, 2, 4)):
            log.vector(10 * at + 5, index, (at, 0))

    found = find_latest_state(LogReader(log(fill)), EndpointRemapping({}))
    assert [message.time_ns - BEGIN for message in found] == [10 * MS, 15 * MS, 20 * MS, 25 * MS]
    assert [message.source.key for message in found] == ["pose", "", "mode", ""]


def test_player_seek_restores_record_state(log: Any) -> None:
    topic = msgq.sub_sock("topic", timeout=DEADLINE_MS)
    with Player(log(write_state_changes), start_paused=True) as player:
        task = Task(player.run)
        player.seek(3.55)
        wait_until(lambda: state() == ([3.0, 9.0], {"mode": b"3"}))
        player.seek(1.5)
        wait_until(lambda: state() == ([1.0, 0.0], {"mode": b"1"}))
        player.step()
        assert topic.receive() == b"2"
        assert state() == ([1.0, 0.0], {"mode": b"1"})
        player.step(2)
        wait_until(lambda: state() == ([2.0, 0.0], {"mode": b"2"}))
        player.stop()
        task.result()


def test_player_loop_starts_with_initial_record_state(log: Any) -> None:
    with Player(log(write_state_changes), start=1.5, loops=2, rate=float("inf"), start_paused=True) as player:
        task = Task(player.run)
        player.step(8)  # all but the first of the second pass
        wait_until(lambda: player.stats().passes == 1)
        wait_until(lambda: state() == ([1.0, 0.0], {"mode": b"1"}))
        player.resume()
        assert task.result().messages == 16
    assert state() == ([3.0, 9.0], {"mode": b"3"})


# ---- existing endpoints ----


def test_player_with_different_configuration_raises_error_with_both_values(log: Any) -> None:
    path = log(fill_all)
    cases: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
        "channel/lidar": (lambda: msgq.Channel("lidar", capacity=64), errors.ChannelMismatchError, "64.*16"),
        "records/quotes": (lambda: msgq.SeqlockVector("quotes", QUOTE, 9), errors.RecordMismatchError, "9.*8"),
        "records/state": (lambda: msgq.Board("state", 4, 65), errors.RecordMismatchError, "65.*64"),
        "queue/jobs": (lambda: msgq.MessageQueue("jobs", max_messages=3), errors.QueueMismatchError, "3.*32"),
    }
    for endpoint, (make, error, values) in cases.items():
        with ExitStack() as stack:
            stack.enter_context(make())
            told: Any
            with pytest.raises(error, match=values) as told:
                Player(LogReader(path, endpoints=[endpoint]))
            assert told.value.endpoint == endpoint
            assert "another prefix" in str(told.value)


def test_player_with_different_record_raises_record_mismatch_error(log: Any) -> None:
    path = log(fill_all)
    with msgq.SeqlockVector("quotes", "f8", 8), pytest.raises(errors.RecordMismatchError, match="float64"):
        Player(LogReader(path, endpoints=["records/quotes"]))
    with msgq.Board("state", 4, 64):
        pass
    with pytest.raises(errors.RecordMismatchError, match="board"):
        Player(LogReader(path, endpoints=["records/quotes"]), remap={"records/quotes": "records/state"})


def test_player_with_existing_writer_is_refused(log: Any) -> None:
    path = log(lambda log: (log.vector(0, 1, (1, 2), exclusive=True), log.board(1, "mode", b"1")))
    with msgq.SeqlockVector("quotes", QUOTE, 8, exclusive=True) as quotes:
        quotes[0] = (1, 1)
        with pytest.raises(errors.MultipleWritersError, match="exclusive"):
            Player(path)
    with (
        msgq.Board("state", 4, 64) as board,
        board.declare("mode"),
        pytest.raises(errors.KeyTakenError, match="mode"),
    ):
        Player(path)
    assert play_with_player(path)[0].messages == 2


def test_failed_player_releases_publishers(log: Any) -> None:
    """Failure would mean: what was opened before the error keeps its publisher, and the next player is refused."""
    path = log(fill_all)
    with msgq.MessageQueue("jobs", max_messages=3) as jobs:
        with pytest.raises(errors.QueueMismatchError):
            Player(path)
        jobs.unlink()
    assert play_with_player(path)[0].messages == 50


def test_played_channel_has_rows_for_other_publishers(log: Any) -> None:
    path = log(fill_all)
    with msgq.Channel("lidar", capacity=16) as channel, channel.publisher() as own:
        own.send(b"mine")
        assert play_with_player(path)[0].messages == 50
        own.send(b"mine")


# ---- names ----


def test_player_remap_to_other_kind_is_refused(log: Any) -> None:
    path = log(fill_all)
    new = {"channel/lidar": "channel/old", "queue/jobs": "queue/old", "records/quotes": "records/old"}
    _, player = play_with_player(path, remap=new)
    assert player.endpoints == ("channel/old", "queue/old", "records/old", "records/state", "topic")
    assert msgq.Channel("old", create=False).messages == 10
    assert msgq.MessageQueue("old", 0).current_messages == 10
    for old, name in (("channel/lidar", "lidar"), ("topic", "channel/x"), ("queue/jobs", "records/jobs")):
        with pytest.raises(errors.InvalidValueError, match="kind"):
            Player(path, remap={old: name})
    with pytest.raises(errors.EndpointNameError):
        Player(path, remap={"queue/jobs": "queue/a/b"})


def test_foreign_topic_named_like_a_channel_stays_a_topic(log: Any) -> None:
    def fill(log: Log) -> None:
        log.topic(0, b"1", "channel/ros")
        log.topic(1, b"2")

    _, player = play_with_player(log(fill))
    assert player.endpoints == ("channel.ros", "topic")
    assert not player.skipped


def test_player_plays_messages_larger_than_recorded_slot_size(tmp_path: Path) -> None:
    """Whoever described the channel last had small ones."""
    with Writer(tmp_path / "a.mcap") as writer:
        for name, size in (("front", 4096), ("rear", 64)):
            told = MessageSource("channel", name, options=json.dumps({"slot_bytes": size}))
            number = writer.channel("channel/c", metadata=metadata_keys.build_channel_metadata(1, "", source=told))
            writer.write(number, bytes(size), BEGIN)
    with Player(tmp_path / "a.mcap") as player:
        subscriber = msgq.Channel("c").subscriber()
        done = player.run()
    assert (done.messages, done.unplayed) == (2, {})
    assert [len(subscriber.receive(timeout=0) or b"") for _ in range(2)] == [4096, 64]


def test_player_on_zmq_plays_topics_only(log: Any) -> None:
    with Player(log(fill_all), backend="zmq") as player:
        assert player.endpoints == ("topic",)
        assert set(player.skipped) == {"channel/lidar", "queue/jobs", "records/quotes", "records/state"}
        assert "ZMQ" in player.skipped["queue/jobs"]


def test_player_on_fake_backend_plays_all_kinds(log: Any) -> None:
    done, player = play_with_player(log(fill_all), backend="fake")
    assert (done.messages, player.skipped) == (50, {})
    backend = backends.set_backend(backends.load_backend("fake"))
    try:
        assert msgq.records.SeqlockVector("quotes", passive=True).counts([0, 1, 2, 3]).tolist() == [3, 3, 2, 2]
        assert msgq.Channel("lidar", create=False).messages == 10
        assert msgq.SeqlockVector("quotes", create=False).counts()[:4].tolist() == [3, 3, 2, 2]
    finally:
        backends.set_backend(backend)


def test_player_waits_for_readers_of_kinds_without_history(log: Any) -> None:
    path = log(fill_all)
    with Player(path, rate=float("inf"), wait_for_readers=True) as player:
        task = Task(player.run)
        topic = msgq.sub_sock("topic")
        lidar = msgq.Channel("lidar").subscriber()
        assert task.result().messages == 50
        assert len(msgq.drain_sock_raw(topic)) == 10
        assert lidar.receive(0) == b"scan 0"


def subscribe_to_lidar() -> None:
    """Child: receive a view, which takes the row of a viewer, too, and stay."""
    with msgq.Channel("lidar") as channel, channel.subscriber() as subscriber, channel.publisher() as publisher:
        publisher.send(b"scan")
        with subscriber.receive_view(timeout=0):
            say("up")
            hear()


def test_channel_writer_does_not_count_killed_subscriber_as_reader(prefix: str) -> None:
    writer = open_writer(EndpointSpec("channel/lidar", "channel"), PlaybackTarget("msgq", prefix))
    with Child(subscribe_to_lidar) as child:
        child.hear()
        assert writer.wait_for_readers(0)
        child.kill()
    participants = msgq.stats.channel("lidar").participants
    assert {(role, one.alive) for role, one in participants} >= {("subscriber", False), ("viewer", False)}
    assert not writer.wait_for_readers(0)
    with msgq.Channel("lidar") as living, living.subscriber():
        assert writer.wait_for_readers(0)
    writer.close()


def test_channel_writer_on_fake_backend_waits_in_virtual_time(prefix: str) -> None:
    target = PlaybackTarget("fake", prefix)
    writer = open_writer(EndpointSpec("channel/lidar", "channel"), target)
    began_ns = target.time_ns()
    assert not writer.wait_for_readers(3600)
    assert target.time_ns() - began_ns == 3600 * NS
    backend = backends.set_backend(target.backend_module)
    try:
        with msgq.Channel("lidar") as channel, channel.subscriber():
            assert writer.wait_for_readers(0)
    finally:
        backends.set_backend(backend)
    writer.close()


def connect_to_pictures() -> None:
    """Child: connect to a stream, and stay."""
    client = VisionIpcClient("cam", 3, False)
    say(client.connect(True))
    hear()


def test_frames_writer_does_not_count_killed_client_as_reader(log: Any) -> None:
    with Player(log(frames)) as player:
        writer = player._writers.writers_by_name["visionipc_cam_3/image"]
        assert not writer.wait_for_readers(0)
        with Child(connect_to_pictures) as child:
            assert child.hear()
            assert writer.wait_for_readers(DEADLINE_MS / 1000)
            child.kill()
        assert not writer.wait_for_readers(0)


# ---- contents of logs ----


@pytest.mark.parametrize("options", ["", "[1]", '{"length": "8"}', '{"length": -3}', '{"form": 7}'])
def test_player_skips_endpoints_with_invalid_options(log: Any, options: str) -> None:
    def fill(log: Log) -> None:
        log.topic(0, b"1")
        log.add(
            1,
            "records/v",
            pack_change(RecordChange(0, 1, 5), b"12345678"),
            MessageSource("records", options=options),
            CHANGES,
        )

    done, player = play_with_player(log(fill))
    assert (done.messages, list(player.skipped)) == (1, ["records/v"])
    assert "how to create them" in player.skipped["records/v"]


def test_player_counts_invalid_record_changes(log: Any) -> None:
    def fill(log: Log) -> None:
        log.vector(0, 1, (1, 2))
        log.vector(1, 99, (1, 2))
        source = MessageSource("records", options=json.dumps(VECTOR))
        log.add(2, "records/quotes", b"short", source, make_record_change_schema(QUOTE))
        log.add(
            3,
            "records/quotes",
            pack_change(RecordChange(0, 1, 5), b"too long" * 9),
            source,
            make_record_change_schema(QUOTE),
        )
        log.vector(4, 2, (3, 4))

    done, _ = play_with_player(log(fill))
    assert (done.messages, sum(done.unplayed.values())) == (2, 3)


def test_player_skips_unknown_kinds(log: Any) -> None:
    def fill(log: Log) -> None:
        log.topic(0, b"1")
        log.add(1, "thing/x", b"1", MessageSource("thing"), None)

    _, player = play_with_player(log(fill))
    assert list(player.skipped) == ["thing/x"]


# ---- frames ----


def frames(log: Log) -> None:
    for i in range(3):
        log.picture(i, bytes(range(i, i + 12)), frame_id=40 + i)


def test_player_restores_pictures_to_frames(log: Any) -> None:
    with Player(log(frames), start_paused=True) as player, VisionIpcClient("cam", 3, False) as client:
        assert player.endpoints == ("visionipc_cam_3/image",)
        assert client.connect(True)
        task = Task(player.run)
        for i in range(3):
            player.step()
            with client.frame(DEADLINE_MS) as frame:
                assert (frame.format, frame.width, frame.height) == (FrameFormat.RGB24, 2, 2)
                assert bytes(frame.data) == bytes(range(i, i + 12))
                assert (frame.frame_id, frame.timestamp_sof) == (40 + i, 5 * NS + 6)
        assert task.result().messages == 3


@pytest.mark.parametrize(
    ("encoding", "size", "format"),
    [("nv12", 6, FrameFormat.NV12), ("mono8", 4, FrameFormat.GRAY8), ("32FC2", 32, FrameFormat.FLOAT32)],
)
def test_player_restores_all_picture_formats(log: Any, encoding: str, size: int, format: FrameFormat) -> None:
    data = bytes(range(size))
    step = {"32FC2": 16}.get(encoding, 2)
    with (
        Player(log(lambda log: log.picture(0, data, encoding=encoding, step=step)), start_paused=True) as player,
        VisionIpcClient("cam", 3, False) as client,
    ):
        assert client.connect(True)
        task = Task(player.run)
        player.step()
        with client.frame(DEADLINE_MS) as frame:
            assert (frame.format, bytes(frame.data)) == (format, data)
        task.result()


def test_player_restores_pictures_with_changing_size(log: Any) -> None:
    def fill(log: Log) -> None:
        log.picture(0, bytes(12))
        log.picture(1, bytes(24), height=4)
        log.topic(2, b"at the end, which is the server's")

    with Player(log(fill), start_paused=True) as player, VisionIpcClient("cam", 3, False) as client:
        assert client.connect(True)
        task = Task(player.run)
        for height in (2, 4):
            player.step()
            with client.frame(DEADLINE_MS) as frame:
                assert (frame.height, len(bytes(frame.data))) == (height, 6 * height)
        player.resume()
        task.result()


def test_player_skips_unsupported_pictures_with_reason(log: Any) -> None:
    def fill(log: Log) -> None:
        log.topic(0, b"1")
        log.add(1, "visionipc_cam_1/compressed", b"jpeg", MessageSource("frames"), None)
        log.picture(2, bytes(12), encoding="yuv422")

    _, player = play_with_player(log(fill))
    assert set(player.skipped) == {"visionipc_cam_1/compressed", "visionipc_cam_3/image"}
    assert "yuv422" in player.skipped["visionipc_cam_3/image"]


def test_player_with_existing_frame_server_is_refused(log: Any) -> None:
    from visionipc import VisionIpcServer

    with VisionIpcServer("cam") as server:
        server.start_listener()
        with pytest.raises(errors.MultiplePublishersError):
            Player(log(frames))


def test_player_remap_renames_frames(log: Any) -> None:
    with Player(log(frames), remap={"visionipc_cam_3/image": "visionipc_old_0/image"}) as player:
        assert VisionIpcClient.available_streams("old", False) == {0}
        assert player.endpoints == ("visionipc_old_0/image",)
    with pytest.raises(errors.EndpointNameError, match="frames"):
        Player(log(frames), remap={"visionipc_cam_3/image": "picture"})
