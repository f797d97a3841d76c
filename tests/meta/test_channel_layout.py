"""The bytes that the library writes into the files of docs/internals/channel-protocol.md: channels and pools."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import msgq
from msgq.impl.base import clock
from tests.meta.layouts import CONSTANTS, locked_bytes, own_identity, read, read_rows, size_of, text, words


def read_channel(prefix: str) -> dict[str, Any]:
    return read("mq_channel_header", Path(f"/dev/shm/msgqchan_{prefix}/golden").read_bytes())


def entry(position: int, row: int, slot: int) -> int:
    return position << 20 | row << 14 | slot


def test_channel_file_has_golden_bytes(prefix: str) -> None:
    before = clock.offset_ns() + time.monotonic_ns()
    channel = msgq.Channel("golden", capacity=4, publishers=3, subscribers=2, node="tester")
    with channel.subscriber() as sub, channel.publisher(slots=3, slot_bytes=10) as pub:
        for number in range(5):
            pub.send(bytes(number))
        assert sub.receive(0) == bytes(2), "position 4 was overwritten, 5 retracted: three slots are less than four"
        view = sub.receive_view(0)
        assert view
        assert view.position == 7
        found = read_channel(prefix)
        (pool,) = Path(f"/dev/shm/msgqpool_{prefix}").iterdir()
        pool_inode = pool.stat().st_ino
        assert locked_bytes(Path(f"/dev/shm/msgqchan_{prefix}/golden")) == [0, 64, 128, 192]
        view.release()
    assert Path(f"/dev/shm/msgqchan_{prefix}/golden").read_bytes()[:8] == b"GSQCHAN1"
    assert before <= found.pop("created_ns") <= clock.offset_ns() + time.monotonic_ns()
    publishers = read_rows("mq_channel_publisher_row", found.pop("publishers"))
    viewers = read_rows("mq_channel_viewer_row", found.pop("viewers"))
    subscribers = read_rows("mq_channel_subscriber_row", found.pop("subscribers"))
    assert publishers.keys() == viewers.keys() == subscribers.keys() == {0}
    entries = entry(8, 0, 1), entry(5, 63, 0), entry(6, 0, 2), entry(7, 0, 0)
    assert words(found.pop("entries")) == (*entries, *[0] * (CONSTANTS["MQ_CHANNEL_CAPACITY_MAX"] - 4))
    assert found == {  # no kind, and nobody has slept
        "magic": CONSTANTS["MQ_CHANNEL_MAGIC"],
        "version": 1 << 32,
        "header_bytes": 4096,
        "total_bytes": 151552,
        "creator_pid": os.getpid(),
        "creator": text("tester", 64),
        "config": 4 | 3 << 16 | 2 << 24 | CONSTANTS["MQ_CHANNEL_STAMPED"] << 32,
        "tail": 4 + 5,
    }
    uid = own_identity(publishers[0].pop("participant"))
    assert publishers[0] == {
        "pool_uid": uid,
        "slots": 3,
        "slot_bytes": 10,
        "pool_bytes": 4096 + 3 * 128,
        "pool_inode": pool_inode,
        "node": text("tester", 48),
        "sent": 5,
        "bytes": 10,
        "evicted": 2,
    }
    own_identity(viewers[0]["participant"])
    own_identity(subscribers[0].pop("participant"))
    counts = {"cursor": 8, "received": 2, "lost": 2, "resets": 1, "views_held": 1}
    assert subscribers[0] == {"node": text("tester", 48), "viewer": 1, "joined": 4, **counts}


def test_new_channel_file_has_golden_bytes(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json", b"{}")
    with msgq.Channel("golden", capacity=2, schema=schema) as channel:
        assert read_channel(prefix)["config"] == 2, "other values are not set"
        channel.publisher().close()
        found = read_channel(prefix)
    assert words(found["entries"])[:3] == (entry(0, 63, 0), entry(1, 63, 0), 0)
    assert found["config"] == 2 | 63 << 16 | 255 << 24 | CONSTANTS["MQ_CHANNEL_STAMPED"] << 32, "the defaults"
    block = read("mq_schema", found["schema"])
    assert block.pop("seq") % 2 == 0
    block.pop("shadow", None)
    assert block == {"bytes": 144 + 2, "name": text("Pose", 192), "encoding": text("json", 48)}
    fingerprints = hashlib.sha256(b"Pose").digest(), hashlib.sha256(b"json\0{}").digest()
    marks = bytes(8) + b"".join(digest.ljust(64, b"\0") for digest in fingerprints) + bytes([32, 32, *[0] * 6])
    assert found["schema_data"][: 144 + 2] == marks + b"{}"


def test_pool_file_has_golden_bytes(prefix: str) -> None:
    channel = msgq.Channel("golden", capacity=4, node="tester")
    inode = os.stat(f"/dev/shm/msgqchan_{prefix}/golden").st_ino
    with channel.subscriber() as sub, channel.publisher(slots=3, slot_bytes=70) as pub:
        pub.send(b"0123456789", origin_time=7)
        view = sub.receive_view(0)
        assert view
        (path,) = Path(f"/dev/shm/msgqpool_{prefix}").iterdir()
        file = path.read_bytes()
        view.release()
    stride = 64 + 128  # the slot's head, and its payload in whole lines
    assert (len(file), file[:8]) == (4096 + 3 * stride, b"GSQPOOL1")
    pool = read("mq_pool_header", file)
    uid = pool.pop("uid")
    assert path.name == f"golden:{uid:016x}"
    pins = pool.pop("pins")[: 3 * size_of("mq_pool_pin")]
    assert read_rows("mq_pool_pin", pins) == {0: {"holders": 1}}, "viewer 0 holds the first slot"
    assert pool == {
        "magic": CONSTANTS["MQ_POOL_MAGIC"],
        "version": 1,
        "total_bytes": len(file),
        "slots": 3,
        "slot_bytes": 70,
        "data_offset": 4096,
        "channel_inode": inode,
        "pid": os.getpid(),
        "node": text("tester", 48),
    }
    slot = {"length": 10, "publish_time": view.publish_time, "origin_time": 7}
    assert read("mq_pool_slot", file, 4096) == slot
    assert file[4096 + 64 :] == text("0123456789", 3 * stride - 64)
