"""Messages of a work queue, seen by who takes none of them: `msgq.stats.queue_messages`, and what `msgq echo` uses."""

from __future__ import annotations

import errno
import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgq import stats
from msgq.common.schema import Schema
from msgq.common.stats.workqueue import QueueMessage
from msgq.errors import InvalidValueError, SegmentError, SegmentSizeError
from msgq.impl.base import clock
from msgq.impl.workqueue.core import QueueBrowser
from msgq.workqueue import MessageQueue
from tests.support import DEADLINE, Child, say
from tests.unit.queuefile import EDGES, MESSAGES, SIZE, QueueFile, call_with_time_limit, words_of_all_kinds


@pytest.fixture
def queue(endpoint: str) -> Iterator[MessageQueue]:
    with MessageQueue(endpoint, max_messages=MESSAGES, max_message_size=SIZE, schema=Schema("Job", "json")) as queue:
        yield queue
        queue.unlink()


def message_data(messages: list[QueueMessage]) -> list[bytes]:
    return [message.data for message in messages]


# ---- visible messages ----


def test_queue_browser_shows_messages_in_receive_order(queue: MessageQueue) -> None:
    began_ns = clock.time_ns()
    queue.send(b"first", 1)
    queue.send(b"urgent", 9, origin_time=77)
    queue.send(b"", 1)
    found = stats.queue_messages(queue.name)
    assert [(one.data, one.priority, one.deliveries) for one in found] == [
        (b"urgent", 9, 0),
        (b"first", 1, 0),
        (b"", 1, 0),
    ]
    assert [one.origin_time for one in found] == [77, 0, 0]
    assert began_ns <= found[1].sent_time <= found[0].sent_time <= found[2].sent_time <= clock.time_ns()
    assert sorted(one.number for one in found) == [found[1].number, found[0].number, found[2].number]
    assert message_data(found) == [queue.receive().data for _ in range(3)]
    assert stats.queue_messages(queue.name) == []


def test_queue_browser_with_limit_shows_first_messages(queue: MessageQueue) -> None:
    queue.send_many([b"0", b"1", b"2"])
    assert message_data(stats.queue_messages(queue.name, limit=2)) == [b"0", b"1"]
    assert stats.queue_messages(queue.name, limit=0) == []
    with pytest.raises(InvalidValueError):
        stats.queue_messages(queue.name, limit=-1)


def test_queue_browser_hides_taken_and_shows_returned_messages(queue: MessageQueue) -> None:
    queue.send_many([b"0", b"1"])
    (number, _) = [one.number for one in stats.queue_messages(queue.name)]
    job = queue.take()
    assert message_data(stats.queue_messages(queue.name)) == [b"1"]
    job.nack()
    back, _ = stats.queue_messages(queue.name)
    assert (back.data, back.deliveries, back.number) == (b"0", 1, number)


def test_queue_browser_shows_each_unseen_message_once(queue: MessageQueue) -> None:
    browser = QueueBrowser(queue.name, "")
    queue.send_many([b"0", b"1", b"2"])
    assert message_data(browser.unseen(1)) == [b"0"]
    assert message_data(browser.unseen()) == [b"1", b"2"]
    job = queue.take()
    assert browser.unseen() == []
    job.nack()
    assert browser.unseen() == [], "it came back, and is the one that was seen"
    assert (len(browser.messages()), browser.sent, browser.schema) == (3, 3, Schema("Job", "json"))
    queue.receive_many()
    queue.send(b"0")
    assert message_data(browser.unseen()) == [b"0"], "another one in the same place"


def test_queue_browser_distinguishes_messages_with_equal_numbers_by_time(queue: MessageQueue, endpoint: str) -> None:
    """As when a sender is stopped between READY and the count, and the next one gets the same number."""
    browser, file = QueueBrowser(queue.name, ""), QueueFile(endpoint)
    queue.send(b"0")
    assert message_data(browser.unseen()) == [b"0"]
    file.write(file.head(0, 3), file.read(file.head(0, 3)) + 1)
    assert message_data(browser.unseen()) == [b"0"]


# ---- without a trace ----


def test_queue_browser_does_not_change_file(queue: MessageQueue) -> None:
    queue.send_many([b"0", b"1"], 3)
    before = Path(queue.path).read_bytes()
    browser = QueueBrowser(queue.name, "")
    browser.unseen()
    stats.queue_messages(queue.name)
    assert Path(queue.path).read_bytes() == before
    (maps,) = {line.split()[1] for line in Path("/proc/self/maps").read_text().splitlines() if queue.path in line} - {
        "rw-s"  # map of our handle
    }
    assert maps == "r--s"


def test_queue_browser_of_missing_queue_raises(endpoint: str) -> None:
    with pytest.raises(SegmentError) as raised:
        stats.queue_messages(endpoint)
    assert raised.value.errno == errno.ENOENT
    assert not os.path.exists(f"/dev/shm/msgqjobs_{endpoint}")


def test_queue_browser_shows_messages_of_removed_queue(endpoint: str) -> None:
    with MessageQueue(endpoint) as queue:
        browser = QueueBrowser(endpoint, "")
        queue.unlink()
        queue.send(b"x")
        assert message_data(browser.messages()) == [b"x"]


# ---- hostile bytes ----


def test_queue_browser_does_not_crash_with_arbitrary_slot_states(queue: MessageQueue, endpoint: str) -> None:
    file, browser = QueueFile(endpoint), QueueBrowser(endpoint, "")
    queue.send(b"sound")
    for word in words_of_all_kinds(0, file.read(file.row(0, 8))):
        for place in (1, 63, 64, MESSAGES - 1):
            file.write(file.word(place), word)
        assert b"sound" in message_data(call_with_time_limit(browser.messages))
        call_with_time_limit(browser.unseen)


def test_queue_browser_shows_valid_message_after_invalid_message_head(queue: MessageQueue, endpoint: str) -> None:
    """A length that no message can have is never read so far; the other words are only shown."""
    file, browser = QueueFile(endpoint), QueueBrowser(endpoint, "")
    queue.send_many([b"hostile", b"sound"])
    for field in range(8):
        before = file.read(file.head(0, field))
        for value in (*EDGES, SIZE, SIZE + 1):
            file.write(file.head(0, field), value)
            found = call_with_time_limit(browser.messages)
            assert message_data(found)[-1] == b"sound"
            assert len(found) == (1 if field == 1 and value > SIZE else 2)
        file.write(file.head(0, field), before)


def test_queue_browser_of_truncated_file_raises(endpoint: str) -> None:
    queue = MessageQueue(endpoint, max_messages=1000, max_message_size=1000)
    browser = QueueBrowser(endpoint, "")
    queue.send(b"x")
    os.truncate(queue.path, 65536)
    with pytest.raises(SegmentSizeError):
        browser.messages()
    queue.unlink()


# ---- live traffic ----

ROUNDS, BIG = 600, 1 << 19


def send_checked(name: str, seed: int) -> int:
    """Child: send messages of all sizes with a checksum at both ends, as fast as it goes."""
    rng = random.Random(seed)
    with MessageQueue(name) as queue:
        for _ in range(ROUNDS):
            body = bytes([rng.randrange(256)]) * rng.randrange(BIG // 2, BIG - 8)
            check = zlib.crc32(body).to_bytes(4, "little")
            queue.send(check + body + check, rng.randrange(3), timeout=30)
    return ROUNDS


def take_all(name: str, seed: int) -> list[int]:
    """Child: take, give back now and then, acknowledge; say how many went through, and what came twice."""
    rng = random.Random(seed)
    done = 0
    with MessageQueue(name) as queue:
        say("up")
        while (job := queue.take(DEADLINE)) is not None:
            if rng.random() < 0.1:
                job.nack()
                continue
            if job.data == b"end":
                job.ack()
                break
            assert has_valid_checksum(job.data)
            job.ack()
            done += 1
    return [done]


def has_valid_checksum(payload: bytes) -> bool:
    check = zlib.crc32(payload[4:-4]).to_bytes(4, "little")
    return payload[:4] == check == payload[-4:]


@pytest.mark.ci
def test_queue_browser_never_takes_or_tears_message_during_traffic(endpoint: str, seed: int) -> None:
    """What: two send, two take and give back, and this one looks all the time.

    Why: a place is used again while it is copied.
    A failure would mean: half of one message with half of another, one that is shown twice, or one that is missing for
    those whose it is.
    """
    with MessageQueue(endpoint, max_messages=4, max_message_size=BIG) as queue:
        browser = QueueBrowser(endpoint, "")
        with (
            Child(take_all, endpoint, seed + 2) as one,
            Child(take_all, endpoint, seed + 3) as other,
            Child(send_checked, endpoint, seed) as first,
            Child(send_checked, endpoint, seed + 1) as second,
        ):
            assert one.hear() == other.hear() == "up"
            seen: set[tuple[int, int, int]] = set()
            looked = 0
            while browser.sent < 2 * ROUNDS:
                for message in browser.messages():
                    assert has_valid_checksum(message.data)
                    looked += 1
                for message in browser.unseen():
                    assert has_valid_checksum(message.data)
                    key = (message.priority, message.number, message.sent_time)
                    assert key not in seen
                    seen.add(key)
            assert first.result() == second.result() == ROUNDS
            queue.send_many([b"end", b"end"])
            assert sum(one.result() + other.result()) == 2 * ROUNDS
        assert looked > 20
        assert len(seen) > 20
        assert stats.queue(endpoint).depth == 0
        queue.unlink()
