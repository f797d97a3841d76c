"""Work queues: who is told when a message comes to an empty queue that no receiver waits for."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msgq.errors import (
    EndpointClosedError,
    InvalidValueError,
)
from msgq.impl.workqueue import notifier
from tests.contract import queue_children
from tests.contract.conftest import Queues, readable
from tests.support import DEADLINE, Child, Task, in_fork, wait_until


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

    def wait_for_notifications(self, count: int, told: list[Any]) -> None:
        wait_until(lambda: len(told) >= count, f"{count} notifications")

    def check_no_further_notification(self, queues: Queues, told: list[Any], count: int) -> None:
        """One thread tells everybody: what it had to tell is told when it has told of another queue, twice."""
        other = queues.open(name="other")
        others: list[Any] = []
        other.notify(others.append)
        for times in (1, 2):
            other.send(b"message")
            self.wait_for_notifications(times, others)
            other.receive(0)
        assert len(told) == count

    def test_notify_callback_gets_the_handle(self, queues: Queues) -> None:
        queue, other = queues.open(), queues.open()
        told: list[Any] = []
        queue.notify(told.append)
        other.send(b"message")
        self.wait_for_notifications(1, told)
        assert told == [queue]
        assert queue.receive(0) == (b"message", 0)

    def test_notify_is_repeated_only_after_queue_was_empty(self, queues: Queues) -> None:
        queue = queues.open()
        told: list[Any] = []
        queue.notify(told.append)
        for round in range(1, 4):
            queue.send_many([b"1", b"2"])
            self.wait_for_notifications(round, told)
            queue.send(b"3")
            self.check_no_further_notification(queues, told, round)
            assert len(queue.receive_many()) == 3
        queue.send(b"last")
        self.wait_for_notifications(4, told)
        assert len(told) == 4

    def test_notify_with_once_true_calls_once(self, queues: Queues) -> None:
        queue = queues.open()
        told: list[Any] = []
        queue.notify(told.append, once=True)
        other: list[Any] = []
        witness = queues.open()
        witness.notify(other.append)
        for round in range(1, 4):
            queue.send(b"message")
            self.wait_for_notifications(round, other)
            queue.receive(0)
        self.wait_for_notifications(1, told)
        assert len(told) == 1

    def test_notify_with_none_cancels_the_notification(self, queues: Queues) -> None:
        queue, witness = queues.open(), queues.open()
        told: list[Any] = []
        other: list[Any] = []
        queue.notify(told.append)
        witness.notify(other.append)
        queue.notify(None)
        queue.notify(None)
        queue.send(b"message")
        self.wait_for_notifications(1, other)
        assert told == []

    def test_second_notify_call_replaces_the_first(self, queues: Queues) -> None:
        queue = queues.open()
        former: list[Any] = []
        told: list[Any] = []
        queue.notify(former.append)
        queue.notify(told.append)
        queue.send(b"message")
        self.wait_for_notifications(1, told)
        assert former == []

    def test_notify_callbacks_of_several_handles_are_all_called(self, queues: Queues) -> None:
        told: list[Any] = []
        handles = [queues.open() for _ in range(5)]
        for handle in handles:
            handle.notify(told.append)
        handles[0].send(b"message")
        self.wait_for_notifications(5, told)
        assert {id(queue) for queue in told} == {id(handle) for handle in handles}

    def test_notify_sends_a_signal(self, queues: Queues, signals: list[int]) -> None:
        queue = queues.open()
        for number in (signal.SIGUSR1, signal.SIGRTMIN + 3):
            queue.notify(number)
            queue.send(b"message")
            wait_until(lambda number=number: number in signals)  # type: ignore[misc]
            queue.receive(0)
        assert signals == [signal.SIGUSR1, signal.SIGRTMIN + 3]

    @pytest.mark.parametrize("once", [True, False])
    @pytest.mark.parametrize("call", ["send", "send_many"])
    def test_signal_of_own_send_has_arrived_when_send_returns(
        self, queues: Queues, signals: list[int], call: str, once: bool
    ) -> None:
        queue, sender = queues.open(), queues.open()
        for count in range(1, 51):
            if once or count == 1:
                queue.notify(signal.SIGUSR1, once=once)
            sender.send(b"1") if call == "send" else sender.send_many([b"1", b"2"])
            assert signals == [signal.SIGUSR1] * count
            queue.receive_many()
        self.check_no_further_notification(queues, signals, 50)

    def test_notify_writes_to_a_file_descriptor(self, queues: Queues) -> None:
        queue = queues.open()
        with contextlib.closing(os.fdopen(os.eventfd(0, os.EFD_NONBLOCK), "r+b", 0)) as event:
            queue.notify(event)
            queue.send(b"message")
            assert readable(event.fileno(), DEADLINE)
            assert os.eventfd_read(event.fileno()) == 1

    def test_notify_socket_wakes_a_waiting_thread(self, queues: Queues) -> None:
        queue = queues.open()
        here, there = socket.socketpair()
        with here, there:
            queue.notify(there)
            queue.send(b"message")
            here.settimeout(DEADLINE)
            assert len(here.recv(100)) == 8

    def test_notify_with_full_pipe_raises_no_error(self, queues: Queues) -> None:
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
                self.wait_for_notifications(round, told)
                queue.receive(0)

    def test_notify_callback_exception_does_not_reach_the_sender(
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
            self.wait_for_notifications(round, told)
            self.wait_for_notifications(round, raised)
            handles[0].receive(0)
        assert raised == [ZeroDivisionError] * 2

    def test_notify_counts_returned_messages_as_arrivals(self, queues: Queues) -> None:
        queue = queues.open()
        told: list[Any] = []
        queue.send(b"message")
        job = queue.take(0)
        queue.notify(told.append)
        job.nack()
        self.wait_for_notifications(1, told)

    @pytest.mark.needs("processes")
    def test_notify_counts_messages_of_killed_processes_after_an_earlier_notification(self, queues: Queues) -> None:
        queue = queues.open()
        told: list[Any] = []
        with Child(queue_children.take_without_ack, queues.backend, queues.name) as child:
            wait_until(lambda: any("receiving" in handle.waits for handle in queue.stats().handles))
            queue.send(b"taken")
            assert child.hear() == "taken"
            queue.notify(lambda queue: told.extend(queue.receive_many()))
            queue.send(b"first")
            self.wait_for_notifications(1, told)
            child.kill(signal.SIGKILL)
            self.wait_for_notifications(2, told)
        assert told == [(b"first", 0), (b"taken", 0)]

    @pytest.mark.needs("threads")
    def test_notify_counts_due_messages_as_arrivals(self, queues: Queues) -> None:
        """No process receives. A delay itself is not an arrival."""
        queue, sender = queues.open(), queues.open()
        told: list[Any] = []
        queue.notify(lambda queue: told.extend(queue.receive_many()))
        sender.send(b"much later", delay=1000)
        for delay in (0.01, 0.03):
            sender.send(b"later", delay=delay)
            self.wait_for_notifications(len(told) + 1, told)
        assert told == [(b"later", 0)] * 2
        assert queue.delayed_messages == 1

    @pytest.mark.needs("threads")
    @pytest.mark.parametrize("method", ["add", "remove"])
    def test_exception_of_a_signal_handler_leaves_no_notification(
        self, queues: Queues, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        queue = queues.open()
        queue.notify(print)  # starts the thread and the watcher
        queue.notify(None)
        gc.collect()
        open_files = len(os.listdir("/proc/self/fd"))
        real = {"add": notifier._NotifierThread.add, "remove": notifier._NotifierThread.remove}[method]

        def change_and_raise(self: Any, registration: Any) -> None:
            if method == "add":
                real(self, registration)
            raise KeyboardInterrupt

        def register_and_cancel() -> None:
            queue.notify(print)
            queue.notify(None)

        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(notifier._NotifierThread, method, change_and_raise)
                with pytest.raises(KeyboardInterrupt):
                    register_and_cancel()
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == open_files
        told: list[Any] = []
        queue.notify(told.append)
        queue.send(b"message")
        self.wait_for_notifications(1, told)

    @pytest.mark.needs("threads")
    def test_notify_of_an_empty_queue_searches_rarely_for_due_messages(self, queues: Queues) -> None:
        """The child has no other watches. A search each 10 ms would make 50 sleeps."""
        queue = queues.open()
        queue.send(b"later", delay=0.5)

        def count_sleeps() -> int:
            python_threads = {str(os.getpid())} | {str(thread.native_id) for thread in threading.enumerate()}
            others = [task for task in Path("/proc/self/task").iterdir() if task.name not in python_threads]
            texts = [(task / "status").read_text() for task in others]
            return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in texts)

        def child() -> None:
            told: list[Any] = []
            with queues.MessageQueue(queues.name) as inherited:
                inherited.notify(told.append)
                self.wait_for_notifications(1, told)
                assert 0 < count_sleeps() < 20

        assert in_fork(child) == 0

    def test_notify_skips_a_closed_handle(self, queues: Queues) -> None:
        queue, witness = queues.open(), queues.open()
        told: list[Any] = []
        other: list[Any] = []
        queue.notify(told.append)
        witness.notify(other.append)
        queue.close()
        witness.send(b"message")
        self.wait_for_notifications(1, other)
        assert told == []
        with pytest.raises(EndpointClosedError):
            queue.notify(told.append)

    def test_handle_with_registered_notification_can_be_deleted(self, queues: Queues) -> None:
        for _ in range(200):
            queues.MessageQueue(queues.name).notify(print)
        queues.open()

    @pytest.mark.needs("threads")
    def test_notify_is_skipped_if_a_receiver_waits(self, queues: Queues) -> None:
        queue, waiting = queues.open(), queues.open()
        told: list[Any] = []
        queue.notify(told.append)
        task = Task(waiting.receive)
        task.wait_asleep()
        queue.send(b"for who waits")
        assert task.result() == (b"for who waits", 0)
        self.check_no_further_notification(queues, told, 0)
        queue.send(b"for nobody")
        self.wait_for_notifications(1, told)
        assert len(told) == 1

    @pytest.mark.needs("threads")
    def test_notify_callback_may_receive(self, queues: Queues) -> None:
        """An event loop by hand: told, receive all, be told again."""
        queue, sender = queues.open(), queues.open()
        got: list[bytes] = []

        def receive_all(told: Any) -> None:
            while messages := told.receive_many():
                got.extend(data for data, _ in messages)

        queue.notify(receive_all)
        sent = [b"%d" % number for number in range(200)]
        for message in sent:
            sender.send(message)
            if len(got) % 7 == 0:
                time.sleep(0)
        wait_until(lambda: len(got) == 200)
        assert got == sent

    @pytest.mark.needs("processes")
    def test_notify_signal_reaches_the_requesting_process(self, queues: Queues) -> None:
        queue = queues.open()
        with Child(queue_children.notified_by_signal, queues.backend, queues.name, signal.SIGUSR1) as child:
            assert child.hear() == "ready"
            queue.send(b"message")
            assert child.result() == 1

    @pytest.mark.parametrize("bad", ["text", 1.5, True, [], object()], ids=lambda bad: type(bad).__name__)
    def test_notify_with_invalid_target_is_refused(self, queues: Queues, bad: Any) -> None:
        with pytest.raises(TypeError):
            queues.open().notify(bad)

    @pytest.mark.parametrize("bad", [0, -1, 10_000])
    def test_notify_with_invalid_signal_is_refused(self, queues: Queues, bad: int) -> None:
        with pytest.raises(InvalidValueError, match=str(bad)):
            queues.open().notify(bad)

    def test_notify_with_closed_descriptor_is_refused(self, queues: Queues) -> None:
        class Closed:
            def fileno(self) -> int:
                return 1_000_000

        with pytest.raises(InvalidValueError, match="1000000"):
            queues.open().notify(Closed())

    def test_notify_with_read_only_descriptor_is_refused(self, queues: Queues) -> None:
        with open(os.devnull, "rb") as null, pytest.raises(InvalidValueError, match="is read-only"):
            queues.open().notify(null)
