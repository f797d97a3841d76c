"""Snapshots: who takes part, what was sent, and that looking disturbs nobody."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
from pathlib import Path
from random import Random

import pytest

import msgq
from msgq import stats
from msgq.common import settings
from msgq.errors import SegmentError
from msgq.impl.base import clock
from msgq.impl.base.process import identity, process_name
from msgq.impl.ring.core import TopicObserver
from msgq.kinds import find_announced_kind
from tests.command import run
from tests.support import SHM, Child, Task, id_of_ended_thread
from tests.unit import children
from tests.unit.ringfile import (
    READERS,
    STRANGER_UID,
    RingFile,
    Words,
    announced_chunk_bytes,
    lap_end,
    message_bytes_in_ring,
    ring_path,
    side_path,
)


def test_topic_stats_have_publisher_and_counts(endpoint: str) -> None:
    before = clock.time_ns()
    with msgq.pub_sock(endpoint, 4096) as pub:
        pub.send_many([b"123", b"45"])
        topic = stats.topic(endpoint)
    assert topic.endpoint == endpoint
    assert topic.path == str(ring_path(endpoint))
    assert topic.data_bytes == 4096
    assert (topic.publisher_kind, topic.messages, topic.bytes) == ("ours", 2, 5)
    assert topic.write_position == (0, message_bytes_in_ring(3) + message_bytes_in_ring(2))
    assert topic.subscribers == ()
    assert topic.stock_subscribers == 0
    assert topic.created_ns is not None
    assert before <= topic.created_ns <= clock.time_ns()
    assert topic.publisher is not None
    pid, start_time, _ = identity()
    who = topic.publisher
    assert (who.pid, who.start_time, who.alive) == (pid, start_time, True)
    assert who.name == process_name()


def test_topic_stats_list_subscribers_with_counts(endpoint: str) -> None:
    newest = msgq.sub_sock(endpoint, conflate=True)
    with newest, msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as first:
        pub.send_many([b"1", b"2", b"3"])
        first.receive()
        newest.receive()
        infos = stats.topic(endpoint).subscribers
    figures = [(info.received, info.lost, info.resets, info.lag_bytes) for info in infos]
    assert figures == [(1, 2, 0, 0), (1, 0, 0, 2 * message_bytes_in_ring(1))]
    assert {info.participant.pid for info in infos} == {os.getpid()}


def test_topic_stats_show_thread_that_connected(endpoint: str) -> None:
    def connect() -> tuple[msgq.SubSocket, msgq.PubSocket, int]:
        return msgq.sub_sock(endpoint), msgq.pub_sock(endpoint), threading.get_native_id()

    sub, pub, thread_id = Task(connect).result()
    with sub, pub:
        topic = stats.topic(endpoint)
        assert topic.subscribers[0].participant.thread_id == thread_id
        assert topic.publisher is not None
        assert topic.publisher.thread_id == thread_id


def test_lag_is_unknown_after_more_than_one_lap(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, 1024) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send(bytes(8))
        sub.receive()
        lags = []
        for _ in range(200):
            pub.send(bytes(8))
            lags.append(stats.topic(endpoint).subscribers[0].lag_bytes)
    known = [lag for lag in lags if lag is not None]
    assert known == sorted(known)
    assert known[-1] >= lap_end(1024) - announced_chunk_bytes(1024) - message_bytes_in_ring(8)
    assert lags[-1] is None


def test_closed_publisher_keeps_only_counts_in_stats(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub:
        pub.send(b"123")
    topic = stats.topic(endpoint)
    assert (topic.publisher, topic.publisher_kind, topic.messages, topic.bytes) == (None, "none", 1, 3)


def test_topic_counts_continue_with_next_publisher(endpoint: str) -> None:
    for _ in range(3):
        with msgq.pub_sock(endpoint) as pub:
            pub.send(b"12")
            mine = pub.stats()
    assert (mine.messages, mine.bytes) == (3, 6)
    assert (stats.topic(endpoint).messages, stats.topic(endpoint).bytes) == (3, 6)


def test_topic_stats_show_dead_participants_until_replacement(endpoint: str) -> None:
    with Child(children.hold_sockets, endpoint, ["pub", "sub"]) as child:
        pid, _ = child.hear()
        topic = stats.topic(endpoint)
        assert topic.publisher is not None
        assert (topic.publisher.pid, topic.publisher.alive) == (pid, True)
        child.kill()
        topic = stats.topic(endpoint)
        assert topic.publisher is not None
        assert (topic.publisher.pid, topic.publisher.alive) == (pid, False)
        assert [info.participant.alive for info in topic.subscribers] == [False]


def test_topic_stats_do_not_change_files(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send(b"x")
        files = ring_path(endpoint), side_path(endpoint)
        before = [path.read_bytes() for path in files]
        for _ in range(20):
            stats.topics()
            stats.topic(endpoint)
        assert [path.read_bytes() for path in files] == before
        assert sub.receive(True) == b"x"


def test_topic_stats_create_no_file(token: str) -> None:
    with pytest.raises(SegmentError, match="topic not found") as caught:
        stats.topic(token)
    assert caught.value.path == str(ring_path(token))
    assert not ring_path(token).exists()


class TestLostBeforeItLooks:
    """A subscriber that was lapped has lost messages, whether it has noticed or not."""

    def test_topic_stats_show_stopped_subscriber(self, prefix: str) -> None:
        with msgq.pub_sock("e", 1 << 16) as pub, Child(children.receive_on_a_word, "e") as child:
            assert child.hear() == "subscribed"
            pub.send_many([bytes(100)] * 300)
            child.say("go")
            assert child.hear() == [300, 0]
            child.kill(signal.SIGSTOP)
            pub.send_many([bytes(100)] * 160_500)
            (info,) = stats.topic("e").subscribers
            assert (info.received, info.lost, info.lag_bytes) == (300, 160_500, None)
            assert counted("e") == 160_500
            (row,) = map(json.loads, run("top", "--once", "--json", "--interval", "0.01").stdout.splitlines())
            assert row["lost"] == 160_500
            child.kill(signal.SIGCONT)
            child.say("go")
            assert child.hear() == [0, 160_500]
            pub.send(b"after it")
            child.say("go")
            assert child.hear() == [1, 160_500]
            assert stats.topic("e").subscribers[0].lost == counted("e") == 160_500

    def test_losses_in_topic_stats_equal_later_count_of_subscriber(self, endpoint: str) -> None:
        """Whatever the publishers do in between; and the figure never goes back."""
        draw, shown, laps = Random(7), 0, 0
        msgq.pub_sock(endpoint, 1024).close()
        with msgq.sub_sock(endpoint, timeout=0) as sub:
            for _ in range(300):
                with msgq.pub_sock(endpoint) as pub:
                    pub.send_many([bytes(draw.randrange(1, 100))] * draw.randrange(25))
                    before, found = shown, counted(endpoint)
                assert found is not None
                shown = found
                assert counted(endpoint) == shown >= before, "the same once the publisher is gone"
                resets = sub.stats().resets
                for _ in range(draw.randrange(4)):
                    sub.receive()
                if sub.stats().resets > resets:
                    laps += 1
                    assert sub.lost == shown
                assert sub.lost is not None
                assert counted(endpoint) == shown >= sub.lost
        assert laps > 20

    def test_losses_of_conflating_subscriber_exclude_newest_message(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 1024) as pub, msgq.sub_sock(endpoint, conflate=True) as sub:
            pub.send_many([bytes(100)] * 50)
            assert counted(endpoint) == 50
            sub.receive()
            assert counted(endpoint) == sub.lost == 49

    def test_losses_of_dead_subscriber_equal_its_last_own_count(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 1024) as pub, Child(children.receive_on_a_word, endpoint) as child:
            assert child.hear() == "subscribed"
            pub.send_many([bytes(100)] * 50)
            child.say("go")
            assert child.hear() == [0, 50]
            pub.send_many([bytes(100)] * 50)
            assert counted(endpoint) == 100
            child.kill()
            assert counted(endpoint) == stats.topic(endpoint).subscribers[0].lost == 50

    def test_losses_are_unknown_after_lap_by_stock_publisher(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 1024) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
            pub.send(b"x")
            ring.start_stranger()
            ring.publish(bytes(100))
            assert counted(endpoint) == 0, "all is there yet"
            for _ in range(20):
                ring.publish(bytes(100))
            assert counted(endpoint) is stats.topic(endpoint).subscribers[0].lost is None
            with msgq.pub_sock(endpoint) as successor:
                successor.send_many([bytes(100)] * 50)
                assert counted(endpoint) is None, "the count began anew"
            sub.receive_many()
            assert sub.lost is None

    def test_losses_are_unknown_for_subscriber_without_start_position(self, endpoint: str) -> None:
        """As those of a library that did not know of these words, which left them 0, or another one's."""
        with msgq.pub_sock(endpoint, 1024) as pub, msgq.sub_sock(endpoint) as sub, Words(side_path(endpoint)) as side:
            for counted_word in (0, 1 << 63 | 1 << 32):
                side[READERS + 112] = counted_word
                assert counted(endpoint) == sub.lost
                pub.send_many([bytes(100)] * 50)
                assert counted(endpoint) is None
                sub.receive_many()
                assert counted(endpoint) == sub.lost


def counted(endpoint: str) -> int | None:
    return TopicObserver(endpoint, settings.get_prefix()).counts().lost


class TestTopics:
    def test_topic_stats_of_prefix_are_sorted_by_name(self, prefix: str) -> None:
        for name in ("b", "a", "c"):
            msgq.pub_sock(name, 4096).close()
        assert [topic.endpoint for topic in stats.topics()] == ["a", "b", "c"]
        assert [topic.endpoint for topic in stats.topics(prefix)] == ["a", "b", "c"]

    def test_topic_list_without_prefix_omits_other_files(self, endpoint: str, prefix: str) -> None:
        os.environ.pop("OPENPILOT_PREFIX")
        msgq.pub_sock(endpoint, 4096).close()
        assert endpoint in [topic.endpoint for topic in stats.topics("")]
        assert endpoint in [topic.endpoint for topic in stats.topics()]

    def test_unknown_prefix_has_no_topics(self, token: str) -> None:
        assert stats.topics(f"{token}-none") == []

    def test_topic_name_is_not_listed_as_prefix(self, endpoint: str) -> None:
        msgq.pub_sock(endpoint, 4096).close()
        assert stats.topics(endpoint) == []

    @pytest.mark.parametrize("prefix_name", ["..", "a/b", "../tmp"])
    def test_topic_list_refuses_prefix_outside_shared_memory(self, prefix_name: str) -> None:
        with pytest.raises(ValueError, match="prefix"):
            stats.topics(prefix_name)

    def test_topic_list_skips_files_of_other_formats(self, prefix: str) -> None:
        msgq.pub_sock("good", 4096).close()
        rings = SHM / f"msgq_{prefix}"
        (rings / "tiny").write_bytes(b"x")
        (rings / "directory").mkdir()
        (rings / "link").symlink_to("good")
        os.mkfifo(rings / "fifo")
        (rings / os.fsdecode(b"\xff")).write_bytes(bytes(5000))
        assert [topic.endpoint for topic in stats.topics()] == ["good"]


class TestStock:
    """Who is not in the side segment is a stock program."""

    def test_publisher_without_side_segment_row_is_unknown_in_topic_stats(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint) as pub, RingFile(endpoint) as ring:
            ring.write_uid = STRANGER_UID
            topic = stats.topic(endpoint)
            pub.close()
        assert (topic.publisher, topic.publisher_kind) == (None, "stock")

    def test_topic_without_side_segment_has_stats(self, endpoint: str) -> None:
        with RingFile.make(endpoint, 4096) as ring:
            ring.write_uid = STRANGER_UID
            ring.publish(b"x")
        topic = stats.topic(endpoint)
        assert topic.publisher_kind == "stock"
        assert (topic.messages, topic.bytes, topic.schema, topic.created_ns) == (None, None, None, None)
        assert topic.write_position == (0, 16)
        assert not side_path(endpoint).exists()

    def test_reader_slot_of_live_thread_is_counted(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint), RingFile(endpoint) as ring:
            ring[0], ring[264] = 1, STRANGER_UID | threading.get_native_id()
            assert stats.topic(endpoint).stock_subscribers == 1
            ring[264] = STRANGER_UID | id_of_ended_thread()
            assert stats.topic(endpoint).stock_subscribers == 0


def test_stats_snapshots_are_frozen(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        for value in (pub.stats(), sub.stats(), stats.topic(endpoint)):
            with pytest.raises(dataclasses.FrozenInstanceError):
                value.endpoint = "other"  # type: ignore[misc]


class TestEndpoints:
    """Of every kind, in one pass."""

    def test_endpoint_stats_have_class_of_their_kind(self, prefix: str) -> None:
        with (
            msgq.pub_sock("visionipc_cam_1", 4096) as pub,
            msgq.sub_sock("visionipc_cam_1"),
            msgq.Channel("scans") as channel,
            channel.publisher() as publisher,
            msgq.MessageQueue("jobs") as queue,
            msgq.SeqlockVector("poses", "<f8", 10) as vector,
        ):
            pub.send_many([b"1", b"2"])
            publisher.send(b"123")
            queue.send(b"x")
            vector[[0, 1, 2]] = 1
            found = stats.endpoints()
            ours = [found[0].stats, found[1].stats, found[2].stats, found[3].stats]
            assert ours == [stats.topic("visionipc_cam_1"), stats.channel("scans"), ours[2], ours[3]]
            assert ours[2:] == [
                dataclasses.replace(stats.record("poses"), last_age_ns=ours[2].last_age_ns),  # type: ignore[union-attr]
                dataclasses.replace(stats.queue("jobs"), oldest_age_ns=ours[3].oldest_age_ns),  # type: ignore[union-attr]
            ]
        figures = [(one.kind, one.endpoint, one.messages, one.lost) for one in found]
        assert figures == [
            ("frames", "visionipc_cam_1", 2, 0),
            ("channel", "channel/scans", 1, 0),
            ("records", "records/poses", 3, None),
            ("queue", "queue/jobs", 1, 0),
        ]
        roles = [tuple(role for role, _ in one.participants) for one in found]
        assert roles == [("subscriber", "publisher"), ("publisher",), ("writer",), ("sender",)]
        assert {who.pid for one in found for _, who in one.participants} == {os.getpid()}
        schemas = [None if one.schema is None else one.schema.encoding for one in found]
        assert schemas == [None, None, "struct", None]
        for one in found:
            assert Path(one.path).name.endswith(one.endpoint.rpartition("/")[2])
            assert one.created_ns == one.stats.created_ns
            assert one.bytes > 0

    def test_endpoint_stats_show_allocated_memory(self, prefix: str) -> None:
        with msgq.pub_sock("car", 4096), msgq.Channel("scans") as channel, channel.publisher():
            sizes = {one.endpoint: one.bytes for one in stats.endpoints()}
            files = [path for kind in ("msgqchan_", "msgqpool_") for path in (SHM / f"{kind}{prefix}").glob("*")]
            assert sizes == {"car": 4096, "channel/scans": sum(path.stat().st_size for path in files)}

    def test_sum_of_losses_is_unknown_if_one_loss_is_unknown(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with msgq.pub_sock(endpoint, 1024) as pub, msgq.sub_sock(endpoint), msgq.sub_sock(endpoint):
            pub.send_many([bytes(8)] * 200)
            topic = stats.topic(endpoint)
            lost = [one.lost for one in topic.subscribers]
            assert topic.lost == stats.endpoint(endpoint).lost == sum(one or 0 for one in lost) > 0
            unknown = dataclasses.replace(topic.subscribers[0], lost=None)
            assert dataclasses.replace(topic, subscribers=(unknown, topic.subscribers[1])).lost is None

    def test_queue_handle_is_listed_once_per_role(self, prefix: str) -> None:
        def roles() -> list[str]:
            return [role for role, _ in stats.endpoint("queue/jobs").participants]

        with msgq.MessageQueue("jobs") as queue:
            assert roles() == ["handle"]
            queue.send(b"x")
            assert roles() == ["sender"]
            assert queue.receive(0) is not None
            assert roles() == ["sender", "receiver"]

    def test_endpoint_stats_are_found_by_name(self, prefix: str) -> None:
        msgq.Channel("scans").close()
        assert stats.endpoint("channel/scans") == stats.endpoint(b"channel/scans") == stats.endpoints()[0]
        with pytest.raises(SegmentError, match="not found"):
            stats.endpoint("queue/scans")
        with pytest.raises(ValueError, match="is not a valid file name"):
            stats.endpoint("pipe/scans")
        assert stats.endpoints(f"{prefix}other") == []

    def test_endpoint_list_has_kind_prefixes_and_inodes(self, prefix: str) -> None:
        msgq.Channel("same").close()
        msgq.MessageQueue("same").close()
        msgq.pub_sock("same", 4096).close()
        (SHM / f"msgqjobs_{prefix}" / "damaged").write_bytes(b"x")
        found = stats.endpoint_inodes()
        assert list(found) == ["same", "channel/same", "queue/damaged", "queue/same"]
        assert [one.endpoint for one in stats.endpoints()] == ["same", "channel/same", "queue/same"]
        assert found["queue/same"] == Path(stats.queue("same").path).stat().st_ino == stats.queue_inodes()["same"]


def test_frame_endpoints_have_stock_names() -> None:
    for name, kind in {
        "visionipc_camerad_0": "frames",
        "visionipc_a_b_12": "frames",
        "visionipc_camerad": "topic",
        "visionipc__1": "topic",
        "channel/visionipc_camerad_0": "channel",
        "camera": "topic",
        "records/x": "records",
    }.items():
        assert find_announced_kind(name).name == kind, name
