"""What others see of a work queue: `msgq.stats.queue`, `msgq.stats.queues`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import mmap
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msgq import stats
from msgq.common.schema import Schema
from msgq.common.stats.workqueue import QueueHandleInfo, QueueStats
from msgq.errors import CorruptSegmentError, LayoutVersionError, MsgqError, QueueFullError, SegmentError
from msgq.impl.base import clock
from msgq.impl.workqueue.core import remove_queue
from msgq.workqueue import Job, MessageQueue
from tests.support import SHM, Child, Task, count_descriptors, hear, say, wait_until

HEADER = 57344


@pytest.fixture
def queue(endpoint: str) -> Iterator[MessageQueue]:
    with MessageQueue(endpoint, max_messages=10, max_message_size=100) as queue:
        yield queue
    for path in SHM.glob(f"msgqjobs_{endpoint}*"):
        path.unlink()


def handle_of_this_process(name: str) -> QueueHandleInfo:
    (found,) = (one for one in stats.queue(name).handles if one.participant.pid == os.getpid())
    return found


def offset_of_slot_states(path: str, messages: int = 10) -> int:
    """Return at which byte of the file the words of the places begin."""
    return HEADER + ((messages + 63) // 64 * 8 + 63) // 64 * 64


def take(queue: MessageQueue, lease: float | None = None) -> Job:
    job = queue.take(0, lease=lease)
    assert job is not None
    return job


def take_two(name: str) -> None:
    """Child: take two messages, and stay."""
    queue = MessageQueue(name)
    jobs = [queue.take(0), queue.take(0)]
    say(len(jobs))
    hear()


def sleep_in(name: str, how: str) -> None:
    """Child: sleep in a queue until killed."""
    queue = MessageQueue(name)
    say("up")
    queue.receive() if how == "receiving" else queue.send(b"x")


# ---- figures ----


def test_queue_stats_of_unused_queue_are_zero(queue: MessageQueue) -> None:
    found = stats.queue(queue.name)
    assert (found.name, found.prefix, found.path) == (queue.name, "", str(SHM / f"msgqjobs_{queue.name}"))
    assert (found.max_messages, found.max_message_size, found.mode) == (10, 100, 0o600)
    assert found.bytes == os.stat(found.path).st_size
    assert found.creator[1] == os.getpid()
    assert 0 <= clock.time_ns() - found.created_ns < 60e9
    assert (
        found.depth,
        found.in_flight,
        found.pending_slots,
        found.free_slots,
        found.corrupt_slots,
        found.lost_slots,
    ) == (0, 0, 0, 10, 0, 0)
    assert (found.oldest_ns, found.oldest_age_ns, found.priorities, found.schema) == (None, None, (), None)
    (handle,) = found.handles
    assert (handle.participant.pid, handle.participant.alive, handle.row, handle.waits) == (os.getpid(), True, 0, ())
    assert not handle.leaves


def test_queue_stats_count_slots_by_state(queue: MessageQueue) -> None:
    for priority in (3, 5, 3, 0):
        queue.send(b"x", priority)
    with take(queue), take(queue, lease=30):
        found = stats.queue(queue.name)
        assert (found.depth, found.in_flight, found.free_slots) == (2, 2, 6)
        assert found.priorities == ((3, 1), (0, 1))
        assert (found.leases, found.expired_leases, found.redelivered, found.most_deliveries) == (1, 0, 0, 1)
        (handle,) = found.handles
        assert (handle.taken, handle.pending_slots, handle.sent, handle.received, handle.acknowledged) == (
            2,
            0,
            4,
            2,
            0,
        )
    found = stats.queue(queue.name)
    assert (found.in_flight, found.sent, found.received, found.acknowledged) == (0, 4, 2, 2)


def test_queue_stats_list_highest_priorities(queue: MessageQueue) -> None:
    for priority in (0, 1, 32767, 2, 3, 4, 5, 6, 7, 32767):
        queue.send(b"", priority)
    assert stats.queue(queue.name).priorities == ((32767, 2), (7, 1), (6, 1), (5, 1), (4, 1), (3, 1), (2, 1), (1, 1))


def test_queue_stats_show_age_of_oldest_message(queue: MessageQueue) -> None:
    queue.send(b"first", 1)
    queue.send(b"second", 7)
    first = queue.peek()[-1]
    found = stats.queue(queue.name)
    assert found.oldest_ns is not None
    assert found.oldest_age_ns is not None
    assert found.oldest_ns == first.sent_time
    assert 0 < found.oldest_age_ns <= clock.time_ns() - found.oldest_ns
    assert stats.queue(queue.name).oldest_age_ns > found.oldest_age_ns  # type: ignore[operator]
    queue.receive(0)
    assert stats.queue(queue.name).oldest_ns == found.oldest_ns, "the second one was the better"
    with take(queue):
        assert stats.queue(queue.name).oldest_ns is None, "it waits no more"


def test_queue_stats_count_returned_messages(queue: MessageQueue) -> None:
    queue.send(b"poison")
    for _ in range(3):
        take(queue).nack()
    found = stats.queue(queue.name)
    assert (found.redelivered, found.most_deliveries, found.returned) == (1, 3, 3)
    with take(queue):
        found = stats.queue(queue.name)
        assert (found.redelivered, found.most_deliveries) == (1, 4)
    assert stats.queue(queue.name).redelivered == 0


def test_queue_stats_count_refused_messages(queue: MessageQueue) -> None:
    for _ in range(10):
        queue.send(b"")
    for _ in range(3):
        with pytest.raises(QueueFullError):
            queue.send(b"", timeout=0)
    found = stats.queue(queue.name)
    assert (found.free_slots, found.refused, found.handles[0].refused, found.sent) == (0, 3, 3, 10)


def test_queue_stats_keep_totals_when_row_gets_new_owner(queue: MessageQueue) -> None:
    with MessageQueue(queue.name) as other:
        other.send(b"x")
        assert [one.sent for one in stats.queue(queue.name).handles] == [0, 1]
    assert [one.row for one in stats.queue(queue.name).handles] == [0], "who left is not listed"
    with MessageQueue(queue.name) as other:
        other.send(b"x")
        found = stats.queue(queue.name)
        assert [one.sent for one in found.handles] == [0, 1]
        assert found.sent == 2


def test_queue_stats_count_expired_lease_until_message_returns(queue: MessageQueue) -> None:
    queue.send(b"x")
    job = take(queue, lease=0.01)
    wait_until(lambda: stats.queue(queue.name).expired_leases == 1)
    assert stats.queue(queue.name).in_flight == 1, "a look changes nothing"
    MessageQueue(queue.name).close()
    found = stats.queue(queue.name)
    assert (found.expired_leases, found.leases, found.depth, found.returned) == (0, 0, 1, 1)
    del job


def test_queue_stats_contain_schema(queue: MessageQueue) -> None:
    with MessageQueue(queue.name, schema=Schema("words", "text")):
        assert stats.queue(queue.name).schema == Schema("words", "text")


# ---- sleeping processes ----


def test_queue_stats_show_sleeping_receivers_and_senders(queue: MessageQueue) -> None:
    receiver = Task(lambda: queue.receive(30))
    wait_until(lambda: handle_of_this_process(queue.name).waits == ("receiving",))
    queue.send(b"x")
    receiver.result()
    for _ in range(10):
        queue.send(b"")
    sender = Task(lambda: queue.send(b"", timeout=30))
    wait_until(lambda: handle_of_this_process(queue.name).waits == ("sending",))
    queue.receive(0)
    sender.result()
    assert handle_of_this_process(queue.name).waits == ()


def test_queue_stats_show_handles_that_poll(queue: MessageQueue) -> None:
    queue.fileno()
    wait_until(lambda: handle_of_this_process(queue.name).waits == ("watching",))

    async def wait() -> None:
        waiting = asyncio.ensure_future(queue.arecv())
        while handle_of_this_process(queue.name).waits != ("watching",):
            await asyncio.sleep(0.001)
        queue.send(b"x")
        await waiting

    asyncio.run(wait())


def test_queue_stats_show_handles_with_notification(queue: MessageQueue) -> None:
    queue.notify(lambda queue: None)
    wait_until(lambda: "notified" in handle_of_this_process(queue.name).waits)
    queue.notify(None)
    assert "notified" not in handle_of_this_process(queue.name).waits


# ---- the dead ----


def test_queue_stats_show_dead_handles_with_their_messages(queue: MessageQueue) -> None:
    for _ in range(3):
        queue.send(b"x")
    with Child(take_two, queue.name) as child:
        assert child.hear() == 2
        child.kill()
    found = stats.queue(queue.name)
    (dead,) = (one for one in found.handles if not one.participant.alive)
    assert (dead.participant.pid, dead.taken, dead.received, dead.leaves) == (child.pid, 2, 2, True)
    assert (found.depth, found.in_flight, found.lost_slots) == (1, 2, 0)
    MessageQueue(queue.name).close()  # takes a free row, and brings back what is the dead one's
    found = stats.queue(queue.name)
    assert (found.depth, found.in_flight, found.redelivered) == (3, 0, 2)
    assert not [one for one in found.handles if one.leaves]


@pytest.mark.parametrize("how", ["receiving", "sending"])
def test_queue_stats_show_waits_of_dead_processes(queue: MessageQueue, how: str) -> None:
    for _ in range(10 if how == "sending" else 0):
        queue.send(b"")
    with Child(sleep_in, queue.name, how) as child:
        assert child.hear() == "up"
        wait_until(lambda: [one.waits for one in stats.queue(queue.name).handles] == [(), (how,)])
        child.kill()
    dead = stats.queue(queue.name).handles[1]
    assert (dead.participant.alive, dead.waits, dead.leaves) == (False, (how,), True)


def test_queue_stats_count_slots_of_previous_owners_as_lost(queue: MessageQueue) -> None:
    """Whoever takes a row sweeps; between the two somebody may look."""
    queue.send(b"x")
    job = take(queue)
    place = offset_of_slot_states(queue.path)
    with open(queue.path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        word = int.from_bytes(memory[place : place + 8], "little")
        assert word >> 61 == 2
        memory[place : place + 8] = (word + (1 << 32)).to_bytes(8, "little")  # another generation
        found = stats.queue(queue.name)
        assert (found.lost_slots, found.in_flight, found.handles[0].taken) == (1, 1, 0)
        memory[place : place + 8] = word.to_bytes(8, "little")
    job.ack()


# ---- looking ----


def test_queue_stats_do_not_change_file(queue: MessageQueue) -> None:
    queue.send(b"x")
    with take(queue, lease=5):
        before = Path(queue.path).read_bytes()
        status = os.stat(queue.path)
        stats.queue(queue.name)
        assert Path(queue.path).read_bytes() == before
        assert os.stat(queue.path).st_mtime_ns == status.st_mtime_ns
    os.chmod(queue.path, 0o400)
    assert stats.queue("/" + queue.name).mode == 0o400


def test_queue_stats_list_queues_of_prefix(prefix: str) -> None:
    with MessageQueue("b") as queue, MessageQueue("a", max_messages=1):
        queue.send(b"x")
        assert [(one.name, one.depth, one.prefix) for one in stats.queues()] == [("a", 0, prefix), ("b", 1, prefix)]
        assert "b" not in [one.name for one in stats.queues("")]
        inodes = stats.queue_inodes()
        assert inodes == {name: os.stat(SHM / f"msgqjobs_{prefix}" / name).st_ino for name in ("a", "b")}
        assert stats.queue("b", prefix).depth == 1


def test_list_of_queue_stats_skips_invalid_files(prefix: str) -> None:
    MessageQueue("good").close()
    folder = SHM / f"msgqjobs_{prefix}"
    (folder / "short").write_bytes(bytes(100))
    (folder / "zeros").write_bytes(bytes(60000))
    good = (folder / "good").read_bytes()
    (folder / "newer").write_bytes(good[:12] + (9).to_bytes(4, "little") + good[16:])
    assert [one.name for one in stats.queues()] == ["good"]
    assert list(stats.queue_inodes()) == ["good", "newer", "short", "zeros"]
    for name in ("short", "zeros"):
        with pytest.raises(CorruptSegmentError):
            stats.queue(name)
    with pytest.raises(LayoutVersionError):
        stats.queue("newer")
    with pytest.raises(SegmentError, match="queue not found"):
        stats.queue("absent")


def write_random_words(path: Path, seed: int, start: int) -> None:
    """Change words of a file at random, and not its size."""
    rng = random.Random(seed)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for _ in range(4000):
            place = rng.randrange(start, len(memory) - 8, 8)
            kinds = [0, 1, 2**64 - 1, rng.getrandbits(64), rng.getrandbits(20), 2**63, 1 << 61, 2 << 61]
            word = rng.choice(kinds) | rng.choice([0, 0, rng.getrandbits(8) << 48])
            memory[place : place + 8] = (word & 2**64 - 1).to_bytes(8, "little")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("start", [8, 64, offset_of_slot_states("")])
def test_queue_stats_do_not_crash_with_random_bytes(queue: MessageQueue, seed: int, start: int) -> None:
    for _ in range(5):
        queue.send(b"x")
    path = SHM / f"msgqjobs_{queue.name}copy"
    path.write_bytes(Path(queue.path).read_bytes())
    write_random_words(path, seed, start)
    with contextlib.suppress(MsgqError):
        found = stats.queue(f"{queue.name}copy")
        assert isinstance(found, QueueStats)
        assert repr(dataclasses.asdict(found))
        places = found.depth + found.in_flight + found.pending_slots + found.free_slots + found.corrupt_slots
        assert places == found.max_messages
        assert (
            sum(one.pending_slots + one.taken for one in found.handles) + found.lost_slots
            == found.pending_slots + found.in_flight
        )
    path.unlink()


def test_queue_stats_count_invalid_slot_states(queue: MessageQueue) -> None:
    with open(queue.path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for number, word in enumerate((1, 3 << 61 | 200 << 48, 2 << 61 | 200 << 48, 1 << 61 | 5)):
            place = offset_of_slot_states(queue.path) + 8 * number
            memory[place : place + 8] = word.to_bytes(8, "little")
    found = stats.queue(queue.name)
    assert (found.corrupt_slots, found.free_slots, found.handles[0].taken) == (4, 6, 0)


def test_queue_stats_of_truncated_file_raise(queue: MessageQueue, endpoint: str) -> None:
    path = SHM / f"msgqjobs_{endpoint}cut"
    path.write_bytes(Path(queue.path).read_bytes())
    os.truncate(path, HEADER + 64)
    with pytest.raises(CorruptSegmentError):
        stats.queue(f"{endpoint}cut")
    path.unlink()


def test_queue_stats_during_traffic_are_consistent(queue: MessageQueue) -> None:
    """What: one thread sends, one takes; this one looks.

    Failure would mean: a figure that was never true, as more messages than places.
    """
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            with contextlib.suppress(QueueFullError):
                queue.send(b"x", timeout=0.01)

    def take(other: MessageQueue) -> None:
        while not over.is_set():
            other.receive(0.01)

    with MessageQueue(queue.name) as other:
        tasks = [Task(send), Task(take, other)]
        try:
            for _ in range(300):
                found = stats.queue(queue.name)
                places = found.depth + found.in_flight + found.pending_slots + found.free_slots
                assert (places, found.corrupt_slots, found.lost_slots) == (10, 0, 0)
                assert {one.participant.alive for one in found.handles} == {True}
                assert found.sent <= stats.queue(queue.name).sent
        finally:
            over.set()
            for task in tasks:
                task.result()
        found = stats.queue(queue.name)
        assert found.sent == found.received + found.depth
        assert found.acknowledged == found.received


# ---- removing ----


def test_queue_opened_during_removal_is_created_again(endpoint: str) -> None:
    MessageQueue(endpoint).close()
    opened: list[Task] = []

    def unused(found: Any) -> bool:
        opened.append(Task(MessageQueue, endpoint))
        wait_until(lambda: count_descriptors(found.path) == 4)  # two of each handle: its own, and one to lock by
        return not found.handles

    assert remove_queue(endpoint, "", unused)
    with opened[0].result() as queue:
        queue.send(b"x")
        assert [one.data for one in MessageQueue(endpoint, 0).receive_many()] == [b"x"]
        assert len(stats.queue(endpoint).handles) == 1


def test_removal_keeps_queue_that_was_recreated(endpoint: str) -> None:
    path = SHM / f"msgqjobs_{endpoint}"
    MessageQueue(endpoint).close()
    with open(path) as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        removing = Task(remove_queue, endpoint, "", lambda found: True)
        wait_until(lambda: count_descriptors(path) == 3)  # ours, its own, and that to lock by
        path.unlink()
        with MessageQueue(endpoint) as another:
            fcntl.flock(locked, fcntl.LOCK_UN)
            with pytest.raises(SegmentError, match="queue not found"):
                removing.result()
            assert path.stat().st_ino == another.identity[1]
