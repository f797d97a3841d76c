"""The bytes of a queue's file, fixed like those of topics (test_layout.py), and docs/internals/queue-protocol.md.

A failure means that other versions of this library would misread the file: raise MQ_QUEUE_MAJOR.
"""

from __future__ import annotations

import os
import re
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq import posix_ipc
from msgq.common import queue_events
from msgq.impl.base import clock
from msgq.impl.workqueue import options
from msgq.impl.workqueue.core import QueueNotification
from msgq.workqueue import MessageQueue
from tests.meta.sources import INTERNALS, ROOT
from tests.meta.test_channel_layout import process_words
from tests.meta.test_layout import (
    Golden,
    check_compiled,
    check_complete,
    documented_constants,
    documented_offsets,
    words,
)

HEADERS = ("workqueue/layout.h",)
OWN = frozenset({"mq_queue_file_parts", "mq_queue_part_offsets"})  # structs of these headers that are in no file
GOLDEN: Golden = {
    "mq_queue": {
        "magic": (0, 8),
        "version": (8, 8),
        "header_bytes": (16, 8),
        "total_bytes": (24, 8),
        "created_ns": (32, 8),
        "creator_pid": (40, 8),
        "max_messages": (48, 8),
        "max_message_size": (56, 8),
        "creator": (64, 64),
        "stride": (128, 8),
        "events": (136, 8),
        "pad0": (144, 112),
        "ready_count": (256, 8),
        "pad1": (264, 56),
        "sleeping_rows": (320, 48),
        "notify_requested": (368, 16),
        "notify_seq": (384, 4),
        "pad2": (388, 60),
        "last_ticket": (448, 8),
        "pad3": (456, 56),
        "handoff_ticket": (512, 24),
        "delay_count": (536, 8),
        "reserved": (544, 3552),
        "rows": (4096, 32768),
        "schema": (36864, 304),
        "schema_data": (37168, 20176),
        "": (0, 57344),
    },
    "mq_queue_row": {
        "at": (0, 72),
        "counts_before": (72, 40),
        "pad": (112, 16),
        "take_count": (128, 8),
        "counts": (136, 40),
        "notify_debt": (176, 16),
        "eventcounts": (192, 12),
        "pad1": (204, 4),
        "events_lost": (208, 8),
        "oldest_ticket": (216, 24),
        "pad2": (240, 16),
        "": (0, 256),
    },
    "mq_queue_handle_counts": {
        "sent": (0, 8),
        "received": (8, 8),
        "acknowledged": (16, 8),
        "returned": (24, 8),
        "refused": (32, 8),
        "": (0, 40),
    },
    "mq_queue_row_bits": {"word": (0, 16), "": (0, 16)},
    "mq_queue_slot_header": {
        "key": (0, 8),
        "length": (8, 8),
        "deliveries": (16, 8),
        "sent_time": (24, 8),
        "origin_time": (32, 8),
        "lease": (40, 8),
        "taken_by": (48, 8),
        "taken_time": (56, 8),
        "": (0, 64),
    },
}
CONSTANTS = {
    "MQ_QUEUE_MAGIC": 0x3153424F4A515347,
    "MQ_QUEUE_MAJOR": 1,
    "MQ_QUEUE_MINOR": 1,
    "MQ_QUEUE_CREATOR_BYTES": 64,
    "MQ_QUEUE_ROWS": 128,
    "MQ_QUEUE_ROW_BYTE": 0,
    "MQ_QUEUE_BLOCK_SLOTS": 64,
    "MQ_QUEUE_MESSAGES_MAX": 65536,
    "MQ_QUEUE_MESSAGE_SIZE_MAX": 1 << 30,
    "MQ_QUEUE_PRIORITY_MAX": 32767,
    "MQ_QUEUE_EVENTS_NONE": 0,
    "MQ_QUEUE_EVENTS_HEADS": 1,
    "MQ_QUEUE_EVENTS_PAYLOAD": 2,
    "MQ_QUEUE_RECEIVER": 0,
    "MQ_QUEUE_WATCHER": 1,
    "MQ_QUEUE_SENDER": 2,
    "MQ_QUEUE_ROLES": 3,
    "MQ_JOB_LEASE_TICK_NS": 10_000_000,
}
# Sections of docs/internals/queue-protocol.md, and the struct that each has a table of.
SECTIONS = {
    "The header": "mq_queue",
    "A row": "mq_queue_row",
    "Counts": "mq_queue_handle_counts",
    "A head": "mq_queue_slot_header",
}


def test_compiled_queue_layout_equals_pinned_offsets(tmp_path: Path) -> None:
    check_compiled(tmp_path, ("workqueue/slot_state.h",), GOLDEN, CONSTANTS)


def test_pinned_queue_layout_contains_each_header_field() -> None:
    """A field that is new in a header must be added above."""
    check_complete(HEADERS, GOLDEN, OWN)


@pytest.mark.parametrize("section", SECTIONS)
def test_documented_queue_offsets_equal_pinned_offsets(section: Any) -> None:
    assert documented_offsets("queue-protocol.md", section) == {k: v for k, v in GOLDEN[SECTIONS[section]].items() if k}


def test_documented_queue_constants_equal_pinned_constants() -> None:
    assert documented_constants("queue-protocol.md") == CONSTANTS


def test_queue_limits_of_python_equal_limits_of_c_headers(tmp_path: Path) -> None:
    assert CONSTANTS["MQ_QUEUE_MESSAGES_MAX"] == options.MESSAGES_MAX
    assert CONSTANTS["MQ_QUEUE_MESSAGE_SIZE_MAX"] == options.MESSAGE_SIZE_MAX
    marks = 8 + 64 + 64 + 1 + 1 + 6  # version, identity, layout, their lengths
    assert GOLDEN["mq_queue"]["schema_data"][1] == options.SCHEMA_DATA_MAX + marks
    assert CONSTANTS["MQ_QUEUE_PRIORITY_MAX"] == options.PRIORITY_MAX
    assert posix_ipc.QUEUE_PRIORITY_MAX == options.PRIORITY_MAX
    max_messages, max_message_size = options.DEFAULT_SIZES
    defaults = {"MQ_QUEUE_DEFAULT_MESSAGES": max_messages, "MQ_QUEUE_DEFAULT_MESSAGE_SIZE": max_message_size}
    check_compiled(tmp_path, ("workqueue/join.h",), {}, defaults)


def test_documented_queue_limits_equal_limits_of_python() -> None:
    """What the page on the protocol says, and what help(MessageQueue) shows."""
    limits = (INTERNALS / "queue-protocol.md").read_text().partition("## Limits")[2]
    assert f"| 1 to {options.MESSAGES_MAX}, {options.DEFAULT_MAX_MESSAGES} by default |" in limits
    assert options.MESSAGE_SIZE_MAX == 2**30
    assert f"which is 1 to 2^30, {options.DEFAULT_MESSAGE_SIZE} by default |" in limits
    assert f"| 0 to {options.PRIORITY_MAX} |" in limits
    assert f"| {CONSTANTS['MQ_QUEUE_ROWS']}, threads may share one |" in limits
    assert f"| {options.SCHEMA_DATA_MAX} bytes of data |" in limits
    contract = " ".join((MessageQueue.__doc__ or "").split())
    assert f"1 to {options.MESSAGES_MAX}; None: {options.DEFAULT_MAX_MESSAGES}." in contract
    assert f"1 to 2^30; None: {options.DEFAULT_MESSAGE_SIZE}." in contract
    assert f"the queue has {CONSTANTS['MQ_QUEUE_ROWS']} open handles" in contract
    assert f"at most {options.SCHEMA_DATA_MAX} bytes of data" in contract
    assert f"0 to {options.PRIORITY_MAX}." in (MessageQueue.send.__doc__ or "")
    assert re.search(rf"\b0 to {options.PRIORITY_MAX}\.", msgq.workqueue.Message.priority.__doc__ or "")


# ---- what the library writes ----

WORDS = 57344 + 64  # behind `entered` of up to 8 blocks


def ready_slot_state(priority: int, order: int) -> int:
    return 1 << 63 | priority << 48 | (1 << 48) - 1 - order


def test_queue_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    path = Path(f"/dev/shm/msgqjobs_{prefix}/golden")
    with MessageQueue("golden", max_messages=70, max_message_size=100) as queue:
        queue.send(b"first", origin_time=5)
        queue.send(b"urgent", 7)
        queue.send(b"third")
        queue.send(b"gone", 9)
        assert queue.receive(0) == (b"gone", 9)
        job = queue.take(0, lease=1000.0)
        assert job
        assert job.data == b"urgent"
        sent_time = job.sent_time
        taken = time.monotonic_ns()
        file = path.read_bytes()
    slot_headers = WORDS + 576  # 70 words in whole lines
    payloads = slot_headers + 70 * 64
    assert len(file) == payloads + 70 * 128
    assert file[:8] == b"GSQJOBS1"
    assert words(file, 8, 3) == (1 << 32 | 1, 57344, len(file))
    (created,) = words(file, 32)
    assert before <= created <= clock.offset_ns() + time.monotonic_ns()
    assert words(file, 40, 3) == (os.getpid(), 70, 100)
    assert file[64:128].rstrip(b"\0").decode() == Path("/proc/self/comm").read_text().strip()
    assert words(file, 128, 2) == (128, 0), "stride; no events"
    assert words(file, 256) == (4,), "ready"
    assert not any(file[320:4096]), "nobody sleeps, or wants to be notified"
    uid, *process = words(file, 4096, 5)
    assert tuple(process) == process_words()
    assert words(file, 4096 + 56, 2) == (uid, 1), "locked_uid, generation"
    assert words(file, 4096 + 72, 7) == (0,) * 7, "nobody had the row before"
    assert words(file, 4096 + 128, 8) == (2, 4, 2, 1, 0, 0, 0, 0), "take; the counts; it owes nothing"
    assert not any(file[4096 + 192 : 4096 + 256]), "it never slept"
    assert not any(file[4096 + 256 : 36864]), "other rows"
    assert words(file, 57344, 2) == (4, 0), "entered"
    row, generation, take = 0, 1, 2
    in_work = 2 << 61 | row << 48 | generation << 32 | take
    assert words(file, WORDS, 5) == (ready_slot_state(0, 0), in_work, ready_slot_state(0, 2), 0, 0)
    first = words(file, slot_headers, 8)
    assert (*first[:3], *first[4:]) == (ready_slot_state(0, 0), 5, 0, 5, 0, 0, 0)
    assert created <= first[3] <= sent_time
    key, length, deliveries, sent, origin, lease = words(file, slot_headers + 64, 6)
    assert (key, length, deliveries, sent, origin) == (ready_slot_state(7, 1), 6, 1, sent_time, 0)
    assert lease & 0xFFFFFFFF == row << 24 | take
    ends = (clock.offset_ns() + taken + 1000 * 10**9) // 10_000_000 & 0xFFFFFFFF
    assert ends - 6000 < lease >> 32 <= ends + 1, "ticks of 10 ms"
    for place, payload in enumerate([b"first", b"urgent", b"third"]):
        at = payloads + place * 128
        assert file[at : at + 128] == payload.ljust(128, b"\0")


def test_queue_file_with_events_has_golden_bytes(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqjobs_{prefix}/golden")
    with MessageQueue("golden", max_messages=2, max_message_size=64, events=True) as queue:
        assert words(path.read_bytes(), 136) == (1,), "slot_headers"
        queue.send(b"first")
        before = clock.time_ns()
        job = queue.take(0)
        file = path.read_bytes()
        assert job
        slot_headers = WORDS + 64
        in_work = 2 << 61 | 0 << 48 | 1 << 32 | 1
        by, taken = words(file, slot_headers + 48, 2)
        assert by == in_work
        assert before <= taken <= clock.time_ns()
        assert words(file, 4096 + 208) == (0,), "none was lost"
        queue.unlink()
    with MessageQueue("golden", events="payload") as queue:
        assert words(path.read_bytes(), 136) == (2,), "payload"
        queue.unlink()


def test_queue_with_unknown_event_mode_has_no_events(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqjobs_{prefix}/golden")
    MessageQueue("golden", events=True).close()
    for value in (0, 3, 2**64 - 1):
        with path.open("r+b") as file:
            file.seek(136)
            file.write(value.to_bytes(8, "little"))
        with MessageQueue("golden") as queue:
            assert queue.events is None
            queue.send(b"message")
            assert queue.receive(0) == (b"message", 0)


def test_queue_events_have_documented_bytes() -> None:
    """The head that headers write, and the one that queue_events tells of."""
    numpy = pytest.importorskip("numpy")
    dtype = numpy.dtype(list(queue_events.EVENT_FIELDS))
    assert dtype.itemsize == struct.calcsize(queue_events.EVENT_HEAD_FORMAT) == queue_events.EVENT_HEAD_BYTES
    text = (ROOT / "msgq" / "impl" / "workqueue" / "events.h").read_text()
    struct_body = re.search(r"typedef struct \{([^}]*)\} mq_queue_event;", text)
    assert struct_body
    kinds = {"uint8_t": "|u1", "uint16_t": "<u2", "uint32_t": "<u4", "uint64_t": "<u8", "int64_t": "<i8"}
    fields = re.findall(r"(u?int\d+_t) (\w+);", struct_body[1])
    assert tuple((name, kinds[kind]) for kind, name in fields) == queue_events.EVENT_FIELDS
    named = re.findall(r"MQ_QUEUE_EVENT_(\w+)", text[text.index("typedef enum") : text.index("mq_queue_event_type")])
    assert named == [event.name for event in queue_events.Event]


def test_queue_file_after_close_of_handles_has_golden_bytes(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqjobs_{prefix}/golden")
    with MessageQueue("golden", max_messages=1) as queue:
        queue.send(b"message", 3)
        queue.take(0)
        with pytest.raises(msgq.errors.QueueFullError):
            queue.send(b"more", timeout=0)
    file = path.read_bytes()
    assert words(file, 4096) == (0,), "the row is free"
    assert words(file, 4096 + 128, 6) == (1, 1, 1, 0, 1, 1), "take, sent, received, acknowledged, returned, refused"
    assert words(file, WORDS) == (ready_slot_state(3, 0),), "what was taken is back"
    assert words(file, 256) == (2,), "which counts in ready"
    with MessageQueue("golden"):
        file = path.read_bytes()
    assert words(file, 4096 + 64, 6) == (2, 1, 1, 0, 1, 1), "the next generation begins with these counts"
    assert words(file, 4096 + 128) == (1,), "take goes on"


def test_queue_file_with_notification_has_golden_bytes(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqjobs_{prefix}/golden")
    with MessageQueue("golden") as queue, QueueNotification(queue) as notification:
        assert words(path.read_bytes(), 368, 2) == (1, 0), "notified: row 0"
        queue.send(b"to the empty queue")
        assert struct.unpack_from("<I", path.read_bytes(), 384) == (1,), "arrived"
        assert notification.consume()
        queue.send(b"in company")
        assert struct.unpack_from("<I", path.read_bytes(), 384) == (1,), "arrived"
        assert not notification.consume()
    assert words(path.read_bytes(), 368, 2) == (0, 0)


def test_queue_file_with_schema_has_golden_bytes(prefix: str) -> None:
    with MessageQueue("golden", schema=msgq.Schema("Job", "json", b"{}")):
        file = Path(f"/dev/shm/msgqjobs_{prefix}/golden").read_bytes()
    assert words(file, 36864)[0] % 2 == 0, "turn"
    assert file[36864 + 64 : 36864 + 68] == b"Job\0"
    assert file[36864 + 256 : 36864 + 261] == b"json\0"


def test_queue_file_after_waiting_call_has_golden_bytes(prefix: str) -> None:
    path = Path(f"/dev/shm/msgqjobs_{prefix}/golden")
    with MessageQueue("golden", max_messages=1) as queue:
        assert queue.receive(0.001) is None
        queue.send(b"message")
        with pytest.raises(msgq.errors.QueueFullError):
            queue.send(b"more", timeout=0.001)
        file = path.read_bytes()
    assert words(file, 448) == (2,), "tickets"
    assert words(file, 512, 3) == (0, 0, 0), "no call has the turn"
    assert words(file, 4096 + 216, 3) == (1, 0, 2), "since: of those who receive, watch and send"
