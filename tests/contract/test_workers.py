"""Workers of work queues: retries with growing delays, dead letters, interrupts and counts."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from msgq.errors import EndpointClosedError, InvalidTypeError, InvalidValueError
from msgq.workqueue import DeadLetter, WorkCounts, Worker, parse_dead_letter
from tests.contract.conftest import Queues
from tests.support import DEADLINE, Child, Task, say, wait_until

SHORT = 0.01
LONG = 1000.0


class UnreadableError(Exception):
    """An error whose text raises an error."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="msgq.workqueue.worker")


def failing(error: BaseException) -> Callable[[Any], None]:
    """Return a function that raises an error for each message."""

    def fail(_message: Any) -> None:
        raise error

    return fail


def counts(queue: Any) -> tuple[int, int, int]:
    """Return the numbers of waiting, taken and delayed messages."""
    return queue.current_messages, queue.in_flight, queue.delayed_messages


def letters(queue: Any) -> list[DeadLetter]:
    """Remove the dead letters of a queue."""
    return [parse_dead_letter(message.data) for message in queue.receive_many()]


class TestSuccess:
    def test_function_gets_each_message_with_its_attributes(self, queues: Queues) -> None:
        queue, received = queues.open(), list[Any]()
        queue.send(b"low", 1)
        queue.send(b"high", 2, origin_time=9)
        assert Worker(queue, received.append).run(0) == WorkCounts(succeeded=2)
        assert received == [(b"high", 2), (b"low", 1)]
        assert isinstance(received[0], queues.Message)
        assert (received[0].deliveries, received[0].origin_time) == (1, 9)
        assert counts(queue) == (0, 0, 0)

    def test_job_is_acknowledged_after_the_function(self, queues: Queues) -> None:
        queue, seen = queues.open(), []
        queue.send(b"job")
        Worker(queue, lambda _: seen.append(counts(queue))).run(0)
        assert seen == [(0, 1, 0)]

    def test_returned_value_of_a_plain_message_is_ignored(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"job")
        assert Worker(queue, lambda _: 5).run(0) == WorkCounts(succeeded=1)

    def test_run_waits_for_the_timeout_and_may_be_repeated(self, queues: Queues) -> None:
        queue = queues.open()
        worker = Worker(queue, lambda _: worker.stop())
        queue.send(b"later", delay=SHORT)
        assert worker.run(0).succeeded == 0
        assert worker.run(DEADLINE).succeeded == 1

    def test_expired_lease_is_counted_and_the_message_returns(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()

        def lose_first_job(message: Any) -> None:
            if message.deliveries == 1:
                other.take(DEADLINE).nack()  # after the end of the lease

        queue.send(b"slow")
        assert Worker(queue, lose_first_job, lease=0.02).run(0) == WorkCounts(succeeded=1, expired=1)


def test_repr_of_a_worker_has_its_counts(queues: Queues) -> None:
    queue = queues.open()
    queue.send_many([b"1", b"2"])
    worker = Worker(queue, lambda _: None)
    worker.run(0)
    assert repr(worker) == f"<msgq Worker of {queue.name!r}, 2 succeeded, 0 failed>"


class TestRetries:
    def test_failed_job_returns_with_doubled_delays(self, queues: Queues) -> None:
        queue, times = queues.open(), []

        def fail_twice(message: Any) -> None:
            times.append(queues.time_ns())
            if message.deliveries < 3:
                raise ValueError
            worker.stop()

        queue.send(b"flaky")
        worker = Worker(queue, fail_twice, backoff=0.02)
        assert worker.run(DEADLINE) == WorkCounts(succeeded=1, retried=2)
        assert times[1] - times[0] >= 20_000_000
        assert times[2] - times[1] >= 40_000_000

    def test_delay_has_an_upper_limit(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"bad")
        worker = Worker(queue, failing(ValueError()), retries=10_000, backoff=SHORT, max_backoff=SHORT)
        for _ in range(2100 if queues.backend == "fake" else 20):  # 2 ** 2099 is no float
            queue.take(DEADLINE).nack()
        assert worker.run(0).retried == 1
        assert queue.take(DEADLINE) is not None

    def test_jitter_delays_by_random_parts(self, queues: Queues, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, logger="msgq.workqueue.worker")
        queue, expected = queues.open(), Random(7)
        queue.send_many([b"1", b"2", b"3"])
        Worker(queue, failing(ValueError()), backoff=LONG, max_backoff=LONG, jitter=Random(7)).run(0)
        delays = [record.args[-1] for record in caplog.records if isinstance(record.args, tuple)]
        assert delays == [LONG * expected.random() for _ in range(3)]
        assert counts(queue) == (0, 0, 3)

    def test_jitter_without_a_source_differs_between_workers(
        self, queues: Queues, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, logger="msgq.workqueue.worker")
        queue = queues.open()
        for number in range(4):
            queue.send(b"%d" % number)
            Worker(queue, failing(ValueError()), backoff=LONG, jitter=True).run(0)
        delays = {record.args[-1] for record in caplog.records if isinstance(record.args, tuple)}
        assert len(delays) == 4
        assert all(0 <= float(str(delay)) <= LONG for delay in delays)

    def test_jitter_of_another_type_raises(self, queues: Queues) -> None:
        wrong: Any = 0.5
        with pytest.raises(InvalidTypeError, match=r"jitter is 0.5; give True, False or a random.Random"):
            Worker(queues.open(), failing(ValueError()), jitter=wrong)

    def test_delayed_retry_lets_other_jobs_pass(self, queues: Queues) -> None:
        queue, done = queues.open(), []

        def work(message: Any) -> None:
            if message.data == b"bad":
                raise ValueError
            done.append(message.data)

        queue.send_many([b"bad", b"1", b"2"])
        assert Worker(queue, work, backoff=LONG).run(0) == WorkCounts(succeeded=2, retried=1)
        assert done == [b"1", b"2"]
        assert counts(queue) == (0, 0, 1)

    def test_message_moves_to_the_dead_letters_after_the_last_try(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"bad", 7, origin_time=9)
        worker = Worker(queue, failing(ValueError("no number")), retries=2, backoff=0)
        assert worker.run(0) == WorkCounts(retried=2, failed=1)
        assert counts(queue) == (0, 0, 0)
        message = queues.open(name=".dead", flags=0).receive(0)
        assert (message.priority, message.origin_time) == (7, 9)
        assert parse_dead_letter(message.data) == (b"bad", "ValueError: no number", 3)

    def test_dead_letters_can_be_worked_off(self, queues: Queues) -> None:
        queue, dead = queues.open(), queues.open(name="other dead")
        queue.send(b"bad")
        Worker(queue, failing(ValueError()), retries=0, dead_letters=dead).run(0)
        Worker(dead, lambda message: queue.send(message.data)).run(0)
        assert queue.receive(0) == (b"bad", 0)

    def test_deliveries_of_other_consumers_count_as_tries(self, queues: Queues) -> None:
        queue, called = queues.open(), list[Any]()
        queue.send(b"killer")
        for _ in range(3):
            queue.take(0).nack()  # simulates the death of its worker
        assert Worker(queue, called.append, retries=2).run(0) == WorkCounts(failed=1)
        assert called == []
        (letter,) = letters(queues.open(name=".dead"))
        assert letter == (b"killer", "delivered 4 times without an end of the job", 4)

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (UnreadableError(), "UnreadableError: (the text of this error cannot be read)"),
            (ValueError("\ud800\n\0"), "ValueError: ?\n\0"),
            (ValueError("x" * 1000), "ValueError: " + "x" * 488),
            (ValueError(Ellipsis), "ValueError: Ellipsis"),
        ],
        ids=["unreadable", "surrogate", "long", "object"],
    )
    def test_any_error_text_becomes_a_reason(self, queues: Queues, error: Exception, reason: str) -> None:
        queue = queues.open()
        queue.send(b"bad")
        assert Worker(queue, failing(error), retries=0).run(0) == WorkCounts(failed=1)
        assert letters(queues.open(name=".dead")) == [(b"bad", reason, 1)]

    def test_full_dead_letters_keep_the_message_in_its_queue(self, queues: Queues) -> None:
        queue, dead = queues.open(), queues.open(name="dead", max_messages=1)
        queue.send_many([b"1", b"2"])
        worker = Worker(queue, failing(ValueError()), retries=0, max_backoff=SHORT, dead_letters=dead)
        assert worker.run(0) == WorkCounts(failed=1, postponed=1)
        assert [letter.data for letter in letters(dead)] == [b"1"]
        assert queue.current_messages + queue.delayed_messages == 1
        wait_until(lambda: worker.run(SHORT).failed == 2)
        assert [letter.data for letter in letters(dead)] == [b"2"]

    def test_dead_letter_without_room_for_the_reason_is_the_payload(self, queues: Queues) -> None:
        queue, dead = queues.open(max_message_size=10), queues.open(name="dead", max_message_size=10)
        queue.send(b"0123456789")
        Worker(queue, failing(ValueError()), retries=0, dead_letters=dead).run(0)
        assert letters(dead) == [(b"0123456789", "", 0)]


class TestEnds:
    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["interrupt", "exit"])
    def test_interrupt_returns_the_message_at_once_and_ends_the_loop(
        self, queues: Queues, error: BaseException
    ) -> None:
        queue = queues.open()
        queue.send_many([b"1", b"2"])
        worker = Worker(queue, failing(error))
        with pytest.raises(type(error)):
            worker.run(0)
        assert counts(queue) == (2, 0, 0)
        assert worker.counts == WorkCounts()
        assert queue.receive(0) == (b"1", 0)

    def test_stop_in_the_function_ends_the_loop_after_the_job(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send_many([b"1", b"2"])
        worker = Worker(queue, lambda _: worker.stop())
        assert worker.run().succeeded == 1
        assert counts(queue) == (1, 0, 0)
        assert worker.run().succeeded == 2

    def test_closed_queue_ends_the_loop_with_an_error(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"job")
        with pytest.raises(EndpointClosedError):
            Worker(queue, lambda _: queue.close()).run(0)
        assert counts(other) == (1, 0, 0)

    @pytest.mark.needs("processes")
    def test_signal_handler_stops_a_waiting_worker(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"first")
        with Child(work_until_signal, queues.name) as child:
            assert child.hear() == "first"
            wait_until(lambda: any("receiving" in handle.waits for handle in queue.stats().handles))
            child.kill(signal.SIGTERM)
            assert child.result() == 1

    @pytest.mark.needs("processes")
    def test_signal_during_the_arrival_of_a_job_costs_no_try(self, queues: Queues) -> None:
        queue = queues.open(max_messages=2, max_message_size=4 << 20)
        with Child(stop_during_arrivals, queues.name) as child:
            assert child.result() == 20
        assert counts(queue) == (0, 0, 0)

    @pytest.mark.needs("threads")
    def test_stop_of_another_thread_ends_the_loop_after_the_next_job(self, queues: Queues) -> None:
        queue = queues.open()
        worker = Worker(queue, lambda _: None)
        task = Task(worker.run)
        task.wait_asleep()
        worker.stop()
        queue.send_many([b"1", b"2"])
        assert task.result().succeeded == 1
        assert counts(queue) == (1, 0, 0)


def work_until_signal(name: str) -> int:
    """Child: work until SIGTERM, and return the number of jobs."""
    from msgq.workqueue import MessageQueue

    worker = Worker(MessageQueue(name), lambda message: say(message.data.decode()))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    return worker.run().succeeded


def stop_during_arrivals(name: str) -> int:
    """Child: stop a worker by a signal while its C code copies a job, 20 times. Return the number of jobs."""
    from msgq.workqueue import MessageQueue

    queue = MessageQueue(name)
    worker = Worker(queue, lambda _: None, retries=0)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())

    def count_ended() -> int:
        return worker.counts.succeeded + worker.counts.failed

    def send_and_stop() -> None:
        queue.send(bytes(4 << 20))
        wait_until(lambda: queue.in_flight > 0 or count_ended() == len(tasks), interval=0)
        os.kill(os.getpid(), signal.SIGTERM)

    tasks = list[Task]()
    for _ in range(20):
        tasks.append(Task(send_and_stop))
        worker.run()
        tasks[-1].result()
        worker.run(0)
    return worker.counts.succeeded


class TestArguments:
    @pytest.mark.parametrize(
        "options", [{"retries": -1}, {"retries": 0.5}, {"backoff": -1}, {"max_backoff": -1}, {"max_backoff": 1e9}]
    )
    def test_invalid_number_raises(self, queues: Queues, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidValueError, match=f"{queues.name}.*give"):
            Worker(queues.open(), print, **options)

    def test_function_that_cannot_be_called_raises(self, queues: Queues) -> None:
        with pytest.raises(InvalidTypeError, match="give a function"):
            Worker(queues.open(), None)  # type: ignore[arg-type]

    def test_small_dead_letters_raise(self, queues: Queues) -> None:
        with pytest.raises(InvalidValueError, match="larger max_message_size"):
            Worker(queues.open(), print, dead_letters=queues.open(name="small", max_message_size=10))
