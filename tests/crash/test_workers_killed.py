"""Workers and clients of work queues that are killed at named steps of a job: no job and no error is lost."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from msgq import stats
from msgq.errors import JobFailedError
from msgq.workqueue import DeadLetter, JobClient, MessageQueue, WorkCounts, Worker, cleanup, parse_dead_letter
from msgq.workqueue.reply_sender import ReplySender
from tests.support import DEADLINE, SHM, Child, hear, say, wait_until


@pytest.fixture
def queue(token: str, caplog: pytest.LogCaptureFixture) -> Iterator[MessageQueue]:
    caplog.set_level(logging.CRITICAL, logger="msgq.workqueue.worker")
    with MessageQueue(token) as queue:
        yield queue
    for path in SHM.glob(f"msgqjobs_{token}*"):
        path.unlink()


def square(message: Any) -> bytes:
    """Return the square of a number."""
    return b"%d" % int(message.data) ** 2


def kill_self(*_: object) -> Any:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after(kind: type, name: str) -> Any:
    """Replace a method by one that kills the process after its step."""
    method = getattr(kind, name)
    return mock.patch.object(kind, name, lambda *args: (method(*args), kill_self()))


#: Steps of a worker at which it is killed.
STEPS: dict[str, Callable[[], Any]] = {
    "after take": lambda: mock.patch.object(Worker, "_do_job", kill_self),
    "before the reply": lambda: mock.patch.object(ReplySender, "send", kill_self),
    "after the reply": lambda: kill_after(ReplySender, "send"),
    "before the retry": lambda: mock.patch.object(Worker, "_handle_failure", kill_self),
    "after the retry": lambda: kill_after(Worker, "_handle_failure"),
    "before the dead letter": lambda: mock.patch.object(Worker, "_send_dead_letter", kill_self),
    "after the dead letter": lambda: kill_after(Worker, "_send_dead_letter"),
}


def work_until_step(name: str, step: str, retries: int) -> None:
    """Child: work, and be killed at a step."""
    logging.disable()
    with MessageQueue(name) as queue, STEPS[step]():
        Worker(queue, square, retries=retries, backoff=0).run(DEADLINE)


def kill_worker(queue: MessageQueue, step: str, retries: int = 1) -> None:
    """Start a worker, and wait for its death. Its message is back in the queue afterwards."""
    with Child(work_until_step, queue.name, step, retries) as child:
        assert child.process.wait() == -signal.SIGKILL
    MessageQueue(queue.name).close()  # returns the messages of dead processes
    assert queue.in_flight == 0


def take_letters(queue: MessageQueue) -> list[DeadLetter]:
    """Remove the dead letters of a queue."""
    with MessageQueue(f"{queue.name}.dead") as dead:
        return [parse_dead_letter(message.data) for message in dead.receive_many()]


def find_reply_queues(queue: MessageQueue) -> list[Path]:
    return list(SHM.glob(f"msgqjobs_{queue.name}:replies:*"))


class TestWorkers:
    @pytest.mark.parametrize("step", ["after take", "before the reply", "after the reply"])
    def test_job_of_a_killed_worker_has_one_result(self, queue: MessageQueue, step: str) -> None:
        with JobClient(queue) as client:
            future = client.submit(b"7")
            kill_worker(queue, step)
            assert future.is_done() == (step == "after the reply")
            assert Worker(queue, square, retries=9).run(0) == WorkCounts(succeeded=1)
            assert future.result(0) == b"49"
            assert client.submit(b"8").is_done() is False  # the second result of 7 is no result of 8

    @pytest.mark.parametrize("step", ["after take", "before the retry", "after the retry"])
    def test_delivery_of_a_killed_worker_counts_as_a_try(self, queue: MessageQueue, step: str) -> None:
        queue.send(b"seven")
        kill_worker(queue, step)
        assert Worker(queue, square, retries=1, backoff=0).run(0) == WorkCounts(failed=1)
        (letter,) = take_letters(queue)
        assert (letter.data, letter.deliveries) == (b"seven", 2)

    def test_job_that_kills_each_worker_fails(self, queue: MessageQueue) -> None:
        with JobClient(queue) as client:
            future = client.submit(b"7")
            for _ in range(2):
                kill_worker(queue, "after take")
            assert Worker(queue, square, retries=1).run(0) == WorkCounts(failed=1)
            with pytest.raises(JobFailedError, match="delivered 3 times without an end of the job"):
                future.result(0)

    @pytest.mark.parametrize(("step", "copies"), [("before the dead letter", 1), ("after the dead letter", 2)])
    def test_dead_letter_of_a_killed_worker_exists_once_or_twice(
        self, queue: MessageQueue, step: str, copies: int
    ) -> None:
        queue.send(b"seven")
        kill_worker(queue, step, retries=0)
        assert Worker(queue, square, retries=0).run(0) == WorkCounts(failed=1)
        assert [letter.data for letter in take_letters(queue)] == [b"seven"] * copies
        assert (queue.current_messages, queue.in_flight, queue.delayed_messages) == (0, 0, 0)

    def test_error_of_a_killed_worker_is_received_once(self, queue: MessageQueue) -> None:
        with JobClient(queue) as client:
            future = client.submit(b"seven")
            kill_worker(queue, "after the reply", retries=0)
            assert Worker(queue, square, retries=0).run(0) == WorkCounts(failed=1)
            with pytest.raises(JobFailedError, match="ValueError: invalid literal"):
                future.result(0)
        assert take_letters(queue) == []


def submit_and_wait(name: str, numbers: list[int], wait_index: int | None) -> None:
    """Child: submit jobs, wait for one result or none, and wait for the parent."""
    client = JobClient(MessageQueue(name))
    futures = [client.submit(b"%d" % number) for number in numbers]
    say("submitted")
    if wait_index is not None:
        say(futures[wait_index].result(DEADLINE).decode())
    hear()


def work_with_short_waits(name: str) -> None:
    """Child: work forever."""
    with mock.patch("msgq.workqueue.worker.REOPEN_SECONDS", 0.01):
        Worker(MessageQueue(name), square).run()


class TestClients:
    def kill_client(self, queue: MessageQueue, numbers: list[int], wait_index: int | None = None) -> None:
        with Child(submit_and_wait, queue.name, numbers, wait_index) as child:
            child.hear()
            child.kill()
        assert len(find_reply_queues(queue)) == 1

    @pytest.mark.parametrize("wait_index", [None, 0], ids=["submitted", "waiting"])
    def test_results_for_a_killed_client_are_dropped_and_counted(
        self, queue: MessageQueue, wait_index: int | None
    ) -> None:
        self.kill_client(queue, [1, 2, 3], wait_index)
        queue.send(b"4")
        assert Worker(queue, square).run(0) == WorkCounts(succeeded=4, unanswered=3)
        assert find_reply_queues(queue) == []

    def test_client_killed_after_its_first_result_blocks_no_worker(self, queue: MessageQueue) -> None:
        with (
            mock.patch("msgq.workqueue.reply_sender.REOPEN_SECONDS", -1.0),
            Child(submit_and_wait, queue.name, [3], 0) as child,
        ):
            child.hear()
            other = queue.take(DEADLINE)
            assert other
            queue.send(other.data)
            queue.send(other.data)
            other.ack()
            calls = 0

            def kill_client_at_second_job(message: Any) -> bytes:
                nonlocal calls
                calls += 1
                if calls == 2:
                    assert child.hear() == "9"
                    child.kill()
                return square(message)

            assert Worker(queue, kill_client_at_second_job).run(0) == WorkCounts(succeeded=2, unanswered=1)
        assert find_reply_queues(queue) == []

    def test_idle_worker_closes_the_results_of_a_killed_client(self, queue: MessageQueue) -> None:
        with Child(submit_and_wait, queue.name, [3], 0) as client, Child(work_with_short_waits, queue.name):
            client.hear()
            assert client.hear() == "9"
            client.kill()
            name = find_reply_queues(queue)[0].name.removeprefix("msgqjobs_")
            wait_until(lambda: not any(handle.participant.alive for handle in stats.queue(name).handles))
            assert cleanup.is_abandoned(stats.queue(name))

    def test_cleanup_removes_results_of_killed_clients_only(self, queue: MessageQueue) -> None:
        with JobClient(queue) as client:
            (living,) = find_reply_queues(queue)
            with Child(submit_and_wait, queue.name, [1], None) as child:
                child.hear()
                child.kill()
            (dead,) = set(find_reply_queues(queue)) - {living}
            name = dead.name.removeprefix("msgqjobs_")
            (issue,) = cleanup.diagnose(stats.queue(name))
            assert issue.text == f"queue/{name} has results for a dead client; `msgq clean` removes it"
            assert cleanup.diagnose(stats.queue(living.name.removeprefix("msgqjobs_"))) == []
            kept = {removal.endpoint for removal in cleanup.list_keep_reasons("")}
            assert f"queue/{name}" not in kept
            assert {f"queue/{queue.name}", f"queue/{living.name.removeprefix('msgqjobs_')}"} <= kept
            for remove in (False, True):
                assert dead.exists()
                removed = [r.endpoint for r in cleanup.remove_orphans("", remove) if queue.name in r.endpoint]
                assert removed == [f"queue/{name}"]
            assert find_reply_queues(queue) == [living]
            future = client.submit(b"2")
            Worker(queue, square).run(0)
            assert future.result(0) == b"4"

    def test_repair_removes_results_of_killed_clients(self, prefix: str) -> None:
        with Child(submit_and_wait, "jobs", [1], None, env={"OPENPILOT_PREFIX": prefix}) as child:
            child.hear()
            assert cleanup.repair(prefix) == ([], [])
            child.kill()
        (removed,), failed = cleanup.repair(prefix)
        assert removed.startswith(f"removed queue/jobs:replies:{child.pid}-")
        assert failed == []
        assert [queue.name for queue in stats.queues(prefix)] == ["jobs"]

    def test_results_of_a_stopped_client_wait_and_block_no_worker(self, queue: MessageQueue) -> None:
        with Child(submit_and_wait, queue.name, [3, 4], 1) as child:
            child.hear()
            child.kill(signal.SIGSTOP)
            queue.send(b"5")
            assert Worker(queue, square).run(0) == WorkCounts(succeeded=3)
            child.kill(signal.SIGCONT)
            assert child.hear() == "16"
            child.say()
