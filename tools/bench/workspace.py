"""Where a run keeps its files, and how nothing of them stays behind."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from msgq.common import settings, shm_paths
from msgq.common.naming import FRAMES_FILE_PREFIX
from tools.bench.adapters import adapter
from tools.bench.adapters.base import unlink
from tools.bench.process import end_processes

SHARED = Path("/dev/shm")


class Workspace:
    """The names of one run.

    Attributes:
        folder: a new temporary folder.
        tag: the folder's name, unique in the machine; part of every name that the run leaves elsewhere. It begins with
            OPENPILOT_PREFIX if that is set, so that a test finds leftovers of the run.
    """

    def __init__(self) -> None:
        """Create the folder."""
        start = os.environ.pop("OPENPILOT_PREFIX", "bench")  # the run and its processes use no prefix
        self.folder = Path(tempfile.mkdtemp(prefix=f"{start}-"))
        self.tag = self.folder.name
        self._count = 0

    def new_name(self) -> str:
        """Return the name of the next measurement."""
        self._count += 1
        return f"{self.tag}-{self._count}"

    def sweep(self, system: str, topics: list[str], name: str) -> None:
        """Remove what a measurement of the system left. Its processes must have ended."""
        adapter(system).sweep(topics)
        for path in _find(f"*{name}[-.]*"):
            unlink(path)

    def remove(self) -> None:
        """Remove everything."""
        for path in _find(f"*{self.tag}*"):
            unlink(path)
        shutil.rmtree(self.folder, ignore_errors=True)


def _find(pattern: str) -> list[Path]:
    """Return the files in shared memory, also in the folder of the servers of frames."""
    return [*SHARED.glob(pattern), *SHARED.glob(f"{FRAMES_FILE_PREFIX}*/{pattern}")]


def remove_rings(*endpoints: str) -> None:
    """Remove what publishers of the msgq backend left. Their processes must have ended."""
    prefix = settings.get_prefix()
    for endpoint in endpoints:
        for path in (shm_paths.ring_path(endpoint, prefix), shm_paths.side_segment_path(endpoint, prefix)):
            unlink(path)


@contextmanager
def workspace() -> Iterator[Workspace]:
    """Give a workspace that is removed in the end, also after Ctrl-C, SIGTERM and errors.

    The measured processes end before the removal, because a process that starts could create files after the removal.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.getsignal(signal.SIGINT), signal.signal(signal.SIGTERM, leave)
    space = Workspace()
    try:
        yield space
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second interrupt does not stop the removal
            signal.signal(number, signal.SIG_IGN)
        end_processes()
        space.remove()
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
