"""Consumers of a work queue that become something else: another program, parents, dead; where nobody sees them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from msgq.workqueue import MessageQueue
from tests.crash.queues import ROW_BYTES, ROWS_AT, Got, Place, life_goes_on, program, slot
from tests.support import Child, Task, hear, in_fork, say, wait_until
from tests.unit import liveness_children

__all__ = ["program", "slot"]

PATIENCE = 5.0  # seconds; who waits looks for the dead once a second


def take_and_become_another_program(name: str) -> None:
    queue = MessageQueue(name, 0)
    job = queue.take(0)
    say("took")
    liveness_children.exec_into_sleep()
    assert job


def take_and_leave_children(name: str) -> None:
    queue = MessageQueue(name, 0)
    job = queue.take(0)
    say(liveness_children.leave_children())
    hear()
    assert job


def take_in_namespace(name: str) -> None:
    """Take a message as a process of a PID namespace of its own."""

    def take() -> None:
        queue = MessageQueue(name, 0)
        job = queue.take(0)
        say("took")
        hear()
        assert job

    liveness_children.run_in_namespace(liveness_children.PID, take)


def receive_in_namespace(name: str) -> None:
    """Receive a message as a process of a PID namespace of its own."""

    def receive() -> None:
        with MessageQueue(name, 0) as queue:
            say("ready")
            hear()
            message = queue.receive(0)
            say(None if message is None else message.deliveries)
            message = queue.receive(PATIENCE)
            say(None if message is None else message.deliveries)

    liveness_children.run_in_namespace(liveness_children.PID, receive)


def entered(child: Child) -> int:
    """Return the outer pid of a namespace's process."""
    pid = child.hear()
    if pid == "not permitted":
        pytest.skip("needs the right to make namespaces")
    return int(pid)


def comes_back(slot: Place) -> bool:
    """Whether message 0 is received, for the second time, by one who has just looked."""
    back = wait_until(slot.look_and_drain, "the message is back", PATIENCE)
    return bool(back == [Got(0, 2)])


@pytest.fixture
def taken(slot: Place) -> Iterator[Place]:
    """A queue with one message; what is taken of it does not come back as long as its taker lives."""
    slot.send(0)
    yield slot
    life_goes_on(slot)


def test_consumer_after_exec_counts_as_dead(taken: Place) -> None:
    """It keeps its pid and its start time, and nothing else."""
    with Child(take_and_become_another_program, taken.endpoint) as child:
        assert child.hear() == "took"
        taken.look()
        assert not taken.drain()
        child.say()
        assert child.hear() == "another program"
        assert comes_back(taken)


def test_dead_consumer_with_living_children_counts_as_dead(taken: Place) -> None:
    with Child(take_and_leave_children, taken.endpoint) as child:
        pids = child.hear()
        try:
            taken.look()
            assert not taken.drain()
            child.kill()
            assert comes_back(taken)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


def test_exit_of_forked_children_keeps_job_of_parent(taken: Place) -> None:
    job = taken.queue.take(0)

    def use() -> None:
        """A handle has a row of its own in a child."""
        taken.queue.send(b"child")
        with taken.queue.take(0) as other:
            assert other.data == b"child"
        taken.queue.close()

    assert in_fork(use) == 0
    assert in_fork(lambda: None) == 0
    taken.look()
    assert taken.other.receive(0) is None
    job.ack()


def test_killed_child_of_consumer_returns_only_its_own_job(taken: Place) -> None:
    kept: list[Any] = [taken.queue]

    def die() -> None:
        kept.append(taken.queue.take(0))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_fork(die) == -signal.SIGKILL
    assert comes_back(taken)


@pytest.mark.ci
def test_unlinked_queue_recovers_job_of_dead_consumer(taken: Place) -> None:
    """What: the queue's name is gone, and another queue has it, when a consumer dies and one who waits is there.

    Why: whether somebody lives is asked of the file, which then is to be had by a descriptor only.

    Failure would mean: a message of an unlinked queue waits for a dead one for ever, or the living are taken for dead.
    """
    with Child(take_and_leave_children, taken.endpoint) as child:
        pids = child.hear()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        MessageQueue.unlink_name(taken.endpoint)
        with MessageQueue(taken.endpoint, max_messages=1) as successor:
            task = Task(taken.other.receive, PATIENCE)
            task.wait_asleep()
            assert not taken.queue.receive(1.2), "it lives, and somebody has looked"
            child.kill()
            message = task.result()
            assert (message.data, message.deliveries) == (bytes(24), 2)
            successor.send(b"")
            assert successor.receive(0)
    again = MessageQueue(taken.endpoint)  # the name is removed at the end
    again.close()


class TestRows:
    """The words name a row and 16 bits of its generation."""

    @pytest.fixture
    def former(self, slot: Place) -> int:
        """Return the generation of a dead one, who has one message taken and one slot held, of the lowest free row."""
        slot.send(0)
        slot.killed("join take:1 hold")
        slot.kill_free_rows()
        return slot.generation(2)

    @pytest.mark.ci
    def test_queue_row_with_70000_owners_recovers_messages(self, slot: Place, former: int) -> None:
        """What: that row has 70,000 owners who look for nobody; then somebody looks."""
        slot.driver("pass:70000", "*never*").ended(0)
        assert slot.generation(2) == former + 70_000
        slot.look()
        assert slot.drain() == [Got(0, 2)]
        life_goes_on(slot)

    @pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "dies"])
    def test_queue_row_with_wrapped_generation_recovers_messages_after_exit(
        self, slot: Place, former: int, leaves: bool
    ) -> None:
        """What: 65,536 owners later somebody lives whom the words name. When it is gone, all comes back."""
        slot.write(ROWS_AT + ROW_BYTES * 2 + 64, former - 1 + 65_536)
        heir = slot.driver("enter ready send:1 leave" if leaves else "enter ready arm send:1", "*stored &header->key")
        heir.wait_until_ready()
        slot.look()
        assert not slot.drain(), "they look like those of the living"
        heir.proceed()
        heir.ended(0 if leaves else -signal.SIGKILL)
        slot.look()
        assert slot.drain() == ([Got(1, 1), Got(0, 2)] if leaves else [Got(0, 2)])
        life_goes_on(slot)


class TestNamespaces:
    def test_consumer_in_other_pid_namespace_is_alive_until_its_death(self, taken: Place) -> None:
        with Child(take_in_namespace, taken.endpoint) as child:
            pid = entered(child)
            assert child.hear() == "took"
            taken.look()
            assert not taken.drain(), "it lives"
            os.kill(pid, signal.SIGKILL)
            assert comes_back(taken)

    def test_consumer_in_other_pid_namespace_recovers_jobs_of_dead_process(self, taken: Place) -> None:
        holder = taken.waiting("join take:1")
        with Child(receive_in_namespace, taken.endpoint) as child:
            entered(child)
            assert child.hear() == "ready"
            child.say()
            assert child.hear() is None, "it lives"
            holder.process.kill()
            assert child.hear() == 2


def test_sleeping_consumer_recovers_job_of_dead_process(taken: Place) -> None:
    """A sleeper looks once a second; nobody wakes it for that."""
    victim = taken.waiting("join take:1")
    task = Task(taken.queue.receive, PATIENCE)
    task.wait_asleep()
    victim.process.kill()
    assert task.result().deliveries == 2
