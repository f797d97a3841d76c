"""Work queues: order, who gets what, how long messages and queues live, what a queue says of itself.

Waiting is in test_queue_waits.py, jobs in test_queue_jobs.py, arguments in test_queue_arguments.py.
"""

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
    QueueMismatchError,
    SegmentError,
    TooManyHandlesError,
)
from msgq.impl.workqueue.options import O_CREAT, O_CREX, O_EXCL, O_NONBLOCK
from msgq.schema import Schema
from tests.contract.conftest import Queues
from tests.support import SHM

PRIORITIES = [0, 1, 2, 31, 32, 255, 256, 1000, 32766, 32767]


def drained(queue: Any) -> list[bytes]:
    return [data for data, _ in queue.receive_many()]


class TestOrder:
    def test_first_in_first_out_within_a_priority(self, queues: Queues) -> None:
        queue = queues.open()
        sent = [b"%d" % number for number in range(100)]
        for message in sent:
            queue.send(message, 7)
        assert [queue.receive(0) for _ in sent] == [(message, 7) for message in sent]

    def test_the_highest_priority_first(self, queues: Queues) -> None:
        queue = queues.open()
        for priority in random.Random(1).sample(PRIORITIES, len(PRIORITIES)):
            queue.send(b"%d" % priority, priority)
        assert [queue.receive(0).priority for _ in PRIORITIES] == PRIORITIES[::-1]

    def test_priorities_and_order_together(self, queues: Queues) -> None:
        queue, rng = queues.open(max_messages=300), random.Random(2)
        sent = [(b"%d" % number, rng.choice(PRIORITIES)) for number in range(300)]
        for message, priority in sent:
            queue.send(message, priority)
        expected = sorted(sent, key=lambda each: -each[1])  # which keeps the order of equals
        assert [tuple(message) for message in queue.peek()] == expected
        assert [tuple(message) for message in queue.receive_many()] == expected

    def test_places_are_used_again_without_a_change_of_order(self, queues: Queues) -> None:
        queue = queues.open(max_messages=5)
        waiting: list[bytes] = []
        rng = random.Random(3)
        for number in range(500):
            if len(waiting) == 5 or (waiting and rng.random() < 0.45):
                assert queue.receive(0).data == waiting.pop(0)
            else:
                queue.send(b"%d" % number)
                waiting.append(b"%d" % number)
        assert drained(queue) == waiting

    def test_the_default_priority_is_the_lowest(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"default")
        queue.send(b"one", 1)
        assert queue.receive(0) == (b"one", 1)
        assert queue.receive(0) == (b"default", 0)

    @pytest.mark.parametrize("handles", [2, 5])
    def test_one_order_for_all_senders(self, queues: Queues, handles: int) -> None:
        senders = [queues.open() for _ in range(handles)]
        sent = [b"%d" % number for number in range(50)]
        for message, sender in zip(sent, itertools.cycle(senders), strict=False):
            sender.send(message)
        assert drained(senders[0]) == sent


class TestConsumers:
    def test_each_message_goes_to_one(self, queues: Queues) -> None:
        sender, *consumers = [queues.open() for _ in range(4)]
        sender.send_many(b"%d" % number for number in range(90))
        got = [[consumer.receive(0).data for _ in range(30)] for consumer in consumers]
        assert sorted(itertools.chain(*got), key=int) == [b"%d" % number for number in range(90)]
        assert [consumer.receive(0) for consumer in consumers] == [None] * 3

    def test_a_handle_receives_what_it_sent_itself(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        assert queue.receive(0) == (b"message", 0)

    def test_peek_takes_nothing(self, queues: Queues) -> None:
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
    def test_peek_shows_so_many_of_the_first(self, queues: Queues, limit: int | None, count: int) -> None:
        queue = queues.open()
        for priority in (2, 4, 1, 3):
            queue.send(b"", priority)
        assert [priority for _, priority in queue.peek(limit)] == [4, 3, 2, 1][:count]

    def test_peek_does_not_show_what_is_taken(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send_many([b"1", b"2"])
        with queue.take(0):
            assert queue.peek() == [(b"2", 0)]


class TestMessages:
    def test_a_message_is_a_pair_with_more_attributes(self, queues: Queues) -> None:
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

    def test_the_origin_is_unknown_unless_somebody_says_it(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        assert queue.receive(0).origin_time == 0

    @pytest.mark.parametrize("origin_time", [1, 2**63, 2**64 - 1])
    def test_any_origin_time_of_64_bits(self, queues: Queues, origin_time: int) -> None:
        queue = queues.open()
        queue.send(b"message", origin_time=origin_time)
        assert queue.receive(0).origin_time == origin_time

    @pytest.mark.parametrize("message", [b"", b"x", b"\0" * 63, bytes(range(256)) * 32], ids=len)
    def test_every_message_arrives_whole(self, queues: Queues, message: bytes) -> None:
        queue = queues.open()
        queue.send(message)
        assert queue.receive(0).data == message

    def test_an_empty_message_is_a_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"", 9)
        assert queue.current_messages == 1
        assert queue.receive(0) == (b"", 9)
        assert queue.receive(0) is None

    def test_nothing_of_an_earlier_message_shows_in_a_shorter_one(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"long " * 100)
        queue.receive(0)
        queue.send(b"s")
        assert queue.receive(0).data == b"s"

    @pytest.mark.parametrize("size", [1, 64, 65, 100_000, 3_000_000])
    def test_the_largest_message_and_one_byte_more(self, queues: Queues, size: int) -> None:
        queue = queues.open(max_messages=2, max_message_size=size)
        largest = os.urandom(size)
        queue.send(largest)
        with pytest.raises(MessageTooLargeError, match=f"{size + 1}.*{size}") as caught:
            queue.send(bytes(size + 1))
        assert caught.value.errno == errno.EMSGSIZE
        assert queue.current_messages == 1
        assert queue.receive(0).data == largest

    def test_a_message_can_be_pickled(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message", 5, origin_time=3)
        message = queue.receive(0)
        copy = pickle.loads(pickle.dumps(message))
        assert copy == message == (b"message", 5)
        assert (copy.deliveries, copy.sent_time, copy.origin_time) == (1, message.sent_time, 3)


class TestMany:
    def test_send_many_says_how_many(self, queues: Queues) -> None:
        queue = queues.open()
        assert queue.send_many((b"%d" % number for number in range(5)), 3) == 5
        assert [tuple(message) for message in queue.receive_many()] == [(b"%d" % number, 3) for number in range(5)]
        assert queue.send_many([]) == 0

    def test_what_finds_no_room_stays_out(self, queues: Queues) -> None:
        queue = queues.open(max_messages=3)
        assert queue.send_many([b"1", b"2", b"3", b"4", b"5"], timeout=0) == 3
        assert queue.send_many([b"6"], timeout=0) == 0
        assert drained(queue) == [b"1", b"2", b"3"]

    def test_a_message_that_is_refused_is_an_error_and_those_before_it_are_sent(self, queues: Queues) -> None:
        queue = queues.open(max_message_size=2)
        with pytest.raises(MessageTooLargeError):
            queue.send_many([b"1", b"22", b"333", b"4"])
        assert drained(queue) == [b"1", b"22"]

    def test_an_error_of_the_iterable_comes_out(self, queues: Queues) -> None:
        def messages() -> Any:
            yield b"1"
            raise ZeroDivisionError

        queue = queues.open()
        with pytest.raises(ZeroDivisionError):
            queue.send_many(messages())
        queue.send(b"2")
        assert drained(queue) == [b"1", b"2"]

    @pytest.mark.parametrize(("limit", "count"), [(None, 5), (0, 0), (1, 1), (4, 4), (5, 5), (1000, 5)])
    def test_receive_many_takes_what_is_there_up_to_a_limit(
        self, queues: Queues, limit: int | None, count: int
    ) -> None:
        queue = queues.open()
        queue.send_many(b"%d" % number for number in range(5))
        assert [data for data, _ in queue.receive_many(limit)] == [b"%d" % number for number in range(count)]
        assert queue.current_messages == 5 - count

    def test_receive_many_does_not_wait(self, queues: Queues) -> None:
        before = queues.monotonic()
        assert queues.open().receive_many() == []
        assert queues.monotonic() - before < 10

    def test_iteration_over_a_handle_that_does_not_wait_ends_with_the_messages(self, queues: Queues) -> None:
        queue = queues.open(O_CREAT | O_NONBLOCK)
        queue.send_many([b"1", b"2"])
        assert [data for data, _ in queue] == [b"1", b"2"]


class TestFull:
    def test_a_full_queue_takes_nothing_until_something_is_received(self, queues: Queues) -> None:
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
        assert drained(queue) == [b"2", b"3"]

    def test_priorities_make_no_room(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"unimportant")
        with pytest.raises(QueueFullError):
            queue.send(b"urgent", 32767, timeout=0)
        assert drained(queue) == [b"unimportant"]

    @pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 128, 1000])
    def test_it_holds_as_many_as_it_says(self, queues: Queues, count: int) -> None:
        queue = queues.open(max_messages=count, max_message_size=8)
        assert queue.send_many([b"%d" % number for number in range(count + 1)], timeout=0) == count
        assert queue.current_messages == queue.max_messages == count
        assert drained(queue) == [b"%d" % number for number in range(count)]

    def test_what_is_taken_keeps_its_place(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"1")
        job = queue.take(0)
        with pytest.raises(QueueFullError):
            queue.send(b"2", timeout=0)
        job.ack()
        queue.send(b"2", timeout=0)


class TestLifetime:
    def test_messages_wait_with_nobody_there(self, queues: Queues) -> None:
        with queues.open() as sender:
            sender.send(b"1", 1)
            sender.send(b"2", 2)
        assert sender.closed
        assert drained(queues.open()) == [b"2", b"1"]

    def test_the_order_goes_on_over_handles(self, queues: Queues) -> None:
        for number in range(10):
            with queues.open() as queue:
                queue.send(b"%d" % number)
        assert drained(queues.open()) == [b"%d" % number for number in range(10)]

    def test_unlink_removes_the_name(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        queue.unlink()
        with pytest.raises(SegmentError) as caught:
            queues.open(0)
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(SegmentError) as caught:
            queue.unlink()
        assert caught.value.errno == errno.ENOENT

    def test_who_has_it_open_goes_on(self, queues: Queues) -> None:
        here, there = queues.open(), queues.open()
        here.send(b"before")
        here.unlink()
        new = queues.open()
        here.send(b"after")
        new.send(b"new")
        assert drained(there) == [b"before", b"after"]
        assert drained(new) == [b"new"]

    def test_a_closed_handle_can_unlink(self, queues: Queues) -> None:
        with queues.open() as queue:
            pass
        queue.unlink()
        with pytest.raises(SegmentError):
            queues.open(0)

    def test_unlink_by_name_without_a_handle(self, queues: Queues) -> None:
        queues.open().close()
        queues.MessageQueue.unlink_name(queues.name)
        with pytest.raises(SegmentError) as caught:
            queues.MessageQueue.unlink_name(f"/{queues.name}")
        assert caught.value.errno == errno.ENOENT
        assert queues.name in str(caught.value)

    def test_a_new_queue_of_an_old_name_may_have_other_sizes(self, queues: Queues) -> None:
        queues.open(max_messages=3).unlink()
        assert queues.open(max_messages=5).max_messages == 5

    def test_closing_twice_does_no_harm(self, queues: Queues) -> None:
        queue = queues.open()
        queue.close()
        queue.close()
        assert queue.closed

    @pytest.mark.parametrize(
        "call",
        ["send", "send_many", "receive", "receive_many", "receive_into", "take", "peek", "wait_space", "fileno"],
    )
    def test_a_closed_handle_is_of_no_use(self, queues: Queues, call: str) -> None:
        queue = queues.open()
        queue.close()
        args = {"send": [b""], "send_many": [[b""]], "receive_into": [bytearray(8)]}.get(call, [])
        with pytest.raises(EndpointClosedError) as caught:
            getattr(queue, call)(*args)
        assert caught.value.errno == errno.EBADF
        assert caught.value.endpoint == queues.name

    def test_a_closed_handle_still_says_what_it_was(self, queues: Queues) -> None:
        queue = queues.open(max_messages=3)
        queue.close()
        assert (queue.name, queue.max_messages) == (queues.name, 3)
        assert "closed" in repr(queue)
        assert queues.name in repr(queue)

    def test_so_many_handles_and_no_more(self, queues: Queues) -> None:
        handles = [queues.open() for _ in range(128)]
        with pytest.raises(TooManyHandlesError, match="128") as caught:
            queues.open()
        assert caught.value.endpoint == queues.name
        handles[77].close()
        queues.open().send(b"message")
        assert drained(handles[0]) == [b"message"]

    def test_a_handle_that_is_forgotten_is_closed(self, queues: Queues) -> None:
        for _ in range(300):
            queues.MessageQueue(queues.name)
        queues.open()

    def test_many_handles_one_after_the_other(self, queues: Queues) -> None:
        for _ in range(300):
            queues.open().close()


class TestOpening:
    def test_by_default_it_makes_or_opens(self, queues: Queues) -> None:
        queues.open().send(b"message")
        assert drained(queues.open()) == [b"message"]

    def test_0_only_opens(self, queues: Queues) -> None:
        with pytest.raises(SegmentError) as caught:
            queues.open(0)
        assert caught.value.errno == errno.ENOENT
        assert queues.name in str(caught.value)
        queues.open()
        assert not queues.open(0).closed

    def test_O_CREAT_makes_or_opens(self, queues: Queues) -> None:
        queues.open(O_CREAT).send(b"message")
        assert drained(queues.open(O_CREAT)) == [b"message"]

    def test_O_CREX_only_makes(self, queues: Queues) -> None:
        assert O_CREX == O_CREAT | O_EXCL
        queues.open(O_CREX)
        with pytest.raises(SegmentError) as caught:
            queues.open(O_CREX)
        assert caught.value.errno == errno.EEXIST
        assert queues.name in str(caught.value)

    def test_O_NONBLOCK_never_waits(self, queues: Queues) -> None:
        queue = queues.open(O_CREAT | O_NONBLOCK, max_messages=1)
        assert queue.block is False
        assert queue.receive() is None
        assert queue.take() is None
        assert queue.receive(timeout=100) is None
        queue.send(b"1")
        with pytest.raises(QueueFullError) as caught:
            queue.send(b"2", timeout=100)
        assert caught.value.errno == errno.EAGAIN
        assert queue.wait_space() is False
        assert queue.send_many([b"2"], timeout=100) == 0

    def test_it_is_the_handles_own_and_can_be_changed(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open(O_NONBLOCK)
        assert (queue.block, other.block) == (True, False)
        queue.block = False
        assert (queue.block, queue.receive()) == (False, None)
        other.block = True
        assert other.block is True

    @pytest.mark.parametrize("what", ["max_messages", "max_message_size"])
    def test_sizes_that_differ_from_what_is_there_are_named(self, queues: Queues, what: str) -> None:
        queues.open(**{what: 10})
        assert getattr(queues.open(**{what: 10}), what) == 10
        assert getattr(queues.open(), what) == 10
        with pytest.raises(QueueMismatchError, match=f"{what}=10.*{what}=11") as caught:
            queues.open(**{what: 11})
        assert caught.value.endpoint == queues.name

    @pytest.mark.parametrize("flags", [0, O_CREAT])
    def test_with_flags_they_count_for_a_new_queue_alone_as_in_POSIX(self, queues: Queues, flags: int) -> None:
        queues.open(max_messages=10)
        assert queues.open(flags, max_messages=11).max_messages == 10

    def test_defaults(self, queues: Queues) -> None:
        queue = queues.open()
        assert (queue.max_messages, queue.max_message_size) == (128, 8192)
        assert (queue.block, queue.closed) == (True, False)
        assert (queue.current_messages, queue.in_flight) == (0, 0)
        assert (queue.prefix, queue.schema) == ("", None)

    def test_attributes_cannot_be_set(self, queues: Queues) -> None:
        queue = queues.open()
        for name in ("max_messages", "max_message_size", "current_messages", "in_flight", "name", "mode", "closed"):
            with pytest.raises(AttributeError):
                setattr(queue, name, 1)

    def test_a_slash_before_the_name_is_posixs(self, queues: Queues) -> None:
        queue = queues.MessageQueue(f"/{queues.name}")
        assert queue.name == queues.name
        queue.send(b"message")
        assert queues.MessageQueue(queues.name.encode()).receive(0) == (b"message", 0)

    def test_the_longest_name(self, queues: Queues) -> None:
        queues.open(name="x" * (246 - len(queues.name))).send(b"")

    def test_queues_of_other_names_are_others(self, queues: Queues) -> None:
        one, other = queues.open(name="1"), queues.open(name="2")
        one.send(b"message")
        assert other.receive(0) is None

    def test_prefixes_are_apart(self, queues: Queues, prefix: str) -> None:
        inside, outside = queues.open(), queues.open(prefix="")
        assert (inside.prefix, outside.prefix) == (prefix, "")
        inside.send(b"inside")
        assert outside.receive(0) is None
        assert queues.open(0, prefix=prefix).receive(0) == (b"inside", 0)
        queues.MessageQueue.unlink_name(queues.name)
        outside.send(b"outside")
        queues.MessageQueue.unlink_name(queues.name, "")

    @pytest.mark.needs("sharing")
    def test_it_is_one_file_with_the_mode_that_was_asked_for(self, queues: Queues) -> None:
        queue = queues.open(mode=0o660)
        path = SHM / f"msgqjobs_{queues.name}"
        assert queue.path == str(path)
        assert path.stat().st_mode & 0o777 == queue.mode == 0o660
        assert queues.open(mode=0o600).mode == 0o660
        queue.unlink()
        assert not path.exists()

    def test_the_mode_of_a_new_one_is_for_its_owner(self, queues: Queues) -> None:
        assert queues.open().mode == 0o600

    def test_a_queue_is_told_from_its_successors(self, queues: Queues) -> None:
        first, same = queues.open(), queues.open()
        assert first.identity == same.identity
        first.unlink()
        assert queues.open().identity != first.identity


class TestSchema:
    ONE, OTHER = Schema("one", "text"), Schema("other", "text")

    def test_it_stays_with_the_queue(self, queues: Queues) -> None:
        queues.open(schema=self.ONE).close()
        assert queues.open().schema == self.ONE

    def test_the_first_one_counts(self, queues: Queues) -> None:
        first = queues.open()
        assert first.schema is None
        assert queues.open(schema=self.ONE).schema == self.ONE
        assert queues.open(schema=self.OTHER).schema == self.ONE
        assert first.schema == self.ONE

    def test_it_is_a_schema(self, queues: Queues) -> None:
        with pytest.raises(TypeError, match="Schema"):
            queues.open(schema="text")


class TestHandles:
    def test_a_handle_says_what_it_is(self, queues: Queues) -> None:
        queue = queues.open(max_messages=3)
        queue.send(b"message")
        assert "MessageQueue" in repr(queue)
        assert f"{queues.name!r}, 1 of 3 messages" in repr(queue)

    @pytest.mark.parametrize("block", [True, False])
    def test_it_pickles_by_name(self, queues: Queues, block: bool) -> None:
        queue = queues.open(O_CREAT, max_messages=3, write=False)
        queue.block = block
        copy = pickle.loads(pickle.dumps(queue))
        queues.open().send(b"message")
        assert (copy.name, copy.block, copy.max_messages) == (queues.name, block, 3)
        assert copy.receive(0) == (b"message", 0)
        queue.close()
        assert not copy.closed
        with pytest.raises(IpcError, match="write=False"):
            copy.send(b"")
        copy.close()

    def test_it_pickles_its_prefix(self, queues: Queues, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        queue = queues.open()
        queue.send(b"message")
        data = pickle.dumps(queue)
        monkeypatch.delenv("OPENPILOT_PREFIX")
        with pickle.loads(data) as copy:
            assert copy.prefix == prefix
            assert copy.receive(0) == (b"message", 0)

    def test_what_is_unlinked_cannot_be_unpickled(self, queues: Queues) -> None:
        queue = queues.open()
        data = pickle.dumps(queue)
        queue.unlink()
        with pytest.raises(SegmentError) as caught:
            pickle.loads(data)
        assert caught.value.errno == errno.ENOENT
