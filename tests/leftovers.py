"""Find the files and processes that a run of the tests leaves behind.

Each run has four hexadecimal digits of its own, its word, and a folder `/tmp/msgq-run-WORD`. A run owns

- the files in its folder, which is TMPDIR for the tests and for the processes that they start;
- the files in /dev/shm and /tmp with one of its tokens in their names: `t`, the word and eight more digits;
- the processes whose environment has its folder as TMPDIR.

Files and processes of other programs and of other runs never count.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgq.impl.zeromq.addresses import compute_port
from tests.support import DEADLINE, SHM, wait_until

TMP = Path("/tmp")
FOLDER = "msgq-run-"


def new_token() -> str:
    """Return a word that no other test has. It begins with `t` and the word of the run.

    ZMQ endpoints of this name, also with the test's prefix, have ports that the kernel gives to no other socket.
    Otherwise, a connection of another test could have the port.
    """
    for _ in range(_TOKEN_TRIES):
        token = f"t{_word()}{secrets.token_hex(4)}"
        if not any(compute_port(name) in _KERNEL_PORTS for name in (token, f"p{token}/{token}")):
            break
    return token


def _read_kernel_ports() -> range:
    """Return the ports that the kernel gives to sockets without a port of their own."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return range(first, last + 1)


_KERNEL_PORTS = _read_kernel_ports()
_TOKEN_TRIES = 100  # usually four are enough, but the kernel's ports may be all ports


def _word() -> str:
    """Return the word of the run. It is empty for a run of `examples` alone, which has no folder of its own."""
    _, found, word = os.environ.get("TMPDIR", "").rpartition(FOLDER)
    return word if found else ""


class Leftovers:
    """A run's folder, and the search for what the run leaves behind."""

    def __init__(self) -> None:
        self.folder = _new_folder()
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # the folders that pytest itself keeps
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder)
        self._token = f"t{_word()}[0-9a-f]{{8}}"

    def found(self) -> list[str]:
        """Return a text for each leftover, and remove it. Processes have 20 seconds to end, then they are killed."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not any(self._processes()), deadline=DEADLINE / 3, interval=0.1)
        left = self.left()
        for text in left:
            if text.startswith("process "):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(int(text.split()[1].rstrip(":")), signal.SIGKILL)
        for path in files_named(self._token):
            remove(path)
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def left(self) -> list[str]:
        """Return a text for each file and process of the run that exists now."""
        files = files_named(self._token) | {*self.folder.iterdir()}
        return [*self._processes(), *sorted(map(str, files))]

    def _processes(self) -> Iterator[str]:
        for process in processes_in(str(self.folder)):
            with contextlib.suppress(OSError):  # the process has ended
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                yield f"process {process}: {b' '.join(words).decode(errors='replace')[:200]}"


def processes_in(folder: str) -> Iterator[int]:
    """Yield the ids of the processes whose environment has this folder as TMPDIR."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


def _new_folder() -> Path:
    """Make a folder whose word no other run on this machine has."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder = TMP / f"{FOLDER}{secrets.token_hex(2)}"
            folder.mkdir(mode=0o700)
            return folder


def remove(path: Path) -> None:
    """Remove a file or folder."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def files_named(pattern: str) -> set[Path]:
    """Return the paths in /dev/shm and /tmp, and in the library's folders of sockets and locks, whose names match.

    The name of a claim of a ZMQ address is a hash, so its text counts instead.
    """
    has_match, found = re.compile(pattern).search, set[Path]()
    for folder, names in _list_folders():
        if folder.name == "claims":
            found |= {folder / name for name in names if has_match(_text(folder / name))}
        elif has_match("\n".join(names)):  # one search, because each test calls this, and /tmp may have 2,000 names
            found |= {folder / name for name in names if has_match(name)}
    return found


def _list_folders() -> Iterator[tuple[Path, list[str]]]:
    """Yield folders and the names of their files."""
    yield TMP, os.listdir(TMP)
    shared = os.listdir(SHM)
    yield SHM, shared
    for name in shared:
        if name.startswith(("msgqframes_", "msgqzmq_")):
            yield from ((Path(parent), names) for parent, _, names in os.walk(SHM / name))


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):  # removed, or of another user
        return path.read_text(errors="replace")
    return ""
