"""Work queues: descriptors, pollers and asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest

import msgq
from msgq.channel import Channel
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
)
from msgq.impl.workqueue.options import O_CREAT, O_NONBLOCK
from tests.contract.conftest import Queues, readable
from tests.support import DEADLINE, DEADLINE_MS, Task, wait_until


class TestDescriptors:
    def test_fileno_is_readable_while_a_message_waits(self, queues: Queues) -> None:
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

    def test_fileno_is_readable_for_messages_sent_before_fileno_call(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        assert readable(queue.fileno(), DEADLINE)

    def test_fileno_is_readable_after_a_returned_message(self, queues: Queues) -> None:
        queue = queues.open()
        queue.send(b"message")
        fd = queue.fileno()
        job = queue.take(0)
        assert not readable(fd)
        job.nack()
        assert readable(fd, DEADLINE)

    @pytest.mark.parametrize("call", ["receive", "receive_many", "receive_into", "take"])
    def test_fileno_is_not_readable_after_each_receive_method(self, queues: Queues, call: str) -> None:
        queue = queues.open()
        fd = queue.fileno()
        queue.send(b"message")
        assert readable(fd, DEADLINE)
        args: dict[str, list[Any]] = {"receive_into": [bytearray(10), 0], "receive_many": []}
        got = getattr(queue, call)(*args.get(call, [0]))
        assert got
        assert not readable(fd)

    def test_fileno_is_not_readable_after_another_handle_took_the_message(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        fd = queue.fileno()
        queue.send(b"message")
        assert readable(fd, DEADLINE)
        assert other.receive(0) == (b"message", 0)
        assert queue.receive(0) is None
        assert not readable(fd)

    def test_fileno_is_separate_for_each_handle(self, queues: Queues) -> None:
        handles = [queues.open() for _ in range(3)]
        fds = [handle.fileno() for handle in handles]
        assert len(set(fds)) == 3
        handles[0].send(b"message")
        for fd in fds:
            assert readable(fd, DEADLINE)


class TestPoller:
    def test_poller_returns_queues_with_messages(self, queues: Queues) -> None:
        one, other = queues.open(name="1"), queues.open(name="2")
        poller = queues.poller(one, other)
        assert poller.poll(0) == []
        other.send(b"message")
        assert poller.poll(DEADLINE_MS) == [other]
        one.send(b"message")
        assert poller.poll(0) == [one, other]
        other.receive(0)
        assert poller.poll(0) == [one]

    def test_poller_waits_for_its_timeout(self, queues: Queues) -> None:
        poller, before = queues.poller(queues.open()), queues.monotonic()
        assert poller.poll(50) == []
        assert queues.monotonic() - before >= 0.0499

    def test_poller_accepts_queues_topics_and_channels_together(self, queues: Queues, endpoint: str) -> None:
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

    def test_poller_register_accepts_queues_and_descriptors_together(self, queues: Queues) -> None:
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
    def test_poller_is_woken_by_a_message(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        task = Task(queues.poller(queue).poll, DEADLINE_MS)
        task.wait_asleep()
        other.send(b"message")
        assert task.result() == [queue]

    @pytest.mark.needs("threads")
    def test_message_wakes_all_pollers_of_its_queue_immediately(self, queues: Queues) -> None:
        queue = queues.open()
        pollers = [queues.poller(queues.open()) for _ in range(3)]
        for _ in range(5):
            tasks = [Task(poller.poll, DEADLINE_MS) for poller in pollers]
            for task in tasks:
                task.wait_asleep()
            sleeps = [wait_until(task.sleeps) for task in tasks]
            queue.send(b"message")
            assert not [task for task, before in zip(tasks, sleeps, strict=True) if task.sleeps() == before]
            for task in tasks:
                assert len(task.result()) == 1
            queue.receive(0)

    @pytest.mark.needs("threads")
    def test_poller_does_not_consume_the_wake_of_a_receiver(self, queues: Queues) -> None:
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
    def test_arecv_waits_only_without_messages(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()

        async def scenario() -> list[Any]:
            other.send(b"1", 5)
            first = await queue.arecv()
            asyncio.get_running_loop().call_later(0.01, other.send, b"2")
            return [first, await queue.areceive()]

        first, second = asyncio.run(scenario())
        assert (first, second) == ((b"1", 5), (b"2", 0))
        assert isinstance(first, queues.Message)

    def test_async_for_returns_messages(self, queues: Queues) -> None:
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

    def test_arecv_in_several_tasks_shares_the_messages(self, queues: Queues) -> None:
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

    def test_arecv_cancelled_takes_no_message(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()

        async def scenario() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.arecv(), 0.02)

        asyncio.run(scenario())
        other.send(b"message")
        assert queue.receive(0) == (b"message", 0)

    def test_arecv_raises_when_the_handle_closes(self, queues: Queues) -> None:
        queue = queues.open()

        async def scenario() -> None:
            asyncio.get_running_loop().call_later(0.01, queue.close)
            with pytest.raises(EndpointClosedError):
                await queue.arecv()

        asyncio.run(scenario())

    def test_arecv_in_a_second_task_with_the_same_handle_is_refused(self, queues: Queues) -> None:
        queue = queues.open()

        async def scenario() -> None:
            first = asyncio.create_task(queue.arecv())
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError):
                await queue.arecv()
            queue.send(b"message")
            assert await first == (b"message", 0)

        asyncio.run(scenario())

    def test_apoll_returns_queues_with_messages(self, queues: Queues) -> None:
        queue = queues.open()
        poller = queues.poller(queue)

        async def scenario() -> Any:
            asyncio.get_running_loop().call_later(0.01, queue.send, b"message")
            return await poller.apoll(DEADLINE_MS)

        assert asyncio.run(scenario()) == [queue]

    def test_arecv_on_nonblocking_handle_waits(self, queues: Queues) -> None:
        queue = queues.open(O_CREAT | O_NONBLOCK)

        async def scenario() -> Any:
            asyncio.get_running_loop().call_later(0.01, queue.send, b"message")
            return await asyncio.wait_for(queue.arecv(), DEADLINE)

        assert asyncio.run(scenario()) == (b"message", 0)
