"""Work queues: messages that are taken and acknowledged, given back, or lost by who took them."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest

from msgq.errors import EndpointClosedError, ForkedSocketError, LeaseExpiredError, StateError
from tests.contract import queue_children
from tests.contract.conftest import Queues
from tests.support import DEADLINE, Child, in_fork

LEASE = 0.05


class Refused(Exception):
    """What the work on a job raises."""


def counts(queue: Any) -> tuple[int, int]:
    """Return how many messages wait, and how many are taken."""
    return queue.current_messages, queue.in_flight


class TestTaking:
    def test_job_has_the_attributes_of_its_message(self, queues: Queues) -> None:
        queue = queues.open()
        before = queues.time_ns()
        queue.send(b"message", 5, origin_time=123)
        job = queue.take(0)
        assert isinstance(job, queues.Job)
        assert (job.data, job.priority, job.deliveries, job.origin_time) == (b"message", 5, 1, 123)
        assert before <= job.sent_time <= queues.time_ns()
        assert queues.name in repr(job)
        assert "7 bytes, open" in repr(job)
        job.ack()
        assert "ended" in repr(job)

    def test_taken_message_is_hidden_from_all_handles(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        job = queue.take(0)
        assert counts(other) == (0, 1)
        assert (other.receive(0), other.take(0), queue.take(0)) == (None, None, None)
        job.ack()
        assert counts(other) == (0, 0)

    def test_take_returns_jobs_in_the_order_of_messages(self, queues: Queues) -> None:
        queue = queues.open()
        for number, priority in enumerate([1, 3, 2, 3]):
            queue.send(b"%d" % number, priority)
        jobs = [queue.take(0) for _ in range(4)]
        assert [job.data for job in jobs] == [b"1", b"3", b"2", b"0"]

    @pytest.mark.parametrize("end", ["ack", "nack", "close"])
    def test_ended_job_keeps_its_data(self, queues: Queues, end: str) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"message", 5)
        job = queue.take(0)
        queue.close() if end == "close" else getattr(job, end)()
        with queues.open() as other:
            other.receive(0)
            other.send(b"another in the same place", timeout=0)
        assert (job.data, job.priority, job.deliveries) == (b"message", 5, 1)

    def test_take_from_an_empty_queue_returns_none(self, queues: Queues) -> None:
        queue = queues.open()
        assert queue.take(0) is None
        assert queue.take(timeout=0) is None
        assert queue.take(0.02) is None

    def test_job_cannot_be_created_directly(self, queues: Queues) -> None:
        with pytest.raises(TypeError):
            queues.Job()


class TestEnding:
    def test_ack_removes_the_message(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"message")
        queue.take(0).ack()
        assert counts(queue) == (0, 0)
        queue.send(b"the place is free", timeout=0)

    def test_nack_returns_the_message_with_its_attributes(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message", 5, origin_time=9)
        sent_time = queue.peek()[0].sent_time
        queue.take(0).nack()
        assert counts(queue) == (1, 0)
        message = queue.receive(0)
        assert message == (b"message", 5)
        assert (message.deliveries, message.sent_time, message.origin_time) == (2, sent_time, 9)

    def test_nack_returns_the_message_to_its_queue_position(self, queues: Queues) -> None:
        queue = queues.open()
        for number, priority in enumerate([1, 2, 2, 2, 3]):
            queue.send(b"%d" % number, priority)
        jobs = [queue.take(0) for _ in range(4)]
        assert [job.data for job in jobs] == [b"4", b"1", b"2", b"3"]
        queue.send(b"later", 2)
        jobs[2].nack()
        jobs[1].nack()
        jobs[0].ack()
        assert [data for data, _ in queue.peek()] == [b"1", b"2", b"later", b"0"]
        jobs[3].nack()
        assert [data for data, _ in queue.receive_many()] == [b"1", b"2", b"3", b"later", b"0"]

    def test_deliveries_count_each_delivery(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"poison")
        for times in range(1, 6):
            job = queue.take(0)
            assert job.deliveries == times
            job.nack()
        assert queue.peek()[0].deliveries == 5

    @pytest.mark.parametrize("first", ["ack", "nack"])
    @pytest.mark.parametrize("second", ["ack", "nack"])
    def test_job_can_be_ended_only_once(self, queues: Queues, first: str, second: str) -> None:
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        getattr(job, first)()
        before = counts(queue)
        with pytest.raises(StateError) as caught:
            getattr(job, second)()
        assert caught.value.endpoint == queues.name
        assert counts(queue) == before

    def test_jobs_may_end_in_any_order(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send_many(b"%d" % number for number in range(6))
        jobs = [queue.take(0) for _ in range(6)]
        for number in (3, 0, 5):
            jobs[number].ack()
        for number in (4, 1, 2):
            jobs[number].nack()
        assert [data for data, _ in queue.receive_many()] == [b"1", b"2", b"4"]


class TestBlocks:
    def test_end_of_job_block_acknowledges_the_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        with queue.take(0) as job:
            assert job.data == b"message"
            assert counts(queue) == (0, 1)
        assert counts(queue) == (0, 0)

    @pytest.mark.parametrize("kind", [Refused, KeyboardInterrupt, GeneratorExit])
    def test_exception_in_job_block_returns_the_message(self, queues: Queues, kind: type[BaseException]) -> None:
        queue = queues.open()
        queue.send(b"message", 3)
        with pytest.raises(kind), queue.take(0):
            raise kind
        assert counts(queue) == (1, 0)
        assert queue.receive(0) == (b"message", 3)

    def test_ack_and_nack_inside_job_block_are_allowed(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send_many([b"1", b"2", b"3"])
        with queue.take(0) as job:
            job.ack()
        with queue.take(0) as job:
            job.nack()
        with contextlib.suppress(Refused), queue.take(0) as job:
            job.ack()
            raise Refused
        assert [data for data, _ in queue.receive_many()] == [b"3"]

    def test_ended_job_cannot_enter_a_with_block(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        job.ack()
        with pytest.raises(StateError), job:
            pass

    def test_job_block_left_early_acknowledges_the_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")

        def first() -> bytes:
            with queue.take(0) as job:
                return bytes(job.data)

        assert first() == b"message"
        assert counts(queue) == (0, 0)


class TestForgotten:
    def test_deleting_unended_job_returns_the_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        assert counts(queue) == (0, 1)
        del job
        gc.collect()
        assert counts(queue) == (1, 0)
        assert queue.receive(0).deliveries == 2

    def test_deleting_ended_job_returns_no_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        job.ack()
        queue.send(b"in the same place")
        taken = queue.take(0)
        del job
        gc.collect()
        assert counts(queue) == (0, 1)
        taken.ack()

    def test_job_keeps_its_handle_alive(self, queues: Queues) -> None:
        queues.open().send(b"message")
        job = queues.MessageQueue(queues.name).take(0)
        gc.collect()
        assert counts(queues.open()) == (0, 1)
        job.ack()
        assert counts(queues.open()) == (0, 0)

    def test_closing_handle_returns_messages_of_its_jobs(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        for number in range(4):
            queue.send(b"%d" % number, number)
        jobs = [queue.take(0) for _ in range(3)]
        jobs[1].ack()
        mine = other.take(0)
        queue.close()
        assert counts(other) == (2, 1)
        assert [data for data, _ in other.peek()] == [b"3", b"1"]
        for job in (jobs[0], jobs[2]):
            for end in (job.ack, job.nack):
                with pytest.raises(EndpointClosedError):
                    end()
        with pytest.raises(StateError):
            jobs[1].ack()
        mine.ack()
        assert counts(other) == (2, 0)

    def test_job_block_with_a_closed_handle_raises(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        with pytest.raises(EndpointClosedError), queue.take(0):
            queue.close()
        assert counts(other) == (1, 0)

    def test_exception_in_job_block_is_raised_despite_closed_handle(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        with pytest.raises(Refused), queue.take(0), contextlib.closing(queue):
            raise Refused

    def test_ack_after_close_does_not_end_job_of_next_handle(self, queues: Queues) -> None:
        """The next handle may have the same row, and the message the same place."""
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        queue.close()
        successor = queues.open()
        taken = successor.take(0)
        assert taken.deliveries == 2
        with pytest.raises(EndpointClosedError):
            job.ack()
        del job
        gc.collect()
        assert counts(successor) == (0, 1)
        taken.ack()


class TestLeases:
    def test_leased_job_is_exclusive_until_the_lease_ends(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        job = queue.take(0, lease=1000)
        assert other.receive(0.05) is None
        job.ack()
        assert counts(queue) == (0, 0)

    @pytest.mark.parametrize("taker", ["another handle", "the same handle"])
    def test_expired_lease_returns_the_message(self, queues: Queues, taker: str) -> None:
        queue = queues.open()
        waiting = queues.open() if taker == "another handle" else queue
        queue.send(b"message", 7, origin_time=3)
        before = queues.monotonic()
        job = queue.take(0, lease=LEASE)
        message = waiting.receive(timeout=DEADLINE)
        assert LEASE * 0.99 <= queues.monotonic() - before < DEADLINE / 2
        assert message == (b"message", 7)
        assert (message.deliveries, message.origin_time) == (2, 3)
        with pytest.raises(LeaseExpiredError) as caught:
            job.ack()
        assert caught.value.endpoint == queues.name
        assert counts(queue) == (0, 0)

    def test_ack_after_expired_lease_keeps_job_of_next_consumer(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        late = queue.take(0, lease=LEASE)
        job = other.take(timeout=DEADLINE)
        assert job.deliveries == 2
        with pytest.raises(LeaseExpiredError):
            late.ack()
        assert counts(queue) == (0, 1)
        job.nack()
        assert queue.receive(0).deliveries == 3

    def test_nack_after_expired_lease_raises_no_error(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        late = queue.take(0, lease=LEASE)
        job = other.take(timeout=DEADLINE)
        late.nack()
        assert counts(queue) == (0, 1)
        job.ack()

    def test_job_block_longer_than_lease_raises_lease_expired_error(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        with pytest.raises(LeaseExpiredError), queue.take(0, lease=LEASE):
            assert other.receive(timeout=DEADLINE) == (b"message", 0)

    def test_exception_in_job_block_is_raised_despite_expired_lease(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"")
        with pytest.raises(ZeroDivisionError), queue.take(0, lease=LEASE):
            1 / len(other.receive(timeout=DEADLINE).data)

    def test_expired_lease_returns_the_message_to_its_queue_position(self, queues: Queues) -> None:
        queue = queues.open()
        for number, priority in enumerate([2, 2, 9]):
            queue.send(b"%d" % number, priority)
        queue.receive(0)
        first, taken = queue.take(0), queue.take(0)
        queue.send(b"later", 2)
        first.nack()
        job = queue.take(0, lease=LEASE)  # taken last: on a busy machine the lease may end at once
        assert job.data == b"0"
        taken.nack()
        queue.send(b"urgent", 3)
        queues.sleep(2 * LEASE)
        assert queue.receive(0).data == b"urgent"
        assert [queue.receive(DEADLINE).data for _ in range(3)] == [b"0", b"1", b"later"]
        with pytest.raises(LeaseExpiredError):
            job.ack()

    def test_acknowledged_job_is_not_returned(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        queue.take(0, lease=1.0).ack()
        assert queue.receive(timeout=1.2) is None

    def test_each_job_has_its_own_lease(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send_many([b"long", b"none", b"short"])
        jobs = [queue.take(0, lease=lease) for lease in (1000, None, LEASE)]
        assert other.receive(timeout=DEADLINE).data == b"short"
        assert other.receive(0.1) is None
        jobs[0].ack()
        jobs[1].ack()

    def test_expired_lease_does_not_free_a_slot_for_senders(self, queues: Queues) -> None:
        """The message comes back to its place, which stays its own."""
        queue, other = queues.open(max_messages=1), queues.open()
        queue.send(b"message")
        job = queue.take(0, lease=LEASE)
        assert not other.wait_space(4 * LEASE)
        assert other.receive(timeout=DEADLINE).data == b"message"
        assert other.wait_space(0)
        del job


class TestProcesses:
    @pytest.mark.needs("processes")
    @pytest.mark.parametrize("how", ["killed", "exits"])
    def test_process_exit_returns_message_of_its_job(self, queues: Queues, how: str) -> None:
        queue = queues.open()
        queue.send(b"message", 5)
        with Child(queue_children.take_without_ack, queues.backend, queues.name) as child:
            assert child.hear() == "message"
            assert counts(queue) == (0, 1)
            if how == "killed":
                child.kill()
            else:
                child.say()
                child.process.wait()
            message = queue.receive(timeout=DEADLINE)
        assert message == (b"message", 5)
        assert message.deliveries == 2

    @pytest.mark.needs("fork")
    def test_job_stays_with_parent_after_fork(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")

        def child() -> None:
            assert job.data == b"message"
            for end in (job.ack, job.nack):
                with pytest.raises(ForkedSocketError):
                    end()

        job = queue.take(0)
        assert in_fork(child) == 0
        assert counts(queue) == (0, 1)
        with job:
            assert in_fork(lambda: None) == 0
        assert counts(queue) == (0, 0)
