"""A work queue's file that is none, another one's, or of another size: opened or refused, used or told of.

What, why, and what a failure would mean are at the top of test_queue_hostile.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from msgq.errors import (
    CorruptSegmentError,
    LayoutVersionError,
    SegmentError,
    SegmentSizeError,
)
from msgq.workqueue import MessageQueue
from tests.support import SHM, Task
from tests.unit.queuefile import (
    EDGES,
    HEADER,
    MESSAGES,
    SANE,
    SIZE,
    QueueFile,
    all_calls,
    call_with_time_limit,
    check_delivers,
    free_all_slots,
)


@pytest.fixture
def queue(endpoint: str) -> Iterator[MessageQueue]:
    queue = MessageQueue(endpoint, max_messages=MESSAGES, max_message_size=SIZE)
    with queue, contextlib.suppress(SegmentError):
        yield queue
        queue.unlink()


# ---- files that cannot be opened ----


def test_open_queue_works_after_changes_of_header_fields(queue: MessageQueue, endpoint: str) -> None:
    """Sizes are read once: those who have it open go on."""
    file = QueueFile(endpoint)
    for at in range(0, 256, 8):
        sound = file.read(at)
        for value in (*EDGES, sound + 1, sound - 1):
            file.write(at, value)
            other = call_with_time_limit(MessageQueue, endpoint)
            assert isinstance(other, MessageQueue | SegmentError), other
            if isinstance(other, MessageQueue):
                all_calls(other)
                other.close()
                if (other.max_messages, other.max_message_size) != (MESSAGES, SIZE):
                    free_all_slots(file)  # it wrote its messages over ours
            check_delivers(queue)
        file.write(at, sound)
    all_calls(queue)


def test_sizes_beyond_the_file_fail_each_call_without_a_crash(endpoint: str) -> None:
    """Another program writes sizes into a queue without sizes, and the file is too small for them."""
    with MessageQueue(endpoint) as unsized:
        file = QueueFile(endpoint)
        for grown in (0, 1, 4096, 65536):  # each call maps the file again
            os.truncate(unsized.path, HEADER + grown)
            file.write(56, SIZE)  # max_message_size, max_messages
            file.write(48, 65536)
            for call in (lambda: unsized.receive(timeout=0), lambda: unsized.send(b"", timeout=0), unsized.peek) * 2:
                with pytest.raises(CorruptSegmentError, match="remove it"):
                    call()
        unsized.unlink()


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (0, 0, CorruptSegmentError),
        (8, 0, LayoutVersionError),
        (8, 3 << 32, LayoutVersionError),
        (16, HEADER - 64, CorruptSegmentError),
        (48, MESSAGES + 64, CorruptSegmentError),
        (48, 65537, CorruptSegmentError),
        (48, 2**61, CorruptSegmentError),
        (56, 0, CorruptSegmentError),
        (56, 2**30 + 1, CorruptSegmentError),
        (56, 2**64 - 1, CorruptSegmentError),
    ],
)
def test_queue_file_with_invalid_header_is_refused(
    queue: MessageQueue, endpoint: str, at: int, value: int, error: type[Exception]
) -> None:
    file = QueueFile(endpoint)
    sound = file.read(at)
    file.write(at, value)
    with pytest.raises(error, match=str(file.path)):
        MessageQueue(endpoint)
    file.write(at, sound)
    MessageQueue(endpoint).close()


@pytest.mark.parametrize("size", [0, 8, HEADER - 1, HEADER, HEADER + 8 * MESSAGES, -1])
def test_queue_file_that_is_too_short_is_refused(queue: MessageQueue, size: int) -> None:
    path = Path(queue.path)
    whole = path.stat().st_size
    os.truncate(path, size if size >= 0 else whole - 1)
    with pytest.raises(SegmentError):
        MessageQueue(queue.name)


def make_directory(path: Path) -> Callable[[], None]:
    path.mkdir()
    return path.rmdir


def make_symlink(path: Path) -> Callable[[], None]:
    path.symlink_to("/dev/shm/msgqjobs_elsewhere")
    return path.unlink


def make_fifo(path: Path) -> Callable[[], None]:
    os.mkfifo(path)
    return path.unlink


def bound_socket(path: Path) -> Callable[[], None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path.unlink


def empty_file(path: Path) -> Callable[[], None]:
    path.touch()
    return path.unlink


@pytest.mark.parametrize("make", [make_directory, make_symlink, make_fifo, bound_socket, empty_file])
def test_queue_file_of_another_format_is_refused(endpoint: str, make: Callable[[Path], Callable[[], None]]) -> None:
    path = SHM / f"msgqjobs_{endpoint}"
    remove = make(path)
    try:
        for flags in (None, 0):
            refused = call_with_time_limit(MessageQueue, endpoint, flags)
            assert isinstance(refused, SegmentError)
            assert str(path) in str(refused)
    finally:
        remove()


def test_queue_file_with_second_link_is_refused(queue: MessageQueue, endpoint: str) -> None:
    other = SHM / f"msgqjobs_{endpoint}-second"
    os.link(queue.path, other)
    try:
        for name in (endpoint, f"{endpoint}-second"):
            with pytest.raises(SegmentError, match="2 names"):
                MessageQueue(name)
        check_delivers(queue)
    finally:
        other.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_queue_file_of_another_user_is_refused(queue: MessageQueue, endpoint: str) -> None:
    os.chown(queue.path, 54321, 54321)
    with pytest.raises(SegmentError, match="user 54321"):
        MessageQueue(endpoint)
    MessageQueue(endpoint, trust="54321").close()


# ---- a file that changes its size while it is open ----


@pytest.mark.parametrize("size", [0, HEADER, HEADER + 4096])
def test_truncated_queue_file_raises_in_each_call(queue: MessageQueue, endpoint: str, size: int) -> None:
    """Above all of a send: a message in memory that nobody else has would be lost without a word."""
    for _ in range(3):
        queue.send(SANE)
    job, other = queue.take(0), queue.take(0)
    assert job
    assert other
    os.truncate(queue.path, size)
    for call in (
        lambda: queue.send(SANE),
        lambda: queue.send(SANE, timeout=0),
        lambda: queue.send_many([SANE]),
        lambda: queue.receive(0),
        lambda: queue.receive(0.01),
        lambda: queue.receive_into(bytearray(SIZE), 0),
        lambda: queue.take(0),
        lambda: queue.take(0.01),
        job.ack,
    ):
        with pytest.raises(SegmentSizeError, match="truncated"):
            call()
    all_calls(queue)
    other.nack()


def test_truncation_of_queue_file_wakes_waiting_receiver(queue: MessageQueue) -> None:
    waiting = Task(queue.receive, 30.0)
    waiting.wait_asleep()
    os.truncate(queue.path, 0)
    with pytest.raises(SegmentSizeError):
        waiting.result()


def test_queue_works_after_another_program_extends_its_file(queue: MessageQueue, endpoint: str) -> None:
    queue.send(SANE)
    os.truncate(queue.path, Path(queue.path).stat().st_size * 2)
    assert queue.receive(0) == (SANE, 0)
    with MessageQueue(endpoint) as other:
        check_delivers(other, queue)
        check_delivers(queue, other)
