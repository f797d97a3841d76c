"""A run of tests leaves nothing in /dev/shm and /tmp, and no process.

A run has a folder for temporary files of its own (TMPDIR, which processes inherit). Everything in it is the run's, and
so is each process whose environment names it. The library's fixed names in /dev/shm and /tmp are the run's if they were
not there before it, and neither the word in them nor a process that uses them is of others: runs and programs beside
this one are no leftovers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from uuid import uuid4
from zlib import crc32

from tests.support import DEADLINE, SHM, wait_until

TMP = Path("/tmp")
LIBRARY = re.compile("msgq|visionipc")  # in the name of each file that the library makes
# The host's clock, and what a user has one of: a word for origins, two folders of locks, of which each lock counts, and
# a cache.
LOCKS = ("msgqframes_*", "msgqzmq_*")
TOKEN = re.compile("t([0-9a-f]{4})[0-9a-f]{8}")  # the word of a run and test, in the names that the test makes
STAY = re.compile(r"msgqclock|msgqorigin_\d+|msgq(frames|zmq)_\d+|msgq-\d+|msgq-run-.*")


def new_token(folder: str) -> str:
    """Return a word that no other test has; it tells which run made it, by the folder of the run."""
    return f"t{run_word(folder)}{uuid4().hex[:8]}"


def run_word(folder: str) -> str:
    return f"{crc32(folder.encode()) & 0xFFFF:04x}"


class Leftovers:
    """What was there before a run, and the run's own folder."""

    def __init__(self) -> None:
        self.before = names()
        self.folder = Path(tempfile.mkdtemp(prefix="msgq-run-", dir=TMP))
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # the folders that pytest itself keeps
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder)

    def found(self) -> list[str]:
        """Return what the run left behind; a process that is ending is given time, then it is killed."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.left(), deadline=DEADLINE / 3, interval=0.1)
        left = self.left()
        for text in left:
            if text.startswith("process "):
                os.kill(int(text.split()[1].rstrip(":")), signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def left(self) -> list[str]:
        """Return what there is now, as texts."""
        ours, used = self._processes()
        new = {path for path in names() - self.before if self._may_be_ours(path) and used.isdisjoint(identities(path))}
        return ours + sorted(map(str, new | {*self.folder.iterdir()}))

    def _may_be_ours(self, path: Path) -> bool:
        """Whether it is there, has no other run's word, and is this user's; root's tests take the place of others."""
        words = TOKEN.findall(path.name)
        with contextlib.suppress(OSError):
            return os.geteuid() in (0, path.lstat().st_uid) and words in ([], [run_word(str(self.folder))])
        return False

    def _processes(self) -> tuple[list[str], set[object]]:
        """Return the run's processes that still live, and what others use."""
        ours: list[str] = []
        used: set[object] = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or is not for us to look at
                if f"TMPDIR={self.folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    ours.append(f"process {process.name}: {b' '.join(words).decode(errors='replace')[:200]}")
                elif int(process.name) != os.getpid():
                    used |= mapped(process) | {identity(descriptor) for descriptor in (process / "fd").iterdir()}
        return ours, used


def mapped(process: Path) -> set[tuple[int, int]]:
    """Return the files that a process has mapped. Their paths say little: a segment gets its name when it is ready."""
    words = [line.split(None, 5) for line in (process / "maps").read_text().splitlines()]
    # Of a process that ends meanwhile, the last line may be a part of one.
    whole = [word for word in words if len(word) > 4]
    return {(os.makedev(*(int(part, 16) for part in word[3].split(":"))), int(word[4])) for word in whole}


def identity(path: Path) -> tuple[int, int] | None:
    """Return a file's device and number, of a link those of its target."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def identities(path: Path) -> set[object]:
    """Return how what is there, and in it, is known to those that use it."""
    found = {known for one in (path, *path.rglob("*")) for known in (str(one), identity(one))}
    return {known for known in found if known is not None}


def names() -> set[Path]:
    """Return the paths of the library's files that do not stay for ever, whosoever they are."""
    return {path for path in everything() if LIBRARY.search(str(path)) and not STAY.fullmatch(path.name)}


def everything() -> set[Path]:
    """Return the paths in /dev/shm and /tmp, and those of the locks in their folders."""
    top = {path for folder in (SHM, TMP) for path in folder.iterdir()}
    return top | {path for kind in LOCKS for path in SHM.glob(f"{kind}/**/*") if not path.is_dir()}
