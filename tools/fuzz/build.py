"""Compiles small C programs on the library's headers, each version of a program once."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shlex
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "msgq" / "impl"
FRAME_HEADERS = ROOT / "visionipc" / "impl"
LOG_HEADERS = ROOT / "msgq" / "recording"
MESSAGE_HEADERS = ROOT / "msgq"
CACHE = ROOT / "build" / "cache"
DAY = 24 * 3600.0
# Not optimised: that is compiled in a tenth of the time, runs at half the speed, and hides nothing.
SANITIZED = ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiler() -> str:
    """Return the C compiler that extensions are built with."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]


def compile_program(source: Path, target: Path, *flags: str, compiler_name: str | None = None) -> Path:
    """Compile `source` to `target`, by the usual compiler or another; RuntimeError with its words if it refuses."""
    run_compiler([compiler_name or compiler(), *_common(), *flags, "-o", str(target), str(source)])
    return target


def cached_program(source: Path, *flags: str) -> Path:
    """Return the program of `source` from the cache; compile it if it is missing.

    The key covers the preprocessed source, the flags and the compiler, so the program is always up to date.
    """
    text = run_compiler([compiler(), *_common(), *flags, "-E", str(source)])
    key = digest([text, *_common(), *flags])
    return cached_path(source.stem, key, lambda target: compile_program(source, target, *flags))


def digest(texts: Iterable[str], files: Iterable[Path] = ()) -> str:
    """Return a key of the texts, of the files' paths and contents, and of the compiler's version."""
    cache_key = hashlib.sha256()
    for text in (_version(compiler()), *texts):
        cache_key.update(text.encode() + b"\0")
    for path in sorted(files):
        cache_key.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
    return cache_key.hexdigest()[:16]


def cached_path(name: str, key: str, make: Callable[[Path], object]) -> Path:
    """Return the file or folder of this name and key in the cache; let `make` write it to a path if it is missing.

    Other processes wait while one makes it. Entries that no run has used for a day are removed.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    entry = CACHE / f"{name}-{key}"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not entry.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                make(new := Path(folder, name))
                new.rename(entry)
                for old in CACHE.glob(f"{name}-*"):
                    if old.stat().st_mtime < time.time() - DAY:
                        old.rename(Path(folder, old.name))
        os.utime(entry)
    return entry


def run_compiler(command: list[str]) -> str:
    """Run a command and return its output; raise RuntimeError with its error output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
    return done.stdout


def _common() -> list[str]:
    folders = (HEADERS, FRAME_HEADERS, LOG_HEADERS, MESSAGE_HEADERS)  # tests replace these names
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread")
    return [*flags, *(f"-I{folder}" for folder in folders)]


@functools.cache
def _version(compiler_name: str) -> str:
    return run_compiler([compiler_name, "--version"])


@functools.cache
def has_sanitizer(name: str) -> bool:
    """Return True if programs with this sanitizer ("address", "thread") can be built and run here."""
    return accepts_flag(f"-fsanitize={name}")


def accepts_flag(flag: str) -> bool:
    """Return True if programs with this flag can be built and run here.

    RuntimeError if the compiler fails also without the flag, for example because the disk is full.
    """
    source = Path(__file__).with_name("empty.c")
    try:
        program = cached_program(source, flag)
    except RuntimeError:
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            compile_program(source, Path(folder, source.stem))
        return False
    return subprocess.run([program], capture_output=True, check=False).returncode == 0
