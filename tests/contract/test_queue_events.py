"""Work queues: what those that were made with events say of their messages, on a channel."""

from __future__ import annotations

import errno
import gc
import pickle
import shutil
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from msgq import stats
from msgq.channel import Channel
from msgq.common.naming import events_channel
from msgq.common.queue_events import EVENT_HEAD_BYTES, EVENT_HEAD_FORMAT, QUEUE_EVENT_SCHEMA, Event
from msgq.errors import (
    EndpointNameError,
    InvalidValueError,
    LeaseExpiredError,
    MessageTooLargeError,
    QueueFullError,
    QueueMismatchError,
    SegmentError,
)
from msgq.impl.base.clock import set_origin
from msgq.impl.workqueue.options import O_CREAT
from tests.contract import queue_children
from tests.contract.conftest import Queues
from tests.support import DEADLINE, SHM, Child, in_fork, wait_until

SENT, TAKEN, ACKNOWLEDGED, RETURNED, REFUSED, RECEIVED = Event


class Heard(NamedTuple):
    """An event as a subscriber gets it, with what its message has beside."""

    event: Event
    row: int
    priority: int
    deliveries: int
    number: int
    publish_time: int
    sent_time: int
    taken_time: int
    size: int
    pid: int
    payload: bytes
    origin: int


class Ear:
    """A subscriber of a queue's events."""

    def __init__(self, name: str, prefix: str | None = None) -> None:
        self.channel = Channel(events_channel(name), prefix=prefix)
        self.sub = self.channel.subscriber(max_views=16)

    def heard(self) -> list[Heard]:
        """Return what was published since the last time."""
        found = []
        while (sample := self.sub.receive_view(timeout=0)) is not None:
            with sample:
                data = bytes(sample)
                head = Heard._make(
                    (*struct.unpack_from(EVENT_HEAD_FORMAT, data), data[EVENT_HEAD_BYTES:], sample.origin_time)
                )
                found.append(head._replace(event=Event(head.event)))
        return found

    def kinds(self) -> list[Event]:
        return [one.event for one in self.heard()]

    def close(self) -> None:
        self.sub.close()
        self.channel.close()


@pytest.fixture
def event_listener(queues: Queues) -> Iterator[Ear]:
    event_listener = Ear(queues.name)
    yield event_listener
    event_listener.close()


def channels(name: str) -> bool:
    """Whether the queue has a channel of events."""
    try:
        Channel(events_channel(name), create=False, passive=True).close()
    except SegmentError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    return True


class TestOpening:
    def test_queue_by_default_publishes_no_events(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        assert queue.receive(0)
        assert queue.events is None
        assert not channels(queues.name)

    @pytest.mark.parametrize("events", [True, "payload"])
    def test_queue_creator_decides_whether_events_are_published(self, queues: Queues, events: Any) -> None:
        assert queues.open(events=events).events == events
        assert queues.open().events == events
        assert queues.open(events=events).events == events
        assert queues.open(0).events == events

    @pytest.mark.parametrize(("there", "asked"), [(None, True), (True, "payload"), ("payload", True)])
    def test_queue_mismatch_error_names_stored_and_given_events_value(
        self, queues: Queues, there: Any, asked: Any
    ) -> None:
        queues.open(events=there)
        with pytest.raises(QueueMismatchError, match=f"has events={there!r}, but events={asked!r} was requested"):
            queues.open(events=asked)
        assert queues.open(O_CREAT, events=asked).events == there, "with flags it is taken as it is"

    @pytest.mark.parametrize("wrong", [False, 1, 0, "heads", "", b"payload"])
    def test_queue_with_invalid_events_value_is_refused(self, queues: Queues, wrong: Any) -> None:
        with pytest.raises(InvalidValueError, match="give None, True or 'payload'"):
            queues.open(events=wrong)

    def test_queue_name_too_long_for_its_events_channel_is_refused(self, queues: Queues) -> None:
        with pytest.raises(EndpointNameError, match="channel"):
            queues.open(name="x" * (230 - len(queues.name) - len(":events")), events=True)

    def test_idle_queue_handle_opens_no_event_publisher(self, queues: Queues) -> None:
        queue = queues.open(events=True)
        assert queue.receive(0) is None
        assert queue.take(0) is None
        assert queue.peek() == []
        assert not channels(queues.name)

    def test_events_channel_has_a_schema(self, queues: Queues) -> None:
        queues.open(events=True).send(b"message")
        with Channel(events_channel(queues.name), passive=True, create=False) as channel:
            assert channel.schema == QUEUE_EVENT_SCHEMA
            assert channel.capacity == 4096
            assert channel.stamps

    def test_events_channel_is_removed_with_the_queue(self, queues: Queues) -> None:
        queue, late = queues.open(events=True), queues.open()
        queue.send(b"message")
        queue.unlink()
        assert not channels(queues.name)
        late.send(b"the first of this handle")
        assert late.receive(0)
        assert not channels(queues.name)
        again = queues.open(events=True)
        queue.send(b"to the one without a name")
        assert queue.receive(0)
        assert not channels(queues.name), "the handle of the old one publishes where it did"
        again.send(b"message")
        assert channels(queues.name)
        queues.MessageQueue.unlink_name(queues.name)
        assert not channels(queues.name)
        queues.open()

    def test_unpickled_queue_handle_publishes_events(self, queues: Queues, event_listener: Ear) -> None:
        other = pickle.loads(pickle.dumps(queues.open(events=True)))
        other.send(b"message")
        assert other.events is True
        assert event_listener.kinds() == [SENT]
        other.close()

    def test_events_channel_has_the_prefix_of_its_queue(self, queues: Queues) -> None:
        prefix = f"p{queues.name}"
        queue = queues.open(events=True, prefix=prefix)
        event_listener = Ear(queues.name, prefix)
        queue.send(b"message")
        assert event_listener.kinds() == [SENT]
        assert not channels(queues.name)
        event_listener.close()
        queue.unlink()
        for kind in ("chan", "pool"):
            shutil.rmtree(SHM / f"msgq{kind}_{prefix}", ignore_errors=True)


class TestEvents:
    def test_each_queue_operation_publishes_its_event(self, queues: Queues, event_listener: Ear) -> None:
        sender, worker = queues.open(events=True), queues.open()
        sender.send(b"message", 5, origin_time=77)
        job = worker.take(0)
        job.nack()
        worker.take(0).ack()
        sent, taken, back, again, done = heard = event_listener.heard()
        assert [one.event for one in heard] == [SENT, TAKEN, RETURNED, TAKEN, ACKNOWLEDGED]
        assert {(one.priority, one.number, one.sent_time, one.size, one.origin) for one in heard} == {
            (5, sent.number, job.sent_time, 7, 77)
        }
        assert sent.number
        assert [one.deliveries for one in heard] == [0, 1, 1, 2, 2]
        assert sent.row != taken.row
        assert {one.row for one in heard[1:]} == {taken.row}
        assert [one.publish_time for one in heard] == sorted(one.publish_time for one in heard)
        assert sent.publish_time == sent.sent_time
        assert sent.taken_time == 0
        assert taken.taken_time == taken.publish_time == back.taken_time
        assert again.taken_time == again.publish_time == done.taken_time
        assert not any(one.payload for one in heard)

    def test_receive_publishes_received_event(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events="payload")
        queue.send_many([b"one", b"two", b"three"], 1)
        assert queue.receive(0)
        assert queue.receive_into(bytearray(8), 0) == (3, 1)
        assert len(queue.receive_many()) == 1
        heard = event_listener.heard()
        assert [one.event for one in heard] == [SENT] * 3 + [RECEIVED] * 3
        assert [one.payload for one in heard] == [b"one", b"two", b"three", b"", b"", b""]
        assert [one.number for one in heard[:3]] == [one.number for one in heard[3:]]
        assert len({one.number for one in heard}) == 3
        assert [one.size for one in heard] == [3, 3, 5] * 2
        for one in heard[3:]:
            assert one.sent_time <= one.taken_time <= one.publish_time
            assert one.deliveries == 1

    def test_event_numbers_increase_in_send_order(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events=True)
        for number in range(20):
            queue.send(b"%d" % number, number % 3)
            if number % 4 == 3:
                assert queue.receive(0)
        numbers = [one.number for one in event_listener.heard() if one.event == SENT]
        assert numbers == sorted(set(numbers))

    def test_send_to_full_queue_publishes_refused_event(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events="payload", max_messages=2)
        queue.send_many([b"message"] * 2)
        with pytest.raises(QueueFullError):
            queue.send(b"message", 4, timeout=0, origin_time=9)
        assert queue.send_many([b"long message"], 6, timeout=0.01) == 0
        heard = event_listener.heard()
        assert [one.event for one in heard] == [SENT, SENT, REFUSED, REFUSED]
        assert [(one.priority, one.size, one.origin, one.payload) for one in heard[2:]] == [
            (4, 7, 9, b""),
            (6, 12, 0, b""),
        ]
        for one in heard[2:]:
            assert (one.number, one.deliveries, one.sent_time, one.taken_time) == (0, 0, 0, 0)

    def test_refused_send_publishes_no_sent_event(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events=True, max_message_size=4)
        for wrong in (b"too long", 5):
            with pytest.raises((TypeError, MessageTooLargeError)):
                queue.send(wrong)
        queue.send(b"four")
        assert event_listener.kinds() == [SENT]

    def test_event_has_origin_time_of_its_message(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events=True)
        set_origin(500)
        try:
            queue.send(b"the thread's")
            queue.send(b"its own", origin_time=7)
        finally:
            set_origin(0)
        queue.send(b"none")
        set_origin(900)
        try:
            assert len(queue.receive_many()) == 3
        finally:
            set_origin(0)
        assert [one.origin for one in event_listener.heard()] == [500, 7, 0, 500, 7, 0]

    def test_message_that_becomes_due_publishes_no_event(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events=True)
        queue.send(b"message", delay=0.02)
        assert queue.receive(DEADLINE)
        assert event_listener.kinds() == [SENT, RECEIVED]

    @pytest.mark.parametrize("end", ["forgotten", "raised", "closed", "lease"])
    def test_message_returned_to_queue_publishes_returned_event(
        self, queues: Queues, event_listener: Ear, end: str
    ) -> None:
        queue = queues.open(events=True)
        queue.send(b"message")
        job = queue.take(0, lease=0.02 if end == "lease" else None)
        if end == "forgotten":
            del job
            gc.collect()
        elif end == "raised":
            with pytest.raises(ZeroDivisionError), job:
                raise ZeroDivisionError
        elif end == "closed":
            queue.close()
        else:
            queues.sleep(0.1)
            assert queue.receive(0), "the lease is over"
            with pytest.raises(LeaseExpiredError):
                job.ack()
        heard = event_listener.heard()
        assert [one.event for one in heard[:3]] == [SENT, TAKEN, RETURNED]
        assert [one.event for one in heard[3:]] == [RECEIVED] * (end == "lease")
        assert heard[2].taken_time == heard[1].taken_time > 0
        assert heard[2].deliveries == 1
        if end == "lease":
            assert heard[3].deliveries == 2

    @pytest.mark.parametrize("end", ["nack", "forgotten", "closed"])
    def test_nack_after_expired_lease_publishes_no_event(self, queues: Queues, event_listener: Ear, end: str) -> None:
        """What: the lease is over, another brings the message back, and then its taker wants to.

        Failure would mean: a return is told that did not take place.
        """
        taker, other = queues.open(events=True), queues.open()
        taker.send(b"message")
        job = taker.take(0, lease=0.02)
        queues.sleep(0.1)
        assert other.receive(0), "the lease is over"
        if end == "nack":
            job.nack()
        elif end == "closed":
            taker.close()
        del job
        gc.collect()
        assert event_listener.kinds() == [SENT, TAKEN, RETURNED, RECEIVED]

    def test_closed_queue_handle_publishes_no_event(self, queues: Queues, event_listener: Ear) -> None:
        queue, other = queues.open(events=True), queues.open()
        queue.send(b"message")
        queue.close()
        assert other.receive(0)
        assert event_listener.kinds() == [SENT, RECEIVED]

    @pytest.mark.needs_shm(32 << 20)
    def test_queue_handles_beyond_63_publish_no_events_and_count_losses(
        self, queues: Queues, event_listener: Ear
    ) -> None:
        handles = [queues.open(events=True, max_messages=128) for _ in range(70)]
        for handle in handles:
            handle.send(b"message")
        heard = event_listener.heard()
        assert len({one.row for one in heard}) == len(heard) == 63
        assert handles[0].current_messages == 70
        jobs = [handle.take(0) for handle in handles[60:]]
        for job in jobs:
            job.ack()
        assert Counter(event_listener.kinds()) == {TAKEN: 3, ACKNOWLEDGED: 3}
        if queues.backend == "msgq":
            found = stats.queue(queues.name)
            assert (found.sent, found.received, found.acknowledged) == (70, 10, 10)
            assert found.events == "heads"
            assert found.events_lost == 7 + 2 * 7


@pytest.mark.needs("processes")
class TestProcesses:
    def test_events_of_two_processes_are_published(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events="payload")
        with Child(queue_children.consumer, queues.backend, queues.name) as child:
            assert child.hear() == "ready"
            queue.send_many([b"one", b"two", b""])
            assert child.result() == ["one", "two"]
            heard = event_listener.heard()
            assert Counter(one.event for one in heard) == {SENT: 3, RECEIVED: 3}
            assert all((one.pid == child.pid) == (one.event == RECEIVED) for one in heard)
            by_number = Counter(one.number for one in heard)
            assert list(by_number.values()) == [2, 2, 2]

    @pytest.mark.parametrize("how", ["waits", "looks", "opens", "watches", "is told"])
    def test_message_of_killed_consumer_publishes_one_returned_event(
        self, queues: Queues, event_listener: Ear, how: str
    ) -> None:
        """It is told by the one who brings it back, who is alive."""
        queue, *others = (queues.open(events=True) for _ in range(4))
        queue.send(b"message")
        if how == "watches":
            others[0].fileno()
        if how == "is told":
            told = threading.Event()
            others[0].notify(lambda _: told.set())
        with Child(queue_children.take_without_ack, queues.backend, queues.name) as child:
            assert child.hear() == "message"
            child.kill()
            taken = event_listener.heard()
            assert [one.event for one in taken] == [SENT, TAKEN]
            if how == "waits":
                assert queue.take(DEADLINE).deliveries == 2
            elif how == "opens":
                queues.open()
                assert queue.take(DEADLINE).deliveries == 2
            elif how == "is told":
                assert told.wait(DEADLINE)
                assert others[0].take(0).deliveries == 2
            else:
                wait_until(lambda: others[0].take(0))
        wait_until(lambda: any(one.receive(0) for one in (queue, *others)) or True)
        heard = event_listener.heard()
        back = [one for one in heard if one.event == RETURNED and one.deliveries == 1]
        assert len(back) == 1
        assert back[0].pid != taken[1].pid
        assert back[0].row != taken[1].row
        assert (back[0].number, back[0].taken_time) == (taken[1].number, taken[1].taken_time)
        assert back[0].publish_time >= taken[1].publish_time

    def test_event_counts_equal_the_queue_statistics(self, queues: Queues, event_listener: Ear) -> None:
        """What a kill leaves out is in tests/crash."""
        queue = queues.open(events=True)
        for number in range(5):
            queue.send(b"%d" % number)
        assert len(queue.receive_many()) == 5
        told = Counter(event_listener.kinds())
        found = stats.queue(queues.name)
        assert (found.sent, found.received, found.acknowledged) == (told[SENT], told[RECEIVED], told[RECEIVED])
        assert found.events_lost == 0

    def test_process_exit_with_open_job_publishes_returned_event(self, queues: Queues, event_listener: Ear) -> None:
        queues.open(events=True).send(b"message")
        with Child(queue_children.take_without_ack, queues.backend, queues.name) as child:
            assert child.hear() == "message"
            child.say("end")
            child.result()
            heard = event_listener.heard()
        assert [(one.event, one.pid == child.pid) for one in heard] == [(SENT, False), (TAKEN, True), (RETURNED, True)]

    def test_forked_child_has_its_own_event_publisher(self, queues: Queues, event_listener: Ear) -> None:
        queue = queues.open(events="payload")
        queue.send(b"parent")

        def child() -> None:
            queue.send(b"child")
            queue.close()

        assert in_fork(child) == 0
        queue.send(b"again")
        heard = event_listener.heard()
        assert [one.payload for one in heard] == [b"parent", b"child", b"again"]
        assert heard[0].pid == heard[2].pid != heard[1].pid
        assert heard[0].row == heard[2].row != heard[1].row

    @pytest.mark.needs_shm(48 << 20)
    def test_threads_that_share_a_handle_publish_all_events(self, queues: Queues, event_listener: Ear) -> None:
        """Large payloads are copied without the GIL: others send, and tell, meanwhile."""
        size, each = 400_000, 8
        queue = queues.open(events="payload", max_messages=64, max_message_size=size)

        def send(number: int) -> None:
            for _ in range(each):
                queue.send(bytes([number]) * size)
                queue.send(bytes([number]))
                assert queue.receive(0)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        heard = []
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            heard += event_listener.heard()
        heard += event_listener.heard()
        found = stats.queue(queues.name)
        assert len(heard) + event_listener.sub.lost + found.events_lost == found.sent + found.acknowledged == each * 12
        for one in heard:
            assert len(one.payload) == (one.size if one.event == SENT else 0)
            assert len(set(one.payload)) < 2

    @pytest.mark.needs_shm(40 << 20)
    def test_send_succeeds_while_views_hold_all_event_slots(self, queues: Queues, event_listener: Ear) -> None:
        size = 4 << 20
        queue = queues.open(events="payload", max_messages=4, max_message_size=size)
        held: list[Any] = []
        for _ in range(4):
            queue.send(b"message")
            held.append(event_listener.sub.receive_view(timeout=0))
        assert None not in held
        assert queue.receive(0)
        assert queue.receive(0)
        assert stats.queue(queues.name).events_lost == 2
        for sample in held:
            sample.release()
        assert queue.receive(0)
        assert event_listener.kinds() == [RECEIVED]
