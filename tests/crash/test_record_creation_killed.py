"""Processes that are killed while they make a vector or board, write to it, and unlink it, around each system call."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from msgq import Board, SeqlockVector
from msgq.errors import SegmentError
from tests.crash import test_creation_killed
from tests.stress.roles import fork
from tests.support import SHM, run_child

CALLS = (*test_creation_killed.CALLS, "unlink")


def make(kind: str, name: str) -> Any:
    """Open it, or make it."""
    if kind == "board":
        return Board(name, keys=2, value_bytes=16)
    return SeqlockVector(name, "u8", 2, exclusive=kind == "exclusive")


def write(handle: Any, number: int) -> None:
    if isinstance(handle, Board):
        with handle.declare("key") as entry:
            entry.write(number.to_bytes(8, "little") * 2)
    else:
        handle[0] = number


def read(handle: Any) -> int:
    """Return what is there; 0: nothing was written."""
    if not isinstance(handle, Board):
        return int(handle[0])
    data = handle.observe("key").data() or bytes(16)
    assert data == data[:8] * 2
    return int.from_bytes(data[:8], "little")


def open_and_use(name: str, kind: str, role: str) -> None:
    """Open it, or make it, write, and perhaps unlink it."""
    with make(kind, name) as handle:
        write(handle, 7)
        if role == "unlink":
            handle.unlink()


def die_in_turn(plans: dict[str, str], kind: str, role: str) -> dict[str, int]:
    """Child: fork one process for each name, which dies as planned; return their exit codes."""
    codes = {}
    import numpy  # noqa: F401  # once, and not in each of them

    for name, plan in plans.items():
        if (pid := fork()) == 0:
            os.environ["MSGQ_TEST_CALLS"] = plan
            open_and_use(name, kind, role)
            os._exit(0)
        codes[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


SLOW = pytest.mark.ci
FAST = [("make", "shared"), ("open", "board")]
OTHERS = [(role, kind) for role in ("make", "open", "unlink") for kind in ("shared", "exclusive", "board")]


@pytest.mark.parametrize(
    ("role", "kind"), [*FAST, *(pytest.param(*each, marks=SLOW) for each in OTHERS if each not in FAST)]
)
def test_record_creation_killed_around_each_system_call_leaves_usable_record(
    tools: Path, endpoint: str, prefix: str, role: str, kind: str
) -> None:
    """What: a process dies before or after each call that makes a file, opens it, writes to it and unlinks it.

    Why: a file must be complete before it has a name, and the lock must be the kernel's to drop.

    Failure would mean: half a file stays in /dev/shm, and everybody else trips over it or waits for a dead one.
    """
    plans = {
        f"{endpoint}-{when}-{call}-{at}": f"{int(signal.SIGKILL)} {when} {call} {at}"
        for when in ("before", "after")
        for call in CALLS
        for at in range(1, 3)
    }
    # A mode that the umask would take from it: else there is no fchmod.
    environment = {"LD_PRELOAD": str(tools / "interpose.so"), "MSGQ_MODE": "660"}
    with contextlib.ExitStack() as stack:
        if role == "open":
            for name in plans:
                stack.enter_context(make(kind, name))
        codes = run_child(die_in_turn, plans, kind, role, env=environment)
    assert set(codes.values()) == {0, -signal.SIGKILL}, codes
    expected = {"make": 5, "open": 2, "unlink": 6}[role]  # allocate, fchmod, link; lock, unlock; unlink
    assert len({name.split("-")[2] for name, code in codes.items() if code}) == expected, codes
    folder = SHM / f"msgqrec_{prefix}"
    for name, code in codes.items():
        with contextlib.suppress(SegmentError) if role != "open" else contextlib.nullcontext():
            (Board if kind == "board" else SeqlockVector)(name, create=False).close()  # complete, or not there
            assert (folder / name).stat().st_nlink == 1
        with make(kind, name) as handle:
            assert read(handle) in ((0, 7) if code or role == "unlink" else (7,))
            write(handle, 8)
            assert read(handle) == 8
            handle.unlink()
    assert not [*folder.iterdir()], "temporary files"
