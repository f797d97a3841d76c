"""Channels: many publishers, many subscribers, one order. What a subscriber misses is in test_channel_losses.py."""

from __future__ import annotations

import array
import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from msgq.channel import Channel
from msgq.common.schema import Schema
from msgq.common.stats.channel import PublisherInfo
from msgq.errors import (
    ChannelMismatchError,
    DeadlockError,
    EndpointClosedError,
    EndpointNameError,
    InvalidValueError,
    MessageSizeError,
    MessageTooLargeError,
    SchemaMismatchError,
    SegmentError,
    StateError,
    TooManyPublishersError,
    TooManySubscribersError,
)
from msgq.impl.base.files import read_file_status
from tests.contract.conftest import Channels
from tests.support import DEADLINE, DEADLINE_MS, SHM, Task, in_fork, run_child

MESSAGES = [b"", b"one", b"\0" * 100, bytes(range(256)) * 30]


class TestOrder:
    def test_subscribers_receive_all_messages_in_the_same_order(self, channels: Channels) -> None:
        channel = channels.open()
        subs = [channel.subscriber() for _ in range(3)]
        pubs = [channel.publisher() for _ in range(3)]
        sent = [b"%d of %d" % (number, which) for number in range(5) for which in range(3)]
        for message, pub in zip(sent, itertools.cycle(pubs), strict=False):
            pub.send(message)
        assert [sub.receive_many() for sub in subs] == [sent] * 3
        assert channel.messages == 15

    def test_channel_positions_begin_at_the_capacity(self, channels: Channels) -> None:
        pub, sub = channels.pair(capacity=16)
        assert [pub.send(b"") for _ in range(3)] == [16, 17, 18]
        assert sub.position == 16
        sub.receive(0)
        assert (sub.position, sub.last.position) == (17, 16)

    @pytest.mark.parametrize("message", MESSAGES)
    def test_messages_of_any_size_arrive_whole(self, channels: Channels, message: bytes) -> None:
        pub, sub = channels.pair()
        pub.send(message)
        assert sub.receive(0) == message

    @pytest.mark.parametrize(
        "data",
        [
            bytearray(b"12345678"),
            memoryview(b"12345678"),
            array.array("Q", [1]),
            np.arange(4, dtype="u2"),
            np.uint64(3),
        ],
        ids=lambda data: type(data).__name__,
    )
    def test_send_accepts_any_contiguous_buffer(self, channels: Channels, data: Any) -> None:
        pub, sub = channels.pair()
        pub.send(data)
        assert sub.receive(0) == memoryview(data).cast("B").tobytes() if memoryview(data).ndim else bytes(data)

    @pytest.mark.parametrize("data", ["text", 5, None, np.array([None])], ids=["str", "int", "None", "objects"])
    def test_send_refuses_objects_that_are_not_buffers(self, channels: Channels, data: Any) -> None:
        pub, sub = channels.pair()
        with pytest.raises(TypeError):
            pub.send(data)
        assert (pub.sent, sub.receive(0)) == (0, None)

    def test_send_many_returns_the_number_sent(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        assert pub.send_many(message for message in MESSAGES) == 4
        assert sub.receive_many() == MESSAGES
        assert (pub.sent, pub.bytes) == (4, sum(map(len, MESSAGES)))

    def test_channel_message_has_publish_time_and_publisher(self, channels: Channels) -> None:
        sub = channels.open().subscriber()
        pub = channels.open(node="camera").publisher()
        before = channels.time_ns()
        pub.send(b"message", origin_time=123)
        assert sub.receive(0) == b"message"
        assert before <= sub.last.publish_time <= channels.time_ns()
        assert sub.last.origin_time == 123
        assert isinstance(sub.last.publisher, PublisherInfo)
        assert sub.last.publisher.name == "camera"

    def test_channel_message_without_stamps_has_no_publish_time(self, channels: Channels) -> None:
        pub, sub = channels.pair(stamps=False)
        pub.send(b"message")
        sub.receive(0)
        assert sub.last.publish_time == 0

    def test_subscriber_last_is_none_before_the_first_message(self, channels: Channels) -> None:
        assert channels.pair()[1].last is None

    def test_messages_of_closed_publisher_stay_available(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"message")
        pub.close()
        assert sub.receive(0) == b"message"

    def test_messages_of_eight_closed_publishers_stay_available(self, channels: Channels) -> None:
        """The pools of eight that left stay; a newcomer removes the oldest of more."""
        channel = channels.open()
        sub = channel.subscriber()
        for number in range(12):
            with channel.publisher() as pub:
                pub.send(b"%d" % number)
        assert sub.receive_many() == [b"%d" % number for number in range(4, 12)]
        assert sub.lost == 4


class TestJoining:
    def test_subscriber_receives_only_messages_sent_after_connection(self, channels: Channels) -> None:
        channel = channels.open()
        pub = channel.publisher()
        pub.send(b"before")
        sub = channel.subscriber()
        pub.send(b"after")
        assert sub.receive_many() == [b"after"]
        assert sub.lost == 0

    @pytest.mark.parametrize(("history", "got"), [(1, 1), (3, 3), (100, 16)])
    def test_subscriber_with_history_receives_earlier_messages(
        self, channels: Channels, history: int, got: int
    ) -> None:
        channel = channels.open(capacity=16)
        pub = channel.publisher()
        pub.send_many(b"%d" % number for number in range(40))
        sub = channel.subscriber(history=history)
        assert sub.receive_many() == [b"%d" % number for number in range(40 - got, 40)]
        assert sub.lost == 0

    def test_subscribe_with_evicted_history_counts_no_loss(self, channels: Channels) -> None:
        channel = channels.open(capacity=16)
        pub = channel.publisher(slots=2)
        pub.send_many(b"%d" % number for number in range(10))
        sub = channel.subscriber(history=10)
        assert sub.receive_many() == [b"8", b"9"]
        assert sub.lost == 0

    def test_subscriber_may_start_before_its_publisher(self, channels: Channels) -> None:
        sub = channels.open().subscriber()
        assert (sub.receive(0), sub.position) == (None, 0)
        pub = channels.open(capacity=16).publisher()
        assert pub.send(b"first") == 16
        assert sub.receive(0) == b"first"
        assert channels.open().capacity == 16

    def test_subscriber_with_own_false_excludes_own_messages(self, channels: Channels) -> None:
        mine, other = channels.open(), channels.open()
        sub, all_of_it = mine.subscriber(own=False), mine.subscriber()
        pubs = [mine.publisher(slot_bytes=8), other.publisher()]
        for pub in pubs:
            pub.send(b"1")
            pub.send(b"2" * 100)  # also those of a pool that has grown
        assert sub.receive_many() == [b"1", b"2" * 100]
        assert sub.lost == 0
        assert len(all_of_it.receive_many()) == 4

    def test_publishers_beyond_the_configured_number_are_refused(self, channels: Channels) -> None:
        channel = channels.open(publishers=2)
        first, _second = channel.publisher(), channel.publisher()
        with pytest.raises(TooManyPublishersError, match=r"\(2\)"):
            channel.publisher()
        first.close()
        channel.publisher(slot_bytes=8).send(bytes(100))  # growing takes no other one's place

    def test_publishers_beyond_63_are_refused(self, channels: Channels) -> None:
        channel = channels.open(capacity=2)
        pubs = [channel.publisher(slots=1) for _ in range(63)]
        with pytest.raises(TooManyPublishersError, match="63"):
            channel.publisher()
        with pytest.raises(TooManyPublishersError, match="63"):
            pubs[0].send(bytes(5000))  # no row to grow into
        pubs.pop()
        pubs[0].send(bytes(5000))

    def test_subscribers_beyond_the_configured_number_are_refused(self, channels: Channels) -> None:
        channel = channels.open(subscribers=2)
        first, _second = channel.subscriber(), channel.subscriber()
        with pytest.raises(TooManySubscribersError, match=r"\(2\)"):
            channel.subscriber()
        channels.open(passive=True).subscriber()
        first.close()
        channel.subscriber()

    def test_subscribers_are_unlimited_by_default(self, channels: Channels) -> None:
        channel = channels.open()
        subs = [channel.subscriber() for _ in range(100)]
        channel.publisher().send(b"message")
        assert all(sub.receive(0) == b"message" for sub in subs)


class TestReceiving:
    def test_receive_without_message_returns_none(self, channels: Channels) -> None:
        _, sub = channels.pair()
        assert sub.receive(0) is None
        assert sub.receive_into(bytearray(3), 0) is None
        assert sub.receive_many() == []
        assert sub.receive_array("u1").tolist() == []

    def test_receive_waits_for_its_timeout(self, channels: Channels) -> None:
        _, sub = channels.pair()
        before = channels.monotonic_ns()
        assert sub.receive(0.05) is None
        assert channels.monotonic_ns() - before >= 50_000_000

    def test_receive_array_waits_for_its_timeout_after_messages_of_its_own_process(self, channels: Channels) -> None:
        channel = channels.open()
        sub, pub = channel.subscriber(own=False), channel.publisher()
        pub.send(b"mine")
        before = channels.monotonic_ns()
        assert sub.receive_array("S4", timeout=0.05).tolist() == []
        assert channels.monotonic_ns() - before >= 50_000_000

    @pytest.mark.parametrize("timeout", [-1, -0.001, 1e10, float("nan")])
    def test_receive_with_invalid_timeout_is_refused(self, channels: Channels, timeout: float) -> None:
        _, sub = channels.pair()
        with pytest.raises(InvalidValueError, match="timeout is"):
            sub.receive(timeout)

    def test_receive_into_fills_a_buffer(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send_many([b"four", b"too long", b""])
        buffer = bytearray(6)
        assert sub.receive_into(buffer, 0) == 4
        assert bytes(buffer) == b"four\0\0"
        with pytest.raises(MessageTooLargeError, match="8 bytes, but the buffer has 6"):
            sub.receive_into(buffer, 0)
        assert sub.receive(0) == b"too long"
        assert sub.receive_into(np.zeros(1), 0) == 0
        with pytest.raises((TypeError, BufferError)):
            sub.receive_into(b"read-only", 0)

    @pytest.mark.parametrize(("limit", "got"), [(None, 5), (0, 0), (2, 2), (9, 5)])
    def test_receive_many_takes_at_most_the_limit(self, channels: Channels, limit: int | None, got: int) -> None:
        pub, sub = channels.pair()
        pub.send_many([b"message"] * 5)
        assert len(sub.receive_many(limit)) == got
        assert sub.received == got

    def test_receive_array_returns_messages_of_one_size(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send_many(np.arange(5, dtype="u4"))
        pub.send(b"longer than 4")
        assert sub.receive_array("u4", 2).tolist() == [0, 1]
        assert sub.receive_array("u4").tolist() == [2, 3, 4]
        with pytest.raises(MessageSizeError, match="13 bytes, but the dtype has 4"):
            sub.receive_array("u4")
        assert sub.receive(0) == b"longer than 4"

    def test_receive_many_with_invalid_limit_or_dtype_is_refused(self, channels: Channels) -> None:
        _, sub = channels.pair()
        with pytest.raises(InvalidValueError):
            sub.receive_many(-1)
        for dtype, limit in (("u1", -1), ("O", None), ("V0", None)):
            with pytest.raises(InvalidValueError):
                sub.receive_array(dtype, limit)

    def test_iteration_returns_messages(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send_many([b"1", b"2"])
        assert list(itertools.islice(sub, 2)) == [b"1", b"2"]

    def test_poller_accepts_channels_and_topics(self, channels: Channels, endpoint: str) -> None:
        from msgq.impl import backend

        sockets = backend.load_backend(channels.name)
        pub, sub = channels.pair()
        other = channels.open("2").subscriber()
        topic, reader = sockets.PubSocket(), sockets.SubSocket()
        poller = channels.Poller()
        with topic, reader:
            topic.connect(sockets.Context(), endpoint)
            reader.connect(sockets.Context(), endpoint)
            for each in (sub, reader, other):
                poller.registerSocket(each)
            assert poller.poll(10) == []
            pub.send(b"message")
            assert poller.poll(DEADLINE_MS) == [sub]
            topic.send(b"message")
            assert poller.poll(DEADLINE_MS) == [sub, reader]
            sub.receive(0)
            reader.receive()
            assert poller.poll(0) == []

    def test_own_messages_do_not_wake_subscriber_that_excludes_them(self, channels: Channels) -> None:
        channel = channels.open()
        sub, pub = channel.subscriber(own=False), channel.publisher()
        poller = channels.Poller()
        poller.registerSocket(sub)
        pub.send(b"message")
        assert poller.poll(10) == []
        assert sub.receive(0.01) is None

    def test_areceive_and_async_for_return_messages(self, channels: Channels) -> None:
        pub, sub = channels.pair()

        async def run() -> list[bytes]:
            asyncio.get_running_loop().call_later(0.01, pub.send, b"2")
            pub.send(b"1")
            got = [await sub.arecv(), await sub.arecv()]
            asyncio.get_running_loop().call_later(0.01, pub.send, b"3")
            return [*got, await anext(aiter(sub))]

        assert asyncio.run(run()) == [b"1", b"2", b"3"]

    @pytest.mark.needs("threads")
    def test_sleeping_subscriber_is_woken(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        waiting = Task(sub.receive)
        waiting.wait_asleep()
        pub.send(b"message")
        assert waiting.result() == b"message"

    @pytest.mark.needs("threads")
    def test_publisher_waiting_for_a_slot_is_woken(self, channels: Channels) -> None:
        pub, sub = channels.pair(publisher={"slots": 1})
        pub.send(b"first")
        view = sub.receive_view(0)
        waiting = Task(lambda: pub.send(b"second", timeout=None))
        waiting.wait_asleep()
        view.release()
        waiting.result()
        assert sub.receive(0) == b"second"

    def test_endless_wait_in_virtual_time_raises(self, channels: Channels) -> None:
        if channels.name != "fake":
            pytest.skip("the real one waits")
        pub, sub = channels.pair(publisher={"slots": 1})
        with pytest.raises(DeadlockError, match=channels.token):
            sub.receive()
        pub.send(b"message")
        view = sub.receive_view()
        with pytest.raises(DeadlockError, match="a slot"):
            pub.send(b"more", timeout=None)
        view.release()


class TestOpening:
    def test_first_publisher_sets_missing_channel_configuration(self, channels: Channels) -> None:
        channel = channels.open()
        assert (channel.capacity, channel.stamps, channel.messages) == (None, None, 0)
        channel.publisher()
        assert (channel.capacity, channel.stamps) == (64, True)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"capacity": 16}, {"capacity": 32}),
            ({"publishers": 1}, {"publishers": 2}),
            ({"subscribers": 1}, {"subscribers": 2}),
            ({"stamps": False}, {"stamps": True}),
        ],
        ids=lambda said: next(iter(said)),
    )
    def test_channel_mismatch_error_names_stored_and_given_values(
        self, channels: Channels, one: dict[str, Any], other: dict[str, Any]
    ) -> None:
        channels.open(**one)
        (what, here), (_, there) = *one.items(), *other.items()
        with pytest.raises(ChannelMismatchError, match=f"has {what}={here}, but {what}={there} was requested"):
            channels.open(**other)
        channels.open(**one)
        channels.open()

    def test_channel_mismatch_error_names_default_values(self, channels: Channels) -> None:
        channels.open().publisher()
        with pytest.raises(ChannelMismatchError, match="has subscribers=any number, but subscribers=1"):
            channels.open(subscribers=1)
        with pytest.raises(ChannelMismatchError, match="has capacity=64, but capacity=16"):
            channels.open(capacity=16)

    def test_create_argument_decides_whether_the_channel_may_exist(self, channels: Channels) -> None:
        with pytest.raises(SegmentError, match="channel not found"):
            channels.open(create=False)
        with pytest.raises(SegmentError, match="channel not found"):
            channels.open(passive=True)
        channels.open(create=True)
        with pytest.raises(SegmentError, match="exists"):
            channels.open(create=True)
        channels.open(create=False)

    @pytest.mark.parametrize("name", ["", "a/b", "a:b", "x" * 230, "nul\0"])
    def test_channel_with_invalid_name_is_refused(self, channels: Channels, name: str) -> None:
        with pytest.raises(EndpointNameError):
            Channel(name)

    @pytest.mark.parametrize(
        "options",
        [
            {"capacity": 3},
            {"capacity": 1},
            {"capacity": 16384},
            {"publishers": 0},
            {"publishers": 64},
            {"subscribers": 65},
        ],
        ids=str,
    )
    def test_channel_with_invalid_configuration_is_refused(self, channels: Channels, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidValueError):
            channels.open(**options)

    @pytest.mark.parametrize(
        "options",
        [{"history": -1}, {"max_views": -1}, {"on_lapped": "never"}, {"on_lost": "cry"}, {"spin_us": -1}],
        ids=str,
    )
    def test_subscriber_with_invalid_options_is_refused(self, channels: Channels, options: dict[str, Any]) -> None:
        channel = channels.open(subscribers=1)
        with pytest.raises(InvalidValueError):
            channel.subscriber(**options)
        channel.subscriber()

    @pytest.mark.parametrize("options", [{"slots": 0}, {"slots": 16385}, {"slot_bytes": 0}, {"max_bytes": 0}], ids=str)
    def test_publisher_with_invalid_options_is_refused(self, channels: Channels, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidValueError):
            channels.open().publisher(**options)

    def test_channel_creator_is_the_first_opening_node(self, channels: Channels) -> None:
        before = channels.time_ns()
        assert channels.open(node="maker").creator[0] == "maker"
        assert before <= channels.open(node="other").created_ns <= channels.time_ns()
        assert channels.open().creator[0] == "maker"

    def test_channels_of_different_prefixes_are_separate(self, channels: Channels, prefix: str) -> None:
        here, there = channels.open(), channels.open(prefix="")
        here.publisher().send(b"message")
        assert (here.messages, there.messages) == (1, 0)
        assert (here.prefix, there.prefix) == (prefix, "")

    def test_channel_mode_applies_to_all_files(self, channels: Channels) -> None:
        channel = channels.open(mode=0o640)
        publisher = channel.publisher()
        (pool,) = [each.path for each in channel.stats().publishers]
        files = [read_file_status(path) for path in (channel.stats().path, pool)]
        assert [file and file.mode for file in files] == [0o640] * 2
        publisher.close()

    @pytest.mark.needs("processes")
    @pytest.mark.parametrize(("mode", "pool_mode"), [(0o777, 0o666), (0o755, 0o644)])
    def test_pool_of_channel_with_executable_file_is_not_executable(
        self, channels: Channels, mode: int, pool_mode: int
    ) -> None:
        channels.open()
        (SHM / f"msgqchan_{channels.token}").chmod(mode)
        channels.open().publisher().send(b"message")
        (pool,) = SHM.glob(f"msgqpool_{channels.token}:*")
        assert pool.stat().st_mode & 0o777 == pool_mode


class TestSchemas:
    ONE, OTHER = Schema("one", "text"), Schema("other", "text")

    def test_channel_keeps_its_first_schema(self, channels: Channels) -> None:
        first, second, silent = channels.open(schema=self.ONE), channels.open(schema=self.OTHER), channels.open()
        assert [channel.schema for channel in (first, second, silent)] == [self.ONE] * 3
        assert [channel.schema_matches for channel in (first, second, silent)] == [True, False, True]

    def test_strict_schema_mismatch_raises(self, channels: Channels) -> None:
        channels.open(schema=self.ONE)
        with pytest.raises(SchemaMismatchError, match="name"):
            channels.open(schema=self.OTHER, strict_schema=True)
        channels.open(schema=self.ONE, strict_schema=True)

    def test_channel_schema_can_be_claimed_and_replaced(self, channels: Channels) -> None:
        channel, other = channels.open(), channels.open()
        assert channel.schema is None
        assert channel.claim_schema(self.ONE)
        assert channel.claim_schema(self.ONE)
        assert not other.claim_schema(self.OTHER)
        assert not other.schema_matches
        other.replace_schema(self.OTHER)
        assert channel.schema == self.OTHER
        assert (bool(other.schema_matches), bool(channel.schema_matches)) == (True, False)

    def test_channel_schema_given_as_text_is_refused(self, channels: Channels) -> None:
        channel = channels.open()
        text: Any = "json"
        for call in (channel.claim_schema, channel.replace_schema):
            with pytest.raises(TypeError, match="schema is of type str"):
                call(text)
        with pytest.raises(TypeError, match="schema is of type str"):
            channels.open(schema=text)
        assert channel.schema is None

    def test_passive_channel_cannot_set_a_schema(self, channels: Channels) -> None:
        channels.open()
        passive = channels.open(passive=True)
        for call in (passive.claim_schema, passive.replace_schema):
            with pytest.raises(StateError, match="passive"):
                call(self.ONE)
        assert passive.schema is None


class TestStats:
    def test_stats_are_separate_for_each_handle(self, channels: Channels) -> None:
        channel = channels.open(capacity=4, node="camera")
        pub, sub = channel.publisher(slots=6, slot_bytes=64), channel.subscriber()
        for number in range(6):
            pub.send(bytes(number))
        assert sub.stats().lost == 2, "what the next receive will report"
        assert (sub.stats().lag, sub.stats().received) == (4, 0)
        sub.receive(0)
        assert (sub.stats().lag, sub.stats().received, sub.stats().lost, sub.stats().node) == (3, 1, 2, "camera")
        stats = pub.stats()
        assert (stats.node, stats.slots, stats.slot_bytes, stats.sent, stats.bytes) == ("camera", 6, 64, 6, 15)
        assert (stats.messages, stats.left, stats.participant.alive) == (4, False, True)
        assert [each.sent for each in channel.stats().publishers] == [6]
        assert channel.diagnose().publishers == channel.stats().publishers, "Kickmsg's name"

    def test_stats_are_kept_after_close(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"1")
        sub.receive(0)
        sub.close()
        pub.close()
        assert (pub.stats().sent, pub.stats().left, sub.stats().received) == (1, True, 1)

    @pytest.mark.parametrize("passive", [False, True])
    def test_closed_channel_has_no_stats(self, channels: Channels, passive: bool) -> None:
        """The memory of a closed channel stays as it was at the close, so statistics would show other rows."""
        pub = channels.open().publisher()
        closed = channels.open(passive=passive)
        closed.close()
        pub.close()
        for call in (closed.stats, closed.diagnose):
            with pytest.raises(StateError, match="channel is closed; open it again"):
                call()

    def test_stats_include_all_pools_of_a_grown_publisher(self, channels: Channels) -> None:
        pub = channels.open().publisher(slot_bytes=64)
        pub.send(b"1")
        pub.send(bytes(100))
        assert (pub.stats().sent, pub.stats().bytes) == (2, 101)
        assert pub.stats().slot_bytes >= 100


class TestTheEnd:
    def test_unlink_name_removes_the_channel(self, channels: Channels) -> None:
        channel = channels.open()
        Channel.unlink_name(channel.name)
        with pytest.raises(SegmentError):
            Channel.unlink_name(channel.name)
        with pytest.raises(SegmentError):
            channel.unlink()

    def test_closed_channel_opens_no_publisher_or_subscriber(self, channels: Channels) -> None:
        with channels.open() as channel:
            sub, pub = channel.subscriber(), channel.publisher()
        for call in (channel.subscriber, channel.publisher):
            with pytest.raises(StateError, match="closed"):
                call()
        pub.send(b"message")
        assert sub.receive(0) == b"message"

    def test_closed_handles_raise_on_each_call(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"message")
        for side in (pub, sub):
            assert not side.closed
            side.close()
            side.close()
            assert side.closed
        calls: list[Callable[[], Any]] = [
            lambda: pub.send(b""),
            lambda: pub.send_many([b""]),
            lambda: pub.loan(1),
            lambda: sub.receive(0),
            lambda: sub.receive_view(0),
            lambda: sub.receive_many(),
            lambda: sub.receive_into(bytearray(9), 0),
            lambda: sub.receive_array("u1"),
            lambda: sub.fileno(),
            lambda: next(sub),
            lambda: channels.Poller().registerSocket(sub),
        ]
        for call in calls:
            with pytest.raises(EndpointClosedError):
                call()
        assert (pub.sent, sub.received) == (1, 0)

    def test_publisher_and_subscriber_are_context_managers(self, channels: Channels) -> None:
        channel = channels.open()
        with channel.publisher() as pub, channel.subscriber() as sub:
            assert pub.endpoint == sub.endpoint == channels.token
            assert channels.token in repr(pub)
            assert channels.token in repr(sub)
        assert pub.closed
        assert sub.closed
        assert "closed" in repr(pub)

    def test_passive_channel_compares_configuration_without_setting_it(self, channels: Channels) -> None:
        channel = channels.open()
        with pytest.raises(StateError, match="a passive handle cannot set"):
            channels.open(passive=True, capacity=4)
        channel.publisher()
        assert channels.open(passive=True, capacity=64).capacity == 64
        with pytest.raises(ChannelMismatchError, match="capacity=64, but capacity=4"):
            channels.open(passive=True, capacity=4)
        with pytest.raises(InvalidValueError, match="create=True and passive=True"):
            channels.open(passive=True, create=True)

    def test_passive_channel_has_no_publisher(self, channels: Channels) -> None:
        pub = channels.open().publisher()
        passive = channels.open(passive=True)
        with pytest.raises(StateError, match="passive"):
            passive.publisher()
        sub = passive.subscriber()
        assert sub.passive
        pub.send(b"message")
        assert sub.receive(DEADLINE) == b"message"

    def test_unlinked_channel_stays_usable_for_open_handles(self, channels: Channels) -> None:
        channel = channels.open()
        sub, late, pub = channel.subscriber(), channel.subscriber(), channel.publisher()
        pub.send(b"before")
        assert sub.receive(0) == b"before"
        channel.unlink()
        pub.send(b"after")
        assert sub.receive(0) == b"after"
        assert late.receive(0) is None  # the publisher's pool has no name any more
        assert late.lost == 2
        for call in (channel.publisher, channel.subscriber, channel.unlink, lambda: pub.send(bytes(5000))):
            with pytest.raises(SegmentError, match="removed"):
                call()

    def test_open_after_unlink_creates_another_channel(self, channels: Channels) -> None:
        old = channels.open(capacity=16)
        old_pub = old.publisher()
        old.unlink()
        new = channels.open(create=True)
        sub = new.subscriber()
        old_pub.send(b"message")
        assert sub.receive(0) is None
        assert new.capacity is None

    @pytest.mark.needs("processes")
    def test_channel_connects_several_processes(self, channels: Channels) -> None:
        sub = channels.open().subscriber()
        assert run_child(_publish, channels.token) == 64
        assert sub.receive(DEADLINE) == b"from a child"
        assert sub.last.publisher.name == "child"

    @pytest.mark.needs("fork")
    def test_subscriber_continues_in_a_forked_child(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send_many([b"1", b"2"])
        assert sub.receive(0) == b"1"
        assert in_fork(lambda: [b"2"].index(sub.receive(0))) == 0
        assert sub.receive(0) == b"2"


def _publish(name: str) -> int:
    with Channel(name, node="child").publisher() as pub:
        return int(pub.send(b"from a child"))
