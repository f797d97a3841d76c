"""The bytes of all files, pinned: by the compiler, by what the library writes, and in docs/internals/layout.md.

A failure means that other processes would misread the files: stock programs the ring, other versions of this library
the side segment or the gate (which then need another MQ_SIDE_VERSION or MQ_GATE_VERSION). Those of channels are in
test_channel_layout.py.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.impl.base import clock
from msgq.impl.ring import PubSocket
from tests.meta.sources import INTERNALS
from tools.fuzz.build import ROOT, compile_program

# struct, field: offset, size
GOLDEN: dict[str, dict[str, tuple[int, int | None]]] = {
    "mq_ring_header": {
        "num_readers": (0, 8),
        "write_pointer": (8, 8),
        "write_uid": (16, 8),
        "read_pointers": (24, 120),
        "read_valids": (144, 120),
        "read_uids": (264, 120),
        "": (0, 384),
    },
    "mq_ring_side": {
        "magic": (0, 8),
        "version": (8, 8),
        "total_bytes": (16, 8),
        "publisher_count": (24, 8),
        "subscriber_count": (32, 8),
        "ring_inode": (40, 8),
        "ring_data_bytes": (48, 8),
        "created_ns": (56, 8),
        "eventcount": (64, 4),
        "size_unasked": (68, 4),
        "enlarged_from": (72, 8),
        "size_pid": (80, 8),
        "size_by": (88, 16),
        "eventcount_pad": (104, 24),
        "write_limit": (128, 8),
        "checkpoint_even": (136, 24),
        "grant_seq": (160, 8),
        "checkpoint_odd": (168, 24),
        "schema_seq": (192, 8),
        "schema_bytes": (200, 8),
        "schema_shadow": (208, 8),
        "ring_canary": (216, 8),
        "tracked": (224, 8),
        "uncounted": (232, 8),
        "schema_begins": (240, 16),
        "publishers": (256, 2048),
        "subscribers": (2304, 16384),
        "schema_name": (18688, 192),
        "schema_encoding": (18880, 48),
        "schema_data": (18928, None),
    },
    "mq_participant": {
        "uid": (0, 8),
        "pid": (8, 8),
        "thread_id": (16, 8),
        "start_time": (24, 8),
        "pid_namespace": (32, 8),
        "name": (40, 16),
        "locked_uid": (56, 8),
        "": (0, 64),
    },
    "mq_versioned_row": {"participant": (0, 64), "generation": (64, 8), "": (0, 72)},
    "mq_clock": {"magic": (0, 8), "version": (8, 8), "offset_ns": (16, 8), "reserved": (24, 40), "": (0, 64)},
    "mq_origin": {"magic": (0, 8), "version": (8, 8), "last": (16, 8), "reserved": (24, 40), "": (0, 64)},
    "mq_stamps": {"publish_time": (0, 8), "origin_time": (8, 8), "": (0, 16)},
    "mq_ring_checkpoint_words": {"position": (0, 8), "sequence": (8, 8), "era": (16, 8), "": (0, 24)},
    "mq_ring_publisher_row": {
        "participant": (0, 64),
        "begun": (64, 8),
        "sent": (72, 8),
        "bytes": (80, 8),
        "bridge_uid": (88, 8),
        "reserved": (96, 32),
        "": (0, 128),
    },
    "mq_schema": {
        "seq": (0, 8),
        "bytes": (8, 8),
        "shadow": (16, 8),
        "pad": (24, 40),
        "name": (64, 192),
        "encoding": (256, 48),
        "": (0, 304),
    },
    "mq_schema_shadow": {"bytes": (0, 8), "name": (8, 192), "encoding": (200, 48), "data": (248, None)},
    "mq_fake_event": {"count": (0, 4), "count_pad": (4, 4), "fifo_inode": (8, 8), "reserved": (16, 48), "": (0, 64)},
    "mq_event_gate": {
        "magic": (0, 8),
        "version": (8, 8),
        "total_bytes": (16, 8),
        "pid": (24, 8),
        "start_time": (32, 8),
        "pid_namespace": (40, 8),
        "enabled": (48, 4),
        "closed": (52, 4),
        "held": (56, 8),
        "recv_called": (64, 64),
        "recv_ready": (128, 64),
        "": (0, 192),
    },
    "mq_ring_subscriber_row": {
        "participant": (0, 64),
        "cursor": (64, 8),
        "received": (72, 8),
        "lost": (80, 8),
        "lost_unknown": (88, 8),
        "resets": (96, 8),
        "base_sequence": (104, 8),
        "base_tag": (112, 8),
        "reserved": (120, 8),
        "": (0, 128),
    },
}
CONSTANTS = {
    "MQ_READER_SLOTS": 15,
    "MQ_RING_HEADER": 384,
    "MQ_SIDE_MAGIC": 0x3145444953515347,
    "MQ_SIDE_VERSION": 1,
    "MQ_SIDE_BYTES": 65536,
    "MQ_RING_PUBLISHERS": 16,
    "MQ_RING_SUBSCRIBERS": 128,
    "MQ_SIDE_TRACKED": 1,
    "MQ_NAME": 16,
    "MQ_SCHEMA_NAME": 192,
    "MQ_SCHEMA_ENCODING": 48,
    "MQ_SCHEMA_DATA_MAX": 46608,
    "MQ_DEFAULT_DATA_BYTES": 1048576,
    "MQ_EVENTCOUNT_WAITERS": 1,
    "MQ_EVENTCOUNT_NOTIFYING": 2,
    "MQ_EVENTCOUNT_SLOTS": 2,
    "MQ_EVENTCOUNT_FLAGS": 3,
    "MQ_EVENTCOUNT_WAKE": 4,
    "MQ_CLOCK_MAGIC": 0x314B434C43515347,
    "MQ_CLOCK_VERSION": 1,
    "MQ_ORIGIN_MAGIC": 0x314E47524F515347,
    "MQ_ORIGIN_VERSION": 1,
    "MQ_GATE_MAGIC": 0x3145544147515347,
    "MQ_GATE_VERSION": 1,
    "MQ_GATE_BYTES": 192,
    "MQ_FAKE_EVENT_SLEEPERS": 1,
    "MQ_FAKE_EVENT_ONE": 2,
}
# Sections of docs/internals/layout.md, and the struct that each has a table of.
SECTIONS = {
    "The ring's header": "mq_ring_header",
    "Stamps": "mq_stamps",
    "The side segment": "mq_ring_side",
    "Who a participant is": "mq_participant",
    "A publisher's row": "mq_ring_publisher_row",
    "A subscriber's row": "mq_ring_subscriber_row",
    "A schema's shadow": "mq_schema_shadow",
    "A schema of a channel, queue or record": "mq_schema",
    "The host's clock": "mq_clock",
    "A user's origins": "mq_origin",
    "The gate": "mq_event_gate",
    "An event": "mq_fake_event",
}


Golden = dict[str, dict[str, tuple[int, int | None]]]
HEADERS = ("base/layout.h", "base/eventcount.h", "ring/layout.h", "gate/layout.h")


def c_program(headers: tuple[str, ...], golden: Golden, constants: dict[str, int]) -> str:
    """Return a program that prints the compiler's view of all that is golden."""
    lines = ["#include <stdio.h>", *(f'#include "{header}"' for header in headers), "int main(void) {"]
    for struct_name, fields in golden.items():
        for field, (_, size) in fields.items():
            offset = f"offsetof({struct_name}, {field})" if field else "(size_t)0"
            what = f"(({struct_name} *)0)->{field}" if field else struct_name
            size_of = f"(long)sizeof({what})" if size is not None else "-1L"
            lines.append(f'    printf("{struct_name} {field or "-"} %zu %ld\\n", {offset}, {size_of});')
    lines += [f'    printf("{name} %llu\\n", (unsigned long long)({name}));' for name in constants]
    return "\n".join([*lines, "    return 0;\n}\n"])


def check_compiled(folder: Path, headers: tuple[str, ...], golden: Golden, constants: dict[str, int]) -> None:
    source = folder / "layout.c"
    source.write_text(c_program(headers, golden, constants))
    program = compile_program(source, folder / "layout")
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = [
        f"{name} {field or '-'} {offset} {-1 if size is None else size}"
        for name, fields in golden.items()
        for field, (offset, size) in fields.items()
    ] + [f"{name} {value}" for name, value in constants.items()]
    assert printed == wanted


def check_complete(headers: tuple[str, ...], golden: Golden, own: frozenset[str] = frozenset()) -> None:
    """Find each struct of the headers among the golden ones, with all its fields, but those in one's `own` memory."""
    text = "\n".join((ROOT / "msgq" / "impl" / name).read_text() for name in headers)
    for body, name in re.findall(r"^typedef struct \{\n(.*?)^\} (\w+);", text, re.DOTALL | re.MULTILINE):
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
        fields = re.findall(r"(\w+)(?:\[[^]]*\])?;", body)
        assert name in own or fields == [field for field in golden[name] if field]


def documented_offsets(page: str, section: str) -> dict[str, tuple[int, int | None]]:
    """Return the offsets and sizes of a section's table."""
    text = (INTERNALS / page).read_text()
    body = re.search(rf"^##+ {section}$(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    assert body, f"docs/{page} has no section {section!r}"
    rows = re.findall(r"^\| (\d+) \| (\d+|rest) \| `(\w+)` \|", body[1], re.MULTILINE)
    return {field: (int(offset), None if size == "rest" else int(size)) for offset, size, field in rows}


def documented_constants(page: str) -> dict[str, int]:
    rows = re.findall(r"^\| `(MQ_\w+)` \| (\w+) \|", (INTERNALS / page).read_text(), re.MULTILINE)
    return {name: int(value, 0) for name, value in rows}


def test_compiled_topic_layout_equals_pinned_offsets(tmp_path: Path) -> None:
    check_compiled(tmp_path, HEADERS, GOLDEN, CONSTANTS)


def test_pinned_topic_layout_contains_each_header_field() -> None:
    """A field that is new in a header must be added above."""
    check_complete(HEADERS, GOLDEN)


@pytest.mark.parametrize("section", SECTIONS)
def test_documented_topic_offsets_equal_pinned_offsets(section: Any) -> None:
    golden = {field: place for field, place in GOLDEN[SECTIONS[section]].items() if field}
    assert documented_offsets("layout.md", section) == golden


def test_documented_topic_constants_equal_pinned_constants() -> None:
    assert documented_constants("layout.md") == CONSTANTS


# ---- what the library writes ----


def words(data: bytes, offset: int, count: int = 1) -> tuple[int, ...]:
    return struct.unpack_from(f"<{count}Q", data, offset)


def position(cycle: int, offset: int) -> int:
    return cycle << 32 | offset


def test_topic_file_has_golden_bytes(prefix: str) -> None:
    schema = msgq.Schema("Point", "json", b'{"x": 0}')
    with msgq.PubSocket() as pub, msgq.sub_sock("golden", segment_size=1024, timeout=0) as sub:
        pub.connect(msgq.context, "golden", schema=schema)
        pub.send(b"abc")
        pub.send(b"01234567")
        pub.send(b"")
        assert sub.receive() == b"abc"
        ring = Path(f"/dev/shm/msgq_{prefix}/golden").read_bytes()
        side = Path(f"/dev/shm/msgqside_{prefix}/golden").read_bytes()
        inode = os.stat(f"/dev/shm/msgq_{prefix}/golden").st_ino
        with msgq.PubSocket() as other:
            other.connect(msgq.context, "golden", schema=msgq.Schema("Line", "json"))
            changed_side = Path(f"/dev/shm/msgqside_{prefix}/golden").read_bytes()

    assert (len(ring), len(side)) == (384 + 1024, 65536)
    (num_readers, write_pointer, write_uid) = words(ring, 0, 3)
    assert (num_readers, write_pointer) == (1, position(0, 16 + 16 + 8))
    uid, pid, thread_id, start_time, namespace = words(side, 256, 5)
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert uid == write_uid
    assert write_uid & 0xFFFFFFFF == thread_id
    assert write_uid >> 32 & 0xFF == 1, "the number of the publisher's entry, plus 1"
    assert (pid, start_time) == (os.getpid(), int(stat[19]))
    assert namespace == os.stat("/proc/self/ns/pid").st_ino
    assert side[296:312].rstrip(b"\0").decode() == Path("/proc/self/comm").read_text().strip()
    assert words(side, 256 + 64, 3) == (3, 3, 11), "begun, sent, bytes"
    assert words(side, 256 + 88, 5) == (~write_uid & (1 << 64) - 1, 0, 0, 0, 0), "bridge_uid: no bridge; reserved"

    reader_uid = words(side, 2304)[0]
    assert words(ring, 264, 15) == (reader_uid, *[0] * 14)
    assert words(ring, 144, 15)[1:] == (0,) * 14
    assert words(side, 2304 + 8) == (os.getpid(),)
    assert words(side, 2304 + 64, 5) == (position(0, 16), 1, 0, 0, 0), "cursor, received, lost, lost_unknown, resets"
    assert words(side, 2304 + 104, 3) == (0, reader_uid, 0), "base, counted (of era 0), reserved"

    data = ring[384:]
    assert data[:11] == bytes.fromhex("0300000000000000") + b"abc"
    assert data[16:32] == bytes.fromhex("0800000000000000") + b"01234567"
    assert data[32:40] == bytes(8), "an empty message is a size of 0"
    assert not any(data[40:-8]), "nothing is written beyond the messages"
    assert any(data[-8:]), "but for the tail"

    assert side[:8] == b"GSQSIDE1"
    assert words(side, 8, 6) == (1, 65536, 16, 128, inode, 1024)
    limit, *even, turn = words(side, 128, 5)
    checkpoint, sequence, era = words(side, 168, 3) if turn % 2 else even
    assert turn > 0
    assert write_pointer <= limit <= position(0, 1024)
    assert checkpoint <= write_pointer
    assert (sequence, era) == ({0: 0, 16: 1, 32: 2, 40: 3}[checkpoint], 0)
    assert words(side, 192, 2)[0] % 2 == 0
    assert words(side, 224, 4) == (0, 0, 0, 0), "tracked, uncounted, schema_begins"
    assert words(side, 192) == (2,), "schema_seq: one change"
    assert words(changed_side, 192) == (4,), "schema_seq: two changes"
    assert words(changed_side, 240, 2) == (position(0, 40), 0), "schema_begins of the second and the first change"
    assert words(side, 200) == (len(schema.data),)
    assert side[18688:18694] == b"Point\0"
    assert side[18880:18885] == b"json\0"
    assert side[18928 : 18928 + 8] == schema.data


def test_topic_page_example_equals_bytes_of_library(prefix: str) -> None:
    page = (INTERNALS / "topic-protocol.md").read_text()
    section = page.partition("\n## An example in bytes\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (\d+) \| `([0-9a-f ]+)` \|", section, re.MULTILINE)
    rows = {int(offset): bytes.fromhex(text) for offset, text in found}
    random_offsets = {16, 384 + 1024 - 8}  # write_uid and the canary
    with (
        msgq.pub_sock("golden", segment_size=1024) as pub,
        msgq.sub_sock("golden", segment_size=1024, timeout=0) as sub,
    ):
        pub.send(b"hello")
        assert sub.receive() == b"hello"
        ring = Path(f"/dev/shm/msgq_{prefix}/golden").read_bytes()
        side = Path(f"/dev/shm/msgqside_{prefix}/golden").read_bytes()
    assert rows.keys() == {8, 384, 392, 397, *random_offsets}
    for offset in rows.keys() - random_offsets:
        assert ring[offset : offset + len(rows[offset])] == rows[offset]
    assert struct.unpack_from("<I", side, 64) == (8,), "two wakes"
    assert words(side, 128, 8) == (0x40, 0, 0, 0, 2, 0, 0, 0), "limit, even checkpoint, grants, odd checkpoint"
    assert words(side, 2304 + 64, 3) == (0x10, 1, 0), "cursor, received, lost"


def test_tracked_topic_file_has_golden_bytes(prefix: str) -> None:
    with msgq.pub_sock("golden", segment_size=1024, tracked=True) as pub:
        pub.send(b"abc", origin_time=0x1122334455667788)
        pub.send(b"")
        stats = pub.stats()
        side = Path(f"/dev/shm/msgqside_{prefix}/golden").read_bytes()
    ring = Path(f"/dev/shm/msgq_{prefix}/golden").read_bytes()
    assert words(side, 224, 4) == (1, 0, 0, 0), "tracked, uncounted, schema_begins"
    assert words(side, 256 + 64, 3) == (2, 2, 3), "begun, sent, bytes: payload only"
    assert (stats.messages, stats.bytes) == (2, 3)
    size, publish_time, origin_time = struct.unpack_from("<Qqq", ring, 384)
    assert (size, origin_time) == (16 + 3, 0x1122334455667788)
    assert abs(publish_time - clock.time_ns()) < 60e9
    assert ring[384 + 24 : 384 + 27] == b"abc"
    size, publish_time, origin_time = struct.unpack_from("<Qqq", ring, 384 + 32)
    assert (size, publish_time) == (16, origin_time)
    assert words(ring, 8) == (position(0, 32 + 24),)


def test_bridged_topic_file_has_golden_bytes(prefix: str) -> None:
    made: Any = PubSocket()  # its stub has nothing private
    with made as pub:
        pub._for_bridge = True
        pub.connect(msgq.context, "golden")
        side = Path(f"/dev/shm/msgqside_{prefix}/golden").read_bytes()
    (uid,) = words(side, 256)
    assert words(side, 256 + 88, 5) == (uid, 0, 0, 0, 0), "bridge_uid, reserved"
    assert side[296:312] == b"msgq bridge".ljust(16, b"\0")


def test_ring_file_after_wrap_has_golden_bytes(prefix: str) -> None:
    with msgq.pub_sock("golden", segment_size=1024) as pub:
        for number in range(11):  # of 96 bytes each in the ring: ten fit into a lap
            pub.send(bytes([number]) * 88)
    ring = Path(f"/dev/shm/msgq_{prefix}/golden").read_bytes()
    num_readers, write_pointer, write_uid = words(ring, 0, 3)
    assert (num_readers, write_pointer, write_uid) == (0, position(1, 96), 0)
    assert ring[384 + 960 : 384 + 968] == b"\xff" * 8, "the wrap mark"
    assert ring[384 : 384 + 96] == struct.pack("<Q", 88) + bytes([10]) * 88
    assert ring[384 + 96 : 384 + 192] == struct.pack("<Q", 88) + bytes([1]) * 88


def test_clock_file_has_golden_bytes() -> None:
    before = time.time_ns() - time.monotonic_ns()
    assert abs(clock.offset_ns() - before) < 3600e9, "taken from the wall clock in this boot"
    found = Path("/dev/shm/msgqclock").read_bytes()
    assert len(found) == 64
    assert found[:8] == b"GSQCLCK1"
    assert words(found, 8) == (1,)
    assert struct.unpack_from("<q", found, 16) == (clock.offset_ns(),)
    assert not any(found[24:])


def test_origin_file_has_golden_bytes() -> None:
    made = clock.new_origin_time()
    path = Path(f"/dev/shm/msgqorigin_{os.geteuid()}")
    found = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(found) == 64
    assert found[:8] == b"GSQORGN1"
    assert words(found, 8) == (1,)
    assert made <= words(found, 16)[0] <= clock.time_ns() + 10**9
    assert not any(found[24:])


def test_event_gate_file_has_golden_bytes(endpoint: str) -> None:
    with msgq.fake_event_handle(endpoint, f"i:{endpoint}", enable=True) as handle:
        handle.recv_called_event.set()
        handle.recv_called_event.set()
        handle.recv_ready_event.set()
        assert handle.recv_ready_event.fd >= 0
        path = Path(f"/dev/shm/msgqgate_:i%3A{endpoint}:{endpoint}")
        gate = path.read_bytes()
        fifo = os.stat(f"{path}:ready").st_ino
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert gate[:8] == b"GSQGATE1"
    assert words(gate, 8, 2) == (1, 192)
    assert words(gate, 24, 3) == (os.getpid(), int(stat[19]), os.stat("/proc/self/ns/pid").st_ino)
    assert struct.unpack_from("<4I", gate, 48) == (1, 0, 1, 0), "enabled, closed, held"
    assert words(gate, 64, 8) == (2 * 2, *[0] * 7), "recv_called: two sets, no sleeper, no FIFO"
    assert words(gate, 128, 8) == (2, fifo, *[0] * 6), "recv_ready: one set, and its FIFO"
