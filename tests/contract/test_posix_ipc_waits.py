"""msgq.posix_ipc beside posix_ipc, where somebody waits: processes, threads, signals."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from msgq import posix_ipc as ours
from tests.contract.posix_children import (
    Queues,
    kernel_has_queues,
    receive_one,
    send_many,
    send_one,
)
from tests.support import DEADLINE, Child, Task, in_fork, signal_when_asleep, wait_asleep, wait_until

hold_gil_us = ctypes.PyDLL(None).usleep  # a function of a PyDLL runs with the GIL
pytestmark = pytest.mark.skipif(not kernel_has_queues(), reason="the kernel has no message queues")


# ---- processes and threads ----


def test_blocked_receive_is_woken_by_another_process(both: Queues) -> None:
    queue = both.open()
    with Child(receive_one, both.module, both.name) as child:
        assert child.hear() == "waits"
        wait_asleep(child.pid)
        queue.send("for you", priority=7)
        assert child.result() == ["for you", 7]


def test_blocked_send_is_woken_by_another_process(both: Queues) -> None:
    queue = both.open(max_messages=1)
    queue.send("first")
    with Child(send_one, both.module, both.name, "second") as child:
        assert child.hear() == "waits"
        wait_asleep(child.pid)
        assert queue.receive() == (b"first", 0)
        assert queue.receive(20) == (b"second", 0)
        child.result()


def test_blocked_receivers_are_served_in_turn(both: Queues) -> None:
    """The kernel and ours alike. Once a second a sleeper of ours looks by itself, so two may change places."""
    queue, served = both.open(max_messages=1), list[int]()

    def receive_all(number: int) -> None:
        while queue.receive(DEADLINE)[0] != b"end":
            served.append(number)

    tasks = [Task(receive_all, number) for number in range(3)]
    for count in range(15):
        for task in tasks:
            task.wait_asleep()
        queue.send("work")
        wait_until(partial(served.__getitem__, slice(count, None)))
    for _ in tasks:
        queue.send("end", DEADLINE)
    for task in tasks:
        task.result()
    assert min(served.count(number) for number in range(3)) >= 2, served


def test_one_queue_object_serves_threads_in_both_directions(both: Queues) -> None:
    queue = both.open(max_messages=3)
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
        queue.send("end")  # lowest priority, which some others have, too: none is sent later
    for task in receivers:
        task.result()
    assert sorted(got) == sorted(f"{number} {index}".encode() for number in range(3) for index in range(each))


def test_processes_send_and_receive_without_loss_in_order_of_priority(both: Queues) -> None:
    queue = both.open(max_messages=10)
    each = 500
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(send_many, both.module, both.name, first, each)) for first in (0, each)]
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


def test_forked_child_can_send_and_receive(both: Queues) -> None:
    queue, answers = both.open(), both.posix.MessageQueue(None, both.posix.O_CREX, 0o600, 4, 64)

    def child() -> None:
        message, priority = queue.receive(20)
        answers.send(message[::-1], 20, priority + 1)
        queue.close()
        answers.close()
        with pytest.raises(both.posix.ExistentialError):
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


def test_descriptor_is_readable_while_a_message_waits(both: Queues) -> None:
    queue, other = both.open(), both.open()
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


def test_close_ends_the_waits_of_other_threads(own: Queues) -> None:
    queue = own.open()
    waiting = Task(queue.receive)
    waiting.wait_asleep()
    queue.close()
    with pytest.raises(ours.ExistentialError):
        waiting.result()


# ---- signals ----


class Rung(Exception):
    """What a handler raises."""


def raise_it(*_: Any) -> None:
    raise Rung


@pytest.mark.parametrize("timeout", [None, 20, 20.0])
@pytest.mark.parametrize("sends", [False, True])
def test_signal_during_wait_raises_signal_error_after_handler_returns(
    both: Queues, timeout: float | None, sends: bool
) -> None:
    queue, rung = both.open(max_messages=1), []
    if sends:
        queue.send("full")
    with signal_when_asleep(lambda *_: rung.append(1)), pytest.raises(both.posix.SignalError):
        queue.send("x", timeout) if sends else queue.receive(timeout)
    assert rung == [1]
    assert queue.current_messages == sends


@pytest.mark.parametrize("sends", [False, True])
def test_signal_between_two_sleeps_of_a_wait_raises_signal_error(own: Queues, sends: bool) -> None:
    """What: the signal comes when the first sleep is over, and the waiting thread waits for the GIL.

    Failure would mean: the handler runs, but the wait goes on, perhaps for ever.
    """
    queue, rung = own.open(max_messages=1), []
    if sends:
        queue.send("full")

    def ring() -> None:
        wait_asleep(os.getpid())
        hold_gil_us(1_500_000)  # a sleep lasts for at most 1 s
        os.kill(os.getpid(), signal.SIGALRM)

    interval, before = sys.getswitchinterval(), signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    sys.setswitchinterval(DEADLINE)  # from the end of the pause until the signal, no other thread gets the GIL
    try:
        ringing = Task(ring)
        with pytest.raises(ours.SignalError):
            queue.send("x", DEADLINE) if sends else queue.receive(DEADLINE)
        ringing.result()
    finally:
        sys.setswitchinterval(interval)
        signal.signal(signal.SIGALRM, before)
    assert rung == [1]
    assert queue.current_messages == sends


def test_wait_keeps_wakeup_descriptor_of_program(own: Queues) -> None:
    """A program that has one loses no signal, and one that has none gets none."""
    queue, (reads, writes) = own.open(), os.pipe2(os.O_NONBLOCK)
    with os.fdopen(reads, "rb", 0) as pipe, os.fdopen(writes, "wb", 0):
        for expected in (writes, -1):
            signal.set_wakeup_fd(expected)
            with signal_when_asleep(lambda *_: None), pytest.raises(ours.SignalError):
                queue.receive(DEADLINE)
            assert signal.set_wakeup_fd(-1) == expected
        assert pipe.read(10) == bytes([signal.SIGALRM])


def test_signal_at_start_of_wait_reaches_wakeup_descriptor_of_program(
    own: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failure would mean: the event loop of the program never runs the handler of a signal that came at that time."""
    queue, (reads, writes) = own.open(), os.pipe2(os.O_NONBLOCK)
    real_set = signal.set_wakeup_fd
    former_fds: list[int] = []

    def set_and_raise_signal(fd: int, **options: bool) -> int:
        former_fds.append(real_set(fd, **options))
        if len(former_fds) == 1:
            signal.raise_signal(signal.SIGALRM)
        return former_fds[-1]

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with os.fdopen(reads, "rb", 0) as pipe, os.fdopen(writes, "wb", 0):
            signal.set_wakeup_fd(writes)
            monkeypatch.setattr("_signal.set_wakeup_fd", set_and_raise_signal)
            with pytest.raises(ours.BusyError):
                queue.receive(0.01)
            assert real_set(-1) == writes
            assert former_fds[0] == writes
            assert pipe.read(10) == bytes([signal.SIGALRM])
    finally:
        signal.signal(signal.SIGALRM, before)


def test_wakeup_descriptor_set_by_signal_handler_remains_after_wait(own: Queues) -> None:
    queue, (reads, writes) = own.open(), os.pipe2(os.O_NONBLOCK)
    with os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0):
        with signal_when_asleep(lambda *_: signal.set_wakeup_fd(writes)), pytest.raises(ours.SignalError):
            queue.receive(DEADLINE)
        assert signal.set_wakeup_fd(-1) == writes


def test_full_wakeup_descriptor_of_program_remains(own: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, (reads, writes) = own.open(), os.pipe2(os.O_NONBLOCK)
    real_set = signal.set_wakeup_fd
    calls: list[int] = []

    def set_and_raise_signal(fd: int, **options: bool) -> int:
        former = real_set(fd, **options)
        if not calls:
            signal.raise_signal(signal.SIGALRM)
        calls.append(fd)
        return former

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0) as pipe:
            while pipe.write(bytes(4096)):
                pass
            signal.set_wakeup_fd(writes)
            monkeypatch.setattr("_signal.set_wakeup_fd", set_and_raise_signal)
            with pytest.raises(ours.BusyError):
                queue.receive(0.01)
            assert real_set(-1) == writes
            assert len(calls) == 2
    finally:
        signal.signal(signal.SIGALRM, before)


def test_wakeup_descriptor_that_signal_handler_closed_is_removed_after_wait(own: Queues) -> None:
    queue = own.open()

    def set_closed_descriptor(*_: Any) -> None:
        reads, writes = os.pipe2(os.O_NONBLOCK)
        signal.set_wakeup_fd(writes)
        os.close(reads)
        os.close(writes)

    with signal_when_asleep(set_closed_descriptor), pytest.raises(ours.SignalError):
        queue.receive(DEADLINE)
    assert signal.set_wakeup_fd(-1) == -1


def test_child_forked_during_wait_of_main_thread_has_no_wakeup_descriptor(own: Queues) -> None:
    """Failure would mean: a signal of the child ends the wait of its parent, because both write to one file."""
    queue = own.open()

    def check_descriptor() -> None:
        assert signal.set_wakeup_fd(-1) == -1
        queue.send("x")

    def fork() -> int:
        wait_asleep(os.getpid())
        return in_fork(check_descriptor)

    forking = Task(fork)
    assert queue.receive(DEADLINE) == (b"x", 0)
    assert forking.result() == 0


def find_signal_log() -> int:
    """Return the descriptor of the file that logs signals between two sleeps. Call this after a wait."""
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the directory
            if "msgq_signal_log" in os.readlink(f"/proc/self/fd/{name}"):
                return int(name)
    raise AssertionError("no wait has logged signals")


def wait_until_timeout(queue: Any) -> None:
    with pytest.raises(ours.BusyError):
        queue.receive(0.01)


def test_wait_does_not_write_to_file_that_has_descriptor_of_closed_log(own: Queues, tmp_path: Path) -> None:
    """Failure would mean: a program that closes all descriptors, as daemons do, finds bytes in its next files."""
    queue = own.open()
    wait_until_timeout(queue)
    file, log = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY | os.O_NONBLOCK), find_signal_log()
    try:
        os.dup2(file, log)
        with signal_when_asleep(lambda *_: None), pytest.raises(ours.SignalError):
            queue.receive(DEADLINE)
        assert os.fstat(log).st_size == 0
    finally:
        os.close(file)
        os.close(log)


def test_wait_of_forked_child_closes_log_of_parent(own: Queues) -> None:
    """Failure would mean: signals of the parent end waits of the child, because they share the position in the file."""
    queue = own.open()
    wait_until_timeout(queue)
    inherited = os.fstat(find_signal_log()).st_ino

    def child() -> None:
        wait_until_timeout(queue)
        assert os.fstat(find_signal_log()).st_ino != inherited

    assert in_fork(child) == 0


def test_signal_handler_exception_becomes_cause_of_signal_error(both: Queues) -> None:
    queue = both.open()
    with signal_when_asleep(raise_it), pytest.raises(both.posix.SignalError) as caught:
        queue.receive()
    if both.posix is ours:
        assert isinstance(caught.value.__cause__.__cause__, Rung)


def test_keyboard_interrupt_during_wait_is_raised(both: Queues) -> None:
    queue = both.open()
    with signal_when_asleep(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        queue.receive(20)


def test_ignored_signal_does_not_end_the_wait(both: Queues) -> None:
    queue = both.open()
    with signal_when_asleep(signal.SIG_IGN), pytest.raises(both.posix.BusyError):
        queue.receive(0.3)


def test_signal_handler_may_use_the_waiting_queue(both: Queues) -> None:
    queue = both.open()
    with signal_when_asleep(lambda *_: queue.send("from the handler")), pytest.raises(both.posix.SignalError):
        queue.receive(20)
    assert queue.receive(0) == (b"from the handler", 0)
