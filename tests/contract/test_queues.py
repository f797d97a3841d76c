"""Work queues: order, who gets what, what a message is, how long messages and queues live. The rest is beside this."""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import queue as standard
import random
from typing import Any

import pytest

from msgq.errors import (
    EndpointClosedError,
    IpcError,
    MessageTooLargeError,
    QueueFullError,
    SegmentError,
    TooManyHandlesError,
)
from msgq.impl.workqueue.options import O_CREAT, O_NONBLOCK
from tests.contract.conftest import Queues, call_arguments, receive_all

PRIORITIES = [0, 1, 2, 31, 32, 255, 256, 1000, 32766, 32767]


class TestOrder:
    def test_messages_of_one_priority_are_received_first_in_first_out(self, queues: Queues) -> None:
        queue = queues.open()
        sent = [b"%d" % number for number in range(100)]
        for message in sent:
            queue.send(message, 7)
        assert [queue.receive(0) for _ in sent] == [(message, 7) for message in sent]

    def test_receive_takes_the_highest_priority_first(self, queues: Queues) -> None:
        queue = queues.open()
        for priority in random.Random(1).sample(PRIORITIES, len(PRIORITIES)):
            queue.send(b"%d" % priority, priority)
        assert [queue.receive(0).priority for _ in PRIORITIES] == PRIORITIES[::-1]

    def test_receive_order_is_priority_then_send_order(self, queues: Queues) -> None:
        queue, rng = queues.open(max_messages=300), random.Random(2)
        sent = [(b"%d" % number, rng.choice(PRIORITIES)) for number in range(300)]
        for message, priority in sent:
            queue.send(message, priority)
        expected = sorted(sent, key=lambda each: -each[1])  # the sort keeps the order of equals
        assert [tuple(message) for message in queue.peek()] == expected
        assert [tuple(message) for message in queue.receive_many()] == expected

    def test_reused_queue_slots_keep_the_message_order(self, queues: Queues) -> None:
        queue = queues.open(max_messages=5)
        waiting: list[bytes] = []
        rng = random.Random(3)
        for number in range(500):
            if len(waiting) == 5 or (waiting and rng.random() < 0.45):
                assert queue.receive(0).data == waiting.pop(0)
            else:
                queue.send(b"%d" % number)
                waiting.append(b"%d" % number)
        assert receive_all(queue) == waiting

    def test_default_priority_is_the_lowest(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"default")
        queue.send(b"one", 1)
        assert queue.receive(0) == (b"one", 1)
        assert queue.receive(0) == (b"default", 0)

    @pytest.mark.parametrize("handles", [2, 5])
    def test_messages_of_several_senders_are_received_in_send_order(self, queues: Queues, handles: int) -> None:
        senders = [queues.open() for _ in range(handles)]
        sent = [b"%d" % number for number in range(50)]
        for message, sender in zip(sent, itertools.cycle(senders), strict=False):
            sender.send(message)
        assert receive_all(senders[0]) == sent


class TestConsumers:
    def test_each_message_goes_to_one_consumer(self, queues: Queues) -> None:
        sender, *consumers = [queues.open() for _ in range(4)]
        sender.send_many(b"%d" % number for number in range(90))
        got = [[consumer.receive(0).data for _ in range(30)] for consumer in consumers]
        assert sorted(itertools.chain(*got), key=int) == [b"%d" % number for number in range(90)]
        assert [consumer.receive(0) for consumer in consumers] == [None] * 3

    def test_handle_receives_its_own_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        assert queue.receive(0) == (b"message", 0)

    def test_peek_takes_no_message(self, queues: Queues) -> None:
        queue = queues.open()
        assert queue.peek() == []
        queue.send(b"second", 1)
        queue.send(b"first", 2)
        for _ in range(2):
            assert queue.peek() == [(b"first", 2), (b"second", 1)]
        assert queue.peek()[0].deliveries == 0
        assert queue.current_messages == 2
        assert queue.receive(0).deliveries == 1

    @pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (3, 3), (100, 4), (None, 4)])
    def test_peek_with_limit_shows_the_first_messages(self, queues: Queues, limit: int | None, count: int) -> None:
        queue = queues.open()
        for priority in (2, 4, 1, 3):
            queue.send(b"", priority)
        assert [priority for _, priority in queue.peek(limit)] == [4, 3, 2, 1][:count]

    def test_peek_hides_taken_messages(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send_many([b"1", b"2"])
        with queue.take(0):
            assert queue.peek() == [(b"2", 0)]


class TestMessages:
    def test_queue_message_is_data_and_priority_pair_with_attributes(self, queues: Queues) -> None:
        queue = queues.open()
        before = queues.time_ns()
        queue.send(b"message", 5, origin_time=123)
        message = queue.receive(0)
        data, priority = message
        assert (data, priority) == (message.data, message.priority) == (b"message", 5)
        assert len(message) == 2
        assert isinstance(message, tuple)
        assert isinstance(message, queues.Message)
        assert message.deliveries == 1
        assert before <= message.sent_time <= queues.time_ns()
        assert message.origin_time == 123
        assert "b'message'" in repr(message)

    def test_queue_message_without_origin_time_has_unknown_origin(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        assert queue.receive(0).origin_time == 0

    @pytest.mark.parametrize("origin_time", [1, 2**63, 2**64 - 1])
    def test_queue_message_keeps_any_64_bit_origin_time(self, queues: Queues, origin_time: int) -> None:
        queue = queues.open()
        queue.send(b"message", origin_time=origin_time)
        assert queue.receive(0).origin_time == origin_time

    @pytest.mark.parametrize("message", [b"", b"x", b"\0" * 63, bytes(range(256)) * 32], ids=len)
    def test_messages_of_any_size_arrive_whole(self, queues: Queues, message: bytes) -> None:
        queue = queues.open()
        queue.send(message)
        assert queue.receive(0).data == message

    def test_empty_message_is_delivered(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"", 9)
        assert queue.current_messages == 1
        assert queue.receive(0) == (b"", 9)
        assert queue.receive(0) is None

    def test_short_message_contains_no_bytes_of_an_earlier_message(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"long " * 100)
        queue.receive(0)
        queue.send(b"s")
        assert queue.receive(0).data == b"s"

    @pytest.mark.parametrize("size", [1, 64, 65, 100_000, 3_000_000])
    def test_message_up_to_max_message_size_is_accepted(self, queues: Queues, size: int) -> None:
        queue = queues.open(max_messages=2, max_message_size=size)
        largest = os.urandom(size)
        queue.send(largest)
        with pytest.raises(MessageTooLargeError, match=f"{size + 1}.*{size}") as caught:
            queue.send(bytes(size + 1))
        assert caught.value.errno == errno.EMSGSIZE
        assert queue.current_messages == 1
        assert queue.receive(0).data == largest

    def test_message_can_be_pickled(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message", 5, origin_time=3)
        message = queue.receive(0)
        copy = pickle.loads(pickle.dumps(message))
        assert copy == message == (b"message", 5)
        assert (copy.deliveries, copy.sent_time, copy.origin_time) == (1, message.sent_time, 3)


class TestMany:
    def test_send_many_returns_the_number_sent(self, queues: Queues) -> None:
        queue = queues.open()
        assert queue.send_many((b"%d" % number for number in range(5)), 3) == 5
        assert [tuple(message) for message in queue.receive_many()] == [(b"%d" % number, 3) for number in range(5)]
        assert queue.send_many([]) == 0

    def test_send_many_stops_when_queue_is_full(self, queues: Queues) -> None:
        queue = queues.open(max_messages=3)
        assert queue.send_many([b"1", b"2", b"3", b"4", b"5"], timeout=0) == 3
        assert queue.send_many([b"6"], timeout=0) == 0
        assert receive_all(queue) == [b"1", b"2", b"3"]

    def test_send_many_reads_next_message_after_sending_previous_message(self, queues: Queues) -> None:
        queue = queues.open(max_messages=2)
        asked = iter([b"1", b"2", b"3", b"4"])
        assert queue.send_many(asked, timeout=0) == 2
        assert list(asked) == [b"4"]

    def test_send_many_raises_at_invalid_message_after_sending_earlier_messages(self, queues: Queues) -> None:
        queue = queues.open(max_message_size=2)
        with pytest.raises(MessageTooLargeError):
            queue.send_many([b"1", b"22", b"333", b"4"])
        assert receive_all(queue) == [b"1", b"22"]

    def test_send_many_raises_the_error_of_its_iterable(self, queues: Queues) -> None:
        def messages() -> Any:
            yield b"1"
            raise ZeroDivisionError

        queue = queues.open()
        with pytest.raises(ZeroDivisionError):
            queue.send_many(messages())
        queue.send(b"2")
        assert receive_all(queue) == [b"1", b"2"]

    @pytest.mark.parametrize(("limit", "count"), [(None, 5), (0, 0), (1, 1), (4, 4), (5, 5), (1000, 5)])
    def test_receive_many_takes_waiting_messages_up_to_limit(
        self, queues: Queues, limit: int | None, count: int
    ) -> None:
        queue = queues.open()
        queue.send_many(b"%d" % number for number in range(5))
        assert [data for data, _ in queue.receive_many(limit)] == [b"%d" % number for number in range(count)]
        assert queue.current_messages == 5 - count

    def test_receive_many_does_not_wait(self, queues: Queues) -> None:
        assert queues.open().receive_many() == []

    def test_iteration_of_nonblocking_handle_ends_after_last_message(self, queues: Queues) -> None:
        queue = queues.open(O_CREAT | O_NONBLOCK)
        queue.send_many([b"1", b"2"])
        assert [data for data, _ in queue] == [b"1", b"2"]


class TestFull:
    def test_full_queue_refuses_messages_until_a_receive(self, queues: Queues) -> None:
        queue = queues.open(max_messages=2)
        queue.send(b"1")
        queue.send(b"2")
        with pytest.raises(QueueFullError, match="2 messages") as caught:
            queue.send(b"3", timeout=0)
        assert isinstance(caught.value, standard.Full)
        assert isinstance(caught.value, IpcError)
        assert caught.value.errno == errno.EAGAIN
        assert queue.current_messages == 2
        queue.receive(0)
        queue.send(b"3", timeout=0)
        assert receive_all(queue) == [b"2", b"3"]

    def test_full_queue_refuses_messages_of_higher_priority(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"unimportant")
        with pytest.raises(QueueFullError):
            queue.send(b"urgent", 32767, timeout=0)
        assert receive_all(queue) == [b"unimportant"]

    @pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 128, 1000])
    def test_queue_holds_max_messages(self, queues: Queues, count: int) -> None:
        queue = queues.open(max_messages=count, max_message_size=8)
        assert queue.send_many([b"%d" % number for number in range(count + 1)], timeout=0) == count
        assert queue.current_messages == queue.max_messages == count
        assert receive_all(queue) == [b"%d" % number for number in range(count)]

    def test_taken_message_keeps_its_slot_until_acknowledged(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"1")
        job = queue.take(0)
        with pytest.raises(QueueFullError):
            queue.send(b"2", timeout=0)
        job.ack()
        queue.send(b"2", timeout=0)


class TestLifetime:
    def test_messages_stay_in_queue_without_open_handles(self, queues: Queues) -> None:
        with queues.open() as sender:
            sender.send(b"1", 1)
            sender.send(b"2", 2)
        assert sender.closed
        assert receive_all(queues.open()) == [b"2", b"1"]

    def test_message_order_is_kept_across_handles(self, queues: Queues) -> None:
        for number in range(10):
            with queues.open() as queue:
                queue.send(b"%d" % number)
        assert receive_all(queues.open()) == [b"%d" % number for number in range(10)]

    def test_unlink_removes_the_queue_name(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        queue.unlink()
        with pytest.raises(SegmentError) as caught:
            queues.open(0)
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(SegmentError) as caught:
            queue.unlink()
        assert caught.value.errno == errno.ENOENT

    def test_unlinked_queue_stays_usable_for_open_handles(self, queues: Queues) -> None:
        here, there = queues.open(), queues.open()
        here.send(b"before")
        here.unlink()
        new = queues.open()
        here.send(b"after")
        new.send(b"new")
        assert receive_all(there) == [b"before", b"after"]
        assert receive_all(new) == [b"new"]

    def test_unlink_works_on_a_closed_handle(self, queues: Queues) -> None:
        with queues.open() as queue:
            pass
        queue.unlink()
        with pytest.raises(SegmentError):
            queues.open(0)

    def test_unlink_name_removes_queue_without_a_handle(self, queues: Queues) -> None:
        queues.open().close()
        queues.MessageQueue.unlink_name(queues.name)
        with pytest.raises(SegmentError) as caught:
            queues.MessageQueue.unlink_name(f"/{queues.name}")
        assert caught.value.errno == errno.ENOENT
        assert queues.name in str(caught.value)

    def test_recreated_queue_may_have_other_sizes(self, queues: Queues) -> None:
        queues.open(max_messages=3).unlink()
        assert queues.open(max_messages=5).max_messages == 5

    def test_second_close_has_no_effect(self, queues: Queues) -> None:
        queue = queues.open()
        queue.close()
        queue.close()
        assert queue.closed

    @pytest.mark.parametrize(
        "call",
        ["send", "send_many", "receive", "receive_many", "receive_into", "take", "peek", "wait_space", "fileno"],
    )
    def test_closed_handle_raises_on_each_call(self, queues: Queues, call: str) -> None:
        queue = queues.open()
        queue.close()
        with pytest.raises(EndpointClosedError) as caught:
            getattr(queue, call)(*call_arguments(call))
        assert caught.value.errno == errno.EBADF
        assert caught.value.endpoint == queues.name

    def test_closed_handle_keeps_name_and_sizes(self, queues: Queues) -> None:
        queue = queues.open(max_messages=3)
        queue.close()
        assert (queue.name, queue.max_messages) == (queues.name, 3)
        assert "closed" in repr(queue)
        assert queues.name in repr(queue)

    def test_handles_beyond_128_are_refused(self, queues: Queues) -> None:
        handles = [queues.open() for _ in range(128)]
        with pytest.raises(TooManyHandlesError, match="128") as caught:
            queues.open()
        assert caught.value.endpoint == queues.name
        handles[77].close()
        queues.open().send(b"message")
        assert receive_all(handles[0]) == [b"message"]

    def test_deleted_handle_is_closed(self, queues: Queues) -> None:
        for _ in range(300):
            queues.MessageQueue(queues.name)
        queues.open()

    def test_closed_handles_do_not_count_against_handle_limit(self, queues: Queues) -> None:
        for _ in range(300):
            queues.open().close()
