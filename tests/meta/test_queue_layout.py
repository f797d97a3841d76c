"""The bytes that the library writes into the file of docs/internals/queue-protocol.md: queues, and their events."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.impl.base import clock
from msgq.impl.workqueue import options
from msgq.impl.workqueue.core import QueueNotification
from msgq.workqueue import MessageQueue
from tests.meta.layouts import (
    CONSTANTS,
    locked_bytes,
    offset_of,
    own_identity,
    process_name,
    read,
    read_rows,
    size_of,
    text,
    words,
)
from tests.meta.sources import section
from tests.support import Task

FILL_COUNTS = size_of("mq_queue")
WORDS = FILL_COUNTS + 64  # offset behind `fill_counts` of up to 8 blocks
HEAD_BYTES = size_of("mq_queue_slot_header")


def read_file(prefix: str) -> bytes:
    return Path(f"/dev/shm/msgqjobs_{prefix}/golden").read_bytes()


def read_row(file: bytes) -> dict[str, Any]:
    """Return the fields of the only row."""
    rows = read_rows("mq_queue_row", read("mq_queue", file)["rows"])
    assert rows.keys() == {0}
    return rows[0]


def read_identity(row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the participant and the generation of a row."""
    found = read("mq_versioned_row", row["at"])
    return read("mq_participant", found["participant"]) if "participant" in found else {}, found["generation"]


def ready_word(priority: int, order: int) -> int:
    return 1 << 63 | priority << 48 | (1 << 48) - 1 - order


def taken_word(row: int, generation: int, take: int) -> int:
    return 2 << 61 | row << 48 | generation << 32 | take


def check_lease(lease: int, take: int, row: int = 0) -> None:
    """Check a lease or delay of 1000 s that has just begun: its end in ticks, the row and the take number."""
    end = (clock.time_ns() + 1000 * 10**9) // CONSTANTS["MQ_JOB_LEASE_TICK_NS"] & 0xFFFFFFFF
    assert end - 6000 < lease >> 32 <= end + 1
    assert lease & 0xFFFFFFFF == row << 24 | take


def test_documented_queue_limits_equal_limits_of_python() -> None:
    """What the page on the protocol says, and what help(MessageQueue) shows."""
    limits = section("queue-protocol.md", "Limits")
    defaults = (CONSTANTS["MQ_QUEUE_DEFAULT_MESSAGES"], CONSTANTS["MQ_QUEUE_DEFAULT_MESSAGE_SIZE"])
    assert defaults == options.DEFAULT_SIZES
    rows = CONSTANTS["MQ_QUEUE_ROWS"]
    assert f"| 1 to {options.MESSAGES_MAX}, {options.DEFAULT_MAX_MESSAGES} by default |" in limits
    assert options.MESSAGE_SIZE_MAX == 2**30
    assert f"which is 1 to 2^30, {options.DEFAULT_MESSAGE_SIZE} by default |" in limits
    assert f"| 0 to {options.PRIORITY_MAX} |" in limits
    assert f"| {rows}, threads may share one |" in limits
    assert f"| {options.SCHEMA_DATA_MAX} bytes of data |" in limits
    contract = " ".join((MessageQueue.__doc__ or "").split())
    assert f"1 to {options.MESSAGES_MAX}; None: {options.DEFAULT_MAX_MESSAGES}." in contract
    assert f"1 to 2^30; None: {options.DEFAULT_MESSAGE_SIZE}." in contract
    assert f"the queue has {rows} open handles" in contract
    assert f"at most {options.SCHEMA_DATA_MAX} bytes of data" in contract
    assert f"0 to {options.PRIORITY_MAX}." in (MessageQueue.send.__doc__ or "")
    assert re.search(rf"\b0 to {options.PRIORITY_MAX}\.", msgq.workqueue.Message.priority.__doc__ or "")


def test_queue_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    with MessageQueue("golden", max_messages=70, max_message_size=100) as queue:
        queue.send(b"first", origin_time=5)
        queue.send(b"urgent", 7)
        queue.send(b"third")
        queue.send(b"gone", 9)
        assert queue.receive(0) == (b"gone", 9)
        job = queue.take(0, lease=1000.0)
        assert job
        assert job.data == b"urgent"
        file = read_file(prefix)
    heads = WORDS + 576  # 70 words in whole lines
    payloads = heads + 70 * HEAD_BYTES
    assert len(file) == payloads + 70 * 128
    assert file[:8] == b"GSQJOBS1"
    header = read("mq_queue", file)
    created = header.pop("created_ns")
    assert before <= created <= clock.offset_ns() + time.monotonic_ns()
    del header["rows"]
    assert header == {  # no events; nobody sleeps, or wants to be notified; no schema
        "magic": CONSTANTS["MQ_QUEUE_MAGIC"],
        "version": 1 << 32 | 1,
        "header_bytes": FILL_COUNTS,
        "total_bytes": len(file),
        "creator_pid": os.getpid(),
        "max_messages": 70,
        "max_message_size": 100,
        "creator": text(process_name(), 64),
        "stride": 128,
        "ready_count": 4,
    }
    row = read_row(file)
    identity = read("mq_versioned_row", row.pop("at"))
    own_identity(identity["participant"])
    assert identity["generation"] == 1
    assert read("mq_queue_handle_counts", row.pop("counts")) == {"sent": 4, "received": 2, "acknowledged": 1}
    assert row == {"take_count": 2}, "nobody had the row before; it owes nothing, and never slept"
    assert words(file[FILL_COUNTS : FILL_COUNTS + 16]) == (4, 0)
    in_work = taken_word(row=0, generation=1, take=2)
    assert words(file[WORDS : WORDS + 40]) == (ready_word(0, 0), in_work, ready_word(0, 2), 0, 0)
    first, urgent = (read("mq_queue_slot_header", file, heads + slot * HEAD_BYTES) for slot in (0, 1))
    assert created <= first.pop("sent_time") <= job.sent_time
    assert first == {"key": ready_word(0, 0), "length": 5, "origin_time": 5}
    lease = urgent.pop("lease")
    assert urgent == {"key": ready_word(7, 1), "length": 6, "deliveries": 1, "sent_time": job.sent_time}
    check_lease(lease, take=2)
    for place, payload in enumerate(["first", "urgent", "third"]):
        assert file[payloads + place * 128 :][:128] == text(payload, 128)


def test_delayed_messages_in_queue_file_have_golden_bytes(prefix: str) -> None:
    with MessageQueue("golden", max_messages=2, max_message_size=64), MessageQueue("golden") as queue:
        queue.send(b"later", delay=1000.0)
        queue.send(b"returned")
        job = queue.take(0)
        assert job
        job.nack(delay=1000.0)
        assert locked_bytes(Path(f"/dev/shm/msgqjobs_{prefix}/golden")) == [0, 1]
        file = read_file(prefix)
    header = read("mq_queue", file)
    assert (header["ready_count"], header["delay_count"]) == (2, 2)
    for slot, take in ((0, 1), (1, 3)):
        assert words(file[WORDS : WORDS + 16])[slot] == 1 << 61 | taken_word(row=1, generation=1, take=take)
        check_lease(read("mq_queue_slot_header", file, WORDS + 64 + slot * HEAD_BYTES)["lease"], take, row=1)


def test_queue_file_with_events_has_golden_bytes(prefix: str) -> None:
    subscriber = msgq.Node("reader").subscribe("golden:events")
    with MessageQueue("golden", max_messages=2, max_message_size=64, events=True) as queue:
        queue.send(b"first", 3)
        before = clock.time_ns()
        job = queue.take(0)
        assert job
        file = read_file(prefix)
        assert read("mq_queue", file)["events"] == CONSTANTS["MQ_QUEUE_EVENTS_HEADS"]
        head = read("mq_queue_slot_header", file, WORDS + 64)
        assert head["taken_by"] == taken_word(row=0, generation=1, take=1)
        assert before <= head["taken_time"] <= clock.time_ns()
        assert "events_lost" not in read_row(file)
        sent, taken = (read("mq_queue_event", data) for data in subscriber.receive_many())
        same = {"priority": 3, "number": 1, "sent_time": job.sent_time, "size": 5, "pid": os.getpid()}
        assert sent == {"event": 1, "publish_time": job.sent_time, **same}
        times = dict.fromkeys(["publish_time", "taken_time"], head["taken_time"])
        assert taken == {"event": 2, "deliveries": 1, **times, **same}
        queue.unlink()
    with MessageQueue("golden", events="payload") as queue:
        assert read("mq_queue", read_file(prefix))["events"] == CONSTANTS["MQ_QUEUE_EVENTS_PAYLOAD"]
        queue.unlink()
    subscriber.close()


def test_queue_with_unknown_event_mode_has_no_events(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqjobs_{prefix}/golden")
    MessageQueue("golden", events=True).close()
    for value in (0, 3, 2**64 - 1):
        with path.open("r+b") as file:
            file.seek(offset_of("mq_queue", "events"))
            file.write(value.to_bytes(8, "little"))
        with MessageQueue("golden") as queue:
            assert queue.events is None
            queue.send(b"message")
            assert queue.receive(0) == (b"message", 0)


def test_queue_file_after_close_of_handles_has_golden_bytes(prefix: str) -> None:
    with MessageQueue("golden", max_messages=1) as queue:
        queue.send(b"message", 3)
        queue.take(0)
        with pytest.raises(msgq.errors.QueueFullError):
            queue.send(b"more", timeout=0)
    counts = {"sent": 1, "received": 1, "returned": 1, "refused": 1}
    file = read_file(prefix)
    row = read_row(file)
    assert "uid" not in read_identity(row)[0], "the row is free"
    assert (row["take_count"], read("mq_queue_handle_counts", row["counts"])) == (1, counts)
    assert words(file[WORDS : WORDS + 8]) == (ready_word(3, 0),), "what was taken is back"
    assert read("mq_queue", file)["ready_count"] == 2, "which counts as a transition to READY"
    with MessageQueue("golden"):
        row = read_row(read_file(prefix))
    assert read_identity(row)[1] == 2, "the next generation"
    assert read("mq_queue_handle_counts", row["counts_before"]) == counts
    assert row["take_count"] == 1, "it goes on"


def test_queue_file_with_notification_has_golden_bytes(prefix: str) -> None:
    with MessageQueue("golden") as queue, QueueNotification(queue) as notification:
        assert words(read("mq_queue", read_file(prefix))["notify_requested"]) == (1, 0), "row 0"
        queue.send(b"to the empty queue")
        assert read("mq_queue", read_file(prefix))["notify_seq"] == 1
        assert notification.consume()
        queue.send(b"in company")
        assert read("mq_queue", read_file(prefix))["notify_seq"] == 1
        assert not notification.consume()
    assert "notify_requested" not in read("mq_queue", read_file(prefix))


def test_queue_file_with_schema_has_golden_bytes(prefix: str) -> None:
    with MessageQueue("golden", schema=msgq.Schema("Job", "json", b"{}")):
        schema = read("mq_schema", read("mq_queue", read_file(prefix))["schema"])
    assert schema.pop("seq") % 2 == 0
    assert (schema["name"], schema["encoding"]) == (text("Job", 192), text("json", 48))


def test_queue_file_with_waiting_calls_has_golden_bytes(prefix: str) -> None:
    with MessageQueue("golden", max_messages=1) as queue:
        task = Task(lambda: queue.receive(timeout=60))
        task.wait_asleep()
        header, row = read("mq_queue", read_file(prefix)), read_row(read_file(prefix))
        assert words(header["sleeping_rows"]) == (1, 0, 0, 0, 0, 0), "row 0 receives"
        assert (row["eventcounts"][:4], words(row["oldest_ticket"])) == (b"\1\0\0\0", (1, 0, 0))
        queue.send(b"message")
        task.result()
        queue.send(b"message")
        with pytest.raises(msgq.errors.QueueFullError):
            queue.send(b"more", timeout=0.001)
        header, row = read("mq_queue", read_file(prefix)), read_row(read_file(prefix))
    assert header["last_ticket"] == 2
    assert not header.keys() & {"sleeping_rows", "handoff_ticket"}
    assert row["eventcounts"][:4] == bytes([CONSTANTS["MQ_EVENTCOUNT_WAKE"], 0, 0, 0]), "one wake"
    assert words(row["oldest_ticket"]) == (1, 0, 2), "of those who receive, watch and send"
