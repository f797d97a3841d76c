"""Clients of work queues: results and errors of jobs."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from msgq.errors import (
    EndpointClosedError,
    EndpointNameError,
    ForkedSocketError,
    InvalidTypeError,
    InvalidValueError,
    JobCancelledError,
    JobFailedError,
    MessageTooLargeError,
    QueueFullError,
    WaitTimeoutError,
)
from msgq.workqueue import JobClient, WorkCounts, Worker, parse_dead_letter
from msgq.workqueue.envelope import EnvelopeType, join_envelope, split_envelope
from tests.contract.conftest import Queues
from tests.support import DEADLINE, Child, Task, in_fork, wait_until


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="msgq.workqueue.worker")


def square(message: Any) -> bytes:
    """Return the square of a number."""
    return b"%d" % int(message.data) ** 2


def work(queue: Any, function: Any = square, **options: Any) -> WorkCounts:
    """Do all waiting jobs."""
    return Worker(queue, function, **{"retries": 1, "backoff": 0} | options).run(0)


def reply_queues(queues: Queues) -> list[str]:
    """Return the names of the reply queues of the test."""
    return [name for _, name in queues._names() if ":replies:" in name]


def test_exception_of_a_signal_handler_leaves_no_queue_of_results(queues: Queues) -> None:
    class Queue(queues.MessageQueue):  # type: ignore[misc, name-defined]
        """Raises between the creation of the queue of results and the end of the constructor of the client."""

        def receive(self, timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

    queues.open()
    with Queue(queues.name) as queue:
        with pytest.raises(KeyboardInterrupt):
            JobClient(queue)
        assert reply_queues(queues) == []


def test_interrupted_close_can_be_repeated(queues: Queues) -> None:
    class Queue(queues.MessageQueue):  # type: ignore[misc, name-defined]
        """Raises once, as a signal handler may, before it removes the queue of results."""

        interrupted = False

        def unlink(self) -> None:
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            super().unlink()

    queues.open()
    with Queue(queues.name) as queue:
        client = JobClient(queue)
        with pytest.raises(KeyboardInterrupt):
            client.close()
        assert len(reply_queues(queues)) == 1
        client.close()
        assert reply_queues(queues) == []
        client.close()


def test_text_as_job_and_name_as_queue_are_refused(queues: Queues) -> None:
    queue = queues.open()
    text = r"str, and has no bytes; give text.encode\(\)"
    with JobClient(queue) as client, pytest.raises(InvalidTypeError, match=text):
        client.submit("7")  # type: ignore[arg-type]
    assert queue.current_messages == 0
    name: Any = "jobs"
    for open_name in (JobClient, lambda name: Worker(name, square)):
        with pytest.raises(InvalidTypeError, match=r"give an open queue, such as msgq.MessageQueue\('jobs'\)"):
            open_name(name)


class TestResults:
    def test_results_belong_to_their_jobs(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            futures = [client.submit(b"%d" % number) for number in range(5)]
            assert not any(future.is_done() for future in futures)
            assert work(queue) == WorkCounts(succeeded=5)
            assert all(future.is_done() for future in futures)
            assert [future.result(0) for future in reversed(futures)] == [b"16", b"9", b"4", b"1", b"0"]
            assert futures[2].result() == b"4"

    def test_jobs_of_clients_and_plain_messages_share_a_queue(self, queues: Queues) -> None:
        queue, received = queues.open(), []

        def record(message: Any) -> Any:
            received.append((message.data, message.priority))
            return message.data

        with JobClient(queue) as one, JobClient(queue) as other:
            futures = one.submit(b"one"), other.submit(bytearray(b"other"), 2)
            queue.send(b"plain", 1)
            work(queue, record)
            assert received == [(b"other", 2), (b"plain", 1), (b"one", 0)]
            assert [future.result(0) for future in futures] == [b"one", b"other"]

    @pytest.mark.parametrize("result", [None, b"", bytearray(b"ab"), np.array([1, 2], "<i2")], ids=repr)
    def test_result_is_any_object_with_bytes(self, queues: Queues, result: Any) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            future = client.submit(np.array([7], "u1"))
            work(queue, lambda message: result if message.data == b"\7" else b"wrong")
            assert future.result(0) == (b"" if result is None else bytes(memoryview(result)))

    def test_repeated_job_has_one_result(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            future = client.submit(b"3")
            job = queue.take(0)
            queue.send(job.data)  # simulates a worker that sent its result, and died before the acknowledgement
            job.nack()
            results = iter([b"first", b"second"])
            assert work(queue, lambda _: next(results)).succeeded == 2
            assert future.result(0) == b"first"
            assert client.submit(b"4").is_done() is False  # receives the second result
            assert future.result(0) == b"first"
            work(queue)

    def test_delayed_job_has_a_result(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            future = client.submit(b"3", delay=0.01)
            assert work(queue).succeeded == 0
            wait_until(lambda: Worker(queue, square).run(0.02).succeeded == 1)
            assert future.result(0) == b"9"

    def test_other_consumers_see_the_payload_first(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            client.submit(b"payload")
            assert queue.peek()[0].data.startswith(b"payload")
            assert split_envelope(queue.receive(0).data).data == b"payload"


class TestErrors:
    def test_error_of_the_last_try_is_raised(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            future = client.submit(b"seven")
            assert work(queue) == WorkCounts(retried=1, failed=1)
            for _ in range(2):
                with pytest.raises(JobFailedError, match=f"{queues.name}.*job failed: ValueError: invalid lit") as info:
                    future.result(0)
                assert info.value.reason.startswith("ValueError: invalid literal")
                assert pickle.loads(pickle.dumps(info.value)).reason == info.value.reason
            assert future.is_done()
        assert queues.open(name=".dead").receive(0) is None

    def test_result_without_bytes_is_an_error_that_says_what_to_return(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            future = client.submit(b"7")
            work(queue, lambda message: int(message.data))
            text = "TypeError: result of the job cannot be sent: data is of type int, and has no bytes; give bytes"
            with pytest.raises(JobFailedError, match=text):
                future.result(0)

    def test_too_large_result_is_an_error(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue, max_result_size=10) as client:
            small, large = client.submit(b"10"), client.submit(b"5000")
            work(queue, lambda message: bytes(int(message.data)))
            assert small.result(0) == bytes(10)
            with pytest.raises(JobFailedError, match="MessageTooLargeError"):
                large.result(0)

    def test_missing_result_raises_a_timeout(self, queues: Queues) -> None:
        with JobClient(queues.open()) as client:
            future = client.submit(b"7")
            for timeout in (0, 0.01):
                with pytest.raises(WaitTimeoutError, match=f"{queues.name}.*no result after {timeout} s"):
                    future.result(timeout)

    def test_too_large_job_raises_and_is_not_sent(self, queues: Queues) -> None:
        queue = queues.open(max_message_size=100)
        with JobClient(queue, max_pending=1) as client:
            with pytest.raises(MessageTooLargeError, match=r"100 bytes does not fit: at most .* are allowed") as info:
                client.submit(bytes(100))
            room = int(str(info.value).split("at most ")[1].split()[0])
            assert queue.current_messages == 0
            client.submit(bytes(room), timeout=0)
            assert queue.current_messages == 1

    def test_text_as_data_raises_and_is_not_sent(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client, pytest.raises(TypeError):
            client.submit("7")  # type: ignore[arg-type]
        assert queue.current_messages == 0

    @pytest.mark.parametrize("options", [{"max_pending": 0}, {"max_pending": 65537}, {"max_result_size": -1}])
    def test_invalid_number_raises(self, queues: Queues, options: dict[str, int]) -> None:
        with pytest.raises(InvalidValueError):
            JobClient(queues.open(), **options)

    def test_long_name_raises(self, queues: Queues) -> None:
        queue = queues.open(name="n" * (240 - len(queues.name)))
        with pytest.raises(EndpointNameError):
            JobClient(queue)


def test_repr_of_a_client_and_a_future_does_not_wait(queues: Queues) -> None:
    queue = queues.open()
    with JobClient(queue) as client:
        future = client.submit(b"3")
        assert repr(client) == f"<msgq JobClient of {queue.name!r}, 1 pending>"
        assert repr(future) == f"<msgq JobFuture of {queue.name!r}, job 1, no result>"
        work(queue)
        future.result(0)
        assert repr(client) == f"<msgq JobClient of {queue.name!r}, 0 pending>"
        assert repr(future) == f"<msgq JobFuture of {queue.name!r}, job 1, result>"
        failed = client.submit(b"x")
        work(queue)
        assert failed.is_done()
        assert repr(failed) == f"<msgq JobFuture of {queue.name!r}, job 2, error>"
    assert repr(client) == f"<msgq JobClient of {queue.name!r}, closed>"


class TestCancel:
    def test_cancelled_job_is_not_done(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue, max_pending=3) as client, JobClient(queue) as other:
            same = [client.submit(b"3"), other.submit(b"3")]
            future = client.submit(b"3")
            same.append(client.submit(b"3"))
            assert future.cancel() is True
            assert future.cancel() is True
            assert future.is_done()
            assert repr(future) == f"<msgq JobFuture of {queue.name!r}, job 2, cancelled>"
            with pytest.raises(JobCancelledError, match="was cancelled, so it has no result"):
                future.result(0)
            same.append(client.submit(b"3", timeout=0))  # the cancelled job is not pending
            assert work(queue) == WorkCounts(succeeded=4)
            assert [each.result(0) for each in same] == [b"9"] * 4

    def test_job_of_a_worker_is_not_cancelled(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            future = client.submit(b"3")
            seen: list[bool] = []

            def cancel_and_square(message: Any) -> bytes:
                seen.append(future.cancel())
                return square(message)

            work(queue, cancel_and_square)
            assert seen == [False]
            assert future.cancel() is False
            assert future.result(0) == b"9"

    def test_delayed_job_and_failed_job_are_cancelled(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            later = client.submit(b"3", delay=1000)
            failed = client.submit(b"x")
            assert work(queue, backoff=1000, max_backoff=1000).retried == 1
            assert queue.delayed_messages == 2
            assert (later.cancel(), failed.cancel()) == (True, True)
            assert (queue.current_messages, queue.delayed_messages, queue.in_flight) == (0, 0, 0)
            with pytest.raises(JobCancelledError):
                failed.result(0)

    def test_cancelled_delay_leaves_other_delays(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            cancelled, kept = client.submit(b"3", delay=0.01), client.submit(b"4", delay=0.02)
            assert cancelled.cancel()
            wait_until(lambda: Worker(queue, square).run(0.05).succeeded == 1)
            assert kept.result(0) == b"16"
            assert queue.stats().depth == 0

    def test_cancel_is_an_event_of_a_received_message(self, queues: Queues) -> None:
        queue = queues.open(events=True)
        with JobClient(queue) as client:
            assert client.submit(b"3").cancel()
        stats = queue.stats()
        assert (stats.sent, stats.received, stats.depth) == (1, 1, 0)

    @pytest.mark.needs("threads")
    def test_cancel_ends_the_wait_of_another_thread(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            futures = [client.submit(b"3") for _ in range(3)]
            tasks = [Task(future.result, DEADLINE) for future in futures[:2]]
            for task in tasks:
                task.wait_asleep()
            for future in futures:
                assert future.cancel()
            for task in tasks:
                with pytest.raises(JobCancelledError):
                    task.result()
            assert queue.current_messages == 0

    @pytest.mark.needs("threads")
    def test_cancel_ends_the_wait_after_a_full_queue_of_results(self, queues: Queues) -> None:
        """Second results of repeated jobs fill the queue of the results, while another thread waits."""
        with JobClient(queues.open(), max_pending=1) as client:
            replies = queues.MessageQueue(reply_queues(queues)[0])
            for is_full in (True, False):
                future = client.submit(b"3")
                task = Task(future.result, DEADLINE)
                task.wait_asleep()
                sys.setswitchinterval(60)  # the waiting thread cannot take the result before the end of `cancel`
                try:
                    for _ in range(2 * is_full):
                        replies.send(join_envelope(b"9", EnvelopeType.RESULT, 1000), timeout=0)
                    assert future.cancel()
                finally:
                    sys.setswitchinterval(0.005)
                with pytest.raises(JobCancelledError):
                    task.result()
            replies.close()

    @pytest.mark.needs("threads")
    def test_two_threads_that_cancel_a_job_both_get_true(self, queues: Queues) -> None:
        tasks: list[Task] = []

        class Queue(queues.MessageQueue):  # type: ignore[misc, name-defined]
            """Starts another thread between the removal of the message and the mark of the future."""

            def _remove_waiting_message(self, ending: bytes) -> bool:
                is_removed: bool = super()._remove_waiting_message(ending)
                if not tasks:
                    tasks.append(Task(future.cancel))
                    wait_until(lambda: not tasks[0].is_alive() or tasks[0].sleeps())
                return is_removed

        queues.open()
        with Queue(queues.name) as queue, JobClient(queue) as client:
            future = client.submit(b"3")
            assert future.cancel()
            assert tasks[0].result()

    def test_repeated_job_with_a_result_is_not_cancelled(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            future = client.submit(b"3")
            job = queue.take(0)
            client._replies.send(join_envelope(b"9", EnvelopeType.RESULT, 1))
            job.nack()  # simulates the end of a lease: the job has a result, and waits for a repetition
            assert future.is_done()
            assert future.cancel() is False
            assert future.result(0) == b"9"
            assert queue.current_messages == 0

    @pytest.mark.needs("processes")
    def test_each_job_is_either_cancelled_or_done_once(self, queues: Queues) -> None:
        queue = queues.open(max_messages=512)
        with JobClient(queue, max_pending=400) as client:
            futures = [client.submit(b"%d" % number) for number in range(400)]
            with Child(work_until_stop, queues.name) as child:
                futures[0].result(DEADLINE)
                cancelled = {number for number in reversed(range(400)) if futures[number].cancel()}
                for number in set(range(400)) - cancelled:
                    assert futures[number].result(DEADLINE) == b"%d" % number**2
                client.submit(b"stop")
                assert child.result() == 401 - len(cancelled)


class TestLimits:
    def test_pending_jobs_have_a_limit(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue, max_pending=2) as client:
            futures = [client.submit(b"1"), client.submit(b"2")]
            for timeout in (0, 0.01):
                with pytest.raises(QueueFullError, match="2 jobs have no result yet"):
                    client.submit(b"3", timeout=timeout)
            assert queue.current_messages == 2
            work(queue)
            futures.append(client.submit(b"3", timeout=0))
            work(queue)
            assert [future.result(0) for future in futures] == [b"1", b"4", b"9"]

    @pytest.mark.needs("threads")
    def test_threads_do_not_exceed_the_limit(self, queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
        queue, both_checked = queues.open(), threading.Barrier(2)
        check = JobClient._wait_until

        def check_together(client: JobClient, is_finished: Any, timeout: float | None) -> bool:
            is_below_limit = check(client, is_finished, timeout)
            both_checked.wait(DEADLINE)
            return is_below_limit

        with JobClient(queue, max_pending=1) as client:
            monkeypatch.setattr(JobClient, "_wait_until", check_together)
            tasks = [Task(lambda: client.submit(b"1", timeout=0)) for _ in range(2)]
            with pytest.raises(QueueFullError):
                _ = [task.result() for task in tasks]
            assert queue.current_messages == 1

    def test_unread_results_do_not_block_workers(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue, max_pending=4) as client:
            for number in range(40):
                client.submit(b"%d" % number, timeout=0)  # nobody reads the result
                assert work(queue).succeeded == 1
            assert len(client._futures) == 0

    def test_repeated_job_with_a_waiting_result_needs_no_room(self, queues: Queues) -> None:
        """If a worker is killed between the result and the acknowledgement, the client ignores the second result."""
        queue, called = queues.open(), list[bytes]()

        def remember(message: Any) -> bytes:
            called.append(message.data)
            return square(message)

        with JobClient(queue, max_pending=1) as client:
            future = client.submit(b"3")
            queue.send(queue.peek()[0].data)
            queue.send(b"4")  # a full reply queue does not block other jobs
            assert work(queue, remember) == WorkCounts(succeeded=3)
            assert called == [b"3", b"3", b"4"]
            assert future.result(0) == b"9"
            assert client.submit(b"5", timeout=0).is_done() is False

    def test_result_without_room_postpones_the_job(self, queues: Queues, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.ERROR, logger="msgq.workqueue.worker")
        queue = queues.open()
        with JobClient(queue, max_pending=1) as client:
            first = client.submit(b"3")
            call = split_envelope(queue.peek()[0].data)
            queue.send(join_envelope(b"5", call.type, call.number + 1, call.text))
            client._replies.send(b"")  # the room for a wake message
            worker = Worker(queue, square, max_backoff=0.01)
            assert worker.run(0) == WorkCounts(succeeded=1, postponed=1)
            assert "job stays in the queue, and is repeated in 0.01 s: " in caplog.text
            assert ":replies:" in caplog.text
            assert queue.current_messages + queue.delayed_messages == 1
            assert first.result(0) == b"9"
            second = client.submit(b"-5")  # has the number of the postponed job
            wait_until(lambda: worker.run(0.01).succeeded == 3)
            assert second.result(0) == b"25"
            assert worker.counts == WorkCounts(succeeded=3, postponed=1)

    def test_wake_message_leaves_room_for_all_results(self, queues: Queues) -> None:
        """As if the wait of another thread ended just after the cancellation, before the thread got the message."""
        queue = queues.open()
        with JobClient(queue, max_pending=1) as client:
            cancelled = client.submit(b"3")
            client._is_receiving = True
            assert cancelled.cancel()
            client._is_receiving = False
            future = client.submit(b"4")
            assert work(queue) == WorkCounts(succeeded=1)
            assert future.result(0) == b"16"

    def test_full_queue_raises_and_the_client_continues(self, queues: Queues) -> None:
        queue = queues.open(max_messages=1)
        with JobClient(queue, max_pending=2) as client:
            client.submit(b"1")
            with pytest.raises(QueueFullError, match="its limit \\(max_messages\\)"):
                client.submit(b"2", timeout=0)
            work(queue)
            client.submit(b"3", timeout=0)


class TestLife:
    def test_reply_queue_exists_as_long_as_its_client(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue):
            assert len(reply_queues(queues)) == 1
        client = JobClient(queue)
        future = client.submit(b"1")
        del client
        gc.collect()
        assert len(reply_queues(queues)) == 1  # reply queue of the future
        del future
        gc.collect()
        assert reply_queues(queues) == []

    def test_closed_client_raises(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            done, pending = client.submit(b"1"), client.submit(b"2")
            work(queue)
            assert done.result(0) == b"1"
        client.close()
        assert done.result(0) == b"1"
        for call in (pending.is_done, pending.result):
            with pytest.raises(EndpointClosedError):
                call()
        with pytest.raises(EndpointClosedError, match="client is closed; create a client"):
            client.submit(b"3")
        assert queue.current_messages == 0

    def test_job_of_a_closed_client_is_done_and_counted(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            client.submit(b"7")
        assert work(queue) == WorkCounts(succeeded=1, unanswered=1)

    def test_failed_job_of_a_closed_client_is_a_dead_letter(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            client.submit(b"seven")
        assert work(queue) == WorkCounts(retried=1, failed=1, unanswered=1)
        assert parse_dead_letter(queues.open(name=".dead").receive(0).data).data == b"seven"

    @pytest.mark.needs("processes")
    def test_end_of_the_process_removes_the_reply_queue(self, queues: Queues) -> None:
        queue = queues.open()
        code = "import msgq, sys; client = msgq.JobClient(msgq.MessageQueue(sys.argv[1])); client.submit(b'7')"
        subprocess.run([sys.executable, "-c", code, queue.name], check=True)
        assert reply_queues(queues) == []
        assert work(queue) == WorkCounts(succeeded=1, unanswered=1)

    @pytest.mark.needs("fork")
    def test_client_belongs_to_the_parent_of_a_fork(self, queues: Queues) -> None:
        queue = queues.open()

        def use_client() -> None:
            for call in (lambda: client.submit(b""), future.result, future.is_done):
                with pytest.raises(ForkedSocketError, match="create a client here"):
                    call()
            client.close()
            with JobClient(queue) as own:
                result = own.submit(b"2")
                work(queue)
                assert result.result(DEADLINE) == b"4"

        with JobClient(queue) as client:
            future = client.submit(b"7")
            assert in_fork(use_client) == 0
            assert future.result(0) == b"49"


class TestThreads:
    @pytest.mark.needs("threads")
    def test_threads_share_a_client(self, queues: Queues) -> None:
        queue = queues.open()
        worker = Worker(queue, square)
        with JobClient(queue, max_pending=3) as client:
            running = Task(worker.run)

            def call_often(first: int) -> bool:
                numbers = range(first, first + 50)
                return all(client.submit(b"%d" % n).result(DEADLINE) == b"%d" % n**2 for n in numbers)

            tasks = [Task(call_often, 100 * index) for index in range(5)]
            assert all(task.result() for task in tasks)
            worker.stop()
            client.submit(b"1")
            assert running.result().succeeded in (250, 251)  # the worker may see the stop before the last job

    @pytest.mark.needs("threads")
    def test_waiting_thread_gets_the_result_that_another_thread_received(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client:
            first, second = client.submit(b"1"), client.submit(b"2")
            tasks = [Task(first.result), Task(second.result)]
            for task in tasks:
                task.wait_asleep()
            work(queue)
            assert [task.result() for task in tasks] == [b"1", b"4"]

    @pytest.mark.needs("threads")
    def test_close_ends_waits_of_other_threads(self, queues: Queues) -> None:
        client = JobClient(queues.open())
        tasks = [Task(client.submit(b"1").result) for _ in range(2)]
        for task in tasks:
            task.wait_asleep()
        client.close()
        for task in tasks:
            with pytest.raises(EndpointClosedError):
                task.result()

    @pytest.mark.needs("threads")
    def test_result_can_be_awaited_in_a_thread(self, queues: Queues) -> None:
        queue = queues.open()

        async def call() -> bytes:
            with JobClient(queue) as client:
                future = client.submit(b"3")
                result, _ = await asyncio.gather(
                    asyncio.to_thread(future.result, DEADLINE), asyncio.to_thread(work, queue)
                )
                return result

        assert asyncio.run(call()) == b"9"


class TestProcesses:
    @pytest.mark.needs("processes")
    def test_result_comes_from_another_process(self, queues: Queues) -> None:
        queue = queues.open()
        with JobClient(queue) as client, Child(work_for_client, queues.name):
            assert client.submit(b"7").result(DEADLINE) == b"49"
            assert client.submit(b"8").result(DEADLINE) == b"64"


def work_for_client(name: str) -> None:
    """Child: work until the parent ends."""
    from msgq.workqueue import MessageQueue

    Worker(MessageQueue(name), square).run(DEADLINE)


def work_until_stop(name: str) -> int:
    """Child: work until the job "stop", and return the number of jobs."""
    from msgq.workqueue import MessageQueue

    def square_or_stop(message: Any) -> bytes | None:
        if message.data != b"stop":
            return square(message)
        worker.stop()
        return None

    worker = Worker(MessageQueue(name), square_or_stop)
    return worker.run(DEADLINE).succeeded
