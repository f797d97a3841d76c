"""The bytes of a channel's files, fixed like those of topics (test_layout.py), and docs/internals/channel-protocol.md.

A failure means that other versions of this library would misread the files: raise MQ_CHANNEL_MAJOR or MQ_POOL_VERSION.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.impl.base import clock
from tests.meta.test_layout import (
    Golden,
    check_compiled,
    check_complete,
    documented_constants,
    documented_offsets,
    words,
)

HEADERS = ("channel/pool.h", "channel/layout.h")
OWN = frozenset({"mq_pool_map", "mq_channel_config"})  # structs of these headers that are in no file
GOLDEN: Golden = {
    "mq_channel_header": {
        "magic": (0, 8),
        "version": (8, 8),
        "header_bytes": (16, 8),
        "total_bytes": (24, 8),
        "created_ns": (32, 8),
        "creator_pid": (40, 8),
        "kind": (48, 8),
        "reserved": (56, 8),
        "creator": (64, 64),
        "config": (128, 8),
        "pad0": (136, 120),
        "tail": (256, 8),
        "pad1": (264, 56),
        "eventcount": (320, 4),
        "pad2": (324, 60),
        "room": (384, 3712),
        "publishers": (4096, 16128),
        "pad3": (20224, 256),
        "viewers": (20480, 4096),
        "subscribers": (24576, 12288),
        "entries": (36864, 65536),
        "schema": (102400, 304),
        "schema_data": (102704, 48848),
        "": (0, 151552),
    },
    "mq_channel_publisher_row": {
        "participant": (0, 64),
        "pool_uid": (64, 8),
        "slots": (72, 8),
        "slot_bytes": (80, 8),
        "pool_bytes": (88, 8),
        "pool_inode": (96, 8),
        "superseded": (104, 8),
        "reserved": (112, 16),
        "node": (128, 48),
        "pad": (176, 16),
        "sent": (192, 8),
        "bytes": (200, 8),
        "refused": (208, 8),
        "evicted": (216, 8),
        "room": (224, 32),
        "": (0, 256),
    },
    "mq_channel_viewer_row": {"participant": (0, 64), "": (0, 64)},
    "mq_channel_subscriber_row": {
        "participant": (0, 64),
        "node": (64, 48),
        "viewer": (112, 8),
        "joined": (120, 8),
        "cursor": (128, 8),
        "received": (136, 8),
        "lost": (144, 8),
        "resets": (152, 8),
        "views_held": (160, 8),
        "room": (168, 24),
        "": (0, 192),
    },
    "mq_pool_header": {
        "magic": (0, 8),
        "version": (8, 8),
        "total_bytes": (16, 8),
        "slots": (24, 8),
        "slot_bytes": (32, 8),
        "data_offset": (40, 8),
        "channel_inode": (48, 8),
        "uid": (56, 8),
        "pid": (64, 8),
        "node": (72, 48),
        "reserved": (120, 8),
        "slot_released": (128, 4),
        "pad": (132, 60),
        "pins": (192, None),
    },
    "mq_pool_pin": {"holders": (0, 8), "pad": (8, 56), "": (0, 64)},
    "mq_pool_slot": {
        "length": (0, 8),
        "publish_time": (8, 8),
        "origin_time": (16, 8),
        "reserved": (24, 40),
        "": (0, 64),
    },
}
CONSTANTS = {
    "MQ_CHANNEL_MAGIC": 0x314E414843515347,
    "MQ_CHANNEL_MAJOR": 1,
    "MQ_CHANNEL_MINOR": 0,
    "MQ_CHANNEL_CREATOR_BYTES": 64,
    "MQ_CHANNEL_PUBLISHERS": 63,
    "MQ_CHANNEL_VIEWERS": 64,
    "MQ_CHANNEL_SUBSCRIBERS": 64,
    "MQ_CHANNEL_CAPACITY_MAX": 8192,
    "MQ_CHANNEL_PUBLISHER_BYTE": 0,
    "MQ_CHANNEL_VIEWER_BYTE": 64,
    "MQ_CHANNEL_SUBSCRIBER_BYTE": 128,
    "MQ_CHANNEL_OPEN_BYTE": 192,
    "MQ_CHANNEL_ANY_SUBSCRIBERS": 255,
    "MQ_CHANNEL_UNSTAMPED": 1,
    "MQ_CHANNEL_STAMPED": 2,
    "MQ_CHANNEL_PUBSUB": 0,
    "MQ_CHANNEL_BROADCAST": 1,
    "MQ_CHANNEL_MAILBOX": 2,
    "MQ_INDEX_RING_SHIFT": 20,
    "MQ_INDEX_RING_SLOT_BITS": 14,
    "MQ_INDEX_RING_ROW_BITS": 6,
    "MQ_INDEX_RING_RETRACTED": 63,
    "MQ_POOL_MAGIC": 0x314C4F4F50515347,
    "MQ_POOL_VERSION": 1,
    "MQ_POOL_SLOTS_MAX": 16384,
    "MQ_NODE_NAME_BYTES": 48,
}
# Sections of docs/internals/channel-protocol.md, and the struct that each has a table of.
SECTIONS = {
    "The channel file": "mq_channel_header",
    "A publisher's row": "mq_channel_publisher_row",
    "A subscriber's row": "mq_channel_subscriber_row",
    "The pool": "mq_pool_header",
    "A slot": "mq_pool_slot",
}


def test_compiled_channel_layout_equals_pinned_offsets(tmp_path: Path) -> None:
    check_compiled(tmp_path, HEADERS, GOLDEN, CONSTANTS)


def test_pinned_channel_layout_contains_each_header_field() -> None:
    """A field that is new in a header must be added above."""
    check_complete(HEADERS, GOLDEN, OWN)


@pytest.mark.parametrize("section", SECTIONS)
def test_documented_channel_offsets_equal_pinned_offsets(section: Any) -> None:
    assert documented_offsets("channel-protocol.md", section) == {
        k: v for k, v in GOLDEN[SECTIONS[section]].items() if k
    }


def test_documented_channel_constants_equal_pinned_constants() -> None:
    assert documented_constants("channel-protocol.md") == CONSTANTS


# ---- what the library writes ----


def entry(position: int, row: int, slot: int) -> int:
    return position << 20 | row << 14 | slot


def process_words() -> tuple[int, ...]:
    """Return what an identity says of this process behind its uid: pid, thread, start time, PID namespace."""
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    return os.getpid(), threading.get_native_id(), int(start), os.stat("/proc/self/ns/pid").st_ino


def test_channel_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    channel = msgq.Channel("golden", capacity=4, publishers=3, subscribers=2, node="tester")
    path = Path(f"/dev/shm/msgqchan_{prefix}/golden")
    with channel.subscriber() as sub, channel.publisher(slots=3, slot_bytes=10) as pub:
        for number in range(5):
            pub.send(bytes(number))
        assert sub.receive(0) == bytes(2), "position 4 was overwritten, 5 retracted: three slots are less than four"
        view = sub.receive_view(0)
        assert view
        assert view.position == 7
        header = path.read_bytes()
        view.release()
    assert len(header) == 151552
    assert header[:8] == b"GSQCHAN1"
    assert words(header, 8, 3) == (1 << 32, 4096, 151552)
    (created,) = words(header, 32)
    assert before <= created <= clock.offset_ns() + time.monotonic_ns()
    assert words(header, 40, 3) == (os.getpid(), 0, 0), "creator_pid, kind, reserved"
    assert header[64:128] == b"tester".ljust(64, b"\0")
    assert words(header, 128) == (4 | 3 << 16 | 2 << 24 | 2 << 32,)
    assert words(header, 256) == (4 + 5,), "tail"
    assert struct.unpack_from("<I", header, 320) == (0,), "nobody has slept"
    assert words(header, 36864, 5) == (entry(8, 0, 1), entry(5, 63, 0), entry(6, 0, 2), entry(7, 0, 0), 0)
    uid, *process = words(header, 4096, 5)
    assert tuple(process) == process_words()
    assert words(header, 4096 + 56, 5) == (uid, uid, 3, 10, 4096 + 3 * 128), (
        "locked_uid, pool_uid, slots, slot_bytes, bytes"
    )
    assert header[4096 + 128 : 4096 + 176] == b"tester".ljust(48, b"\0")
    assert words(header, 4096 + 192, 4) == (5, 10, 0, 2), "sent, bytes, refused, evicted"
    assert not any(words(header, 4096 + 256, 32)), "the next row"
    assert words(header, 20480 + 8, 4) == process_words(), "a viewer"
    assert words(header, 24576 + 8, 4) == process_words(), "a listener"
    assert header[24576 + 64 : 24576 + 112] == b"tester".ljust(48, b"\0")
    assert words(header, 24576 + 112, 2) == (1, 4), "viewer 0, joined"
    assert words(header, 24576 + 128, 5) == (8, 2, 2, 1, 1), "cursor, received, lost, resets, views_held"


def test_pool_file_has_golden_bytes(prefix: str) -> None:
    channel = msgq.Channel("golden", capacity=4, node="tester")
    inode = os.stat(f"/dev/shm/msgqchan_{prefix}/golden").st_ino
    with channel.subscriber() as sub, channel.publisher(slots=3, slot_bytes=70) as pub:
        pub.send(b"0123456789", origin_time=7)
        view = sub.receive_view(0)
        assert view
        (path,) = Path(f"/dev/shm/msgqpool_{prefix}").iterdir()
        pool = path.read_bytes()
        view.release()
    name, _, uid = path.name.rpartition(":")
    assert (name, len(uid)) == ("golden", 16)
    assert pool[:8] == b"GSQPOOL1"
    stride = 64 + 128  # the slot's head, and its payload in whole lines
    assert words(pool, 8, 8) == (1, 4096 + 3 * stride, 3, 70, 4096, inode, int(uid, 16), os.getpid())
    assert len(pool) == 4096 + 3 * stride
    assert pool[72:120] == b"tester".ljust(48, b"\0")
    assert words(pool, 120, 9) == (0,) * 9
    assert words(pool, 192, 8) == (1, *[0] * 7), "viewer 0 holds the first slot"
    assert words(pool, 256, 16) == (0,) * 16
    assert words(pool, 4096, 8) == (10, view.publish_time, 7, 0, 0, 0, 0, 0)
    assert pool[4096 + 64 : 4096 + 64 + 10] == b"0123456789"
    assert not any(pool[4096 + 64 + 10 :])
