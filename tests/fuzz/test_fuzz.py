"""Hostile bytes: what may a stranger do to us by writing where we read?

What: a fixed number of cases of each level of `tools.fuzz`, and in `make nightly` as many as fit in a time limit.
Why: every word of a segment can be written by any process of the user, by a bug of a stock program as well; a recording
or a request may come from anybody.
A failure would mean: one bad word in shared memory, in a file or in a request crashes or hangs a process, or makes it
read where it must not. The output names the command that replays the case.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.header_mutation import mutate_header
from tests.support import LONGER
from tools.fuzz import build
from tools.fuzz.parent import DRIVERS, LEVELS, Outcome, fuzz, fuzz_in_c, source

#: The number of cases of each level, about a second's work.
CASES = {
    "channels": 100,
    "core": 1000,
    "gates": 3000,
    "leases": 3000,
    "logs": 2000,
    "messages": 5000,
    "queues": 1000,
    "records": 1000,
    "sockets": 30,
    "frames": 30,
}
ENOUGH_SECONDS = 100.0  # time for the cases above, however busy the machine is
NIGHT_SECONDS = 20.0 * LONGER
FOUND = 10  # times as many cases find a missing bound
pytestmark = pytest.mark.watchdog(300.0 * max(LONGER, 1))  # above those of the levels, which say more
needs_sanitizer = pytest.mark.skipif(
    not build.has_sanitizer("address,undefined"), reason="the compiler has no address sanitizer"
)


def check(outcome: Outcome) -> None:
    assert outcome.ok, f"{outcome.text}\nreplay with: {outcome.replay}"


def levels() -> list[Any]:
    return [pytest.param(level, marks=[needs_sanitizer] if level in DRIVERS else []) for level in LEVELS]


@pytest.mark.parametrize("level", levels())
def test_fuzzed_program_survives_hostile_bytes(level: Any, seed: int, prefix: str) -> None:
    check(fuzz(level, seed, ENOUGH_SECONDS, count=CASES[level]))


@pytest.mark.nightly
@pytest.mark.parametrize("level", levels())
def test_fuzzed_program_survives_hostile_bytes_in_long_run(level: Any, seed: int, prefix: str) -> None:
    check(fuzz(level, seed, NIGHT_SECONDS))


LENGTH = "value->length = length;"
PLACED = "mq_queue_locate_parts(parts, queue, messages, size)"
CHUNK_ROOM = """ && size <= chunk->capacity_bytes &&
           chunk->used_bytes + MQ_LOG_MESSAGE_HEADER_BYTES + size <= chunk->capacity_bytes;"""


class MissingBound(NamedTuple):
    """A change of a header that removes a bound, and the level that must notice the change."""

    level: str
    folder: str  # name of the folder of the header in `build`
    header: str
    safe: str
    unsafe: str


MISSING_BOUNDS = {
    "size": MissingBound(
        "core", "HEADERS", "ring/subscriber.h", "mq_likely(offset + need <= mq_ring_lap_end(s->data_bytes)) &&", ""
    ),
    "position": MissingBound(
        "core",
        "HEADERS",
        "ring/position.h",
        "return mq_ring_offset(position) <= mq_ring_lap_end(data_bytes) &&",
        "return (data_bytes || 1) &&",
    ),
    "stamp": MissingBound("core", "HEADERS", "sources/message.h", " || buffer->skip > size - buffer->bytes", ""),
    "chunk": MissingBound("core", "LOG_HEADERS", "mcap_io/chunk_buffer.h", CHUNK_ROOM, " && size != UINT64_MAX;"),
    "event": MissingBound(
        "gates",
        "HEADERS",
        "gate/gate.h",
        "if (before < MQ_FAKE_EVENT_ONE)\n            return MQ_FAKE_EVENT_WAS_CLEAR;",
        "",
    ),
    "row": MissingBound("leases", "FRAME_HEADERS", "leases.h", "generation && row < rows", "generation && row <= rows"),
    "judge": MissingBound(
        "core", "HEADERS", "ring/snapshot.h", ".canary = canary", ".canary = {.value = canary.value}"
    ),
    "spare": MissingBound("core", "HEADERS", "base/schema.h", " && *bytes <= room - offset", ""),
    "head": MissingBound(
        "logs", "LOG_HEADERS", "mcap_io/scan.h", "if (size - at < MQ_SCAN_RECORD_HEAD_BYTES)", "if (0)"
    ),
    "short": MissingBound("logs", "LOG_HEADERS", "mcap_io/scan.h", "|| length < MQ_SCAN_MESSAGE_HEAD_BYTES", ""),
    "elements": MissingBound(
        "messages",
        "MESSAGE_HEADERS",
        "decoding/cdr_columns.h",
        "(p->size_bytes - p->position) / size;",
        "p->size_bytes * size;",
    ),
    "character": MissingBound(
        "messages", "MESSAGE_HEADERS", "decoding/cdr_columns.h", " || more >= size", " || size < 0"
    ),
    "eight": MissingBound(
        "messages", "MESSAGE_HEADERS", "decoding/cdr_columns.h", "if (size - at >= 8)", "if (size - at >= 1)"
    ),
    "capacity": MissingBound(
        "channels", "HEADERS", "channel/layout.h", "capacity <= MQ_CHANNEL_CAPACITY_MAX", "capacity <= 65536"
    ),
    "slot": MissingBound("channels", "HEADERS", "channel/subscriber.h", "if (m->number >= pool->slots)", "if (0)"),
    "length": MissingBound("channels", "HEADERS", "channel/subscriber.h", "m->length <= pool->slot_bytes ?", "true ?"),
    "backwards": MissingBound(
        "channels", "HEADERS", "channel/index_ring.h", "? position : known", "? position : position"
    ),
    "circle": MissingBound(
        "channels",
        "HEADERS",
        "channel/subscriber.h",
        "i < s->order.capacity && mq_index_ring_load_entry",
        "mq_index_ring_load_entry",
    ),
    "message": MissingBound(
        "queues",
        "HEADERS",
        "workqueue/receiver.h",
        "return delivery->length <= h->parts.max_message_size;",
        "return true;",
    ),
    "file": MissingBound("queues", "HEADERS", "workqueue/layout.h", PLACED + " > bytes", "!" + PLACED),
    "sizes": MissingBound(
        "queues", "HEADERS", "workqueue/layout.h", "(messages && !mq_queue_sizes_are_valid(messages, size)) ||", ""
    ),
    "owner": MissingBound(
        "queues", "HEADERS", "workqueue/slot_state.h", "mq_slot_state_get_owner_row(word) < MQ_QUEUE_ROWS &&", ""
    ),
    "block": MissingBound(
        "queues", "HEADERS", "workqueue/scan.h", "end < h->parts.max_messages ? end : h->parts.max_messages", "end"
    ),
    "patience": MissingBound("queues", "HEADERS", "workqueue/receiver.h", "--*scans_left;", ""),
    "round": MissingBound("queues", "HEADERS", "workqueue/sender.h", "slot = slot < max ? slot : 0;", ""),
    "short file": MissingBound("records", "HEADERS", "records/layout.h", "!needed || needed > bytes ||", "!needed ||"),
    "copies": MissingBound(
        "records", "HEADERS", "records/layout.h", "(config->copies == 2 || config->copies == 4) &&", "config->copies &&"
    ),
    "value": MissingBound(
        "records", "HEADERS", "records/layout.h", "|| config->item_bytes > sizeof(mq_u64)", "|| true"
    ),
    "length of a value": MissingBound(
        "records", "HEADERS", "records/board.h", "value->length = value->is_corrupt ? 0 : length;", LENGTH
    ),
    "keys": MissingBound("records", "HEADERS", "records/board.h", "while (i < parts->config.length && ", "while ("),
    "copy": MissingBound("records", "HEADERS", "records/cell.h", "(count & (parts->config.copies - 1))", "(count & 7)"),
    "same": MissingBound(
        "records", "HEADERS", "records/cell.h", "& MQ_CELL_WRITE_COUNT_MAX) <=", "& MQ_CELL_WRITE_COUNT_MAX) !="
    ),
    "row of an owner": MissingBound(
        "records", "HEADERS", "records/writer.h", "    if (row >= MQ_RECORD_ROWS)\n        return MQ_DEAD;\n", ""
    ),
    "deadline": MissingBound(
        "records", "HEADERS", "records/writer.h", "mq_monotonic_ns() >= deadline_ns", "deadline_ns < 0"
    ),
    "tries": MissingBound("records", "HEADERS", "records/vector.h", "tries < MQ_VECTOR_TRIES", "tries >= 0"),
    "changes": MissingBound(
        "records", "HEADERS", "records/vector.h", " && count < indices_max;", " && count <= indices_max;"
    ),
    "step": MissingBound(
        "records", "HEADERS", "records/vector.h", "i + MQ_VECTOR_STEP <= selected.count", "i < selected.count"
    ),
}
each_missing_bound = pytest.mark.parametrize("bound", MISSING_BOUNDS.values(), ids=MISSING_BOUNDS)


@each_missing_bound
def test_bound_to_remove_is_in_its_header(bound: MissingBound) -> None:
    assert bound.safe in (getattr(build, bound.folder) / bound.header).read_text()


@pytest.mark.nightly
@needs_sanitizer
@each_missing_bound
def test_fuzzer_finds_missing_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: MissingBound) -> None:
    """A fuzzer that finds nothing may be blind: take a bound away and let it look."""
    mutate_header(tmp_path, monkeypatch, bound.folder, bound.header, bound.safe, bound.unsafe)
    driver = build.compile_program(source(bound.level), tmp_path / bound.level, *build.SANITIZED)
    outcome = fuzz_in_c(bound.level, 1, ENOUGH_SECONDS, count=FOUND * CASES[bound.level], driver=driver)
    assert not outcome.ok
    assert "AddressSanitizer" in outcome.text or "fuzz:" in outcome.text
    assert "--first" in outcome.replay
