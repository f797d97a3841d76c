"""The bytes that the library writes into the files of docs/internals/layout.md: topics, clock, origins and gates."""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from pathlib import Path
from typing import Any

import msgq
from msgq.impl.base import clock
from msgq.impl.ring import PubSocket
from tests.meta.layouts import (
    CONSTANTS,
    locked_bytes,
    offset_of,
    own_identity,
    process_name,
    read,
    read_rows,
    start_time,
    text,
    words,
)
from tests.meta.sources import section

DATA = CONSTANTS["MQ_RING_HEADER"]
MASK_64 = (1 << 64) - 1


def position(cycle: int, offset: int) -> int:
    return cycle << 32 | offset


def read_topic(prefix: str) -> tuple[bytes, bytes]:
    """Return the bytes of the topic's ring and of its side segment."""
    ring, side = (Path(f"/dev/shm/{start}_{prefix}/golden").read_bytes() for start in ("msgq", "msgqside"))
    return ring, side


def read_publisher(side: bytes) -> dict[str, Any]:
    """Return the only publisher's row."""
    return read_rows("mq_ring_publisher_row", read("mq_ring_side", side)["publishers"])[0]


def test_topic_file_has_golden_bytes(prefix: str) -> None:
    schema = msgq.Schema("Point", "json", b'{"x": 0}')
    with msgq.PubSocket() as pub, msgq.sub_sock("golden", segment_size=1024, timeout=0) as sub:
        pub.connect(msgq.context, "golden", schema=schema)
        pub.send(b"abc")
        pub.send(b"01234567")
        pub.send(b"")
        assert sub.receive() == b"abc"
        ring, side = read_topic(prefix)
        inode = os.stat(f"/dev/shm/msgq_{prefix}/golden").st_ino
        assert locked_bytes(Path(f"/dev/shm/msgqside_{prefix}/golden")) == [0, 16]
        with msgq.PubSocket() as other:
            other.connect(msgq.context, "golden", schema=msgq.Schema("Line", "json"))
            changed = read("mq_ring_side", read_topic(prefix)[1])

    assert (len(ring), len(side)) == (DATA + 1024, CONSTANTS["MQ_SIDE_BYTES"])
    header, found = read("mq_ring_header", ring), read("mq_ring_side", side)
    publisher, subscriber = read_publisher(side), read_rows("mq_ring_subscriber_row", found.pop("subscribers"))[0]
    newest = position(0, 16 + 16 + 8)
    assert header.pop("write_uid") == (uid := own_identity(publisher.pop("participant")))
    assert words(header.pop("read_uids")) == ((reader_uid := own_identity(subscriber.pop("participant"))), *[0] * 14)
    assert words(header.pop("read_valids"))[1:] == (0,) * 14
    header.pop("read_pointers", None)  # this field may be late
    assert header == {"num_readers": 1, "write_pointer": newest}

    assert uid & 0xFFFFFFFF == threading.get_native_id(), "the low half of a publisher's uid"
    assert uid >> 32 & 0xFF == 1, "the number of the publisher's row, plus 1"
    assert publisher == {"begun": 3, "sent": 3, "bytes": 11, "bridge_uid": ~uid & MASK_64}, "no bridge"
    assert subscriber == {"cursor": position(0, 16), "received": 1, "base_tag": reader_uid}, "nothing lost, era 0"

    data = ring[DATA:]
    assert data[:11] == bytes.fromhex("0300000000000000") + b"abc"
    assert data[16:32] == bytes.fromhex("0800000000000000") + b"01234567"
    assert not any(data[32:-8]), "an empty message is a size of 0, and nothing is written beyond the messages"
    assert struct.unpack("<Q", data[-8:])[0] == found.pop("ring_canary"), "but for the tail"

    assert side[:8] == b"GSQSIDE1"
    assert abs(found.pop("created_ns") - clock.time_ns()) < 60e9
    assert newest <= found.pop("write_limit") <= position(0, 1024)
    turn = found.pop("grant_seq")
    even, odd = found.pop("checkpoint_even", b""), found.pop("checkpoint_odd", b"")
    checkpoint = read("mq_ring_checkpoint_words", (odd if turn % 2 else even) or bytes(24))
    sequences: dict[int, dict[str, int]] = {
        at: {"position": at, "sequence": number} for at, number in ((16, 1), (32, 2), (40, 3))
    }
    assert checkpoint == sequences.get(checkpoint.get("position", 0), {}), "era 0"
    del found["publishers"], found["eventcount"]
    assert found == {
        "magic": CONSTANTS["MQ_SIDE_MAGIC"],
        "version": 1,
        "total_bytes": len(side),
        "publisher_count": 16,
        "subscriber_count": 128,
        "ring_inode": inode,
        "ring_data_bytes": 1024,
        "size_pid": os.getpid(),
        "size_by": text(process_name(), 16),
        "schema_seq": 2,
        "schema_bytes": len(schema.data),
        "schema_shadow": found["schema_shadow"],
        "schema_name": text("Point", 192),
        "schema_encoding": text("json", 48),
        "schema_data": found["schema_data"],
    }
    assert found["schema_data"][:8] == schema.data
    assert changed["schema_seq"] == 4, "two changes"
    assert words(changed["schema_begins"]) == (newest, 0), "of the second and the first change"


def test_topic_page_example_equals_bytes_of_library(prefix: str) -> None:
    example = section("topic-protocol.md", "An example in bytes")
    found = re.findall(r"^\| (\d+) \| `([0-9a-f ]+)` \|", example, re.MULTILINE)
    rows = {int(offset): bytes.fromhex(text) for offset, text in found}
    random_offsets = {offset_of("mq_ring_header", "write_uid"), DATA + 1024 - 8}  # and the canary
    with (
        msgq.pub_sock("golden", segment_size=1024) as pub,
        msgq.sub_sock("golden", segment_size=1024, timeout=0) as sub,
    ):
        pub.send(b"hello")
        assert sub.receive() == b"hello"
        ring, side = read_topic(prefix)
    assert rows.keys() == {8, DATA, DATA + 8, DATA + 13, *random_offsets}
    for offset in rows.keys() - random_offsets:
        assert ring[offset : offset + len(rows[offset])] == rows[offset]
    header = read("mq_ring_side", side)
    assert header["eventcount"] == 2 * CONSTANTS["MQ_EVENTCOUNT_WAKE"]
    assert (header["write_limit"], header["grant_seq"]) == (0x40, 2)
    assert not header.keys() & {"checkpoint_even", "checkpoint_odd"}
    subscriber = read_rows("mq_ring_subscriber_row", header["subscribers"])[0]
    assert (subscriber["cursor"], subscriber["received"]) == (0x10, 1)


def test_tracked_topic_file_has_golden_bytes(prefix: str) -> None:
    with msgq.pub_sock("golden", segment_size=1024, tracked=True) as pub:
        pub.send(b"abc", origin_time=0x1122334455667788)
        pub.send(b"")
        stats = pub.stats()
        ring, side = read_topic(prefix)
    assert read("mq_ring_side", side)["tracked"] == CONSTANTS["MQ_SIDE_TRACKED"]
    publisher = read_publisher(side)
    assert (publisher["begun"], publisher["sent"], publisher["bytes"]) == (2, 2, 3), "payload only"
    assert (stats.messages, stats.bytes) == (2, 3)
    data = ring[DATA:]
    first, second = read("mq_stamps", data, 8), read("mq_stamps", data, 32 + 8)
    assert (words(data[:8]), first["origin_time"], data[24:27]) == ((16 + 3,), 0x1122334455667788, b"abc")
    assert abs(first["publish_time"] - clock.time_ns()) < 60e9
    assert words(data[32:40]) == (16,)
    assert second["publish_time"] == second["origin_time"]
    assert read("mq_ring_header", ring)["write_pointer"] == position(0, 32 + 24)


def test_bridged_topic_file_has_golden_bytes(prefix: str) -> None:
    made: Any = PubSocket()  # its stub has nothing private
    with made as pub:
        pub._for_bridge = True
        pub.connect(msgq.context, "golden")
        publisher = read_publisher(read_topic(prefix)[1])
    identity = read("mq_participant", publisher.pop("participant"))
    assert publisher == {"bridge_uid": identity["uid"]}
    assert identity["name"] == text("msgq bridge", 16)


def test_ring_file_after_wrap_has_golden_bytes(prefix: str) -> None:
    with msgq.pub_sock("golden", segment_size=1024) as pub:
        for number in range(11):  # messages of 96 bytes each in the ring: ten fit into a lap
            pub.send(bytes([number]) * 88)
    ring, _ = read_topic(prefix)
    assert read("mq_ring_header", ring) == {"write_pointer": position(1, 96)}, "no reader, and no publisher"
    data = ring[DATA:]
    assert data[960:968] == b"\xff" * 8, "the wrap mark"
    assert data[:96] == struct.pack("<Q", 88) + bytes([10]) * 88
    assert data[96:192] == struct.pack("<Q", 88) + bytes([1]) * 88


def test_clock_file_has_golden_bytes() -> None:
    before = time.time_ns() - time.monotonic_ns()
    assert abs(clock.offset_ns() - before) < 3600e9, "taken from the wall clock in this boot"
    found = Path("/dev/shm/msgqclock").read_bytes()
    assert (len(found), found[:8]) == (64, b"GSQCLCK1")
    magic = CONSTANTS["MQ_CLOCK_MAGIC"]
    assert read("mq_clock", found) == {"magic": magic, "version": 1, "offset_ns": clock.offset_ns()}


def test_origin_file_has_golden_bytes() -> None:
    made = clock.new_origin_time()
    path = Path(f"/dev/shm/msgqorigin_{os.geteuid()}")
    found = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert (len(found), found[:8]) == (64, b"GSQORGN1")
    origins = read("mq_origin", found)
    assert made <= origins.pop("last") <= clock.time_ns() + 10**9
    assert origins == {"magic": CONSTANTS["MQ_ORIGIN_MAGIC"], "version": 1}


def test_event_gate_file_has_golden_bytes(endpoint: str) -> None:
    with msgq.fake_event_handle(endpoint, f"i:{endpoint}", enable=True) as handle:
        handle.recv_called_event.set()
        handle.recv_called_event.set()
        handle.recv_ready_event.set()
        assert handle.recv_ready_event.fd >= 0
        path = Path(f"/dev/shm/msgqgate_:i%3A{endpoint}:{endpoint}")
        file = path.read_bytes()
        fifo = os.stat(f"{path}:ready").st_ino
    assert file[:8] == b"GSQGATE1"
    gate = read("mq_event_gate", file)
    one = CONSTANTS["MQ_FAKE_EVENT_ONE"]
    assert read("mq_fake_event", gate.pop("recv_called")) == {"count": 2 * one}, "no sleeper, no FIFO"
    assert read("mq_fake_event", gate.pop("recv_ready")) == {"count": one, "fifo_inode": fifo}
    assert gate == {
        "magic": CONSTANTS["MQ_GATE_MAGIC"],
        "version": 1,
        "total_bytes": 192,
        "pid": os.getpid(),
        "start_time": start_time(),
        "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
        "enabled": 1,
        "held": 1,
    }
