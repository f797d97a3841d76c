"""Descriptors for event loops, and asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import Any

import pytest

from msgq.errors import ConcurrentUseError, EndpointClosedError
from tests.contract import children
from tests.contract.conftest import Backend, collect
from tests.support import DEADLINE, Child, Task


def readable(sub: Any, seconds: float = 0) -> bool:
    return bool(select.select([sub], [], [], seconds)[0])


def run(main: Any) -> Any:
    """Run a coroutine; a wait that never ends is a failure of its own."""
    return asyncio.run(asyncio.wait_for(main, DEADLINE))


class TestFileno:
    def test_fileno_is_readable_only_while_a_message_waits(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        assert not readable(sub)
        for round_ in range(200):
            pub.send_many([b"%d" % round_, b"b"])
            assert readable(sub, DEADLINE)
            assert collect(sub, 1) == [b"%d" % round_]
            assert readable(sub, DEADLINE)
            assert collect(sub, 1) == [b"b"]
            assert sub.receive(True) is None
            assert not readable(sub)

    def test_fileno_is_readable_for_messages_sent_before_fileno_call(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(b"early")
        assert collect(sub, 1) == [b"early"]
        pub.send(b"x")
        assert readable(sub, DEADLINE)

    @pytest.mark.parametrize("how", ["many", "into", "array"])
    def test_fileno_is_not_readable_after_each_receive_method(self, backend: Backend, endpoint: str, how: str) -> None:
        pub, sub = backend.pair(endpoint)
        sub.fileno()
        pub.send(b"x")
        assert readable(sub, DEADLINE)
        take = {
            "many": sub.receive_many,
            "into": lambda: sub.receive_into(bytearray(1)),
            "array": lambda: sub.receive_array("u1"),
        }[how]
        take()
        assert sub.receive(True) is None
        assert not readable(sub)

    def test_fileno_stays_constant_until_socket_is_closed(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)
        assert sub.fileno() == sub.fileno()
        sub.close()
        with pytest.raises(EndpointClosedError):
            sub.fileno()

    def test_fileno_of_several_topics_works_in_one_epoll(self, backend: Backend, prefix: str) -> None:
        pairs = [backend.pair(f"topic-{i}") for i in range(5)]
        loop = select.epoll()
        for _, sub in pairs:
            loop.register(sub.fileno(), select.EPOLLIN)
        for pub, sub in pairs:
            pub.send(b"x")
            assert [fd for fd, _ in loop.poll(DEADLINE)] == [sub.fileno()]
            assert sub.receive(True) == b"x"
        loop.close()

    @pytest.mark.needs("threads")
    def test_fileno_wakes_a_sleeping_event_loop(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        sub.fileno()
        for _ in range(20):
            task = Task(readable, sub, DEADLINE)
            task.wait_asleep()
            pub.send(b"x")
            assert task.result()
            assert sub.receive(True) == b"x"

    @pytest.mark.needs("fork")
    def test_fileno_of_forked_child_is_separate(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        with Child(children.forked_fileno, backend.name, endpoint) as child:
            assert child.hear() == "forked"
            pub.send(b"for both")
            assert child.result() == {"child": "for both", "parent": "for both"}


class TestAsyncio:
    def test_areceive_returns_messages_in_order(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def publish() -> None:
            for i in range(100):
                pub.send(b"%d" % i)
                await asyncio.sleep(0)

        async def main() -> list[bytes]:
            publisher = asyncio.create_task(publish())
            messages = []
            async for message in sub:
                messages.append(message)
                if len(messages) == 100:
                    break
            await publisher
            return messages

        assert run(main()) == [b"%d" % i for i in range(100)]

    def test_areceive_with_waiting_message_returns_without_delay(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send_many([b"1", b"2"])
        assert collect(sub, 1) == [b"1"]
        with pytest.raises(StopIteration) as done:
            sub.arecv().send(None)
        assert done.value.value == b"2"

    def test_areceive_cancelled_loses_no_message(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> list[bytes]:
            messages = []
            for i in range(100):
                task = asyncio.create_task(sub.arecv())
                await asyncio.sleep(0)
                pub.send(b"%d" % i)
                for _ in range(i % 7):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    messages.append(await task)
            while len(messages) < 100:
                messages.append(await sub.arecv())
            return messages

        assert run(main()) == [b"%d" % i for i in range(100)]

    def test_areceive_raises_when_the_socket_closes(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)

        async def main() -> None:
            task = asyncio.create_task(sub.arecv())
            await asyncio.sleep(0)
            sub.close()
            with pytest.raises(EndpointClosedError, match="during the wait"):
                await task
            with pytest.raises(EndpointClosedError):
                await sub.arecv()

        run(main())

    def test_areceive_in_a_second_task_is_refused(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            first = asyncio.create_task(sub.arecv())
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError, match="task"):
                await sub.arecv()
            pub.send(b"for the first")
            assert await first == b"for the first"

        run(main())

    def test_apoll_returns_ready_subscribers(self, backend: Backend, prefix: str) -> None:
        pairs = [backend.pair(f"topic-{i}") for i in range(3)]
        poller = backend.poller(*(sub for _, sub in pairs))

        async def main() -> None:
            assert await poller.apoll(0) == []
            assert await poller.apoll(1) == []
            for pub, sub in pairs:
                waiting = asyncio.create_task(poller.apoll(-1))
                await asyncio.sleep(0)
                pub.send(b"x")
                assert await waiting == [sub]
                assert sub.receive(True) == b"x"

        run(main())

    def test_areceive_on_new_socket_succeeds_after_waiting_socket_is_closed(
        self, backend: Backend, endpoint: str
    ) -> None:
        """The closed one's descriptor has the number of the new one's, while the loop still has a reader for it."""
        pub, sub = backend.pair(endpoint)

        async def main() -> None:
            task = asyncio.create_task(sub.arecv())
            await asyncio.sleep(0)
            sub.close()
            other = backend.sub(endpoint)
            backend.settle()
            pub.wait_for_readers(DEADLINE, n=1)
            waiting = asyncio.create_task(other.arecv())
            with pytest.raises(EndpointClosedError):
                await task
            pub.send(b"x")
            assert await waiting == b"x"

        run(main())

    def test_areceive_after_closed_event_loop_succeeds(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        loop = asyncio.new_event_loop()
        task = loop.create_task(sub.arecv())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        pub.send(b"x")
        assert run(sub.arecv()) == b"x"
        sub.close()
        assert sub.closed
        task.get_coro().close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    @pytest.mark.needs("processes")
    def test_areceive_after_reconnect_in_forked_child_succeeds(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        with Child(children.forked_reconnect, backend.name, endpoint) as child:
            assert child.hear() == "forked"
            pub.wait_for_readers(DEADLINE, n=2)
            pub.send(b"for both")
            assert child.result() == {"child": "for both", "parent": "for both"}
