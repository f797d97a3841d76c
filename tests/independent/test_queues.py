"""Work queues between this library and an implementation that was written from the docs alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import pytest

import msgq
from tests.independent import queue_file, work_queue
from tests.independent.queue_events import receive_events, subscribe_events
from tests.independent.queue_file import EVENTCOUNTS, HANDOFF, LAST_TICKET, OLDEST_TICKET, RECEIVER
from tests.independent.shared_file import NOTIFYING, EventCount
from tests.independent.work_queue import Handle, Job, LeaseOverError, QueueFullError
from tests.support import Child, Task, hear, say, wait_asleep

COUNT = 600


def data_of(handle: Handle, count: int) -> list[bytes]:
    jobs = [handle.receive() for _ in range(count)]
    return [job.data for job in jobs if job]


def receive_ours(queue: msgq.MessageQueue) -> msgq.workqueue.Message:
    message = queue.receive(timeout=60)
    assert message
    return message


def take_ours(queue: msgq.MessageQueue, lease: float | None = None) -> msgq.workqueue.Job:
    job = queue.take(timeout=60, lease=lease)
    assert job
    return job


def test_independent_receiver_gets_msgq_messages_in_order(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=8, max_message_size=100) as ours:
        theirs = Handle(endpoint)
        for number in range(0, COUNT, 6):  # the slots are used again and again
            for offset in range(6):
                ours.send(b"%d" % (number + offset), priority=offset % 2)
            expected = [b"%d" % (number + offset) for offset in (1, 3, 5, 0, 2, 4)]
            assert data_of(theirs, 7) == expected
        assert ours.current_messages == 0
        theirs.close()


def test_msgq_receiver_gets_independent_messages_in_order(endpoint: str) -> None:
    queue_file.create_queue(endpoint, 8, 100)
    theirs = Handle(endpoint)
    with msgq.MessageQueue(endpoint) as ours:
        assert (ours.max_messages, ours.max_message_size) == (8, 100)
        for number in range(0, COUNT, 6):
            for offset in range(6):
                theirs.send(b"%d" % (number + offset), priority=offset % 2, origin_time=number + 1)
            messages = ours.receive_many()
            assert [message.data for message in messages] == [b"%d" % (number + i) for i in (1, 3, 5, 0, 2, 4)]
            assert {message.origin_time for message in messages} == {number + 1}
            assert [message.priority for message in messages] == [1, 1, 1, 0, 0, 0]
    theirs.close()


def test_full_queue_rejects_msgq_and_independent_sender(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=3, max_message_size=8) as ours:
        theirs = Handle(endpoint)
        ours.send(b"1")
        theirs.send(b"2")
        ours.send(b"3")
        with pytest.raises(QueueFullError):
            theirs.send(b"4")
        with pytest.raises(msgq.errors.QueueFullError):
            ours.send(b"4", timeout=0)
        assert data_of(theirs, 1) == [b"1"]
        ours.send(b"4")
        assert data_of(theirs, 4) == [b"2", b"3", b"4"]
        assert (theirs.receive(), ours.receive(timeout=0)) == (None, None)
        counts = msgq.stats.queue(endpoint)
        assert (counts.sent, counts.received, counts.acknowledged, counts.refused) == (4, 4, 4, 2)
        theirs.close()


def only_wakes() -> None:
    work_queue.POLL_S = 3600.0  # only a wake ends a sleep


def receive_theirs(endpoint: str, count: int) -> list[str]:
    only_wakes()
    handle = Handle(endpoint)
    say("ready")
    received = []
    for _ in range(count):
        job = handle.receive(60)
        assert job
        received.append(job.data.decode())
    handle.close()
    return received


def send_theirs(endpoint: str, count: int) -> None:
    only_wakes()
    handle = Handle(endpoint)
    say("ready")
    for number in range(count):
        handle.send(b"%d" % number, timeout=60)
    handle.close()


def test_msgq_send_wakes_independent_receiver(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours, Child(receive_theirs, endpoint, 3) as child:
        child.hear()
        for number in range(3):
            wait_asleep(child.pid)
            ours.send(b"%d" % number)
        assert child.result() == ["0", "1", "2"]


def test_independent_send_wakes_msgq_receiver(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        for _ in range(3):
            task = Task(lambda: ours.receive(timeout=60))
            assert task.is_woken_by(lambda: theirs.send(b"now"))
            assert task.result().data == b"now"
        theirs.close()


def test_msgq_receive_wakes_waiting_independent_sender(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=1) as ours, Child(send_theirs, endpoint, 3) as child:
        child.hear()
        for number in range(2):
            wait_asleep(child.pid)
            assert receive_ours(ours).data == b"%d" % number
        assert receive_ours(ours).data == b"2"
        child.result()


def test_independent_receive_wakes_waiting_msgq_sender(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=1) as ours:
        theirs = Handle(endpoint)
        ours.send(b"1")
        task = Task(lambda: ours.send(b"2", timeout=60))
        assert task.is_woken_by(theirs.receive)
        task.result()
        assert data_of(theirs, 2) == [b"2"]
        theirs.close()


def test_small_queue_carries_msgq_messages_to_independent_receiver(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=2) as ours, Child(receive_theirs, endpoint, COUNT) as child:
        child.hear()
        for number in range(COUNT):
            ours.send(b"%d" % number, timeout=60)
        assert child.result() == [str(number) for number in range(COUNT)]


def test_small_queue_carries_independent_messages_to_msgq_receiver(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=2) as ours, Child(send_theirs, endpoint, COUNT) as child:
        child.hear()
        received = [receive_ours(ours).data for _ in range(COUNT)]
        assert received == [b"%d" % number for number in range(COUNT)]
        child.result()


def take_and_wait(endpoint: str) -> None:
    handle = Handle(endpoint)
    job = handle.take()
    assert job
    say(job.deliveries)
    hear()


def test_message_of_killed_independent_consumer_returns_to_msgq_consumer(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        ours.send(b"work")
        ours.send(b"later")
        with Child(take_and_wait, endpoint) as child:
            assert child.hear() == 1
            assert (ours.current_messages, ours.in_flight) == (1, 1)
            child.kill()
        again = receive_ours(ours)
        while again.data != b"work":  # a receive may come before the sweep
            again = receive_ours(ours)
        assert again.deliveries == 2


def take_and_wait_before_count(endpoint: str) -> None:
    """Wait to be killed between step 4 of receiving and the addition of step 5."""
    handle = Handle(endpoint)
    slot, key = handle.find_best()
    assert handle.file.exchange(handle.word(slot), key, handle._next_taken_word())
    say("taken")
    hear()


def test_second_delivery_counts_as_first_after_kill_before_count(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        for take_again in (theirs.take, lambda timeout: take_ours(ours)):
            ours.send(b"work")
            with Child(take_and_wait_before_count, endpoint) as child:
                assert child.hear() == "taken"
                child.kill()
            job = take_again(60)
            assert job
            assert (job.data, job.deliveries) == (b"work", 1)
            theirs.acknowledge(job) if isinstance(job, Job) else job.ack()
        theirs.close()


def take_ours_and_wait(endpoint: str) -> None:
    job = take_ours(msgq.MessageQueue(endpoint, max_messages=128))
    say(job.deliveries)
    hear()


def test_message_of_killed_msgq_consumer_returns_to_independent_consumer(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        ours.send(b"work")
        with Child(take_ours_and_wait, endpoint) as child:
            assert child.hear() == 1
            assert theirs.receive() is None
            child.kill()
        job = theirs.receive(60)
        assert job
        assert (job.data, job.deliveries) == (b"work", 2)
        theirs.close()


def test_returned_message_keeps_queue_position(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        theirs.send(b"1")
        ours.send(b"2")
        job = theirs.take()
        assert job
        theirs.give_back(job)
        message = receive_ours(ours)
        assert (message.data, message.deliveries) == (b"1", 2)
        our_job = take_ours(ours)
        our_job.nack()
        job = theirs.receive()
        assert job
        assert (job.data, job.deliveries) == (b"2", 2)
        theirs.close()


def test_expired_lease_makes_message_available_to_other_implementation(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        ours.send(b"work")
        job = theirs.take(lease=0.01)
        our_job = take_ours(ours, lease=0.01)
        assert job
        with pytest.raises(LeaseOverError):
            theirs.acknowledge(job)
        again = theirs.take(60)
        assert again
        assert again.deliveries == 3
        with pytest.raises(msgq.errors.LeaseExpiredError):
            our_job.ack()
        theirs.acknowledge(again)
        theirs.close()


def test_delayed_messages_of_each_implementation_reach_the_other_implementation(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        ours.send(b"ours", delay=0.03)
        job = theirs.take(60)
        assert job
        assert job.data == b"ours"
        theirs.give_back_later(job, 0.03)
        our_job = take_ours(ours)
        assert (our_job.data, our_job.deliveries) == (b"ours", 2)
        our_job.ack()
        theirs.send(b"theirs", delay=0.03)
        our_job = take_ours(ours)
        assert (our_job.data, our_job.deliveries) == (b"theirs", 1)
        our_job.nack(delay=0.03)
        again = theirs.take(60)
        assert again
        assert (again.data, again.deliveries, ours.delayed_messages) == (b"theirs", 2, 0)
        theirs.acknowledge(again)
        stats = ours.stats()
        assert (stats.sent, stats.returned, stats.acknowledged) == (2, 2, 2)
        theirs.close()


@pytest.mark.parametrize("sender_of", [msgq.MessageQueue, Handle])
def test_send_wakes_row_with_smallest_ticket(
    endpoint: str, sender_of: Callable[[str], msgq.MessageQueue | Handle]
) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128):
        sender, late, early = sender_of(endpoint), Handle(endpoint), Handle(endpoint)
        with announced(late, ticket=2) as late_sleeper, announced(early, ticket=1) as early_sleeper:
            sender.send(b"1")
            assert (early_sleeper.has_waiters(), late_sleeper.has_waiters()) == (False, True)
        for handle in (sender, late, early):
            handle.close()


@pytest.mark.parametrize("sender_of", [msgq.MessageQueue, Handle])
def test_send_during_wake_of_first_row_wakes_second_row(
    endpoint: str, sender_of: Callable[[str], msgq.MessageQueue | Handle]
) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128):
        sender, late, early = sender_of(endpoint), Handle(endpoint), Handle(endpoint)
        with announced(late, ticket=2) as late_sleeper, announced(early, ticket=1) as early_sleeper:
            word = early.file.load32(early.row + EVENTCOUNTS)
            assert early.file.exchange32(early.row + EVENTCOUNTS, word, word | NOTIFYING)
            sender.send(b"1")
            assert (early_sleeper.has_waiters(), late_sleeper.has_waiters()) == (False, False)
        for handle in (sender, late, early):
            handle.close()


@contextlib.contextmanager
def announced(handle: Handle, ticket: int) -> Iterator[EventCount]:
    """Announce a sleeping receiver in the row of a handle, without a thread that sleeps."""
    handle.file.store(handle.row + OLDEST_TICKET, ticket)
    eventcount = EventCount(handle.file, handle.row + EVENTCOUNTS)
    with handle.sleeping_bit(RECEIVER, eventcount):
        yield eventcount


def test_receive_respects_pending_handoff_and_ends_unused_handoff(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        for receive in (theirs.receive, lambda timeout: ours.receive(timeout=timeout)):
            theirs.send(b"1")
            theirs.file.store(HANDOFF + 8 * RECEIVER, theirs.file.add(LAST_TICKET, 1) + 1)  # of a call that never comes
            assert receive(0) is None
            message = receive(60)
            assert message
            assert (message.data, theirs.file.load(HANDOFF)) == (b"1", 0)
        theirs.close()


def hold_handoff(endpoint: str) -> None:
    """Have the handoff of a waiting receiver, and wait to be killed."""
    handle = Handle(endpoint)
    for offset in (handle.row + OLDEST_TICKET, HANDOFF):
        handle.file.store(offset + 8 * RECEIVER, 7)
    say("held")
    hear()


def test_independent_sweep_settles_row_of_killed_process_with_handoff(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128), Child(hold_handoff, endpoint) as child:
        assert child.hear() == "held"
        theirs = Handle(endpoint)
        child.kill()
        theirs.sweep()
        assert theirs.file.load(HANDOFF) == 0
        theirs.close()


@pytest.mark.parametrize("creator", ["msgq", "independent"])
def test_new_queue_file_has_all_its_memory_and_mode_600(endpoint: str, creator: str) -> None:
    if creator == "msgq":
        msgq.MessageQueue(endpoint, max_messages=128).close()
    else:
        queue_file.create_queue(endpoint, 128, 8192)
    found = queue_file.path_of(endpoint).stat()
    assert found.st_mode & 0o777 == 0o600
    assert found.st_blocks * 512 >= found.st_size > 1 << 20


def notify_theirs(endpoint: str) -> bool:
    only_wakes()
    handle = Handle(endpoint)
    say("ready")
    is_notified = handle.wait_notification(60)
    handle.close()
    return is_notified


def test_msgq_send_to_empty_queue_notifies_independent_process(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128) as ours, Child(notify_theirs, endpoint) as child:
        child.hear()
        wait_asleep(child.pid)
        ours.send(b"1")
        assert child.result()


def test_independent_send_to_empty_queue_notifies_msgq_process(endpoint: str) -> None:
    notified = threading.Event()
    with msgq.MessageQueue(endpoint, max_messages=128) as ours:
        theirs = Handle(endpoint)
        ours.notify(lambda _: notified.set())
        theirs.send(b"1")
        assert notified.wait(60)
        theirs.close()


def test_independent_subscriber_reads_msgq_queue_events(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=1, events="payload") as ours:
        subscriber = subscribe_events(endpoint)
        ours.send(b"work", priority=3)
        with pytest.raises(msgq.errors.QueueFullError):
            ours.send(b"more", timeout=0)
        take_ours(ours).nack()
        take_ours(ours).ack()
        ours.send(b"next")
        assert receive_ours(ours).data == b"next"
        events = receive_events(subscriber)
        kinds = [event.kind for event in events]
        assert kinds == ["sent", "refused", "taken", "returned", "taken", "acknowledged", "sent", "received"]
        assert (events[1].number, events[1].payload, events[1].size) == (0, b"", 4)
        work = [event for event in events if event.number == events[0].number]
        assert [event.kind for event in work] == ["sent", "taken", "returned", "taken", "acknowledged"]
        assert [event.payload for event in work] == [b"work", b"", b"", b"", b""]
        assert [event.deliveries for event in work] == [0, 1, 1, 2, 2]
        assert {(event.priority, event.size, event.pid) for event in work} == {(3, 4, os.getpid())}
        assert all(event.taken_time >= event.sent_time for event in work[1:])
        subscriber.close()
        ours.unlink()


def test_independent_handle_is_listed_until_close(endpoint: str) -> None:
    with msgq.MessageQueue(endpoint, max_messages=128):
        theirs = Handle(endpoint)
        handles = msgq.stats.queue(endpoint).handles
        assert [handle.participant.pid for handle in handles] == [os.getpid()] * 2
        theirs.close()
        assert len(msgq.stats.queue(endpoint).handles) == 1
