"""Work queues: messages that no consumer gets before their due time."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from msgq.errors import InvalidTypeError, InvalidValueError, LeaseExpiredError, QueueFullError, StateError
from tests.contract.conftest import Queues
from tests.support import DEADLINE

NS_PER_S = 1_000_000_000
SHORT = 0.03
LONG = 1000.0


def counts(queue: Any) -> tuple[int, int, int]:
    """Return the numbers of waiting, taken and delayed messages."""
    return queue.current_messages, queue.in_flight, queue.delayed_messages


class TestSending:
    def test_delayed_message_is_hidden_from_all_handles(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"later", delay=LONG)
        assert counts(other) == (0, 0, 1)
        assert (other.receive(0), other.take(0), other.peek(), queue.receive_many()) == (None, None, [], [])
        stats = queue.stats()
        assert (stats.depth, stats.delayed, stats.sent, stats.oldest_ns) == (0, 1, 1, None)

    def test_message_arrives_after_its_delay_and_not_before(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"later", 3, delay=SHORT, origin_time=7)
        message = queue.receive(DEADLINE)
        assert (message.data, message.priority, message.deliveries, message.origin_time) == (b"later", 3, 1, 7)
        assert queues.time_ns() >= message.sent_time + SHORT * NS_PER_S
        assert counts(queue) == (0, 0, 0)

    def test_each_message_arrives_after_its_own_delay(self, queues: Queues) -> None:
        queue = queues.open()
        for delay in (0.06, 0.02, 0.04):
            queue.send(str(delay).encode(), delay=delay)
        received = []
        for _ in range(3):
            message = queue.receive(DEADLINE)
            assert queues.time_ns() >= message.sent_time + float(message.data) * NS_PER_S
            received.append(message.data)
        assert sorted(received) == [b"0.02", b"0.04", b"0.06"]

    def test_fake_messages_arrive_in_the_order_of_their_due_times(self, queues: Queues) -> None:
        if queues.backend != "fake":
            pytest.skip("a real receiver may be late, and find several due messages")
        queue = queues.open()
        for delay in (0.06, 0.02, 0.04):
            queue.send(str(delay).encode(), delay=delay)
        assert [queue.receive(DEADLINE).data for _ in range(3)] == [b"0.02", b"0.04", b"0.06"]

    def test_due_message_has_the_position_of_its_send(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"first", delay=SHORT)
        queue.send(b"second", delay=2 * SHORT)
        queue.send(b"third")
        queue.send(b"fourth", delay=SHORT)
        jobs = [queue.take(DEADLINE) for _ in range(4)]
        for job in jobs:
            job.nack()
        assert [message.data for message in queue.receive_many()] == [b"first", b"second", b"third", b"fourth"]

    def test_delayed_message_occupies_a_slot(self, queues: Queues) -> None:
        queue = queues.open(max_messages=2)
        assert queue.send_many([b"1", b"2", b"3"], delay=LONG, timeout=0) == 2
        assert counts(queue) == (0, 0, 2)
        with pytest.raises(QueueFullError):
            queue.send(b"3", timeout=0)
        assert not queue.wait_space(0)

    def test_send_many_delays_all_messages(self, queues: Queues) -> None:
        queue = queues.open()
        assert queue.send_many([b"1", b"2"], delay=SHORT) == 2
        assert queue.receive(0) is None
        assert [queue.receive(DEADLINE).data for _ in range(2)] == [b"1", b"2"]

    def test_delay_of_zero_is_no_delay(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"1", delay=0)
        queue.send(b"2", delay=None)
        assert [message.data for message in queue.receive_many()] == [b"1", b"2"]

    @pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 2**31])
    def test_invalid_delay_is_refused(self, queues: Queues, delay: float) -> None:
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        with pytest.raises(InvalidValueError, match="delay"):
            queue.send(b"", delay=delay)
        with pytest.raises(InvalidValueError, match="delay"):
            queue.send_many([b""], delay=delay)
        with pytest.raises(InvalidValueError, match="delay"):
            job.nack(delay=delay)
        assert counts(queue) == (0, 1, 0)
        job.ack()

    def test_delay_of_wrong_type_is_refused(self, queues: Queues) -> None:
        queue = queues.open()
        with pytest.raises(InvalidTypeError, match="number of seconds"):
            queue.send(b"", delay="1")
        assert counts(queue) == (0, 0, 0)


class TestReturning:
    def test_job_returned_with_a_delay_comes_back_after_the_delay(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message", 5, origin_time=9)
        job = queue.take(0)
        job.nack(delay=SHORT)
        assert counts(queue) == (0, 0, 1)
        before = queues.time_ns()
        again = queue.take(DEADLINE)
        assert (again.data, again.priority, again.deliveries, again.origin_time) == (b"message", 5, 2, 9)
        assert queues.time_ns() >= before
        with pytest.raises(StateError):
            job.ack()
        again.ack()
        assert counts(queue) == (0, 0, 0)
        assert queue.stats().returned == 1

    def test_job_with_a_lease_can_be_returned_with_a_delay(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        queue.take(0, lease=SHORT).nack(delay=2 * SHORT)
        again = queue.take(DEADLINE)
        assert again.deliveries == 2
        assert queues.time_ns() >= again.sent_time + 2 * SHORT * NS_PER_S
        again.ack()

    def test_delay_after_the_end_of_the_lease_leaves_the_next_job_alone(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        late = queue.take(0, lease=SHORT)
        again = queue.take(DEADLINE, lease=LONG)
        late.nack(delay=LONG)
        assert counts(queue) == (0, 1, 0)
        again.ack()
        assert counts(queue) == (0, 0, 0)
        with pytest.raises(StateError):
            late.ack()

    def test_expired_job_still_says_so_at_its_acknowledgement(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        late = queue.take(0, lease=SHORT)
        again = queue.take(DEADLINE)
        again.nack(delay=LONG)
        with pytest.raises(LeaseExpiredError):
            late.ack()
        assert counts(queue) == (0, 0, 1)


class TestOthers:
    def test_delayed_message_outlives_the_handle_that_sent_it(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        other.send(b"sent", delay=SHORT)
        other.send(b"returned")
        other.take(0).nack(delay=SHORT)
        other.close()
        assert sorted(queue.receive(DEADLINE).data for _ in range(2)) == [b"returned", b"sent"]


class TestSharedMemory:
    """Processes and threads, which only the shared memory has."""

    pytestmark = pytest.mark.needs("processes", "threads")

    def test_message_arrives_in_a_thread_that_already_sleeps(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open(spin_us=0)
        received: list[Any] = []
        thread = threading.Thread(target=lambda: received.append(other.receive(DEADLINE)))
        thread.start()
        while not any("receiving" in handle.waits for handle in queue.stats().handles):
            os.sched_yield()
        queue.send(b"later", delay=SHORT)
        thread.join()
        assert received[0].data == b"later"

    def test_delayed_message_outlives_the_process_that_sent_it(self, queues: Queues) -> None:
        queue = queues.open()
        child = os.fork()
        if not child:
            queue.send(b"from the child", delay=SHORT)
            os._exit(0)
        os.waitpid(child, 0)
        assert queue.receive(DEADLINE).data == b"from the child"
