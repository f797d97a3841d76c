"""Joins of channels, queues and records, which lock a file and a row with one open file: forks, threads, removal."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import operator
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.errors import ForkedSocketError, SegmentError
from msgq.impl.channel.pool_files import list_pools
from tests.support import SHM, Child, Task, count_descriptors, find_dicts, hear, in_fork, say, wait_until
from tests.unit.liveness_children import libc


def write_first(name: str) -> Any:
    vector = msgq.SeqlockVector(name, "f8", 4)
    vector[0] = 1.0
    return vector


#: Joining call and liveness of each participant, by kind.
JOINS: dict[str, tuple[Callable[[str], Any], Callable[[str], list[bool | None]]]] = {
    "publisher": (
        lambda name: msgq.Channel(name).publisher(slots=2, slot_bytes=64),
        lambda name: [one.participant.alive for one in stats.channel(name).publishers],
    ),
    "subscriber": (
        lambda name: msgq.Channel(name).subscriber(),
        lambda name: [one.participant.alive for one in stats.channel(name).subscribers],
    ),
    "queue": (
        lambda name: msgq.MessageQueue(name, max_messages=4, max_message_size=64),
        lambda name: [one.participant.alive for one in stats.queue(name).handles],
    ),
    "vector": (write_first, lambda name: [one.participant.alive for one in stats.record(name).writers]),
}


@pytest.mark.parametrize("kind", JOINS)
@pytest.mark.parametrize(
    "count", [pytest.param(30, marks=pytest.mark.ci), pytest.param(200, marks=pytest.mark.nightly)]
)
def test_fork_during_join_does_not_inherit_lock(endpoint: str, kind: str, count: int) -> None:
    """A child that inherited the open file of a join would keep the row after the participant has left."""
    join, list_liveness = JOINS[kind]
    keeper = join(endpoint)
    children: list[int] = []

    def fork() -> None:
        while len(children) < count:
            child = libc.fork()  # without the interpreter's lock: truly beside the joins
            if child == 0:
                libc.pause()
                os._exit(0)
            children.append(child)

    task = threading.Thread(target=fork)
    task.start()
    try:
        while task.is_alive():
            join(endpoint).close()
        task.join()
        wait_until(lambda: list_liveness(endpoint).count(True) == 1)  # each child closes the file when it first runs
        handles = [join(endpoint) for _ in range(8)]
        assert list_liveness(endpoint).count(True) == 9
        for handle in handles:
            handle.close()
        assert list_liveness(endpoint).count(True) == 1
    finally:
        task.join()
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        keeper.close()


def join_twice(kind: str, endpoint: str) -> None:
    """Child: join twice, close the first handle, and wait for the end."""
    join, _ = JOINS[kind]
    first, second = join(endpoint), join(endpoint)
    first.close()
    say("joined")
    hear()
    second.close()


@pytest.mark.parametrize("kind", JOINS)
def test_close_of_one_handle_leaves_the_row_of_another_locked(endpoint: str, kind: str) -> None:
    _, list_liveness = JOINS[kind]
    with Child(join_twice, kind, endpoint) as child:
        assert child.hear() == "joined"
        assert list_liveness(endpoint).count(True) == 1
        child.kill()
        wait_until(lambda: True not in list_liveness(endpoint))


def test_close_of_one_of_two_handles_leaves_a_waiting_thread_asleep(endpoint: str) -> None:
    first, second = msgq.Channel(endpoint), msgq.Channel(endpoint)
    ending, subscriber = first.subscriber(), second.subscriber()
    task = Task(lambda: subscriber.receive(60))
    task.wait_asleep()
    ending.close()
    first.close()
    del ending, first
    gc.collect()
    with msgq.Channel(endpoint) as third, third.publisher() as publisher:
        assert task.is_woken_by(lambda: publisher.send(b"after the close"))
        assert task.result() == b"after the close"


def test_threads_lock_one_channel_one_after_the_other(endpoint: str) -> None:
    """Two open files of one process must exclude each other."""
    channel = msgq.Channel(endpoint)
    entered = threading.Event()
    order: list[str] = []

    def join_in_thread() -> None:
        entered.wait()
        channel.publisher().close()
        order.append("joined")

    def refuse(_: object) -> bool:  # runs under the lock
        entered.set()
        wait_until(lambda: count_descriptors(SHM / f"msgqchan_{endpoint}") == 2, "the thread tries to lock the file")
        order.append("unlocked")
        return False

    task = Task(join_in_thread)
    assert not channel._channel_file.unlink(refuse)
    task.result()
    assert order == ["unlocked", "joined"]


class TestOpenMark:
    def test_channel_stays_open_until_the_last_object_of_the_process_is_closed(self, endpoint: str) -> None:
        objects = [msgq.Channel(endpoint) for _ in range(3)]
        while objects:
            assert stats.channel(endpoint).opened is True
            objects.pop().close()
        assert stats.channel(endpoint).opened is False

    def test_forked_child_marks_the_channel_itself(self, endpoint: str) -> None:
        parent = msgq.Channel(endpoint)

        def open_after_parent() -> None:
            inherited = parent
            with msgq.Channel(endpoint):
                inherited.close()
                del inherited
                assert stats.channel(endpoint).opened is True

        assert in_fork(open_after_parent) == 0
        assert stats.channel(endpoint).opened is True
        parent.close()
        assert stats.channel(endpoint).opened is False

    def test_child_that_lives_on_does_not_keep_the_mark(self, endpoint: str) -> None:
        parent = msgq.Channel(endpoint)
        ready, end = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(end[1])
            os.write(ready[1], b"y")
            os.read(end[0], 1)
            os._exit(0)
        try:
            os.read(ready[0], 1)
            parent.close()
            assert stats.channel(endpoint).opened is False
        finally:
            for descriptor in (*ready, *end):
                os.close(descriptor)
            os.waitpid(child, 0)

    def test_mark_of_a_closed_channel_leaves_no_entry(self, endpoint: str) -> None:
        """Failure would mean: the table of marks grows by each channel."""
        channel = msgq.Channel(endpoint)
        status = os.stat(SHM / f"msgqchan_{endpoint}")

        def count_entries() -> int:
            return sum((status.st_dev, status.st_ino) in each for each in find_dicts())

        assert count_entries() == 1
        channel.close()
        assert count_entries() == 0

    def test_removed_and_recreated_channel_has_its_own_mark(self, endpoint: str) -> None:
        former = msgq.Channel(endpoint)
        former.unlink()
        current = msgq.Channel(endpoint)
        with pytest.raises(SegmentError, match="was removed"):
            former.publisher()
        former.close()
        assert stats.channel(endpoint).opened is True
        current.close()
        assert stats.channel(endpoint).opened is False


class ForkOnce:
    """Calls a function. The first call also forks this process, as a signal handler may do."""

    def __init__(self, function: Callable[..., Any], parent_waits: bool = False) -> None:
        self._function, self._parent_waits = function, parent_waits
        self.child: int | None = None  # pid of the child; 0 in the child itself
        self._reads, self._writes = os.pipe()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.child is None:
            self.child = os.fork()
            if self.child:
                os.close(self._writes)
            if self.child and self._parent_waits:
                os.read(self._reads, 1)  # returns after the child has ended its call
        return self._function(*arguments, **options)

    def run(self, action: Callable[[], Any], check_in_child: Callable[[Any], bool]) -> Any:
        """Return the result, or the exception, of an action that calls this object, in the parent."""
        result: Any
        try:
            result = action()
        except Exception as error:
            result = error
        if self.child == 0:
            try:
                os.write(self._writes, b"x")
                os._exit(0 if check_in_child(result) else 2)
            finally:
                os._exit(1)
        assert self.child
        os.close(self._reads)
        assert os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1]) == 0
        return result


def test_child_forked_under_the_lock_does_not_remove_the_channel(endpoint: str) -> None:
    file = msgq.Channel(endpoint)._channel_file
    forking = ForkOnce(lambda _: forking.child == 0)
    assert forking.run(lambda: file.unlink(forking), lambda result: isinstance(result, ForkedSocketError)) is False
    assert (SHM / f"msgqchan_{endpoint}").exists()


def test_child_forked_under_the_lock_removes_no_pools(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = msgq.Channel(endpoint)._channel_file
    forking = ForkOnce(list_pools)
    monkeypatch.setattr("msgq.impl.channel.core.list_pools", forking)
    removed = forking.run(file.remove_unreachable_pools, lambda result: isinstance(result, ForkedSocketError))
    assert removed.orphans == ()


class Rung(Exception):
    """The exception of a signal handler."""


def test_exception_of_signal_handler_during_close_of_channel_is_raised(endpoint: str) -> None:
    """Failure would mean: Ctrl-C during a close is lost, because it is raised in a function that has no caller."""

    def ring(*_: object) -> None:
        raise Rung

    file = msgq.Channel(endpoint)._channel_file
    before = signal.signal(signal.SIGUSR1, ring)
    send_signal = partial(ctypes.PyDLL(None)["raise"], signal.SIGUSR1)  # runs no handler
    calls: list[Callable[[], Any]] = [send_signal, file.close]
    try:
        with pytest.raises(Rung):
            list(map(operator.call, calls))  # the interpreter runs no handler between both calls
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", ["publisher", "subscriber"])
def test_join_leaves_no_descriptor(endpoint: str, kind: str) -> None:
    join, _ = JOINS[kind]
    handle = join(endpoint)
    assert count_descriptors(SHM / f"msgqchan_{endpoint}") == 0
    handle.close()


def test_queue_keeps_one_descriptor_for_each_handle(endpoint: str) -> None:
    handles = [msgq.MessageQueue(endpoint) for _ in range(3)]
    assert count_descriptors(SHM / f"msgqjobs_{endpoint}") == 3
    for handle in handles:
        handle.close()


def test_fork_in_signal_handler_under_the_lock_leaves_the_parent_locked(endpoint: str) -> None:
    """The child must neither unlock the file of its parent nor keep the parent's row."""
    channel = msgq.Channel(endpoint)
    end = os.pipe()
    child = 0

    def fork_under_lock(_: object) -> bool:
        nonlocal child
        child = os.fork()
        if child == 0:
            os.close(end[1])
        return False

    removed = channel._channel_file.unlink(fork_under_lock)
    if child == 0:
        os.read(end[0], 1)
        os._exit(0 if removed is False else 1)
    try:
        publisher = channel.publisher()  # would wait 5 s for a lock that the child keeps
        liveness = partial(JOINS["publisher"][1], endpoint)
        assert liveness() == [True]
        publisher.close()
        assert True not in liveness()
    finally:
        for descriptor in end:
            os.close(descriptor)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_child_that_is_forked_during_the_wait_for_a_topic_unlocks_it_after_joining(endpoint: str) -> None:
    """Failure would mean: the mapping of the child keeps the lock, and others cannot open the topic while it lives."""
    msgq.pub_sock(endpoint).close()
    path, child = SHM / f"msgq_{endpoint}", -1

    def can_lock() -> bool:
        other = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(other)
        return True

    def fork_and_unlock(*_: object) -> None:
        nonlocal child
        child = os.fork()
        fcntl.flock(held, fcntl.LOCK_UN)

    held = os.open(path, os.O_RDWR)
    before = signal.signal(signal.SIGALRM, fork_and_unlock)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with msgq.sub_sock(endpoint):
            if child == 0:
                os._exit(0 if wait_until(can_lock, deadline=20) else 1)
            wait_until(can_lock)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        if child == 0:
            os._exit(1)
        signal.signal(signal.SIGALRM, before)
        os.close(held)
