"""The descriptor of a socket in an event loop, from its first wait on."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
from typing import Any

import pytest

from msgq.errors import ConcurrentUseError, EndpointClosedError
from tests.contract import children
from tests.contract.conftest import Backend
from tests.support import DEADLINE, Child


class CountingLoop(asyncio.SelectorEventLoop):
    """Records the calls that change the loop's descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]  # also other types
        self.calls.append("add")
        super().add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> Any:
        self.calls.append("remove")
        return super().remove_reader(fd)


def run(main: Any) -> list[str]:
    """Run a coroutine in a new loop. Return the changes of the loop's descriptors."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        runner.run(asyncio.wait_for(main, DEADLINE))
        assert isinstance(loop, CountingLoop)
        return loop.calls


def count_all_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def begin(waiting: Any) -> asyncio.Task[Any]:
    """Return a task that has begun to wait."""
    task: asyncio.Task[Any] = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    return task


async def receive_next(pub: Any, sub: Any, message: bytes) -> None:
    """Send while a task waits, and receive."""
    task = await begin(sub.arecv())
    pub.send(message)
    assert await task == message


class TestDescriptor:
    def test_many_waits_add_the_descriptor_once(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            for number in range(20):
                await receive_next(pub, sub, b"%d" % number)

        assert run(main()) == ["add"]

    def test_cancelled_waits_add_the_descriptor_once(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            for _ in range(5):
                task = await begin(sub.arecv())
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await receive_next(pub, sub, b"x")

        assert run(main()) == ["add"]

    def test_polls_and_receives_share_the_descriptor(self, backend: Backend, prefix: str) -> None:
        pairs = [backend.pair(f"topic-{i}") for i in range(3)]
        poller = backend.poller(*(sub for _, sub in pairs))

        async def poll_and_receive() -> list[bytes]:
            return [sub.receive(True) for sub in await poller.apoll(-1)]

        async def main() -> None:
            for pub, sub in pairs * 3:
                task = await begin(poll_and_receive())
                pub.send(b"x")
                assert await task == [b"x"]
                await receive_next(pub, sub, b"y")

        assert run(main()) == ["add"] * 3

    def test_message_for_which_no_task_waits_does_not_keep_the_loop_busy(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, CountingLoop)
            await receive_next(pub, sub, b"first")
            pub.send(b"nobody waits")
            while loop.calls != ["add", "remove"]:
                await asyncio.sleep(0)
            assert await sub.arecv() == b"nobody waits"
            await receive_next(pub, sub, b"waits again")
            assert loop.calls == ["add", "remove", "add"]

        run(main())

    def test_close_takes_the_descriptor_out_of_the_loop(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            await receive_next(pub, sub, b"x")
            sub.close()
            await asyncio.sleep(0)

        assert run(main()) == ["add", "remove"]

    def test_closed_socket_waits_again_after_connect(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            await receive_next(pub, sub, b"1")
            sub.close()
            sub.connect(backend.context, endpoint)
            backend.settle()
            pub.wait_for_readers(DEADLINE, n=1)
            await receive_next(pub, sub, b"2")

        assert run(main()) == ["add", "remove", "add"]


class TestEnds:
    def test_socket_in_several_loops_leaves_no_descriptor(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        sub.fileno()
        gc.collect()
        before = count_all_descriptors()
        for number in range(3):
            assert run(receive_next(pub, sub, b"%d" % number)) == ["add"]
            assert count_all_descriptors() == before + 1  # the copy in the closed loop
        sub.close()
        assert count_all_descriptors() < before

    def test_collected_socket_leaves_no_descriptor(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            await receive_next(pub, sub, b"opens what the process keeps")
            gc.collect()
            before = count_all_descriptors()
            other = backend.SubSocket()
            other.connect(backend.context, endpoint)
            backend.settle()
            pub.wait_for_readers(DEADLINE, n=2)
            await receive_next(pub, other, b"x")
            assert count_all_descriptors() > before
            del other
            gc.collect()
            while count_all_descriptors() > before:  # ZMQ closes its descriptors in a thread
                await asyncio.sleep(0)

        run(main())

    def test_two_loops_in_turn_receive_all_messages(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        with asyncio.Runner() as first, asyncio.Runner() as second:
            for number in range(6):
                (first, second)[number % 2].run(receive_next(pub, sub, b"%d" % number))

    @pytest.mark.needs("threads")
    def test_second_loop_is_refused_while_a_task_of_the_first_waits(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            task = await begin(sub.arecv())
            with pytest.raises(ConcurrentUseError, match="task"):
                await asyncio.to_thread(asyncio.run, sub.arecv())
            pub.send(b"for the first")
            assert await task == b"for the first"

        run(main())

    @pytest.mark.needs("threads")
    def test_close_by_another_thread_ends_the_wait_and_the_descriptor(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)

        async def main() -> None:
            task = await begin(sub.arecv())
            closing = threading.Thread(target=sub.close)
            closing.start()
            with pytest.raises(EndpointClosedError, match="during the wait"):
                await task
            closing.join()

        assert run(main()) == ["add", "remove"]

    @pytest.mark.needs("fork")
    def test_forked_child_leaves_the_loop_of_its_parent_alone(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        with Child(children.forked_loop_reader, backend.name, endpoint) as child:
            assert child.hear() == "waited"
            pub.send(b"before the fork")
            assert child.hear() == "forked"
            pub.send(b"for both")
            assert child.result() == {"child": "for both", "parent": "for both"}


class TestTasks:
    def test_cancelled_wait_passes_the_message_of_the_cancellation(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)

        async def main() -> None:
            task = await begin(sub.arecv())
            assert task.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await task

        run(main())

    def test_resumed_task_has_its_own_context(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        variable: contextvars.ContextVar[bytes] = contextvars.ContextVar("variable")

        async def main() -> None:
            for value in (b"1", b"2"):  # the loop remembers the context of the first wait
                await asyncio.sleep(0)  # after this, the task certainly has its own context
                variable.set(value)
                task = asyncio.current_task()
                asyncio.get_running_loop().call_soon(pub.send, value)
                assert await sub.arecv() == value
                assert variable.get() == value
                assert asyncio.current_task() is task

        run(main())

    def test_poll_with_a_shorter_timeout_than_the_one_before_ends_in_time(
        self, backend: Backend, endpoint: str
    ) -> None:
        pub, sub = backend.pair(endpoint)
        poller = backend.poller(sub)

        async def main() -> None:
            polling = await begin(poller.apoll(10_000 * DEADLINE))
            pub.send(b"x")
            assert await polling == [sub]
            assert sub.receive(True) == b"x"
            assert await poller.apoll(1) == []

        run(main())

    def test_timer_of_an_earlier_poll_does_not_end_a_wait(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        poller = backend.poller(sub)

        async def main() -> None:
            loop = asyncio.get_running_loop()
            polling = await begin(poller.apoll(50))
            until = loop.time() + 0.05
            pub.send(b"x")
            assert await polling == [sub]
            assert sub.receive(True) == b"x"
            later = await begin(poller.apoll(1000 * DEADLINE))
            while loop.time() < until:
                await asyncio.sleep(0.01)
            assert not later.done()
            later.cancel()
            endless = await begin(sub.arecv())
            assert not endless.done()
            pub.send(b"y")
            assert await endless == b"y"

        run(main())
