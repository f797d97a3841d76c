"""Files of several writers, damaged at random: after a recovery nothing that was readable is lost, to no reader."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcap.writer import CompressionType

from msgq.common.schema import Schema
from msgq.errors import RecordingError
from msgq.recording import LogReader
from msgq.recording.mcap_io.log_writer import Writer
from msgq.recording.repair.doctor import examine
from msgq.recording.repair.recover import recover
from tests.recording.logs import FOREIGN, by_library, write_foreign
from tests.support import LONGER


def write_ours(path: Path, compression: str) -> Path:
    """Write a file of ours with several chunks, origins of messages, an attachment."""
    with Writer(path, compression=compression, chunk_bytes=1024) as writer:
        schema = Schema("Number", "json", b'{"type": "object"}')
        known = {"sequence": "published", "epoch": "1"}
        numbers = [writer.channel(f"t{i}", schema if i else None, metadata=known) for i in range(3)]
        for i in range(200):
            writer.write(numbers[i % 3], b'{"n": %d}' % i, 10**18 + i * 1000, origin_time=i % 2)
        writer.attach("calibration", b"x" * 300)
    return path


def write_foreign_file(**options: Any) -> Callable[[Path], Path]:
    return lambda path: write_foreign(path, **options)


KINDS: dict[str, Callable[[Path], Path]] = {
    **{
        f"the library's, {name}": write_foreign_file(**options)
        for name, options in FOREIGN.items()
        if name != "backwards"
    },
    "the library's, with a CRC of the data": write_foreign_file(use_chunking=False, enable_data_crcs=True),
    "the library's, without any CRC": write_foreign_file(compression=CompressionType.NONE, enable_crcs=False),
    **{f"ours, {name}": lambda path, name=name: write_ours(path, name) for name in ("zstd", "lz4", "none")},  # type: ignore[misc]
}


def count_readable(path: Path) -> int | None:
    """Return how many messages our reader finds; None: it does not take the file."""
    try:
        return sum(1 for _ in LogReader(path))
    except RecordingError:
        return None


def check(path: Path, what: str) -> None:
    """Recover a file, and look whether anybody reads less than before."""
    before = count_readable(path)
    if before is None:
        with pytest.raises(RecordingError):
            recover(path)
        return
    done = recover(path)
    after = Path(done.output)
    assert (count_readable(after) or 0) >= before, what
    assert len(by_library(after)) >= before, what
    assert not [str(one) for one in examine(after) if one.severity == "error"], what
    assert not recover(after).changed, what
    if done.changed:
        after.unlink()


def damage_bytes(good: bytes, rng: random.Random) -> tuple[bytes, str]:
    if rng.random() < 0.2:
        size = rng.randrange(8, len(good))
        return good[:size], f"cut to {size} bytes"
    place, bit = rng.randrange(len(good)), rng.randrange(8)
    return good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :], f"bit {bit} of byte {place}"


@pytest.mark.parametrize("kind", KINDS)
def test_recover_after_few_flips_and_cuts_keeps_valid_messages(tmp_path: Path, seed: int, kind: str) -> None:
    recover_flipped_files(tmp_path, kind, seed, 2)


@pytest.mark.ci
@pytest.mark.watchdog(900)
@pytest.mark.parametrize("kind", KINDS)
def test_recover_after_many_flips_and_cuts_keeps_valid_messages(tmp_path: Path, seed: int, kind: str) -> None:
    recover_flipped_files(tmp_path, kind, seed, int(20 * LONGER))


def recover_flipped_files(folder: Path, kind: str, seed: int, count: int) -> None:
    good, rng = KINDS[kind](folder / "good").read_bytes(), random.Random(seed)
    for number in range(count):
        content, what = damage_bytes(good, rng)
        (folder / "a.mcap").write_bytes(content)
        check(folder / "a.mcap", f"{kind}, number {number}: {what}")


@pytest.mark.ci
@pytest.mark.watchdog(900)
@pytest.mark.parametrize("kind", ["the library's, zstd", "the library's, unchunked", "ours, zstd"])
def test_recover_of_file_cut_at_many_offsets_keeps_valid_messages(tmp_path: Path, kind: str) -> None:
    good = KINDS[kind](tmp_path / "good").read_bytes()
    for size in range(8, len(good), max(1, int(127 / LONGER))):
        (tmp_path / "a.mcap").write_bytes(good[:size])
        check(tmp_path / "a.mcap", f"{kind}, cut to {size} bytes")


RECOVER = "import sys; from pathlib import Path; from msgq.recording.repair.recover import recover; {ready}; {work}"


def write_large_file(path: Path) -> Path:
    """Write a file whose recovery takes some time, the descriptions of which are in its summary only."""
    write_foreign(path, 30_000, chunk_size=1 << 16)
    data = bytearray(path.read_bytes())
    data[LogReader(path).files[0].blocks[0].offset + 70] ^= 1
    path.write_bytes(data)
    return path


def list_kill_moments() -> Iterator[float]:
    rng = random.Random(7)
    return (rng.uniform(0, 0.8) for _ in range(int(12 * LONGER)))


@pytest.mark.nightly  # kills at moments of chance; tests of single kills kill at each step
@pytest.mark.watchdog(900)
def test_recover_killed_many_times_loses_no_message(tmp_path: Path) -> None:
    """What: a process that recovers a file in place is killed at any moment, again and again.

    Failure would mean: a power cut, or the kernel short of memory, costs a recording that could be read before.
    """
    original = write_large_file(tmp_path / "original").read_bytes()
    path = tmp_path / "folder" / "a.mcap"
    path.parent.mkdir()
    path.write_bytes(original)
    before, killed = count_readable(path), 0
    work = RECOVER.format(ready="print(flush=True)", work="recover(Path(sys.argv[1]), in_place=True)")
    for moment in list_kill_moments():
        process = subprocess.Popen([sys.executable, "-c", work, path], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moment)  # the moment is what is tried
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
        assert (count_readable(path) or 0) == before
        assert len(os.listdir(path.parent)) <= 2
        if path.read_bytes() != original:
            assert not recover(path).changed
            path.write_bytes(original)
        for left in path.parent.glob(".*"):
            left.unlink()
    assert killed > 1, "the moments are those of another machine"
    check(path, "after the kills")
