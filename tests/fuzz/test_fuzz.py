"""Hostile bytes, for a bounded time: what may a stranger do to us by writing in the segment?

What: a few seconds of both levels of `tools.fuzz`, from a fixed seed and from a new one.
Why: every word of a segment can be written by any process of the user, by a bug of a stock program as well.
A failure would mean: one bad word in shared memory crashes or hangs a process, or makes it read where it must not. The
output names the command that replays the case.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import pytest

from tools.fuzz import build
from tools.fuzz.parent import Outcome, build_core, fuzz_core, fuzz_sockets

SECONDS = 4.0
pytestmark = pytest.mark.watchdog(300.0)  # above those of the levels themselves, which say more
SEEDS = pytest.mark.parametrize("seed", [1, None], ids=["fixed", "new"])
needs_sanitizer = pytest.mark.skipif(
    not build.has_sanitizer("address,undefined"), reason="the compiler has no address sanitizer"
)


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    return build_core(tmp_path)


def seed_of(seed: int | None) -> int:
    return secrets.randbits(32) if seed is None else seed


def check(outcome: Outcome) -> None:
    assert outcome.ok, f"{outcome.text}\nreplay with: {outcome.replay}"


@needs_sanitizer
@SEEDS
def test_core_survives_hostile_bytes(driver, seed):
    check(fuzz_core(seed_of(seed), SECONDS, driver=driver))


@SEEDS
def test_sockets_survive_hostile_bytes(seed):
    check(fuzz_sockets(seed_of(seed), SECONDS))


@needs_sanitizer
@pytest.mark.parametrize(
    ("header", "safe", "unsafe"),
    [
        ("subscriber.h", "offset + mq_need(size) <= mq_lap_end(s->data_bytes) &&", ""),
        ("position.h", "return mq_offset(position) <= mq_lap_end(data_bytes) &&", "return (data_bytes || 1) &&"),
    ],
    ids=["size", "position"],
)
def test_fuzzer_finds_a_bound_that_is_missing(tmp_path, monkeypatch, header, safe, unsafe):
    """A fuzzer that finds nothing may be blind: take a bound of the core away and let it look."""
    headers = Path(shutil.copytree(build.HEADERS, tmp_path / "impl", ignore=shutil.ignore_patterns("*.so")))
    text = (headers / header).read_text()
    assert safe in text
    (headers / header).write_text(text.replace(safe, unsafe, 1))
    monkeypatch.setattr(build, "HEADERS", headers)
    outcome = fuzz_core(1, SECONDS, driver=build_core(tmp_path))
    assert not outcome.ok
    assert "AddressSanitizer" in outcome.text or "beyond the ring" in outcome.text
    assert "--first" in outcome.replay
