"""Channels: messages without copies. Views of those that receive, loans of those that publish."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from msgq.common.stats.channel import PublisherInfo
from msgq.errors import (
    EndpointClosedError,
    InvalidValueError,
    MessageTooLargeError,
    PoolExhaustedError,
    StateError,
    TooManySubscribersError,
    TooManyViewsError,
)
from tests.contract.conftest import Channels


class TestViews:
    def test_view_has_message_and_publisher(self, channels: Channels) -> None:
        sub = channels.open().subscriber()
        pub = channels.open(node="camera").publisher()
        position = pub.send(b"message", origin_time=5)
        with sub.receive_view(0) as view:
            assert (bytes(view), len(view)) == (b"message", 7)
            assert (view.position, view.origin_time) == (position, 5)
            assert isinstance(view.publisher, PublisherInfo)
            assert view.publisher.name == "camera"
            assert sub.views_held == 1
        assert sub.views_held == 0
        assert sub.last.position == position

    def test_receive_view_without_message_returns_none(self, channels: Channels) -> None:
        _, sub = channels.pair()
        assert sub.receive_view(0) is None
        assert sub.receive_view(0.01) is None

    def test_view_is_read_only(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"message")
        view = sub.receive_view(0)
        assert memoryview(view).readonly
        with pytest.raises(TypeError):
            memoryview(view)[0] = 1
        assert not np.frombuffer(view, "u1").flags.writeable
        del view

    def test_view_of_an_empty_message_is_empty(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"")
        with sub.receive_view(0) as view:
            assert bytes(view) == b""

    def test_held_view_keeps_its_content(self, channels: Channels) -> None:
        pub, sub = channels.pair(capacity=16)
        pub.send(b"first")
        view = sub.receive_view(0)
        for number in range(200):
            pub.send(b"%05d" % number)
        assert bytes(view) == b"first"
        view.release()

    def test_view_stays_readable_after_publisher_and_subscriber_close(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"message")
        view = sub.receive_view(0)
        sub.close()
        pub.close()
        assert bytes(view) == b"message"
        view.release()

    def test_released_view_cannot_be_read(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"message")
        view = sub.receive_view(0)
        view.release()
        view.release()
        with pytest.raises(EndpointClosedError, match="released"):
            memoryview(view)

    def test_view_release_with_exported_buffer_raises(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        pub.send(b"message")
        view = sub.receive_view(0)
        with memoryview(view), pytest.raises(BufferError, match="open buffers: 1"):
            view.release()
        view.release()

    def test_view_is_held_while_an_array_uses_its_memory(self, channels: Channels) -> None:
        pub, sub = channels.pair(capacity=16, publisher={"slots": 2})
        pub.send(b"message")
        array = np.frombuffer(sub.receive_view(0), "u1")
        pub.send_many([bytes(7)] * 5)
        assert array.tobytes() == b"message"
        assert sub.views_held == 1
        del array
        gc.collect()
        assert sub.views_held == 0

    def test_views_beyond_max_views_raise(self, channels: Channels) -> None:
        pub, sub = channels.pair(max_views=2)
        pub.send_many([b"1", b"2", b"3"])
        first, second = sub.receive_view(0), sub.receive_view(0)
        with pytest.raises(TooManyViewsError, match="holds 2 views"):
            sub.receive_view(0)
        first.release()
        assert bytes(sub.receive_view(0)) == b"3"  # it was not lost
        second.release()

    def test_views_of_subscriber_with_max_views_0_raise(self, channels: Channels) -> None:
        pub, sub = channels.pair(max_views=0)
        pub.send(b"message")
        with pytest.raises(TooManyViewsError):
            sub.receive_view(0)
        assert sub.receive(0) == b"message"

    def test_passive_subscriber_cannot_hold_views(self, channels: Channels) -> None:
        pub = channels.open().publisher()
        sub = channels.open(passive=True).subscriber()
        pub.send(b"message")
        with pytest.raises(StateError, match="passive"):
            sub.receive_view(0)
        assert sub.receive(0) == b"message"

    def test_at_most_64_subscribers_can_hold_views(self, channels: Channels) -> None:
        channel = channels.open()
        pub, subs = channel.publisher(), [channel.subscriber() for _ in range(65)]
        pub.send(b"message")
        views = [sub.receive_view(0) for sub in subs[:64]]
        with pytest.raises(TooManySubscribersError, match="64"):
            subs[64].receive_view(0)
        assert subs[64].receive(0) == b"message"
        views.pop().release()
        subs[63].close()
        pub.send(b"next")
        with subs[64].receive_view(0) as view:
            assert bytes(view) == b"next"
        for view in views:
            view.release()

    def test_closed_subscriber_keeps_its_row_until_last_view_is_released(self, channels: Channels) -> None:
        channel = channels.open(subscribers=1)
        sub, pub = channel.subscriber(), channel.publisher()
        pub.send(b"message")
        view = sub.receive_view(0)
        sub.close()
        with pytest.raises(TooManySubscribersError):
            channel.subscriber()
        view.release()
        channel.subscriber()

    def test_views_of_closed_subscriber_are_counted_by_diagnose(self, channels: Channels) -> None:
        channel = channels.open()
        channel.publisher().send_many([b"1", b"2"])
        sub = channel.subscriber(history=2)
        views = [sub.receive_view(0), sub.receive_view(0)]
        sub.close()
        views.pop().release()
        (found,) = channel.diagnose().subscribers
        assert found.views_held == 1


class TestPools:
    def hold(self, channels: Channels, slots: int) -> tuple[Any, Any, list[Any]]:
        """Return a publisher, all of whose slots are held by a subscriber, and the views."""
        pub, sub = channels.pair(capacity=16, publisher={"slots": slots}, max_views=slots)
        views = []
        for number in range(slots):
            pub.send(b"%d" % number)
            views.append(sub.receive_view(0))
        return pub, sub, views

    def test_send_error_with_all_slots_held_names_the_holders(self, channels: Channels) -> None:
        pub, sub, views = self.hold(channels, 3)
        with pytest.raises(PoolExhaustedError, match=r"all 3 slots.* holds 3") as caught:
            pub.send(b"more")
        assert caught.value.endpoint == channels.token
        assert (pub.refused, pub.sent) == (1, 3)
        assert sub.receive(0) is None
        views.pop(1).release()
        pub.send(b"more")
        assert sub.receive(0) == b"more"

    def test_send_with_all_slots_held_waits_for_its_timeout(self, channels: Channels) -> None:
        pub, _, views = self.hold(channels, 2)
        before = channels.monotonic_ns()
        with pytest.raises(PoolExhaustedError):
            pub.send(b"more", timeout=0.05)
        assert channels.monotonic_ns() - before >= 50_000_000
        with pytest.raises(InvalidValueError):
            pub.send(b"more", timeout=-1)
        del views

    def test_loans_count_as_used_slots(self, channels: Channels) -> None:
        pub, _ = channels.pair(publisher={"slots": 2})
        loans = [pub.loan(1), pub.loan(1)]
        with pytest.raises(PoolExhaustedError, match="2 in open loans of this publisher"):
            pub.send(b"more")
        loans.pop().discard()
        pub.send(b"more")

    def test_pool_grows_for_a_larger_message(self, channels: Channels) -> None:
        pub, sub = channels.pair(publisher={"slot_bytes": 8})
        pub.send(b"small")
        pub.send(b"x" * 9)
        assert pub.slot_bytes == 16
        pub.send(b"y" * 100)
        assert pub.slot_bytes == 100
        assert sub.receive_many() == [b"small", b"x" * 9, b"y" * 100]
        assert (pub.sent, pub.bytes, sub.lost) == (3, 114, 0)

    def test_pool_growth_ends_at_max_bytes(self, channels: Channels) -> None:
        pub, sub = channels.pair(publisher={"slots": 2, "slot_bytes": 64, "max_bytes": 1000})
        with pytest.raises(MessageTooLargeError, match=r"900 bytes.*1000 bytes \(max_bytes\)"):
            pub.send(bytes(900))
        pub.send(bytes(300))
        assert [len(message) for message in sub.receive_many()] == [300]

    def test_pool_above_size_limit_is_not_created(self, channels: Channels) -> None:
        with pytest.raises(MessageTooLargeError, match="max_bytes"):
            channels.open().publisher(slots=10, slot_bytes=100, max_bytes=1000)

    def test_default_pool_has_capacity_plus_two_slots(self, channels: Channels) -> None:
        pub = channels.open(capacity=16).publisher()
        assert (pub.slots, pub.slot_bytes) == (18, 4096)

    def test_pool_of_large_slots_has_fewer_slots(self, channels: Channels) -> None:
        assert channels.open(capacity=16).publisher(slot_bytes=100, max_bytes=1000).slots == 5
        with pytest.raises(MessageTooLargeError):
            channels.open(capacity=16).publisher(slot_bytes=100, max_bytes=100)

    def test_views_of_replaced_pool_stay_readable(self, channels: Channels) -> None:
        pub, sub = channels.pair(publisher={"slot_bytes": 8})
        pub.send(b"small")
        view = sub.receive_view(0)
        pub.send(bytes(100))
        pub.send_many([bytes(100)] * 100)
        assert bytes(view) == b"small"


class TestLoans:
    def test_loan_is_published_at_the_end_of_the_block(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        with pub.loan(5) as loan:
            memoryview(loan)[:] = b"hello"
            assert len(loan) == 5
            assert sub.receive(0) is None
        assert sub.receive(0) == b"hello"
        assert loan.position == sub.last.position

    def test_loan_is_discarded_after_an_exception(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        with pytest.raises(ZeroDivisionError), pub.loan(5):
            raise ZeroDivisionError
        assert sub.receive(0) is None
        assert pub.sent == 0

    def test_loan_may_publish_fewer_bytes_than_its_size(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        loan = pub.loan(100)
        memoryview(loan)[:3] = b"abc"
        loan.origin_time = 7
        assert loan.publish(3) == 64
        assert sub.receive(0) == b"abc"
        assert sub.last.origin_time == 7
        assert (pub.sent, pub.bytes) == (1, 3)

    @pytest.mark.parametrize("size", [6, 4096])
    def test_loan_cannot_publish_more_bytes_than_its_size(self, channels: Channels, size: int) -> None:
        pub, _ = channels.pair()
        loan = pub.loan(5)
        with pytest.raises(InvalidValueError, match=f"5 bytes, but {size}"):
            loan.publish(size)
        loan.publish(0)

    @pytest.mark.parametrize("first", ["publish", "discard"])
    def test_loan_is_usable_once(self, channels: Channels, first: str) -> None:
        pub, _ = channels.pair()
        loan = pub.loan(5)
        getattr(loan, first)()
        with pytest.raises(StateError, match="already published or discarded"):
            loan.publish()
        with pytest.raises(StateError, match="already published or discarded"):
            memoryview(loan)
        with pytest.raises(StateError), loan:
            pass
        loan.discard()
        assert pub.sent == (first == "publish")

    def test_loans_arrive_in_order_of_publishing(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        loans = [pub.loan(1) for _ in range(3)]
        for number, loan in enumerate(loans):
            memoryview(loan)[:] = b"%d" % number
        for number in (2, 0, 1):
            loans[number].publish()
        assert sub.receive_many() == [b"2", b"0", b"1"]

    def test_loan_publish_with_exported_buffer_raises(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        loan = pub.loan(5)
        array = np.frombuffer(loan, "u1")
        array[:] = 1
        with pytest.raises(BufferError, match="open buffers: 1"):
            loan.publish()
        del array
        loan.publish()
        assert sub.receive(0) == b"\x01" * 5

    def test_discarded_loan_frees_its_slot_after_last_buffer_is_released(self, channels: Channels) -> None:
        pub, _ = channels.pair(publisher={"slots": 1})
        loan = pub.loan(5)
        buffer = memoryview(loan)
        loan.discard()
        with pytest.raises(PoolExhaustedError):
            pub.send(b"message")
        buffer[:] = b"still"
        buffer.release()
        del loan, buffer
        gc.collect()
        pub.send(b"message")

    def test_discarded_loan_frees_its_slot(self, channels: Channels) -> None:
        pub, _ = channels.pair(publisher={"slots": 1})
        for _ in range(3):
            pub.loan(5)
            gc.collect()
        pub.send(b"message")

    def test_loan_of_a_closed_publisher_cannot_be_published(self, channels: Channels) -> None:
        pub, sub = channels.pair()
        loan = pub.loan(5)
        pub.close()
        with pytest.raises(EndpointClosedError):
            loan.publish()
        loan.discard()
        assert sub.receive(0) is None

    def test_loan_can_be_published_after_its_pool_is_replaced(self, channels: Channels) -> None:
        pub, sub = channels.pair(publisher={"slot_bytes": 8})
        loan = pub.loan(8)
        memoryview(loan)[:] = b"8 bytes."
        pub.send(bytes(100))
        loan.publish()
        assert [len(message) for message in sub.receive_many()] == [100, 8]

    def test_loan_accepts_size_zero_and_refuses_negative_size(self, channels: Channels) -> None:
        pub, sub = channels.pair(publisher={"slot_bytes": 8})
        with pytest.raises(InvalidValueError):
            pub.loan(-1)
        pub.loan(0).publish()
        pub.loan(1000).publish()
        assert [len(message) for message in sub.receive_many()] == [0, 1000]

    def test_published_loans_add_to_publisher_counters(self, channels: Channels) -> None:
        pub = channels.open().publisher(slot_bytes=8)
        loan = pub.loan(8)
        pub.send(bytes(100))
        loan.publish(3)
        assert (pub.sent, pub.bytes) == (2, 103)
