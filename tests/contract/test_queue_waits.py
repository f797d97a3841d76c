"""Work queues: waiting for messages and for room, by time, threads, pollers, asyncio and notifications."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import math
import os
import pickle
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import msgq
from msgq.channel import Channel
from msgq.errors import (
    ConcurrentUseError,
    DeadlockError,
    EndpointClosedError,
    InvalidValueError,
    QueueAccessError,
    QueueFullError,
)
from msgq.impl.workqueue.options import O_CREAT, O_NONBLOCK
from tests.contract import queue_actors
from tests.contract.conftest import Queues
from tests.support import DEADLINE, DEADLINE_MS, Child, Task, in_fork, wait_asleep, wait_until

SHORT = 0.05
RECEIVING = ["receive", "take"]


BAD_TIMES: list[dict[str, float]] = [
    {"timeout": -1},
    {"timeout": -0.001},
    {"timeout": math.nan},
    {"timeout": math.inf},
    {"timeout": 2147484},
    {"deadline": math.nan},
    {"timeout": 1, "deadline": 1},
]


def readable(fd: int, seconds: float = 0) -> bool:
    return bool(select.select([fd], [], [], seconds)[0])


def filled(queues: Queues, **options: Any) -> Any:
    """Return a queue that has no room."""
    queue = queues.open(max_messages=1, **options)
    queue.send(b"first")
    return queue


class TestTime:
    @pytest.mark.parametrize("call", RECEIVING)
    @pytest.mark.parametrize("how", ["timeout", "deadline", "first argument"])
    def test_nothing_comes_in_time(self, queues: Queues, call: str, how: str) -> None:
        queue = queues.open()
        before = queues.monotonic()
        if how == "deadline":
            assert getattr(queue, call)(deadline=before + SHORT) is None
        elif how == "timeout":
            assert getattr(queue, call)(timeout=SHORT) is None
        else:
            assert getattr(queue, call)(SHORT) is None
        assert SHORT * 0.999 <= queues.monotonic() - before < DEADLINE

    @pytest.mark.parametrize("how", ["timeout", "deadline"])
    def test_receive_into_waits_as_long(self, queues: Queues, how: str) -> None:
        queue, before = queues.open(), queues.monotonic()
        until = {"timeout": SHORT} if how == "timeout" else {"deadline": before + SHORT}
        assert queue.receive_into(bytearray(10), **until) is None
        assert SHORT * 0.999 <= queues.monotonic() - before < DEADLINE

    @pytest.mark.parametrize("how", ["timeout", "deadline"])
    def test_no_room_comes_in_time(self, queues: Queues, how: str) -> None:
        queue = filled(queues)
        before = queues.monotonic()
        until = {"timeout": SHORT} if how == "timeout" else {"deadline": before + SHORT}
        with pytest.raises(QueueFullError) as caught:
            queue.send(b"second", **until)
        assert SHORT * 0.999 <= queues.monotonic() - before < DEADLINE
        assert caught.value.errno == errno.ETIMEDOUT
        assert queue.current_messages == 1

    @pytest.mark.parametrize("how", ["timeout", "deadline"])
    def test_send_many_waits_so_long_for_all_of_them(self, queues: Queues, how: str) -> None:
        queue = filled(queues)
        before = queues.monotonic()
        until = {"timeout": SHORT} if how == "timeout" else {"deadline": before + SHORT}
        assert queue.send_many([b"2", b"3", b"4"], **until) == 0
        assert SHORT * 0.999 <= queues.monotonic() - before < DEADLINE

    def test_wait_space(self, queues: Queues) -> None:
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
    def test_what_is_there_is_taken_although_the_deadline_has_passed(self, queues: Queues, past: float) -> None:
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
    def test_0_is_not_at_all(self, queues: Queues, timeout: float) -> None:
        queue = filled(queues)
        before = queues.monotonic()
        with pytest.raises(QueueFullError):
            queue.send(b"", timeout=timeout)
        assert queue.receive(timeout) == (b"first", 0)
        assert queue.receive(timeout) is None
        assert queues.monotonic() - before < DEADLINE / 10

    @pytest.mark.parametrize("limit", [{"timeout": 2147483}, {"deadline": math.inf}, {"deadline": 1e15}])
    def test_a_time_far_away_is_no_error(self, queues: Queues, limit: dict[str, float]) -> None:
        queue = queues.open(max_messages=1)
        queue.send(b"message", **limit)
        assert queue.receive(**limit) == (b"message", 0)

    @pytest.mark.parametrize("bad", BAD_TIMES, ids=str)
    @pytest.mark.parametrize("call", ["send", "send_many", "receive", "receive_into", "take", "wait_space"])
    @pytest.mark.parametrize("block", [True, False])
    def test_times_that_are_not_possible(self, queues: Queues, bad: dict[str, float], call: str, block: bool) -> None:
        queue = queues.open()
        queue.block = block
        args: list[Any] = {"send": [b""], "send_many": [[b""]], "receive_into": [bytearray(8)]}.get(call, [])
        with pytest.raises(InvalidValueError) as caught:
            getattr(queue, call)(*args, **bad)
        assert caught.value.endpoint == queues.name
        assert queue.current_messages == 0

    @pytest.mark.parametrize("bad", [{"timeout": "1"}, {"deadline": "1"}, {"timeout": [1]}], ids=str)
    def test_times_that_are_none(self, queues: Queues, bad: Any) -> None:
        queue = queues.open()
        for call in (lambda: queue.receive(**bad), lambda: queue.send(b"", **bad)):
            with pytest.raises(TypeError):
                call()
        assert queue.current_messages == 0

    def test_for_ever_alone_in_virtual_time_is_an_error(self, queues: Queues) -> None:
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


@pytest.mark.needs("threads")
class TestThreads:
    @pytest.mark.parametrize("handles", ["one handle", "two handles"])
    @pytest.mark.parametrize("call", [*RECEIVING, "next"])
    def test_a_receiver_is_woken(self, queues: Queues, handles: str, call: str) -> None:
        queue = queues.open()
        sender = queue if handles == "one handle" else queues.open()
        task = Task(lambda: next(queue) if call == "next" else getattr(queue, call)())
        task.wait_asleep()
        sender.send(b"message", 3)
        got = task.result()
        assert (got.data, got.priority) == (b"message", 3)

    @pytest.mark.parametrize("handles", ["one handle", "two handles"])
    @pytest.mark.parametrize("end", ["receive", "ack", "receive_into", "receive_many"])
    def test_a_sender_is_woken(self, queues: Queues, handles: str, end: str) -> None:
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

    def test_a_nack_wakes_a_receiver(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        job = queue.take()
        task = Task(other.receive)
        task.wait_asleep()
        job.nack()
        assert task.result() == (b"message", 0)

    def test_close_that_returns_jobs_wakes_a_receiver(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        queue.send(b"message")
        job = queue.take()
        task = Task(other.receive)
        task.wait_asleep()
        queue.close()
        assert task.result().deliveries == 2
        del job

    def test_wait_space_is_woken_and_takes_no_place(self, queues: Queues) -> None:
        queue = filled(queues)
        tasks = [Task(queue.wait_space), Task(queue.wait_space, DEADLINE), Task(queue.send, b"second")]
        for task in tasks:
            task.wait_asleep()
        queue.receive(0)
        tasks[2].result()
        queue.receive(0)
        assert [task.result() for task in tasks] == [True, True, None]

    def test_send_many_goes_on_when_there_is_room(self, queues: Queues) -> None:
        queue, receiver = queues.open(max_messages=2), queues.open()
        task = Task(queue.send_many, [b"%d" % number for number in range(20)])
        got = [receiver.receive(DEADLINE).data for _ in range(20)]
        assert got == [b"%d" % number for number in range(20)]
        assert task.result() == 20

    @pytest.mark.parametrize("handles", ["one handle", "a handle each"])
    def test_each_of_many_that_wait_gets_one(self, queues: Queues, handles: str) -> None:
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
        args: list[Any] = {"send": [b""], "send_many": [[b""]], "receive_into": [bytearray(8)]}.get(how, [])
        tasks = [Task(getattr(queue, how), *args) for _ in range(2)]
        for task in tasks:
            task.wait_asleep()
        queue.close()
        for task in tasks:
            with pytest.raises(EndpointClosedError):
                task.result()

    @pytest.mark.parametrize("handles", ["one handle", "a handle each"])
    def test_threads_share_the_work(self, queues: Queues, handles: str) -> None:
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

    def test_messages_of_one_sender_and_priority_do_not_overtake(self, queues: Queues) -> None:
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
                stack.enter_context(Child(queue_actors.consumer, queues.backend, queues.name)) for _ in range(3)
            ]
            for child in children:
                assert child.hear() == "ready"
            for number in range(300):
                queue.send(b"%d" % number, 1)
            for _ in children:
                queue.send(b"", 0)
            got = [int(text) for child in children for text in child.result()]
        assert sorted(got) == list(range(300))

    def test_messages_outlive_the_process_that_sent_them(self, queues: Queues) -> None:
        queues.open().close()
        with Child(queue_actors.sender, queues.backend, queues.name, ["1", "2"], 5) as child:
            child.result()
        assert [tuple(message) for message in queues.open().receive_many()] == [(b"1", 5), (b"2", 5)]

    def test_a_handle_goes_to_another_process_by_pickling(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        with Child(queue_actors.unpickled, base64.b64encode(pickle.dumps(queue)).decode()) as child:
            assert child.result() == "message"

    @pytest.mark.needs("fork")
    def test_a_forked_child_goes_on_with_a_handle_of_its_own(self, queues: Queues) -> None:
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
    def test_a_handle_that_a_child_closes_is_still_its_parents(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        job = queue.take(0)
        assert in_fork(queue.close) == 0
        assert (queue.closed, queue.in_flight) == (False, 1)
        job.ack()

    @pytest.mark.parametrize("call", ["receive", "take", "send", "wait_space"])
    def test_ctrl_c_ends_the_wait_and_the_handle_goes_on(self, queues: Queues, call: str) -> None:
        queue = filled(queues) if call in ("send", "wait_space") else queues.open()
        with Child(queue_actors.interrupted, queues.backend, queues.name, call) as child:
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
    def test_a_handle_does_what_it_was_opened_for(self, queues: Queues, right: str) -> None:
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

    def test_they_are_the_handles_own(self, queues: Queues) -> None:
        sender, receiver = queues.open(read=False), queues.open(write=False)
        sender.send(b"message")
        assert receiver.receive(0) == (b"message", 0)
        assert sender.wait_space(0)


class TestDescriptors:
    def test_it_is_readable_while_something_is_there(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        fd = queue.fileno()
        assert fd == queue.fileno()
        assert not readable(fd)
        other.send_many([b"1", b"2"])
        for _ in range(2):
            assert readable(fd, DEADLINE)
            assert queue.receive(0)
        assert not readable(fd)
        other.send(b"3")
        assert readable(fd, DEADLINE)

    def test_what_was_there_before_makes_it_readable(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        assert readable(queue.fileno(), DEADLINE)

    def test_what_comes_back_makes_it_readable(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        fd = queue.fileno()
        job = queue.take(0)
        assert not readable(fd)
        job.nack()
        assert readable(fd, DEADLINE)

    @pytest.mark.parametrize("call", ["receive", "receive_many", "receive_into", "take"])
    def test_every_way_to_receive_settles_it(self, queues: Queues, call: str) -> None:
        queue = queues.open()
        fd = queue.fileno()
        queue.send(b"message")
        assert readable(fd, DEADLINE)
        args: dict[str, list[Any]] = {"receive_into": [bytearray(10), 0], "receive_many": []}
        got = getattr(queue, call)(*args.get(call, [0]))
        assert got
        assert not readable(fd)

    def test_the_last_message_that_another_takes_leaves_no_hope_for_long(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        fd = queue.fileno()
        queue.send(b"message")
        assert readable(fd, DEADLINE)
        assert other.receive(0) == (b"message", 0)
        assert queue.receive(0) is None
        assert not readable(fd)

    def test_every_handle_has_one_of_its_own(self, queues: Queues) -> None:
        handles = [queues.open() for _ in range(3)]
        fds = [handle.fileno() for handle in handles]
        assert len(set(fds)) == 3
        handles[0].send(b"message")
        for fd in fds:
            assert readable(fd, DEADLINE)


class TestPoller:
    def test_it_returns_those_that_have_something(self, queues: Queues) -> None:
        one, other = queues.open(name="1"), queues.open(name="2")
        poller = queues.poller(one, other)
        assert poller.poll(0) == []
        other.send(b"message")
        assert poller.poll(DEADLINE_MS) == [other]
        one.send(b"message")
        assert poller.poll(0) == [one, other]
        other.receive(0)
        assert poller.poll(0) == [one]

    def test_a_time_out(self, queues: Queues) -> None:
        poller, before = queues.poller(queues.open()), queues.monotonic()
        assert poller.poll(50) == []
        assert queues.monotonic() - before >= 0.0499

    def test_mixed_with_topics_and_channels(self, queues: Queues, endpoint: str) -> None:
        queue = queues.open()
        sub, pub = msgq.sub_sock(f"{endpoint}topic"), msgq.pub_sock(f"{endpoint}topic")
        channel = Channel(f"{endpoint}channel")
        subscriber, publisher = channel.subscriber(), channel.publisher()
        poller = queues.poller(sub, queue, subscriber)
        try:
            for ready, send in ((queue, queue.send), (sub, pub.send), (subscriber, publisher.send)):
                assert poller.poll(0) == []
                send(b"message")
                assert poller.poll(DEADLINE_MS) == [ready]
                ready.receive(*([True] if ready is sub else [0]))
        finally:
            for each in (sub, pub, subscriber, publisher):
                each.close()
            channel.unlink()
            for kind in ("msgq_", "msgqside_"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"/dev/shm/{kind}{endpoint}topic")

    def test_registered_as_pyzmq_does_it_and_beside_a_descriptor(self, queues: Queues) -> None:
        queue = queues.open()
        reads, writes = os.pipe()
        poller = queues.poller()
        poller.register(queue, msgq.POLLIN)
        poller.register(reads, msgq.POLLIN)
        try:
            assert poller.poll(0) == []
            queue.send(b"message")
            assert poller.poll(DEADLINE_MS) == [(queue, msgq.POLLIN)]
            queue.receive(0)
            os.write(writes, b"x")
            assert poller.poll(DEADLINE_MS) == [(reads, msgq.POLLIN)]
        finally:
            os.close(reads)
            os.close(writes)

    @pytest.mark.needs("threads")
    def test_a_poll_is_woken(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        task = Task(queues.poller(queue).poll, DEADLINE_MS)
        task.wait_asleep()
        other.send(b"message")
        assert task.result() == [queue]

    @pytest.mark.needs("threads")
    def test_who_only_looks_does_not_swallow_the_wake_of_who_receives(self, queues: Queues) -> None:
        queue = queues.open()
        watching = [Task(queues.poller(queues.open()).poll, DEADLINE_MS) for _ in range(2)]
        receiving = Task(queues.open().receive)
        for task in (*watching, receiving):
            task.wait_asleep()
        queue.send(b"message")
        assert receiving.result() == (b"message", 0)
        queue.send(b"for those that look")
        for task in watching:
            assert len(task.result()) == 1


class TestAsyncio:
    def test_arecv_waits_only_if_nothing_is_there(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()

        async def scenario() -> list[Any]:
            other.send(b"1", 5)
            first = await queue.arecv()
            asyncio.get_running_loop().call_later(0.01, other.send, b"2")
            return [first, await queue.areceive()]

        first, second = asyncio.run(scenario())
        assert (first, second) == ((b"1", 5), (b"2", 0))
        assert isinstance(first, queues.Message)

    def test_async_for(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()

        async def scenario() -> list[bytes]:
            got: list[bytes] = []
            other.send(b"0")
            async for message in queue:
                got.append(message.data)
                if len(got) == 5:
                    break
                asyncio.get_running_loop().call_soon(other.send, b"%d" % len(got))
            return got

        assert asyncio.run(scenario()) == [b"0", b"1", b"2", b"3", b"4"]

    def test_several_tasks_share_the_work(self, queues: Queues) -> None:
        queue = queues.open()

        async def worker(got: list[bytes]) -> None:
            async for message in queues.open():
                if not message.data:
                    return
                got.append(message.data)
                await asyncio.sleep(0)

        async def scenario() -> list[bytes]:
            got: list[bytes] = []
            tasks = [asyncio.create_task(worker(got)) for _ in range(3)]
            await asyncio.sleep(0)
            for number in range(30):
                queue.send(b"%d" % number, 1)
            queue.send_many([b""] * 3)
            await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE)
            return got

        assert sorted(map(int, asyncio.run(scenario()))) == list(range(30))

    def test_a_cancelled_task_takes_nothing(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()

        async def scenario() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.arecv(), 0.02)

        asyncio.run(scenario())
        other.send(b"message")
        assert queue.receive(0) == (b"message", 0)

    def test_close_ends_it(self, queues: Queues) -> None:
        queue = queues.open()

        async def scenario() -> None:
            asyncio.get_running_loop().call_later(0.01, queue.close)
            with pytest.raises(EndpointClosedError):
                await queue.arecv()

        asyncio.run(scenario())

    def test_one_task_at_a_time_waits_with_a_handle(self, queues: Queues) -> None:
        queue = queues.open()

        async def scenario() -> None:
            first = asyncio.create_task(queue.arecv())
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError):
                await queue.arecv()
            queue.send(b"message")
            assert await first == (b"message", 0)

        asyncio.run(scenario())

    def test_apoll(self, queues: Queues) -> None:
        queue = queues.open()
        poller = queues.poller(queue)

        async def scenario() -> Any:
            asyncio.get_running_loop().call_later(0.01, queue.send, b"message")
            return await poller.apoll(DEADLINE_MS)

        assert asyncio.run(scenario()) == [queue]

    def test_a_handle_that_does_not_block_is_waited_for_no_less(self, queues: Queues) -> None:
        queue = queues.open(O_CREAT | O_NONBLOCK)

        async def scenario() -> Any:
            asyncio.get_running_loop().call_later(0.01, queue.send, b"message")
            return await asyncio.wait_for(queue.arecv(), DEADLINE)

        assert asyncio.run(scenario()) == (b"message", 0)


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """The signals that came during the test."""
    came: list[int] = []
    former = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGUSR1, signal.SIGRTMIN + 3)
    }
    yield came
    for number, handler in former.items():
        signal.signal(number, handler)


class TestNotifications:
    """When an empty queue gets a message that no receiver waits for."""

    def told(self, count: int, told: list[Any]) -> None:
        wait_until(lambda: len(told) >= count, f"{count} notifications")

    def test_a_function_gets_the_handle(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        told: list[Any] = []
        queue.notify(told.append)
        other.send(b"message")
        self.told(1, told)
        assert told == [queue]
        assert queue.receive(0) == (b"message", 0)

    def test_each_time_but_only_when_it_was_empty(self, queues: Queues) -> None:
        queue = queues.open()
        told: list[Any] = []
        queue.notify(told.append)
        for round in range(1, 4):
            queue.send_many([b"1", b"2"])
            self.told(round, told)
            queue.send(b"3")
            assert len(queue.receive_many()) == 3
        queue.send(b"last")
        self.told(4, told)
        assert len(told) == 4

    def test_once(self, queues: Queues) -> None:
        queue = queues.open()
        told: list[Any] = []
        queue.notify(told.append, once=True)
        other: list[Any] = []
        witness = queues.open()
        witness.notify(other.append)
        for round in range(1, 4):
            queue.send(b"message")
            self.told(round, other)
            queue.receive(0)
        self.told(1, told)
        assert len(told) == 1

    def test_cancelled(self, queues: Queues) -> None:
        queue, witness = queues.open(), queues.open()
        told: list[Any] = []
        other: list[Any] = []
        queue.notify(told.append)
        witness.notify(other.append)
        queue.notify(None)
        queue.notify(None)
        queue.send(b"message")
        self.told(1, other)
        assert told == []

    def test_the_last_one_counts(self, queues: Queues) -> None:
        queue = queues.open()
        former: list[Any] = []
        told: list[Any] = []
        queue.notify(former.append)
        queue.notify(told.append)
        queue.send(b"message")
        self.told(1, told)
        assert former == []

    def test_any_number_of_handles(self, queues: Queues) -> None:
        told: list[Any] = []
        handles = [queues.open() for _ in range(5)]
        for handle in handles:
            handle.notify(told.append)
        handles[0].send(b"message")
        self.told(5, told)
        assert {id(queue) for queue in told} == {id(handle) for handle in handles}

    def test_a_signal(self, queues: Queues, signals: list[int]) -> None:
        queue = queues.open()
        for number in (signal.SIGUSR1, signal.SIGRTMIN + 3):
            queue.notify(number)
            queue.send(b"message")
            wait_until(lambda number=number: number in signals)  # type: ignore[misc]
            queue.receive(0)
        assert signals == [signal.SIGUSR1, signal.SIGRTMIN + 3]

    def test_a_descriptor(self, queues: Queues) -> None:
        queue = queues.open()
        with contextlib.closing(os.fdopen(os.eventfd(0, os.EFD_NONBLOCK), "r+b", 0)) as event:
            queue.notify(event)
            queue.send(b"message")
            assert readable(event.fileno(), DEADLINE)
            assert os.eventfd_read(event.fileno()) == 1

    def test_a_socket_wakes_who_waits_there(self, queues: Queues) -> None:
        queue = queues.open()
        here, there = socket.socketpair()
        with here, there:
            queue.notify(there)
            queue.send(b"message")
            here.settimeout(DEADLINE)
            assert len(here.recv(100)) == 8

    def test_a_descriptor_that_takes_no_more_is_no_error(self, queues: Queues) -> None:
        queue, witness = queues.open(), queues.open()
        told: list[Any] = []
        reads, writes = os.pipe2(os.O_NONBLOCK)
        with os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0) as pipe:
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writes, bytes(4096))
            queue.notify(pipe)
            witness.notify(told.append)
            for round in range(1, 4):
                queue.send(b"message")
                self.told(round, told)
                queue.receive(0)

    def test_what_a_function_raises_is_not_for_the_sender(
        self, queues: Queues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raised: list[Any] = []
        monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_type))
        told: list[Any] = []
        handles = [queues.open() for _ in range(2)]
        handles[0].notify(lambda _: 1 / 0)
        handles[1].notify(told.append)
        for round in range(1, 3):
            handles[0].send(b"message")
            self.told(round, told)
            self.told(round, raised)
            handles[0].receive(0)
        assert raised == [ZeroDivisionError] * 2

    def test_what_comes_back_counts_as_what_comes(self, queues: Queues) -> None:
        queue = queues.open()
        told: list[Any] = []
        queue.send(b"message")
        job = queue.take(0)
        queue.notify(told.append)
        job.nack()
        self.told(1, told)

    def test_a_closed_handle_is_not_notified(self, queues: Queues) -> None:
        queue, witness = queues.open(), queues.open()
        told: list[Any] = []
        other: list[Any] = []
        queue.notify(told.append)
        witness.notify(other.append)
        queue.close()
        witness.send(b"message")
        self.told(1, other)
        assert told == []
        with pytest.raises(EndpointClosedError):
            queue.notify(told.append)

    def test_a_handle_that_is_notified_can_be_forgotten(self, queues: Queues) -> None:
        for _ in range(200):
            queues.MessageQueue(queues.name).notify(print)
        queues.open()

    @pytest.mark.needs("threads")
    def test_who_waits_gets_it_and_nobody_is_notified(self, queues: Queues) -> None:
        queue, waiting = queues.open(), queues.open()
        told: list[Any] = []
        queue.notify(told.append)
        task = Task(waiting.receive)
        task.wait_asleep()
        queue.send(b"for who waits")
        assert task.result() == (b"for who waits", 0)
        queue.send(b"for nobody")
        self.told(1, told)
        assert len(told) == 1

    @pytest.mark.needs("threads")
    def test_who_was_told_may_receive(self, queues: Queues) -> None:
        """An event loop by hand: told, receive all, be told again."""
        queue, sender = queues.open(), queues.open()
        got: list[bytes] = []
        queue.notify(lambda told: got.extend(data for data, _ in told.receive_many()))
        sent = [b"%d" % number for number in range(200)]
        for message in sent:
            sender.send(message)
            if len(got) % 7 == 0:
                time.sleep(0)
        wait_until(lambda: len(got) == 200)
        assert got == sent

    @pytest.mark.needs("processes")
    def test_a_signal_comes_to_the_process_that_asked(self, queues: Queues) -> None:
        queue = queues.open()
        with Child(queue_actors.notified_by_signal, queues.backend, queues.name, signal.SIGUSR1) as child:
            assert child.hear() == "ready"
            queue.send(b"message")
            assert child.result() == 1

    @pytest.mark.parametrize("bad", ["text", 1.5, True, [], object()], ids=lambda bad: type(bad).__name__)
    def test_what_cannot_be_notified(self, queues: Queues, bad: Any) -> None:
        with pytest.raises(TypeError):
            queues.open().notify(bad)

    @pytest.mark.parametrize("bad", [0, -1, 10_000])
    def test_what_is_no_signal(self, queues: Queues, bad: int) -> None:
        with pytest.raises(InvalidValueError, match=str(bad)):
            queues.open().notify(bad)

    def test_a_descriptor_that_is_closed(self, queues: Queues) -> None:
        class Closed:
            def fileno(self) -> int:
                return 1_000_000

        with pytest.raises(InvalidValueError, match="1000000"):
            queues.open().notify(Closed())


@pytest.mark.needs("threads")
def test_no_wait_keeps_python_from_other_threads(queues: Queues) -> None:
    queue = queues.open()
    task = Task(queue.receive)
    task.wait_asleep()
    ran = threading.Event()
    Task(ran.set)
    assert ran.wait(DEADLINE)
    queue.send(b"message")
    task.result()
