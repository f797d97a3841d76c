"""Hostile bytes, for a bounded time: what may a stranger do to us by writing where we read?

What: a few seconds of each level of `tools.fuzz`, from a fixed seed and from a new one.
Why: every word of a segment can be written by any process of the user, by a bug of a stock program as well; a recording
or a request may come from anybody.
A failure would mean: one bad word in shared memory, in a file or in a request crashes or hangs a process, or makes it
read where it must not. The output names the command that replays the case.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import pytest

from tools.fuzz import build, parent
from tools.fuzz.parent import DRIVERS, Outcome, fuzz_in_c, fuzz_in_python

SECONDS = 4.0
pytestmark = pytest.mark.watchdog(300.0)  # above those of the levels themselves, which say more
SEEDS = pytest.mark.parametrize("seed", [1, None], ids=["fixed", "new"])
needs_sanitizer = pytest.mark.skipif(
    not build.has_sanitizer("address,undefined"), reason="the compiler has no address sanitizer"
)


def seed_of(seed: int | None) -> int:
    return secrets.randbits(32) if seed is None else seed


def check(outcome: Outcome) -> None:
    assert outcome.ok, f"{outcome.text}\nreplay with: {outcome.replay}"


@needs_sanitizer
@pytest.mark.parametrize("level", DRIVERS)
def test_c_survives_hostile_bytes(tmp_path, level):
    driver = parent.build(tmp_path, level)
    for seed in (1, None):
        check(fuzz_in_c(level, seed_of(seed), SECONDS / 2, driver=driver))


@SEEDS
@pytest.mark.parametrize("level", ["sockets", "frames"])
def test_python_survives_hostile_bytes(level, seed):
    check(fuzz_in_python(level, seed_of(seed), SECONDS))


CAPTURE_ROOM = "message.size > chunk->room || chunk->used + MQ_RECORD_HEADER + message.size > chunk->room)\n"


@needs_sanitizer
@pytest.mark.parametrize(
    ("level", "folder", "header", "safe", "unsafe"),
    [
        ("core", "HEADERS", "subscriber.h", "offset + mq_need(size) <= mq_lap_end(s->data_bytes) &&", ""),
        ("core", "HEADERS", "position.h", "return mq_offset(position) <= mq_lap_end(data_bytes) &&",
         "return (data_bytes || 1) &&"),
        ("core", "HEADERS", "meter.h", " && (uint64_t)m->stamp_offset <= message.size - 8", ""),
        ("core", "LOG_HEADERS", "capture.h", CAPTURE_ROOM, "0)\n"),
        ("gates", "HEADERS", "gate.h", "if (before < MQ_EVENT_ONE)\n            return MQ_EVENT_WAS_CLEAR;", ""),
        ("leases", "FRAME_HEADERS", "leases.h", "generation && row < rows", "generation && row <= rows"),
        ("core", "HEADERS", "snapshot.h", ".whole = whole", ".whole = {.value = whole.value}"),
        ("core", "HEADERS", "schema.h", " && *bytes <= room - offset", ""),
        ("logs", "LOG_HEADERS", "scan.h", "if (size - at < MQ_RECORD_HEAD)", "if (0)"),
        ("logs", "LOG_HEADERS", "scan.h", "|| length < MQ_MESSAGE_HEAD", ""),
    ],
    ids=["size", "position", "stamp", "chunk", "event", "row", "judge", "spare", "head", "short"],
)  # fmt: skip
def test_fuzzer_finds_a_bound_that_is_missing(tmp_path, monkeypatch, level, folder, header, safe, unsafe):
    """A fuzzer that finds nothing may be blind: take a bound away and let it look."""
    source = getattr(build, folder)
    headers = Path(shutil.copytree(source, tmp_path / "impl", ignore=shutil.ignore_patterns("*.so")))
    text = (headers / header).read_text()
    assert safe in text
    (headers / header).write_text(text.replace(safe, unsafe, 1))
    monkeypatch.setattr(build, folder, headers)
    outcome = fuzz_in_c(level, 1, SECONDS, driver=parent.build(tmp_path, level))
    assert not outcome.ok
    assert "AddressSanitizer" in outcome.text or "fuzz:" in outcome.text
    assert "--first" in outcome.replay
