"""Work queues in the middle of whose calls Python code runs: signal handlers, arguments, finalizers, callbacks."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

import msgq
from msgq.errors import EndpointClosedError
from msgq.impl.workqueue import notifier
from msgq.workqueue import MessageQueue
from tests.stress.queue_waits import PLACES, WAITS, let_go_on, prepare
from tests.support import DEADLINE, Task, in_fork, run_child, wait_asleep, wait_until

each_wait = pytest.mark.parametrize("wait", WAITS)


@pytest.fixture
def queue(endpoint: str) -> Iterator[MessageQueue]:
    queue = MessageQueue(endpoint, max_messages=PLACES, max_message_size=64)
    yield queue
    queue.unlink()
    queue.close()


# ---- signal handlers, in the middle of a wait ----


def call_with_signal_handler(call: Callable[[], Any], handler: Callable[[], Any], afterwards: Callable[[], Any]) -> Any:
    """Return what the call returns in which the handler runs; `afterwards` follows in another thread."""
    main = threading.main_thread()
    handled: list[bool] = []  # no lock: a child may be forked while somebody has it

    def poke() -> None:
        wait_asleep(os.getpid())
        signal.pthread_kill(main.ident, signal.SIGUSR1)  # type: ignore[arg-type]
        wait_until(lambda: handled)
        afterwards()

    def handle(*_: object) -> None:
        try:
            handler()
        finally:
            handled.append(True)

    before = signal.signal(signal.SIGUSR1, handle)
    helper = Task(poke)
    try:
        return call()
    finally:
        if threading.main_thread().ident == main.ident and helper.is_alive():
            helper.result()
        signal.signal(signal.SIGUSR1, before)


@each_wait
def test_signal_handler_that_closes_queue_ends_wait(queue: MessageQueue, wait: str) -> None:
    prepare(queue, wait)
    with pytest.raises(EndpointClosedError):
        call_with_signal_handler(lambda: WAITS[wait](queue), queue.close, lambda: None)
    assert queue.closed


@each_wait
def test_signal_handler_can_call_queue_during_wait(queue: MessageQueue, wait: str) -> None:
    prepare(queue, wait)
    assert call_with_signal_handler(lambda: WAITS[wait](queue) or True, lambda: let_go_on(queue, wait), lambda: None)


@each_wait
def test_signal_handler_that_raises_ends_wait(queue: MessageQueue, wait: str) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    prepare(queue, wait)
    with pytest.raises(ZeroDivisionError):
        call_with_signal_handler(lambda: WAITS[wait](queue), fail, lambda: None)
    let_go_on(queue, wait)
    assert WAITS[wait](queue) is not False


@each_wait
def test_parent_and_child_wait_after_fork_in_signal_handler(queue: MessageQueue, wait: str) -> None:
    """The child goes on waiting, in a row of its own."""
    prepare(queue, wait)
    children: list[int] = []
    us = os.getpid()

    def fork() -> None:
        children.append(os.fork())
        if not children[0]:
            signal.alarm(int(DEADLINE))

    try:
        result = call_with_signal_handler(
            lambda: WAITS[wait](queue), fork, lambda: let_go_on(queue, wait, 1 if wait == "wait_space" else 2)
        )
    finally:
        if os.getpid() != us:
            os._exit(0 if queue.max_messages == PLACES else 1)
    assert result is None or result
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


# ---- arguments that run Python code ----


class Runs(float):
    """A number that does something when it is looked at."""

    action: Callable[[], Any]

    def __new__(cls, value: float, action: Callable[[], Any]) -> Runs:
        self = super().__new__(cls, value)
        self.action = action
        return self

    def __ge__(self, other: Any) -> bool:
        self.action()
        return bool(float(self) >= other)

    def __lt__(self, other: Any) -> bool:
        self.action()
        return bool(float(self) < other)

    def __gt__(self, other: Any) -> bool:
        self.action()
        return bool(float(self) > other)

    def __le__(self, other: Any) -> bool:
        self.action()
        return bool(float(self) <= other)

    def __index__(self) -> int:
        self.action()
        return int(self)

    def __bool__(self) -> bool:
        self.action()
        return True


ARGUMENTS: dict[str, Callable[[MessageQueue, Any], Any]] = {
    "timeout of send": lambda queue, number: queue.send(b"", timeout=number),
    "priority": lambda queue, number: queue.send(b"", number),
    "origin_time": lambda queue, number: queue.send(b"", origin_time=number),
    "deadline of send": lambda queue, number: queue.send(b"", deadline=number),
    "timeout of send_many": lambda queue, number: queue.send_many([b""], timeout=number),
    "timeout of receive": lambda queue, number: queue.receive(number),
    "deadline of receive": lambda queue, number: queue.receive(deadline=number),
    "timeout of take": lambda queue, number: queue.take(number),
    "lease": lambda queue, number: queue.take(0, lease=number),
    "limit": lambda queue, number: queue.receive_many(number),
    "limit of peek": lambda queue, number: queue.peek(number),
    "timeout of wait_space": lambda queue, number: queue.wait_space(number),
}
each_argument = pytest.mark.parametrize("argument", ARGUMENTS)


@each_argument
def test_argument_that_closes_queue_during_conversion_raises(queue: MessageQueue, argument: str) -> None:
    queue.send(b"1")
    if "deadline" in argument:
        pytest.skip("a deadline is subtracted from, which runs nothing")
    with pytest.raises(EndpointClosedError):
        ARGUMENTS[argument](queue, Runs(1, queue.close))


@each_argument
def test_fork_during_argument_conversion_gives_child_new_handle(queue: MessageQueue, argument: str) -> None:
    """The child goes on with the call by a handle of its own, and leaves the parent's as it is."""
    us = os.getpid()
    children: list[int] = []

    def fork() -> None:
        if not children:
            children.append(os.fork())

    queue.send(b"1")
    code = 1
    try:
        result = ARGUMENTS[argument](queue, Runs(1, fork))
        code = 0
    finally:
        if os.getpid() != us:
            os._exit(code)
    del result
    gc.collect()
    if children:
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    wait_until(lambda: not queue.receive(0) and not queue.in_flight)  # the child's taken message comes back
    assert queue.wait_space(0)
    queue.send(b"2")
    assert queue.receive(0).data == b"2"  # type: ignore[union-attr]


def test_iterable_that_uses_and_closes_queue_is_safe(endpoint: str) -> None:
    sender = MessageQueue(endpoint)

    def messages() -> Iterator[bytes]:
        yield b"1"
        sender.send(b"between")
        yield b"2"
        sender.send_many([b"3", b"4"])
        assert sender.receive(0) == (b"1", 0)
        yield b"5"
        sender.close()
        yield b"never"

    with MessageQueue(endpoint) as other:
        with pytest.raises(EndpointClosedError):
            sender.send_many(messages())
        assert [message.data for message in other.receive_many()] == [b"between", b"2", b"3", b"4", b"5"]
        other.unlink()


def test_send_many_continues_in_both_processes_after_fork_in_iterable(endpoint: str) -> None:
    """Both go on with it."""
    us = os.getpid()
    children: list[int] = []

    def messages() -> Iterator[bytes]:
        yield b"before"
        children.append(os.fork())
        yield b"after"

    with MessageQueue(endpoint) as queue:
        assert queue.send_many(messages()) == 2
        if os.getpid() != us:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
        assert [message.data for message in queue.receive_many()] == [b"before", b"after", b"after"]
        queue.unlink()


def test_finalizer_that_closes_notified_queue_does_not_deadlock(endpoint: str) -> None:
    """The collector runs anywhere, also where a registration holds its lock."""
    assert run_child(register_among_garbage, endpoint) == 20


class Collects(WeakValueDictionary[int, Any]):
    """Registrations among which the collector runs, as it may at any time."""

    def __setitem__(self, fd: int, registration: Any) -> None:
        gc.collect()
        super().__setitem__(fd, registration)


def register_among_garbage(endpoint: str) -> int:
    queues = []
    with MessageQueue(endpoint, max_messages=PLACES, max_message_size=64) as first:
        for _ in range(20):
            garbage: list[Any] = [MessageQueue(endpoint)]
            garbage[0].notify(print)
            garbage.append(garbage)
            queue = MessageQueue(endpoint)
            gc.disable()
            del garbage
            notifier._notifier_thread.registrations = Collects(notifier._notifier_thread.registrations)
            queue.notify(print)
            queues.append(queue)
            queue.close()
        first.unlink()
    return len(queues)


def test_notification_callback_can_use_queue_and_register_again(endpoint: str) -> None:
    """It runs in the thread of notifications, which waits for nobody."""
    seen: list[bytes] = []

    def told(queue: MessageQueue) -> None:
        seen.extend(message.data for message in queue.receive_many())
        if len(seen) < 3:
            queue.notify(told)
        elif len(seen) == 3:
            queue.close()

    queue = MessageQueue(endpoint)
    queue.notify(told, once=True)
    with MessageQueue(endpoint) as other:
        for number in range(3):
            other.send(b"%d" % number)
            wait_until(lambda: len(seen) == number + 1)  # noqa: B023  # called at once
        wait_until(lambda: queue.closed)
        other.send(b"3")
        assert other.receive(0).data == b"3"  # type: ignore[union-attr]
        other.unlink()


def test_threads_of_forked_child_share_one_queue_handle_row(queue: MessageQueue, endpoint: str) -> None:
    """What: two threads of a child use the inherited handle for the first time while others hold the file's lock.

    Why: the first takes a row, and lets other threads run while it waits for the lock.

    Failure would mean: a second row, and jobs of the first one that nobody can end.
    """
    queue.send_many([b"1", b"2"])

    def child() -> None:
        with Path(queue.path).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            takers = [Task(queue.take, DEADLINE) for _ in range(2)]
            for taker in takers:
                taker.wait_asleep()
            fcntl.flock(file, fcntl.LOCK_UN)
        for taker in takers:
            taker.result().ack()

    assert in_fork(child) == 0
    assert queue.receive(0) is None


def test_new_notification_request_survives_end_of_previous_registration(
    queue: MessageQueue, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What: another thread asks to be notified at the moment in which a registration that was told once is forgotten.

    Failure would mean: the end of the one takes the other's wish back, and it is never told.
    """
    again: list[Any] = []
    remove = notifier._notifier_thread.remove

    def remove_late(registration: notifier.Registration) -> None:
        remove(registration)
        if not again:
            task = Task(queue.notify, again.append)
            again.append(task)
            task.result()

    monkeypatch.setattr(notifier._notifier_thread, "remove", remove_late)
    queue.notify(lambda _: None, once=True)
    with MessageQueue(endpoint) as other:
        other.send(b"1")
        wait_until(lambda: again and not again[0].is_alive())
        assert other.receive(DEADLINE)

        def told_again() -> bool:
            if len(again) < 2:
                other.send(b"2")
                other.receive(0)
            return len(again) == 2

        wait_until(told_again)


def fork_in_a_callback(endpoint: str) -> int:
    children: list[int] = []
    with MessageQueue(endpoint) as queue:
        queue.notify(lambda _: children.append(os.fork()), once=True)
        queue.send(b"")
        wait_until(lambda: children)
        status = os.waitpid(children[0], 0)[1]
        queue.unlink()
    return os.waitstatus_to_exitcode(status)


def test_notification_callback_that_forks_returns_in_both_processes(endpoint: str) -> None:
    """Failure would mean: a child for which nothing is left to do waits for its parent's notifications for ever."""
    assert run_child(fork_in_a_callback, endpoint) == 0


def poll_and_fork(endpoint: str) -> list[str]:
    """Child: return what could not be raised when a handler forked in a poll, and the child used the queue there."""
    seen, children = [], []
    reading, writing = os.pipe()
    sys.unraisablehook = lambda problem: seen.append(str(problem.exc_value))
    with MessageQueue(endpoint) as queue:
        poller = msgq.Poller()
        poller.registerSocket(queue)

        def handle() -> None:
            children.append(os.fork())
            queue.send(b"")

        assert call_with_signal_handler(lambda: poller.poll(10000), handle, lambda: None) == [queue]
        if children == [0]:
            os.write(writing, b"".join(text.encode() for text in seen) + b".")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
        queue.unlink()
    return [*seen, os.read(reading, 1000).decode()]


def test_signal_handler_can_fork_and_call_queue_during_poll(endpoint: str) -> None:
    assert run_child(poll_and_fork, endpoint) == ["."]
