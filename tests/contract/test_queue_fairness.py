"""Work queues: calls that wait are served in the order in which they began, and no call starves."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from msgq.errors import EndpointClosedError
from tests.contract import queue_children
from tests.contract.conftest import Queues
from tests.support import DEADLINE, Child, Task, wait_asleep

WAITERS = 3
ROUNDS = 8  # rounds; each waiter must be served in each
SENDING = ["send", "send_many"]
RECEIVING = ["receive", "take", "receive_into"]


def serve(queue: Any, call: str) -> int:
    """Let one of the calls that wait in `call` continue; return the number of a sender."""
    if call in SENDING:
        return int(queue.receive(0).data)
    queue.send(b"work")
    return -1


class Waiters:
    """Threads that make the same call again and again, one after the other. They start in their order."""

    def __init__(self, handles: list[Any], call: str) -> None:
        self.served: list[int] = []  # the numbers of those that received
        self._call = call
        self.tasks = []
        for number, handle in enumerate(handles):
            self.tasks.append(Task(self._go_on, number, handle))
            self.tasks[-1].wait_asleep()

    def _go_on(self, number: int, handle: Any) -> None:
        act = queue_children.waiting_call(handle, self._call, b"%d" % number)
        with suppress(EndpointClosedError):  # at the end of the test
            while True:
                act()
                self.served.append(number)

    def wait_asleep(self) -> None:
        """Return when all of them wait."""
        for task in self.tasks:
            task.wait_asleep()


def rounds(queue: Any, call: str, waiters: Waiters, count: int) -> list[int]:
    """Serve one call after the other, each time when all wait; return the numbers of the served calls."""
    order = []
    for _ in range(count):
        sender = serve(queue, call)
        waiters.wait_asleep()
        order.append(sender if call in SENDING else waiters.served[-1])
    return order


def is_in_turn(order: list[int]) -> bool:
    """Whether each waiter was served after each other one was served once, and had overtaken it as often as is allowed.

    In a full queue each sleeper scans every 10 ms, else once a second. If another one was just woken, it may be faster.
    """
    overtaken = 2 + WAITERS - 1  # maximum of docs/internals/queue-protocol.md
    last = dict.fromkeys(range(WAITERS), -1)
    ends = [*enumerate(order), *((len(order), number) for number in range(WAITERS))]
    for at, number in ends:
        if at - last[number] - 1 > WAITERS - 1 + overtaken:
            return False
        last[number] = at
    return True


@pytest.mark.needs("threads")
class TestThreads:
    @pytest.mark.parametrize("call", SENDING + RECEIVING)
    def test_blocked_calls_on_separate_handles_are_served_in_turn(self, queues: Queues, call: str) -> None:
        queue = queues.open(max_messages=1)
        if call in SENDING:
            queue.send(b"9")
        handles = [queues.open() for _ in range(WAITERS)]
        waiters = Waiters(handles, call)
        order = rounds(queue, call, waiters, WAITERS * ROUNDS)
        assert is_in_turn(order[1:] if call in SENDING else order), order  # the first message was there before

    @pytest.mark.parametrize("call", ["send", "receive"])
    def test_all_blocked_calls_on_one_handle_are_served(self, queues: Queues, call: str) -> None:
        """All threads of a handle wake, and any may win; one that lost twice has its turn."""
        queue, shared = queues.open(max_messages=1), queues.open()
        if call == "send":
            queue.send(b"9")
        waiters = Waiters([shared] * WAITERS, call)
        order = rounds(queue, call, waiters, 7 * WAITERS)
        assert min(Counter(order)[number] for number in range(WAITERS)) >= 2, order

    def test_blocked_receiver_is_served_despite_a_polling_receiver(self, queues: Queues) -> None:
        """It is woken for each message, and another call takes that before it looks: twice, and then no more."""
        queue = queues.open()
        waiters = Waiters([queues.open()], "receive")
        taken = 0
        for _ in range(60):
            queue.send(b"work")
            taken += queue.receive(0) is not None  # at once: the sleeper needs longer to wake
            waiters.wait_asleep()
        assert len(waiters.served) + taken == 60
        assert len(waiters.served) >= 60 // 4


def test_waiting_tasks_are_served_in_turn(queues: Queues) -> None:
    queue, order = queues.open(), list[int]()

    async def worker(number: int) -> None:
        handle = queues.open()
        while (await handle.arecv()).data:
            order.append(number)

    async def serve_all() -> None:
        tasks = [asyncio.create_task(worker(number)) for number in range(WAITERS)]
        for count in range(WAITERS * ROUNDS):
            queue.send(b"work")
            while len(order) <= count:
                await asyncio.sleep(0.001)
        queue.send_many([b""] * WAITERS)
        await asyncio.gather(*tasks)

    asyncio.run(serve_all())
    counts = Counter(order)
    assert min(counts[number] for number in range(WAITERS)) >= ROUNDS // 2, order


@pytest.mark.needs("processes")
class TestProcesses:
    @pytest.mark.parametrize("call", ["send", "receive"])
    def test_blocked_processes_are_served_in_turn(self, queues: Queues, call: str) -> None:
        queue = queues.open(max_messages=1)
        if call == "send":
            queue.send(b"9")
        served = queues.open(name="served")
        with ExitStack() as children:
            waiting = []
            for number in range(WAITERS):
                child = Child(queue_children.waits_again, queues.backend, queues.name, call, number)
                waiting.append(children.enter_context(child))
                assert child.hear() == "ready"
                wait_asleep(child.pid)
            order = []
            for _ in range(WAITERS * ROUNDS):
                serve(queue, call)
                order.append(int(served.receive(DEADLINE).data))
                for child in waiting:
                    wait_asleep(child.pid)
            assert is_in_turn(order), order
