"""Work queues: waiting for messages and for room, in threads and processes, and who may."""

from __future__ import annotations

import base64
import contextlib
import errno
import math
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from msgq.errors import (
    DeadlockError,
    EndpointClosedError,
    InvalidValueError,
    QueueAccessError,
    QueueFullError,
)
from tests.cases import each_case
from tests.contract import queue_children
from tests.contract.conftest import Queues, call_arguments, readable
from tests.support import DEADLINE, DEADLINE_MS, SHM, Child, Task, in_fork, wait_asleep

SHORT = 0.05
RECEIVING = ["receive", "take"]


BAD_TIMES: list[dict[str, float]] = [
    {"timeout": -1},
    {"timeout": -0.001},
    {"timeout": math.nan},
    {"timeout": math.inf},
    {"timeout": 2147484},
    {"deadline": math.nan},
    {"deadline": math.inf},
    {"deadline": 1e9},  # a time of the wall clock, which was confused with the monotonic clock
    {"timeout": 1, "deadline": 1},
]


def filled(queues: Queues, **options: Any) -> Any:
    """Return a queue that has no room."""
    queue = queues.open(max_messages=1, **options)
    queue.send(b"first")
    return queue


class TestTime:
    @pytest.mark.parametrize("call", RECEIVING)
    @pytest.mark.parametrize("how", ["timeout", "deadline", "first argument"])
    def test_receive_without_message_returns_none_at_the_timeout(self, queues: Queues, call: str, how: str) -> None:
        queue = queues.open()
        before = queues.monotonic()
        if how == "deadline":
            assert getattr(queue, call)(deadline=before + SHORT) is None
        elif how == "timeout":
            assert getattr(queue, call)(timeout=SHORT) is None
        else:
            assert getattr(queue, call)(SHORT) is None
        assert queues.monotonic() - before >= SHORT * 0.999

    @pytest.mark.parametrize("call", RECEIVING)
    def test_deadline_below_range_is_past_and_above_range_is_refused(self, queues: Queues, call: str) -> None:
        """Integers have no end; a float has."""
        queue = queues.open()
        assert getattr(queue, call)(deadline=-(10**400)) is None
        queue.send(b"message")
        with pytest.raises(InvalidValueError, match="away"):
            getattr(queue, call)(deadline=10**400)

    @pytest.mark.parametrize("how", ["timeout", "deadline"])
    def test_receive_into_waits_for_its_timeout(self, queues: Queues, how: str) -> None:
        queue, before = queues.open(), queues.monotonic()
        until = {"timeout": SHORT} if how == "timeout" else {"deadline": before + SHORT}
        assert queue.receive_into(bytearray(10), **until) is None
        assert queues.monotonic() - before >= SHORT * 0.999

    @pytest.mark.parametrize("how", ["timeout", "deadline"])
    def test_send_to_a_full_queue_raises_at_the_timeout(self, queues: Queues, how: str) -> None:
        queue = filled(queues)
        before = queues.monotonic()
        until = {"timeout": SHORT} if how == "timeout" else {"deadline": before + SHORT}
        with pytest.raises(QueueFullError) as caught:
            queue.send(b"second", **until)
        assert queues.monotonic() - before >= SHORT * 0.999
        assert caught.value.errno == errno.ETIMEDOUT
        assert queue.current_messages == 1

    @pytest.mark.parametrize("how", ["timeout", "deadline"])
    def test_send_many_waits_for_free_slots_until_its_timeout(self, queues: Queues, how: str) -> None:
        queue = filled(queues)
        before = queues.monotonic()
        until = {"timeout": SHORT} if how == "timeout" else {"deadline": before + SHORT}
        assert queue.send_many([b"2", b"3", b"4"], **until) == 0
        assert queues.monotonic() - before >= SHORT * 0.999

    def test_wait_space_waits_until_queue_has_a_free_slot(self, queues: Queues) -> None:
        queue = filled(queues)
        before = queues.monotonic()
        assert queue.wait_space(0) is False
        assert queue.wait_space(SHORT) is False
        assert queue.wait_space(timeout=SHORT) is False
        assert queues.monotonic() - before >= 2 * SHORT * 0.999
        queue.receive(0)
        assert queue.wait_space(0) is True
        assert queue.wait_space() is True
        assert queue.current_messages == 0

    @pytest.mark.parametrize("past", [1.0, 1e6, 1e300, math.inf])
    def test_receive_after_deadline_takes_a_waiting_message(self, queues: Queues, past: float) -> None:
        queue = queues.open(max_messages=2)
        passed = queues.monotonic() - past
        queue.send(b"1", deadline=passed)
        assert queue.send_many([b"2"], deadline=passed) == 1
        with pytest.raises(QueueFullError):
            queue.send(b"3", deadline=passed)
        assert queue.receive(deadline=passed) == (b"1", 0)
        with queue.take(deadline=passed) as job:
            assert job.data == b"2"
        assert queue.receive(deadline=passed) is None

    @pytest.mark.parametrize("timeout", [0, 0.0, -0.0])
    def test_timeout_0_does_not_wait(self, queues: Queues, timeout: float) -> None:
        queue = filled(queues)
        with pytest.raises(QueueFullError):
            queue.send(b"", timeout=timeout)
        assert queue.receive(timeout) == (b"first", 0)
        assert queue.receive(timeout) is None

    @pytest.mark.parametrize("how", ["timeout", "deadline"])
    def test_timeout_far_in_the_future_is_accepted(self, queues: Queues, how: str) -> None:
        queue = queues.open(max_messages=1)
        limit = {how: 2147483 + (queues.monotonic() if how == "deadline" else 0)}
        queue.send(b"message", **limit)
        assert queue.receive(**limit) == (b"message", 0)

    @each_case("bad", BAD_TIMES)
    @each_case("call", ["send", "send_many", "receive", "receive_into", "take", "wait_space"])
    @each_case("block", [True, False], reset="queues.close")
    def test_timeout_out_of_range_is_refused(
        self, queues: Queues, bad: dict[str, float], call: str, block: bool
    ) -> None:
        queue = queues.open()
        queue.block = block
        with pytest.raises(InvalidValueError) as caught:
            getattr(queue, call)(*call_arguments(call), **bad)
        assert caught.value.endpoint == queues.name
        assert queue.current_messages == 0

    @pytest.mark.parametrize("bad", [{"timeout": "1"}, {"deadline": "1"}, {"timeout": [1]}], ids=str)
    def test_timeout_of_wrong_type_is_refused(self, queues: Queues, bad: Any) -> None:
        queue = queues.open()
        with pytest.raises(TypeError):
            queue.receive(**bad)
        with pytest.raises(TypeError):
            queue.send(b"", **bad)
        assert queue.current_messages == 0

    def test_endless_wait_of_only_program_in_virtual_time_raises(self, queues: Queues) -> None:
        if queues.backend != "fake":
            pytest.skip("it would last for ever")
        queue = filled(queues)
        for call in (lambda: queue.send(b""), queue.wait_space, lambda: queue.send_many([b""])):
            with pytest.raises(DeadlockError, match=queues.name):
                call()
        queue.receive()
        for call in (queue.receive, queue.take, lambda: queue.receive_into(bytearray(8)), lambda: next(queue)):
            with pytest.raises(DeadlockError, match=queues.name):
                call()


def find_woken_threads(begin: Callable[[], Callable[[], Any]], end: Callable[[], Any]) -> list[bool]:
    """Return for each of ten threads that wait in `end` whether the function that `begin` returns woke it.

    Without a wake, a sleeper polls after a second.
    """
    woken = []
    for _ in range(10):
        act = begin()
        task = Task(end)
        woken.append(task.is_woken_by(act))
        task.result()
    return woken


def count_sender_wakes(name: str, row: int) -> int:
    """Return how often other handles woke the senders of a row, as its eventcount in the file shows."""
    at = 4096 + 256 * row + 192 + 4 * 2
    return int.from_bytes((SHM / f"msgqjobs_{name}").read_bytes()[at : at + 4], "little") >> 2


@pytest.mark.needs("threads")
class TestThreads:
    @pytest.mark.parametrize("handles", ["one handle", "two handles"])
    @pytest.mark.parametrize("call", [*RECEIVING, "next"])
    def test_waiting_receiver_is_woken(self, queues: Queues, handles: str, call: str) -> None:
        queue = queues.open()
        sender = queue if handles == "one handle" else queues.open()
        task = Task(lambda: next(queue) if call == "next" else getattr(queue, call)())
        task.wait_asleep()
        sender.send(b"message", 3)
        got = task.result()
        assert (got.data, got.priority) == (b"message", 3)

    @pytest.mark.parametrize("handles", ["one handle", "two handles"])
    @pytest.mark.parametrize("end", ["receive", "ack", "receive_into", "receive_many"])
    def test_waiting_sender_is_woken(self, queues: Queues, handles: str, end: str) -> None:
        queue = filled(queues)
        receiver = queue if handles == "one handle" else queues.open()
        task = Task(queue.send, b"second")
        task.wait_asleep()
        if end == "ack":
            receiver.take(0).ack()
        elif end == "receive_into":
            assert receiver.receive_into(bytearray(8), timeout=0) == (5, 0)
        else:
            getattr(receiver, end)()
        task.result()
        assert receiver.receive(0) == (b"second", 0)

    def test_nack_wakes_a_waiting_receiver(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        job = queue.take()
        task = Task(other.receive)
        task.wait_asleep()
        job.nack()
        assert task.result() == (b"message", 0)

    @pytest.mark.parametrize("act", ["send", "send_many", "nack"])
    @pytest.mark.parametrize("wait", ["receive", "poll"])
    def test_waiting_receivers_are_woken_without_polling(self, queues: Queues, act: str, wait: str) -> None:
        queue, waiting = queues.open(), queues.open()
        poller = queues.poller(waiting)

        def begin() -> Any:
            if act == "nack":
                queue.send(b"message")
                return queue.take(0).nack
            return (lambda: queue.send(b"message")) if act == "send" else lambda: queue.send_many([b"message"])

        def end() -> None:
            if wait == "poll":
                poller.poll(DEADLINE_MS)
            assert waiting.receive() == (b"message", 0)

        assert all(find_woken_threads(begin, end))

    @pytest.mark.parametrize("act", ["receive", "receive_into", "ack"])
    @pytest.mark.parametrize("wait", ["send", "wait_space"])
    def test_waiting_senders_are_woken_without_polling(self, queues: Queues, act: str, wait: str) -> None:
        queue, waiting = queues.open(max_messages=1), queues.open()

        def begin() -> Any:
            while queue.receive(0) is not None:
                pass
            queue.send(b"message")
            if act == "ack":
                return queue.take(0).ack
            return (lambda: queue.receive(0)) if act == "receive" else lambda: queue.receive_into(bytearray(8), 0)

        assert all(find_woken_threads(begin, lambda: waiting.send(b"next") if wait == "send" else waiting.wait_space()))

    def test_wait_space_does_not_consume_the_wake_of_a_sender(self, queues: Queues) -> None:
        queue, wakes = queues.open(max_messages=1), []
        for number in range(5):
            queue.send(b"first")
            tasks = [Task(queues.open().wait_space), Task(queue.wait_space), Task(queues.open().send, b"second")]
            for task in tasks:
                task.wait_asleep()
            queue.receive(0)
            tasks.pop().result()
            wakes.append(count_sender_wakes(queues.name, row=2 * number + 2))
            assert queue.receive(0) == (b"second", 0)
            for task in tasks:
                assert task.result()
        assert any(wakes)  # a sleeper that nobody wakes looks by itself after a second

    def test_close_that_returns_jobs_wakes_a_receiver(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        job = queue.take()
        task = Task(other.receive)
        task.wait_asleep()
        queue.close()
        assert task.result().deliveries == 2
        del job

    def test_wait_space_is_woken_and_takes_no_slot(self, queues: Queues) -> None:
        queue = filled(queues)
        tasks = [Task(queue.wait_space), Task(queue.wait_space, DEADLINE), Task(queue.send, b"second")]
        for task in tasks:
            task.wait_asleep()
        queue.receive(0)
        tasks[2].result()
        queue.receive(0)
        assert [task.result() for task in tasks] == [True, True, None]

    def test_send_many_continues_when_a_slot_becomes_free(self, queues: Queues) -> None:
        queue, receiver = queues.open(max_messages=2), queues.open()
        task = Task(queue.send_many, [b"%d" % number for number in range(20)])
        got = [receiver.receive(DEADLINE).data for _ in range(20)]
        assert got == [b"%d" % number for number in range(20)]
        assert task.result() == 20

    @pytest.mark.parametrize("handles", ["one handle", "a handle each"])
    def test_each_waiting_receiver_gets_one_message(self, queues: Queues, handles: str) -> None:
        queue = queues.open()
        receivers = [queue if handles == "one handle" else queues.open() for _ in range(8)]
        tasks = [Task(receiver.receive) for receiver in receivers]
        for task in tasks:
            task.wait_asleep()
        queue.send_many(b"%d" % number for number in range(4))
        for number in range(4, 8):
            queue.send(b"%d" % number)
        assert sorted(task.result().data for task in tasks) == [b"%d" % number for number in range(8)]

    @pytest.mark.parametrize("how", ["receive", "take", "receive_into", "send", "send_many", "wait_space"])
    def test_close_ends_the_waits_of_other_threads(self, queues: Queues, how: str) -> None:
        queue = filled(queues) if how in ("send", "send_many", "wait_space") else queues.open()
        tasks = [Task(getattr(queue, how), *call_arguments(how)) for _ in range(2)]
        for task in tasks:
            task.wait_asleep()
        queue.close()
        for task in tasks:
            with pytest.raises(EndpointClosedError):
                task.result()

    @pytest.mark.parametrize("handles", ["one handle", "a handle each"])
    def test_threads_with_one_handle_share_the_messages(self, queues: Queues, handles: str) -> None:
        """Each message is received once, whoever sends and receives at the same time."""
        queue = queues.open(max_messages=10)

        def handle() -> Any:
            return queue if handles == "one handle" else queues.open()

        def send(handle: Any, sender: int) -> None:
            for number in range(200):
                handle.send(b"%d %d" % (sender, number), number % 3)

        def receive(handle: Any) -> list[bytes]:
            return [handle.receive().data for _ in range(200)]

        senders = [Task(send, handle(), sender) for sender in range(3)]
        receivers = [Task(receive, handle()) for _ in range(3)]
        for task in senders:
            task.result()
        got = [data for task in receivers for data in task.result()]
        assert sorted(got) == sorted(b"%d %d" % (sender, number) for sender in range(3) for number in range(200))
        assert (queue.current_messages, queue.in_flight) == (0, 0)

    def test_messages_of_one_sender_and_priority_keep_their_order(self, queues: Queues) -> None:
        receiver = queues.open(max_messages=20)

        def send(priority: int) -> None:
            handle = queues.open()
            for number in range(500):
                handle.send(b"%d" % number, priority)

        tasks = [Task(send, priority) for priority in range(3)]
        got: list[list[int]] = [[], [], []]
        for _ in range(1500):
            data, priority = receiver.receive(DEADLINE)
            got[priority].append(int(data))
        assert got == [list(range(500))] * 3
        for task in tasks:
            task.result()


@pytest.mark.needs("processes")
class TestProcesses:
    def test_each_message_goes_to_one_process(self, queues: Queues) -> None:
        queue = queues.open(max_messages=300)
        with contextlib.ExitStack() as stack:
            children = [
                stack.enter_context(Child(queue_children.consumer, queues.backend, queues.name)) for _ in range(3)
            ]
            for child in children:
                assert child.hear() == "ready"
            for number in range(300):
                queue.send(b"%d" % number, 1)
            for _ in children:
                queue.send(b"", 0)
            got = [int(text) for child in children for text in child.result()]
        assert sorted(got) == list(range(300))

    def test_messages_stay_after_sender_process_exits(self, queues: Queues) -> None:
        queues.open().close()
        with Child(queue_children.sender, queues.backend, queues.name, ["1", "2"], 5) as child:
            child.result()
        assert [tuple(message) for message in queues.open().receive_many()] == [(b"1", 5), (b"2", 5)]

    def test_pickled_handle_works_in_another_process(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        with Child(queue_children.unpickled, base64.b64encode(pickle.dumps(queue)).decode()) as child:
            assert child.result() == "message"

    @pytest.mark.needs("fork")
    def test_forked_child_uses_its_own_handle(self, queues: Queues) -> None:
        queue = queues.open(max_messages=3)
        queue.block = False
        queue.send_many([b"1", b"2"])
        fd = queue.fileno()

        def child() -> None:
            assert queue.receive() == (b"1", 0)
            assert (queue.block, queue.max_messages, queue.current_messages) == (False, 3, 1)
            queue.send(b"child", 1)
            assert not queue.closed
            job = queue.take()
            assert job.data == b"child"
            job.nack()
            assert readable(queue.fileno(), DEADLINE)
            queue.close()

        assert in_fork(child) == 0
        assert readable(fd, DEADLINE)
        assert [message.data for message in queue.receive_many()] == [b"child", b"2"]
        queue.send(b"parent")
        assert queue.receive().data == b"parent"

    @pytest.mark.needs("fork")
    def test_handle_closed_in_child_stays_open_in_parent(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        assert in_fork(queue.close) == 0
        assert (queue.closed, queue.in_flight) == (False, 1)
        job.ack()

    @pytest.mark.parametrize("call", ["receive", "take", "send", "wait_space"])
    def test_ctrl_c_ends_the_wait_and_keeps_the_handle_usable(self, queues: Queues, call: str) -> None:
        queue = filled(queues) if call in ("send", "wait_space") else queues.open()
        with Child(queue_children.interrupted, queues.backend, queues.name, call) as child:
            assert child.hear() == "waits"
            wait_asleep(child.pid)
            child.kill(signal.SIGINT)
            assert child.hear() == "interrupted"
            if call in ("receive", "take"):
                queue.send(b"first")
            child.say()
            assert child.result() == "first"


class TestRights:
    @pytest.mark.parametrize("right", ["read", "write"])
    def test_call_without_read_or_write_right_raises(self, queues: Queues, right: str) -> None:
        queue = queues.open(**{right: False})
        calls: dict[str, list[Callable[[], Any]]] = {
            "write": [lambda: queue.send(b""), lambda: queue.send_many([b""]), queue.wait_space],
            "read": [
                lambda: queue.receive(0),
                queue.receive_many,
                lambda: queue.receive_into(bytearray(8), timeout=0),
                lambda: queue.take(0),
                queue.peek,
                queue.fileno,
                queue.arecv,
                lambda: queues.poller(queue).poll(0),
            ],
        }
        for call in calls[right]:
            with pytest.raises(QueueAccessError, match=f"{right}=False") as caught:
                call()
            assert caught.value.errno == errno.EBADF
            assert caught.value.endpoint == queues.name
        assert queue.current_messages == 0

    def test_read_and_write_rights_are_separate_for_each_handle(self, queues: Queues) -> None:
        sender, receiver = queues.open(read=False), queues.open(write=False)
        sender.send(b"message")
        assert receiver.receive(0) == (b"message", 0)
        assert sender.wait_space(0)


@pytest.mark.needs("threads")
def test_waiting_calls_release_the_gil(queues: Queues) -> None:
    queue = queues.open()
    task = Task(queue.receive)
    task.wait_asleep()
    ran = threading.Event()
    Task(ran.set)
    assert ran.wait(DEADLINE)
    queue.send(b"message")
    task.result()
