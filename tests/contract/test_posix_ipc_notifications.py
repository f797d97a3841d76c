"""msgq.posix_ipc beside posix_ipc, where somebody asks to be notified of messages."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from msgq import posix_ipc as ours
from msgq.posix_ipc import notification
from tests.contract import posix_requests
from tests.contract.posix_children import Queues, ask_for_notification, kernel_has_queues
from tests.support import Child, Task, in_fork, wait_asleep, wait_until

pytestmark = pytest.mark.skipif(not kernel_has_queues(), reason="the kernel has no message queues")


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
def listener() -> Iterator[Ear]:
    listener = Ear()
    before = {number: signal.signal(number, listener.on_signal) for number in (signal.SIGUSR1, signal.SIGRTMIN)}
    yield listener
    for number, handler in before.items():
        signal.signal(number, handler)


def settle(both: Queues, listener: Ear) -> None:
    """Return when all that was caused has been heard: a notification that was asked for now has come."""
    marker = Queues(both.module, f"{both.name}settle")
    try:
        queue = marker.open()
        queue.request_notification((lambda _: listener.heard.append("settled"), 0))
        queue.send("x")
        wait_until(lambda: "settled" in listener.heard)
        listener.heard.remove("settled")
    finally:
        marker.end()


def test_signal_of_own_send_has_arrived_when_send_returns(both: Queues, listener: Ear) -> None:
    queue = both.open()
    for count in range(1, 51):
        queue.request_notification(signal.SIGUSR1)
        queue.send("1")
        assert listener.heard == [signal.SIGUSR1] * count
        queue.send("2")
        queue.receive(), queue.receive()
    settle(both, listener)
    assert len(listener.heard) == 50


def test_signal_notification_is_sent_once(both: Queues, listener: Ear) -> None:
    queue = both.open()
    queue.request_notification(signal.SIGUSR1)
    queue.send("1")
    listener.wait(signal.SIGUSR1)
    queue.receive()
    queue.send("2")
    settle(both, listener)
    listener.wait(signal.SIGUSR1)
    queue.receive()
    queue.request_notification(signal.SIGRTMIN)
    queue.send("3")
    listener.wait(signal.SIGUSR1, signal.SIGRTMIN)


def test_notification_callback_may_request_the_next_notification(both: Queues, listener: Ear) -> None:
    queue = both.open()

    def told(what: Any) -> None:
        queue.request_notification((told, "again"))
        listener.call((what, queue.receive(0)))

    queue.request_notification((told, "first"))
    queue.send("1")
    wait_until(lambda: listener.heard)
    queue.send("2")
    listener.wait((("first", (b"1", 0)), False), (("again", (b"2", 0)), False))


def test_notification_callback_runs_in_a_separate_thread(both: Queues, listener: Ear) -> None:
    queue, second = both.open(), threading.Event()

    def slow(_: Any) -> None:
        listener.call(second.wait(20))

    queue.request_notification((slow, 0))
    queue.send("x")
    settle(both, listener)
    listener.wait()
    second.set()
    listener.wait((True, False))


def test_cancelled_notification_is_not_sent(own: Queues, listener: Ear) -> None:
    queue = own.open()
    queue.request_notification((listener.call, "never"))
    with notification._requests_lock:
        in_fork(lambda: queue.send("x"))  # in another process, because a send of this process notifies at once
        wait_until(lambda: in_fork(lambda: queue.request_notification(10)) == 0, "the request is over for others")
        queue.request_notification()
    settle(own, listener)
    listener.wait()


def test_notification_for_nonempty_queue_is_sent_after_queue_was_empty(both: Queues, listener: Ear) -> None:
    queue = both.open()
    queue.send("there")
    queue.request_notification((listener.call, 1))
    queue.send("more")
    settle(both, listener)
    listener.wait()
    queue.receive()
    queue.receive()
    queue.send("new")
    listener.wait((1, False))


def test_close_of_queue_with_messages_sends_no_notification(both: Queues, listener: Ear) -> None:
    queue, other = both.open(), both.open()
    queue.send("there")
    queue.request_notification((listener.call, 1))
    assert in_fork(lambda: both.posix.MessageQueue(both.name).close()) == 0
    assert in_fork(lambda: other.close()) == 0
    settle(both, listener)
    listener.wait()


def test_waiting_receiver_gets_message_before_notification(both: Queues, listener: Ear) -> None:
    queue, other = both.open(), both.open()
    queue.request_notification((listener.call, 1))
    waiting = Task(other.receive)
    waiting.wait_asleep()
    queue.send("for the receiver")
    assert waiting.result() == (b"for the receiver", 0)
    settle(both, listener)
    listener.wait()
    queue.send("to be told")
    listener.wait((1, False))


def test_second_notification_request_replaces_the_first(both: Queues, listener: Ear) -> None:
    queue, other = both.open(), both.open()
    queue.request_notification((listener.call, "first"))
    other.request_notification((listener.call, "second"))
    queue.send("x")
    listener.wait(("second", False))
    queue.receive()
    settle(both, listener)
    listener.wait(("second", False))


@pytest.mark.parametrize("ends", ["cancel", "cancel by the other", "close", "close the other", "wrong signal"])
def test_notification_request_can_be_cancelled(both: Queues, listener: Ear, ends: str) -> None:
    queue, other = both.open(), both.open()
    queue.request_notification((listener.call, "never"))

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
    sender = both.open()
    sender.send("x")
    settle(both, listener)
    listener.wait()


def test_invalid_notification_request_changes_nothing(both: Queues, listener: Ear) -> None:
    queue = both.open()
    queue.request_notification((listener.call, "kept"))
    with pytest.raises(ValueError, match="otif"):
        queue.request_notification("wrong")
    queue.send("x")
    listener.wait(("kept", False))


def test_notification_request_stays_after_its_object_is_deleted(both: Queues, listener: Ear) -> None:
    queue = both.open()
    forgotten = both.posix.MessageQueue(both.name)
    forgotten.request_notification((listener.call, "kept"))
    if both.posix is ours:  # there it would stay open for good
        del forgotten
        gc.collect()
    queue.send("x")
    listener.wait(("kept", False))
    if both.posix is not ours:
        forgotten.close()


def test_second_process_requesting_notification_is_refused(both: Queues, listener: Ear) -> None:
    queue = both.open()
    with Child(ask_for_notification, both.module, both.name) as child:

        def there(what: str) -> Any:
            child.say(what)
            return child.hear()

        assert there("request") == "done"
        for notification in (signal.SIGUSR1, (listener.call, 1)):
            with pytest.raises(both.posix.BusyError):
                queue.request_notification(notification)
        queue.request_notification()  # only one's own is cancelled
        with pytest.raises(both.posix.BusyError):
            queue.request_notification(signal.SIGUSR1)
        assert there("cancel") == "done"
        queue.request_notification((listener.call, 1))
        assert there("request") == "busy"
        queue.request_notification()
        assert there("request") == "done"
        child.kill()
    queue.request_notification((listener.call, 2))
    queue.send("x")
    listener.wait((2, False))


def test_another_process_may_request_after_notification_is_sent(both: Queues, listener: Ear) -> None:
    queue = both.open()
    queue.request_notification((listener.call, 1))
    queue.send("x")
    listener.wait((1, False))
    with Child(ask_for_notification, both.module, both.name) as child:
        child.say("request")
        assert child.hear() == "done"
        child.say(None)
        child.result()


def test_fork_during_notification_request_in_another_thread_succeeds(own: Queues) -> None:
    queue, forked = own.open(), threading.Event()

    def ask() -> None:
        with notification._requests_lock:
            forked.wait(20)

    asking = Task(ask)
    asking.wait_asleep()
    try:
        assert in_fork(queue.close) == 0
    finally:
        forked.set()
        asking.result()


def test_close_in_forked_child_keeps_notification_request_of_parent(both: Queues, listener: Ear) -> None:
    queue = both.open()
    queue.request_notification((listener.call, 1))

    def child() -> None:
        queue.request_notification()
        with pytest.raises(both.posix.BusyError):
            queue.request_notification(signal.SIGUSR1)
        queue.close()

    assert in_fork(child) == 0
    queue.send("x")
    listener.wait((1, False))


def test_send_in_another_process_triggers_notification(both: Queues, listener: Ear) -> None:
    queue = both.open()
    queue.request_notification(signal.SIGUSR1)
    assert in_fork(lambda: queue.send("from there")) == 0
    listener.wait(signal.SIGUSR1)
    assert queue.receive(0) == (b"from there", 0)


def test_signal_notification_ends_a_wait(both: Queues, listener: Ear) -> None:
    """Of another queue: in the same one the receiver would go before it."""
    queue, other = both.open(), both.posix.MessageQueue(None, both.posix.O_CREX, 0o600, 1, 1)
    try:
        other.request_notification(signal.SIGUSR1)

        def send() -> None:
            wait_asleep(os.getpid())
            other.send("x")

        sending = Task(send)
        with pytest.raises(both.posix.SignalError):
            queue.receive(20)
        sending.result()
        listener.wait(signal.SIGUSR1)
    finally:
        other.unlink()
        other.close()


@pytest.mark.seeds(2, 60, 300)
def test_random_notification_requests_of_two_processes_have_expected_results(both: Queues, seed: int) -> None:
    steps = posix_requests.program(random.Random(seed))
    posix_requests.run(both.module, both.name, steps)


def test_notification_callback_exception_is_printed(own: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise LookupError

    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_type))
    queue = own.open()
    queue.request_notification((fail, 1))
    queue.send("x")
    wait_until(lambda: shown)
    assert shown == [LookupError]
