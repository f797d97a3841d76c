"""msgq.posix_ipc beside posix_ipc, where somebody waits: processes, threads, signals, notifications."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import select
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from msgq import posix_ipc as ours
from msgq.posix_ipc import notification
from tests.contract import posix_requests
from tests.contract.posix_actors import (
    Queues,
    ask_for_notification,
    kernel_has_queues,
    receive_one,
    send_many,
    send_one,
)
from tests.contract.posix_programs import MODULES
from tests.support import Child, Task, in_fork, wait_asleep, wait_until

pytestmark = pytest.mark.skipif(not kernel_has_queues(), reason="the kernel has no message queues")


@pytest.fixture(params=MODULES)
def queues(request: pytest.FixtureRequest, endpoint: str) -> Iterator[Queues]:
    """Queues of either module: what is asserted of ours holds for the other one, too."""
    queues = Queues(request.param, f"/{endpoint}")
    yield queues
    queues.end()


@pytest.fixture
def own(endpoint: str) -> Iterator[Queues]:
    queues = Queues(MODULES[1], f"/{endpoint}")
    yield queues
    queues.end()


# ---- processes and threads ----


def test_a_blocked_receive_is_woken_by_another_process(queues: Queues) -> None:
    queue = queues.open()
    with Child(receive_one, queues.module, queues.name) as child:
        assert child.hear() == "waits"
        wait_asleep(child.pid)
        queue.send("for you", priority=7)
        assert child.result() == ["for you", 7]


def test_a_blocked_send_is_woken_by_another_process(queues: Queues) -> None:
    queue = queues.open(max_messages=1)
    queue.send("first")
    with Child(send_one, queues.module, queues.name, "second") as child:
        assert child.hear() == "waits"
        wait_asleep(child.pid)
        assert queue.receive() == (b"first", 0)
        assert queue.receive(20) == (b"second", 0)
        child.result()


def test_one_object_serves_threads_in_both_directions(queues: Queues) -> None:
    queue = queues.open(max_messages=3)
    each, got = 300, []

    def sender(number: int) -> None:
        for index in range(each):
            queue.send(f"{number} {index}", 20, index % 2)

    def receiver() -> None:
        while (message := queue.receive(20)[0]) != b"end":
            got.append(message)

    senders = [Task(sender, number) for number in range(3)]
    receivers = [Task(receiver) for _ in range(3)]
    for task in senders:
        task.result()
    for _ in receivers:
        queue.send("end")  # of the lowest priority, but some others have it, too: none is sent later
    for task in receivers:
        task.result()
    assert sorted(got) == sorted(f"{number} {index}".encode() for number in range(3) for index in range(each))


def test_processes_send_and_receive_without_loss_in_order_of_priority(queues: Queues) -> None:
    queue = queues.open(max_messages=10)
    each = 500
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(Child(send_many, queues.module, queues.name, first, each)) for first in (0, each)
        ]
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.say()
        got = [queue.receive(20) for _ in range(2 * each)]
        for child in children:
            child.result()
    numbers = [int(message) for message, _ in got]
    assert sorted(numbers) == list(range(2 * each))
    assert all(int(message) % 3 == priority for message, priority in got)
    for first in (0, each):
        for rank in range(3):
            of_one = [number for number in numbers if first <= number < first + each and number % 3 == rank]
            assert of_one == sorted(of_one)


def test_a_forked_child_has_the_queue_for_both_directions(queues: Queues) -> None:
    queue, answers = queues.open(), queues.posix.MessageQueue(None, queues.posix.O_CREX, 0o600, 4, 64)

    def child() -> None:
        message, priority = queue.receive(20)
        answers.send(message[::-1], 20, priority + 1)
        queue.close()
        answers.close()
        with pytest.raises(queues.posix.ExistentialError):
            queue.receive(0)

    try:
        queue.send("abc", priority=1)
        assert in_fork(child) == 0
        assert answers.receive(20) == (b"cba", 2)
        queue.send("still mine")
        assert queue.receive(0) == (b"still mine", 0)
    finally:
        answers.unlink()
        answers.close()


def test_its_descriptor_is_readable_while_a_message_is_there(queues: Queues) -> None:
    queue, other = queues.open(), queues.open()
    assert queue.mqd == queue.fileno() >= 0
    assert not os.get_inheritable(queue.mqd)
    assert select.select([queue], [], [], 0)[0] == []
    other.send("x")
    assert select.select([queue], [], [], 20)[0] == [queue]
    assert select.select([queue.mqd], [], [], 20)[0] == [queue.mqd]
    assert queue.receive(0) == (b"x", 0)
    assert select.select([queue], [], [], 0)[0] == []
    poll = select.epoll()
    poll.register(queue, select.EPOLLIN)
    waiting = Task(poll.poll, 20)
    waiting.wait_asleep()
    other.send("y")
    assert [fd for fd, _ in waiting.result()] == [queue.mqd]
    poll.close()
    queue.close()
    assert queue.mqd == -1


def test_closing_ends_the_waits_of_other_threads(own: Queues) -> None:
    queue = own.open()
    waiting = Task(queue.receive)
    waiting.wait_asleep()
    queue.close()
    with pytest.raises(ours.ExistentialError):
        waiting.result()


# ---- signals ----


@contextlib.contextmanager
def alarm(handler: Any) -> Iterator[None]:
    """Have the handler run when this thread sleeps."""

    def ring() -> None:
        wait_asleep(os.getpid(), threading.main_thread().native_id)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handler)
    ringing = Task(ring)
    try:
        yield
        ringing.result()
    finally:
        signal.signal(signal.SIGALRM, before)


class Rung(Exception):
    """What a handler raises."""


def raise_it(*_: Any) -> None:
    raise Rung


@pytest.mark.parametrize("timeout", [None, 20, 20.0])
@pytest.mark.parametrize("sends", [False, True])
def test_a_handler_that_returns_ends_the_wait(queues: Queues, timeout: float | None, sends: bool) -> None:
    queue, rung = queues.open(max_messages=1), []
    if sends:
        queue.send("full")
    with alarm(lambda *_: rung.append(1)), pytest.raises(queues.posix.SignalError):
        queue.send("x", timeout) if sends else queue.receive(timeout)
    assert rung == [1]
    assert queue.current_messages == sends


def test_what_a_handler_raises_is_not_raised(queues: Queues) -> None:
    queue = queues.open()
    with alarm(raise_it), pytest.raises(queues.posix.SignalError) as caught:
        queue.receive()
    if queues.posix is ours:
        assert isinstance(caught.value.__cause__.__cause__, Rung)


def test_an_interrupt_of_the_keyboard_is_raised(queues: Queues) -> None:
    queue = queues.open()
    with alarm(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        queue.receive(20)


def test_a_signal_without_a_handler_ends_nothing(queues: Queues) -> None:
    queue = queues.open()
    with alarm(signal.SIG_IGN), pytest.raises(queues.posix.BusyError):
        queue.receive(0.3)


def test_a_handler_may_use_the_queue(queues: Queues) -> None:
    queue = queues.open()
    with alarm(lambda *_: queue.send("from the handler")), pytest.raises(queues.posix.SignalError):
        queue.receive(20)
    assert queue.receive(0) == (b"from the handler", 0)


# ---- notifications ----


class Ear:
    """Hears signals and calls."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def call(self, what: Any) -> None:
        self.heard.append((what, threading.current_thread() is threading.main_thread()))

    def on_signal(self, number: int, _: Any) -> None:
        self.heard.append(number)

    def wait(self, *expected: Any) -> None:
        """Wait until that was heard, and nothing else."""
        wait_until(lambda: len(self.heard) >= len(expected), f"{expected} is heard; there was {self.heard}")
        assert self.heard == list(expected)


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    before = {number: signal.signal(number, ear.on_signal) for number in (signal.SIGUSR1, signal.SIGRTMIN)}
    yield ear
    for number, handler in before.items():
        signal.signal(number, handler)


def settle(queues: Queues, ear: Ear) -> None:
    """Return when all that was caused has been heard: a notification that was asked for now has come."""
    marker = Queues(queues.module, f"{queues.name}settle")
    try:
        queue = marker.open()
        queue.request_notification((lambda _: ear.heard.append("settled"), 0))
        queue.send("x")
        wait_until(lambda: "settled" in ear.heard)
        ear.heard.remove("settled")
    finally:
        marker.end()


def test_a_signal_tells_of_a_message_once(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    queue.request_notification(signal.SIGUSR1)
    queue.send("1")
    ear.wait(signal.SIGUSR1)
    queue.receive()
    queue.send("2")
    settle(queues, ear)
    ear.wait(signal.SIGUSR1)
    queue.receive()
    queue.request_notification(signal.SIGRTMIN)
    queue.send("3")
    ear.wait(signal.SIGUSR1, signal.SIGRTMIN)


def test_a_function_is_called_in_a_thread_and_may_ask_again(queues: Queues, ear: Ear) -> None:
    queue = queues.open()

    def told(what: Any) -> None:
        queue.request_notification((told, "again"))
        ear.call((what, queue.receive(0)))

    queue.request_notification((told, "first"))
    queue.send("1")
    wait_until(lambda: ear.heard)
    queue.send("2")
    ear.wait((("first", (b"1", 0)), False), (("again", (b"2", 0)), False))


def test_each_function_has_a_thread_of_its_own(queues: Queues, ear: Ear) -> None:
    queue, second = queues.open(), threading.Event()

    def slow(_: Any) -> None:
        ear.call(second.wait(20))

    queue.request_notification((slow, 0))
    queue.send("x")
    settle(queues, ear)
    ear.wait()
    second.set()
    ear.wait((True, False))


def test_what_is_cancelled_on_its_way_does_not_arrive(own: Queues, ear: Ear) -> None:
    queue = own.open()
    queue.request_notification((ear.call, "never"))
    with notification._lock:
        queue.send("x")
        wait_until(lambda: in_fork(lambda: queue.request_notification(10)) == 0, "the request is over for others")
        queue.request_notification()
    settle(own, ear)
    ear.wait()


def test_a_queue_with_messages_tells_nothing_until_it_was_empty(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    queue.send("there")
    queue.request_notification((ear.call, 1))
    queue.send("more")
    settle(queues, ear)
    ear.wait()
    queue.receive()
    queue.receive()
    queue.send("new")
    ear.wait((1, False))


def test_who_closes_tells_nobody_of_messages_that_were_there(queues: Queues, ear: Ear) -> None:
    queue, other = queues.open(), queues.open()
    queue.send("there")
    queue.request_notification((ear.call, 1))
    assert in_fork(lambda: queues.posix.MessageQueue(queues.name).close()) == 0
    assert in_fork(lambda: other.close()) == 0
    settle(queues, ear)
    ear.wait()


def test_a_receiver_that_waits_goes_before_a_notification(queues: Queues, ear: Ear) -> None:
    queue, other = queues.open(), queues.open()
    queue.request_notification((ear.call, 1))
    waiting = Task(other.receive)
    waiting.wait_asleep()
    queue.send("for the receiver")
    assert waiting.result() == (b"for the receiver", 0)
    settle(queues, ear)
    ear.wait()
    queue.send("to be told")
    ear.wait((1, False))


def test_another_request_of_the_process_takes_the_place_of_the_first(queues: Queues, ear: Ear) -> None:
    queue, other = queues.open(), queues.open()
    queue.request_notification((ear.call, "first"))
    other.request_notification((ear.call, "second"))
    queue.send("x")
    ear.wait(("second", False))
    queue.receive()
    settle(queues, ear)
    ear.wait(("second", False))


@pytest.mark.parametrize("ends", ["cancel", "cancel by the other", "close", "close the other", "wrong signal"])
def test_a_request_ends(queues: Queues, ear: Ear, ends: str) -> None:
    queue, other = queues.open(), queues.open()
    queue.request_notification((ear.call, "never"))

    def wrong_signal() -> None:
        with pytest.raises(OSError, match="nvalid"):
            queue.request_notification(65)

    steps: dict[str, Callable[[], Any]] = {
        "cancel": queue.request_notification,
        "cancel by the other": other.request_notification,
        "close": queue.close,
        "close the other": other.close,
        "wrong signal": wrong_signal,
    }
    steps[ends]()
    sender = queues.open()
    sender.send("x")
    settle(queues, ear)
    ear.wait()


def test_a_wrong_kind_of_request_changes_nothing(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    queue.request_notification((ear.call, "kept"))
    with pytest.raises(ValueError, match="otif"):
        queue.request_notification("wrong")
    queue.send("x")
    ear.wait(("kept", False))


def test_a_request_stays_when_nobody_refers_to_the_object(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    forgotten = queues.posix.MessageQueue(queues.name)
    forgotten.request_notification((ear.call, "kept"))
    if queues.posix is ours:  # there it would stay open for good
        del forgotten
        gc.collect()
    queue.send("x")
    ear.wait(("kept", False))
    if queues.posix is not ours:
        forgotten.close()


def test_one_process_asks_at_a_time(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    with Child(ask_for_notification, queues.module, queues.name) as child:

        def there(what: str) -> Any:
            child.say(what)
            return child.hear()

        assert there("request") == "done"
        for notification in (signal.SIGUSR1, (ear.call, 1)):
            with pytest.raises(queues.posix.BusyError):
                queue.request_notification(notification)
        queue.request_notification()  # only one's own is cancelled
        with pytest.raises(queues.posix.BusyError):
            queue.request_notification(signal.SIGUSR1)
        assert there("cancel") == "done"
        queue.request_notification((ear.call, 1))
        assert there("request") == "busy"
        queue.request_notification()
        assert there("request") == "done"
        child.kill()
    queue.request_notification((ear.call, 2))
    queue.send("x")
    ear.wait((2, False))


def test_when_it_was_told_another_process_may_ask(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    queue.request_notification((ear.call, 1))
    queue.send("x")
    ear.wait((1, False))
    with Child(ask_for_notification, queues.module, queues.name) as child:
        child.say("request")
        assert child.hear() == "done"
        child.say(None)
        child.result()


def test_a_fork_while_another_thread_asks_hurts_nobody(own: Queues) -> None:
    queue, forked = own.open(), threading.Event()

    def ask() -> None:
        with notification._lock:
            forked.wait(20)

    asking = Task(ask)
    asking.wait_asleep()
    try:
        assert in_fork(queue.close) == 0
    finally:
        forked.set()
        asking.result()


def test_a_childs_close_leaves_the_request_of_the_parent(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    queue.request_notification((ear.call, 1))

    def child() -> None:
        queue.request_notification()
        with pytest.raises(queues.posix.BusyError):
            queue.request_notification(signal.SIGUSR1)
        queue.close()

    assert in_fork(child) == 0
    queue.send("x")
    ear.wait((1, False))


def test_the_sender_may_be_another_process(queues: Queues, ear: Ear) -> None:
    queue = queues.open()
    queue.request_notification(signal.SIGUSR1)
    assert in_fork(lambda: queue.send("from there")) == 0
    ear.wait(signal.SIGUSR1)
    assert queue.receive(0) == (b"from there", 0)


def test_a_notification_by_signal_ends_a_wait(queues: Queues, ear: Ear) -> None:
    """Of another queue: in the same one the receiver would go before it."""
    queue, other = queues.open(), queues.posix.MessageQueue(None, queues.posix.O_CREX, 0o600, 1, 1)
    try:
        other.request_notification(signal.SIGUSR1)

        def send() -> None:
            wait_asleep(os.getpid(), threading.main_thread().native_id)
            other.send("x")

        sending = Task(send)
        with pytest.raises(queues.posix.SignalError):
            queue.receive(20)
        sending.result()
        ear.wait(signal.SIGUSR1)
    finally:
        other.unlink()
        other.close()


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_random_requests_of_two_processes(queues: Queues, seed: int) -> None:
    steps = posix_requests.program(random.Random(seed))
    posix_requests.run(queues.module, queues.name, steps)


def test_what_a_callback_raises_is_shown(own: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_type))
    queue = own.open()
    queue.request_notification((raise_it, 1))
    queue.send("x")
    wait_until(lambda: shown)
    assert shown == [Rung]
