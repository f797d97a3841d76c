"""Runs the levels in processes of their own, and says how to replay what ended them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from .build import ROOT, SANITIZED, cached_program
from .corpus import make_corpus

DRIVERS = {name: name for name in ("channels", "gates", "leases", "logs", "messages", "queues", "records")} | {
    "core": "driver"
}
LEVELS = (*DRIVERS, "sockets", "frames")
WAIT_FOREVER = 2**62
GRACE_SECONDS = 120.0  # seconds beyond the requested time until a level counts as hanging


@dataclass(frozen=True)
class Outcome:
    """What became of one level: `ok`, what it said, and the command that replays a failure."""

    ok: bool
    text: str
    replay: str = ""


def _run(command: list[str], seconds: float, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a command; a hang counts as exit code -9."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = process.communicate(timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return process.returncode, out, err


def source(level: str) -> Path:
    """Return the source of the driver of a level in C. The compiler needs the address sanitizer."""
    return Path(__file__).with_name(f"{DRIVERS[level]}.c")


def fuzz_in_c(
    level: str, seed: int, seconds: float, first: int = 0, count: int = WAIT_FOREVER, driver: Path | None = None
) -> Outcome:
    """Fuzz the plain C code, with this driver or the one in the cache."""
    with tempfile.TemporaryDirectory(prefix="msgq-fuzz-") as folder:
        program = driver or cached_program(source(level), *SANITIZED)
        corpus = make_corpus(Path(folder)) if level == "logs" else []
        arguments = [str(word) for word in (seed, first, count, seconds, *corpus)]
        code, out, err = _run([str(program), *arguments], seconds)
    if code == 0:
        return Outcome(True, out.strip())
    _, marker, case = err.rpartition(f"driver {seed} ")
    again = f" --first {case.split()[0]} --count 1" if marker else ""
    replay = f"python -m tools.fuzz --level {level} --seed {seed}{again}"
    return Outcome(False, f"exit code {code}\n{err[-8000:]}", replay)


def fuzz_in_python(level: str, seed: int, seconds: float, first: int = 0, count: int = WAIT_FOREVER) -> Outcome:
    """Fuzz the Python code, under a new prefix that begins with the current one."""
    prefix = f"{os.environ.get('OPENPILOT_PREFIX', 'fuzz')}-{uuid4().hex[:12]}"
    command = [sys.executable, "-m", f"tools.fuzz.{level}", "--seed", str(seed), "--seconds", str(seconds)]
    command += ["--first", str(first), "--rounds", str(count)]
    try:
        code, out, err = _run(command, seconds, {**os.environ, "OPENPILOT_PREFIX": prefix})
    finally:
        for kind in ("msgq_", "msgqside_"):
            shutil.rmtree(f"/dev/shm/{kind}{prefix}", ignore_errors=True)
        for path in Path("/tmp").glob(f"{prefix}_*"):
            path.unlink()
    rounds = out.split()
    if code == 0:
        return Outcome(True, f"{len(rounds)} rounds")
    again = f" --first {rounds[-1]} --count 1" if rounds else ""
    replay = f"python -m tools.fuzz --level {level} --seed {seed}{again}"
    return Outcome(False, f"exit code {code}\n{err[-8000:]}", replay)


def fuzz(level: str, seed: int, seconds: float, first: int = 0, count: int = WAIT_FOREVER) -> Outcome:
    """Fuzz one of LEVELS for so long."""
    return (fuzz_in_c if level in DRIVERS else fuzz_in_python)(level, seed, seconds, first, count)
