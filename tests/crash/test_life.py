"""Owners that become something else: another program, parents, dead; where nobody sees them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from msgq import SeqlockVector
from msgq.errors import MultipleWritersError, WaitTimeoutError
from msgq.workqueue import MessageQueue
from tests.crash.queues import Got, QueuePlace
from tests.crash.records import RecordPlace, values
from tests.support import Child, Task, hear, in_fork, say, wait_until
from tests.unit import liveness_children

PATIENCE = 5.0  # seconds; who waits looks for the dead once a second


class Job:
    """A message that the owner takes, and that comes back when the owner is dead."""

    @staticmethod
    def place(endpoint: str) -> Any:
        place = QueuePlace(endpoint)
        place.send(0)
        return place

    @staticmethod
    def own(name: str) -> Any:
        queue = MessageQueue(name, 0)
        job = queue.take(PATIENCE / 20)
        return job and (job.deliveries, job, queue)

    @staticmethod
    def is_free(place: QueuePlace) -> bool:
        got = place.look_and_drain()
        assert got in ([], [Got(0, 2)])
        return bool(got)


class Element:
    """An element of a vector, in the middle of whose write the owner dies."""

    @staticmethod
    def place(endpoint: str) -> Any:
        return RecordPlace(endpoint)

    @staticmethod
    def own(name: str) -> Any:
        vector = SeqlockVector(name)
        try:
            vector.write([0], values(1), timeout=0.01)
        except WaitTimeoutError:
            return None
        return (1, vector)


class Vector(Element):
    """An exclusive vector, which the owner writes."""

    @staticmethod
    def place(endpoint: str) -> Any:
        return RecordPlace(endpoint, "exclusive")

    @staticmethod
    def is_free(place: RecordPlace) -> bool:
        with place.another_handle() as handle:
            try:
                handle[1] = (2, 2, 2)
            except MultipleWritersError:
                return False
        return True


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Job, Element, Vector)}


def own_and_become_another_program(kind: str, name: str) -> None:
    owned = KINDS[kind].own(name)
    say("owns")
    liveness_children.exec_into_sleep()
    assert owned


def own_and_leave_children(kind: str, name: str) -> None:
    owned = KINDS[kind].own(name)
    say(liveness_children.leave_children())
    hear()
    assert owned


def own_in_namespace(kind: str, name: str) -> None:
    """Own as a process of a PID namespace of its own, as often as somebody says a word."""

    def try_again() -> None:
        while True:
            owned = KINDS[kind].own(name)
            say(owned and owned[0])
            hear()

    liveness_children.run_in_namespace(liveness_children.PID, try_again)


def entered(child: Child) -> int:
    """Return the outer pid of a namespace's process."""
    pid = child.hear()
    if pid == "not permitted":
        pytest.skip("needs the right to make namespaces")
    return int(pid)


@pytest.mark.parametrize("kind", ["Job", "Vector"])
class TestOwners:
    @pytest.fixture
    def place(self, endpoint: str, kind: str) -> Iterator[Any]:
        with KINDS[kind].place(endpoint) as place:
            yield place

    def test_owner_after_exec_counts_as_dead(self, place: Any, kind: str) -> None:
        """It keeps its pid and its start time, and nothing else."""
        with Child(own_and_become_another_program, kind, place.endpoint) as child:
            assert child.hear() == "owns"
            assert not KINDS[kind].is_free(place)
            child.say()
            assert child.hear() == "another program"
            wait_until(lambda: KINDS[kind].is_free(place))

    def test_dead_owner_with_living_children_counts_as_dead(self, place: Any, kind: str) -> None:
        with Child(own_and_leave_children, kind, place.endpoint) as child:
            pids = child.hear()
            try:
                assert not KINDS[kind].is_free(place)
                child.kill()
                wait_until(lambda: KINDS[kind].is_free(place))
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)

    def test_owner_in_other_pid_namespace_is_alive_until_its_death(self, place: Any, kind: str) -> None:
        with Child(own_in_namespace, kind, place.endpoint) as child:
            pid = entered(child)
            assert child.hear() == 1
            assert not KINDS[kind].is_free(place), "it lives"
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: KINDS[kind].is_free(place))


@pytest.mark.parametrize(
    ("kind", "operations", "deliveries"), [("Job", "join take:1", 2), ("Element", "join hold:0", 1)]
)
def test_process_in_other_pid_namespace_recovers_from_dead_owner(
    endpoint: str, kind: str, operations: str, deliveries: int
) -> None:
    with KINDS[kind].place(endpoint) as place:
        holder = place.waiting(operations)
        with Child(own_in_namespace, kind, endpoint) as child:
            entered(child)
            assert child.hear() is None, "it lives"
            holder.kill()
            child.say()
            assert child.hear() == deliveries


# ---- work queues ----


@pytest.fixture
def taken(slot: QueuePlace) -> Iterator[QueuePlace]:
    """A queue with one message; what is taken of it does not come back as long as its taker lives."""
    slot.send(0)
    yield slot
    slot.life_goes_on()


def test_exit_of_forked_children_keeps_job_of_parent(taken: QueuePlace) -> None:
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


def test_killed_child_of_consumer_returns_only_its_own_job(taken: QueuePlace) -> None:
    kept: list[Any] = [taken.queue]

    def die() -> None:
        kept.append(taken.queue.take(0))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_fork(die) == -signal.SIGKILL
    assert wait_until(lambda: Job.is_free(taken))


def test_unlinked_queue_recovers_job_of_dead_consumer(taken: QueuePlace) -> None:
    """What: the queue's name is gone, and another queue has it, when a consumer dies and one who waits is there.

    Why: whether somebody lives is asked of the file, which then is to be had by a descriptor only.

    Failure would mean: a message of an unlinked queue waits for a dead one for ever, or the living are taken for dead.
    """
    with Child(own_and_leave_children, "Job", taken.endpoint) as child:
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


class TestQueueRows:
    """The words name a row and 16 bits of its generation."""

    def kill_taker(self, slot: QueuePlace) -> int:
        """Kill one who has one message taken and one slot held, in the lowest free row. Return its row."""
        slot.send(0)
        row = len(slot.taken_rows())
        slot.killed("join take:1 hold")
        slot.kill_free_rows()
        return row

    def test_queue_row_with_70000_owners_recovers_messages(self, slot: QueuePlace) -> None:
        """What: that row has 70,000 owners who look for nobody; then somebody looks."""
        passer = slot.driver("join ready pass:70000", "*never*")
        passer.wait_until_ready()
        row = self.kill_taker(slot)
        former = slot.generation(row)
        passer.proceed()
        passer.end()
        assert slot.generation(row) == former + 70_000
        slot.look()
        assert slot.drain() == [Got(0, 2)]
        slot.life_goes_on()

    @pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "dies"])
    def test_queue_row_with_wrapped_generation_recovers_messages_after_exit(
        self, slot: QueuePlace, leaves: bool
    ) -> None:
        """What: 65,536 owners later somebody lives whom the words name. When it is gone, all comes back."""
        row = self.kill_taker(slot)
        slot.write(slot.rows[row] + 64, slot.generation(row) - 1 + 65_536)
        heir = slot.driver("join ready send:1 leave" if leaves else "join ready arm send:1", "*stored &header->key")
        heir.wait_until_ready()
        slot.look()
        assert not slot.drain(), "they look like those of the living"
        heir.proceed()
        heir.end(0 if leaves else -signal.SIGKILL)
        slot.look()
        assert slot.drain() == ([Got(1, 1), Got(0, 2)] if leaves else [Got(0, 2)])
        slot.life_goes_on()


def test_sleeping_consumer_recovers_job_of_dead_process(taken: QueuePlace) -> None:
    """A sleeper looks once a second; nobody wakes it for that."""
    victim = taken.waiting("join take:1")
    task = Task(taken.queue.receive, PATIENCE)
    task.wait_asleep()
    victim.kill()
    assert task.result().deliveries == 2
