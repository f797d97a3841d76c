"""What work queues refuse over shared memory: files, users, space, forks, signals. Arguments are in the contract."""

from __future__ import annotations

import errno
import gc
import os
import queue as standard
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import msgq
from msgq.errors import (
    BackendNotAvailableError,
    CorruptSegmentError,
    EndpointClosedError,
    ForkedSocketError,
    InvalidValueError,
    LayoutVersionError,
    LeaseExpiredError,
    QueueFullError,
    SegmentError,
    SegmentSizeError,
    StateError,
    TooManyHandlesError,
)
from msgq.impl.workqueue import options
from tests.support import DEADLINE, SHM, Child, Task, hear, in_fork, run_child, say, wait_asleep

if TYPE_CHECKING:
    from msgq import MessageQueue
else:

    def MessageQueue(*args: Any, **options: Any) -> Any:
        return msgq.MessageQueue(*args, **options)  # not when this is imported: one process here has no queues


ROWS = 128
Wait = Callable[["MessageQueue"], object]


def file_of(endpoint: str) -> Path:
    return SHM / f"msgqjobs_{endpoint}"


# ---- backends ----


def without_queues(endpoint: str) -> str:
    try:
        msgq.MessageQueue(endpoint)
    except BackendNotAvailableError as error:
        return str(error)
    return ""


def test_queue_with_zmq_backend_is_refused(endpoint: str) -> None:
    text = run_child(without_queues, endpoint, env={"MSGQ_BACKEND": "zmq"})
    assert "'zmq' has no MessageQueue; use the backend msgq or fake" in text


# ---- files ----


def test_queue_with_file_of_another_format_is_refused(endpoint: str) -> None:
    file_of(endpoint).write_bytes(b"short")
    with pytest.raises(CorruptSegmentError, match="too few"):
        MessageQueue(endpoint)
    file_of(endpoint).write_bytes(bytes(200_000))
    with pytest.raises(CorruptSegmentError, match="not a queue"):
        MessageQueue(endpoint)
    file_of(endpoint).unlink()
    file_of(endpoint).symlink_to("/etc/passwd")
    with pytest.raises(SegmentError, match="symbolic link"):
        MessageQueue(endpoint)


def test_queue_file_with_different_layout_version_is_reported(endpoint: str) -> None:
    MessageQueue(endpoint).close()
    data = bytearray(file_of(endpoint).read_bytes())
    data[12:16] = struct.pack("<I", 3)
    file_of(endpoint).write_bytes(data)
    with pytest.raises(LayoutVersionError, match="version 1"):
        MessageQueue(endpoint)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_queue_of_another_user_is_refused(endpoint: str) -> None:
    MessageQueue(endpoint).close()
    os.chown(file_of(endpoint), 65001, 65001)
    os.seteuid(65002)
    try:
        with pytest.raises(SegmentError, match=r"belongs to user 65001|denied"):
            MessageQueue(endpoint)
    finally:
        os.seteuid(0)


def test_queue_without_memory_raises_and_leaves_no_file(endpoint: str) -> None:
    space = os.statvfs(SHM)
    size = min(space.f_blocks * space.f_frsize // 512, 2**30)
    with pytest.raises(SegmentError, match=f"{endpoint}.*cannot allocate.*free") as error:
        MessageQueue(endpoint, max_messages=1024, max_message_size=size)
    assert error.value.errno == errno.ENOSPC
    assert not file_of(endpoint).exists()


def test_call_on_truncated_queue_raises(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    queue.send(b"1")
    os.truncate(file_of(endpoint), 4096)
    for use in (queue.receive, lambda: queue.receive(1.0), lambda: queue.take(0)):
        with pytest.raises((SegmentSizeError, CorruptSegmentError), match=endpoint):
            use()


def test_truncation_of_queue_file_ends_wait(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    waiting = Task(queue.receive)
    waiting.wait_asleep()
    os.truncate(file_of(endpoint), 4096)
    with pytest.raises((SegmentSizeError, CorruptSegmentError), match=endpoint):
        waiting.result()


# ---- handles ----


def test_129th_queue_handle_is_refused_until_one_closes(endpoint: str) -> None:
    handles = [MessageQueue(endpoint, max_messages=1, max_message_size=8) for _ in range(ROWS)]
    with pytest.raises(TooManyHandlesError, match=f"{endpoint}.*128 open handles"):
        MessageQueue(endpoint)
    handles.pop().close()
    handles.append(MessageQueue(endpoint))
    handles[0].send(b"1")
    assert handles[-1].receive(0) == (b"1", 0)


def test_message_of_dead_consumer_returns_to_unlinked_queue(endpoint: str) -> None:
    queue, other = MessageQueue(endpoint), MessageQueue(endpoint)
    queue.send(b"1")
    with Child(hold_job, endpoint) as child:
        assert child.hear() == "taken"
        queue.unlink()
        assert not file_of(endpoint).exists()
        child.kill()
    assert other.receive(DEADLINE) == (b"1", 0)
    later = MessageQueue(endpoint)
    assert later.receive(0) is None, "it is another queue"


def hold_job(endpoint: str) -> None:
    """Take a job and keep it."""
    with MessageQueue(endpoint) as queue:
        job = queue.take(DEADLINE)
        say("taken")
        hear()
        del job


def test_queue_consumer_is_dead_after_exec(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    queue.send(b"1")

    def child() -> None:
        job = MessageQueue(endpoint).take(DEADLINE)
        assert job is not None
        os.execlp("true", "true")

    assert in_fork(child) == 0
    message = queue.receive(DEADLINE)
    assert message is not None
    assert (message.data, message.deliveries) == (b"1", 2)


# ---- forks ----


def test_forked_child_has_its_own_queue_row(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    queue.send(b"to the child")

    def child() -> None:
        message = queue.receive(DEADLINE)
        assert message == (b"to the child", 0)
        queue.send(b"from the child", 3)

    assert in_fork(child) == 0
    assert queue.receive(DEADLINE) == (b"from the child", 3)


def test_forked_child_cannot_end_job_of_parent(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    queue.send(b"1")
    job = queue.take(0)
    assert job is not None

    def child() -> None:
        with pytest.raises(ForkedSocketError, match="parent"):
            job.ack()
        with pytest.raises(ForkedSocketError, match="parent"):
            job.nack()
        assert queue.receive(0) is None

    assert in_fork(child) == 0
    with job:
        assert in_fork(lambda: None) == 0
    assert queue.current_messages == queue.in_flight == 0


def test_child_that_leaves_job_block_keeps_job_of_parent(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    queue.send(b"1")
    job = queue.take(0)
    assert job is not None
    with job:
        pid = os.fork()
        if pid == 0:
            try:
                job.__exit__(None, None, None)
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert queue.in_flight == 1
    assert queue.in_flight == 0


# ---- jobs ----


def test_ack_after_expired_lease_raises(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    queue.send(b"1")
    late = queue.take(0, lease=0.02)
    assert late is not None
    again = queue.take(DEADLINE)
    assert again is not None
    assert again.deliveries == 2
    with pytest.raises(LeaseExpiredError, match=endpoint):
        late.ack()
    again.ack()
    with pytest.raises(StateError, match="already acknowledged"):
        again.ack()


def test_closed_queue_handle_returns_messages_of_its_jobs(endpoint: str) -> None:
    queue, other = MessageQueue(endpoint), MessageQueue(endpoint)
    queue.send_many([b"1", b"2"])
    jobs = [queue.take(0), queue.take(0)]
    queue.close()
    assert [other.receive(0), other.receive(0)] == [(b"1", 0), (b"2", 0)]
    for job in jobs:
        assert job is not None
        with pytest.raises(EndpointClosedError, match="returned"):
            job.ack()


def test_message_of_dropped_job_returns_to_queue(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    queue.send(b"1")
    queue.take(0)
    assert queue.receive(0) == (b"1", 0)


# ---- signals in each wait ----


def receive(queue: MessageQueue) -> object:
    return queue.receive(DEADLINE)


def take(queue: MessageQueue) -> object:
    return queue.take(DEADLINE)


def receive_into(queue: MessageQueue) -> object:
    return queue.receive_into(bytearray(8), DEADLINE)


def send(queue: MessageQueue) -> None:
    queue.send(b"2", timeout=DEADLINE)


def send_many(queue: MessageQueue) -> object:
    return queue.send_many([b"2", b"3"], timeout=DEADLINE)


def wait_space(queue: MessageQueue) -> object:
    return queue.wait_space(DEADLINE)


RECEIVING: list[Wait] = [receive, take, receive_into]
SENDING: list[Wait] = [send, send_many, wait_space]


class Interruption(Exception):
    """Raised by a handler."""


def wait_with_signal_handler(endpoint: str, name: str, what: str) -> str:
    """Wait, and be sent SIGUSR1; return how the wait ended."""
    wait: Wait = globals()[name]
    queue = MessageQueue(endpoint, max_messages=1, max_message_size=8)

    def handler(*_: object) -> None:
        if what == "raise":
            raise Interruption
        if what == "close":
            queue.close()
        elif wait in RECEIVING:
            queue.send(b"1")
        else:
            queue.receive(0)

    signal.signal(signal.SIGUSR1, handler)
    if wait in SENDING:
        queue.send(b"full")
    say("waits")
    try:
        wait(queue)
    except (Interruption, EndpointClosedError) as error:
        return type(error).__name__
    return "went on"


ENDS = {"raise": "Interruption", "close": "EndpointClosedError", "use": "went on"}


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("wait", [*RECEIVING, wait_space, send])
def test_signal_handler_can_end_queue_wait_or_use_queue(endpoint: str, wait: Wait, what: str) -> None:
    """A handler that raises ends the wait; one that closes ends it with an error; one that uses the queue helps it."""
    with Child(wait_with_signal_handler, endpoint, wait.__name__, what) as child:
        assert child.hear() == "waits"
        wait_asleep(child.pid)
        child.kill(signal.SIGUSR1)
        assert child.result() == ENDS[what]


def fork_in_wait(endpoint: str) -> list[Any]:
    queue = MessageQueue(endpoint)
    children: list[int] = []

    def fork(*_: object) -> None:
        children.append(os.fork())
        if children[0]:
            say(children[0])

    signal.signal(signal.SIGUSR1, fork)
    say(os.getpid())
    message = queue.receive(DEADLINE)
    if not children[0]:
        os._exit(0 if message is not None else 1)
    return [message and message.data.decode(), os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])]


def test_child_forked_in_signal_handler_waits_independently(endpoint: str) -> None:
    queue = MessageQueue(endpoint)
    with Child(fork_in_wait, endpoint) as child:
        wait_asleep(child.hear())
        child.kill(signal.SIGUSR1)
        wait_asleep(child.hear())
        queue.send_many([b"1", b"1"])
        assert child.result() == ["1", 0]


# ---- full ----


def test_full_queue_raises_subclass_of_standard_queue_full(endpoint: str) -> None:
    queue = MessageQueue(endpoint, max_messages=1)
    queue.send(b"1")
    with pytest.raises(standard.Full) as full:
        queue.send(b"2", timeout=0)
    assert isinstance(full.value, QueueFullError)
    assert full.value.errno == errno.EAGAIN
    with pytest.raises(QueueFullError) as late:
        queue.send(b"2", timeout=0.01)
    assert late.value.errno == errno.ETIMEDOUT


def test_queue_waits_spin_by_default(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by a default that is refused: nothing tells a short spin from a short sleep."""
    monkeypatch.setattr(options, "SPIN_US", -1)
    with pytest.raises(InvalidValueError, match="spin_us"):
        msgq.MessageQueue(endpoint)
    msgq.MessageQueue(endpoint, spin_us=0).unlink()
    monkeypatch.setenv("MSGQ_SPIN_US", "5")
    msgq.MessageQueue(endpoint).unlink()


# ---- many at once ----


def test_send_many_delivers_messages_of_slow_iterable_immediately(endpoint: str) -> None:
    """The receiver is asleep for each of them; without a wake it would look a second later."""
    queue, other = MessageQueue(endpoint), MessageQueue(endpoint)
    got = threading.Semaphore(0)

    def receive_all() -> list[bytes]:
        received: list[bytes] = []
        while len(received) < 8 and (message := other.receive(DEADLINE)) is not None:
            received.append(message.data)
            got.release()
        return received

    receiving, woken = Task(receive_all), []

    def slow() -> Iterator[bytes]:
        for number in range(8):
            receiving.wait_asleep()
            before = receiving.sleeps()
            yield b"%d" % number
            woken.append(receiving.sleeps() != before)
            assert got.acquire(timeout=DEADLINE)

    assert queue.send_many(slow()) == 8
    assert receiving.result() == [b"%d" % number for number in range(8)]
    assert woken == [True] * 8
