"""Processes that are killed while they create, lock and map the files, around each system call."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from msgq.errors import SegmentSizeError
from tests.stress.roles import fork, publisher, subscriber
from tests.support import SHM, Child, Task, run_child, wait_until

CALLS = ("allocate", "fchmod", "link", "lock", "unlock")
PAGE = 4096
# size in bytes, and the smallest memory in bytes: the ring's first and last page, the side segment up to schema_data
FILES = {"msgq_": (384 + (1 << 20), 2 * PAGE), "msgqside_": (65536, 18928)}


def connect(endpoint: str, role: str) -> str:
    """Child: connect, and come to an end."""
    with (publisher if role == "publisher" else subscriber)(endpoint):
        return "connected"


def die_in_turn(plans: dict[str, str], role: str) -> dict[str, int]:
    """Child: fork one process for each endpoint, which dies as planned; return their exit codes."""
    codes = {}
    for endpoint, plan in plans.items():
        if (pid := fork()) == 0:
            os.environ["MSGQ_TEST_CALLS"] = plan
            connect(endpoint, role)
            os._exit(0)
        codes[endpoint] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_topic_creation_killed_around_each_system_call_leaves_usable_topic(
    tools: Path, endpoint: str, prefix: str, role: str
) -> None:
    """What: the first process on a topic dies before or after each call that makes the two files.

    Why: a file must be complete before it has a name, and the lock must be the kernel's to drop.

    Failure would mean: half a file stays in /dev/shm and everybody else trips over it, or waits for a dead one.
    """
    plans = {
        f"{endpoint}-{when}-{call}-{at}": f"{int(signal.SIGKILL)} {when} {call} {at}"
        for when in ("before", "after")
        for call in CALLS
        for at in (1, 2)
    }
    mode = "660"  # as the umask would not have it
    codes = run_child(die_in_turn, plans, role, env={"LD_PRELOAD": str(tools / "interpose.so"), "MSGQ_MODE": mode})
    for name in plans:
        check_files(name, prefix)
        check_topic_is_usable(name)
        check_files(name, prefix)
    for kind in ("msgq_", "msgqside_"):
        assert {path.name for path in (SHM / f"{kind}{prefix}").iterdir()} == set(plans), "temporary files"
    killed = [*codes.values()].count(-signal.SIGKILL)
    assert killed + [*codes.values()].count(0) == len(plans), codes
    assert killed == 2 * 8, "two calls of allocate, fchmod, link, one of lock and unlock: is that different now?"


def check_files(endpoint: str, prefix: str) -> None:
    """Only complete files have a name."""
    for kind, (size, memory) in FILES.items():
        path = SHM / f"{kind}{prefix}" / endpoint
        if path.exists():
            status = path.stat()
            assert (status.st_size, status.st_blocks * 512 >= memory) == (size, True)
            assert status.st_nlink == 1


def check_topic_is_usable(endpoint: str) -> None:
    """Everybody else can go on."""
    with subscriber(endpoint) as sub, publisher(endpoint) as pub:
        pub.send(b"hello")
        assert sub.receive() == b"hello"
        assert sub.lost == 0


def test_passive_subscriber_before_side_segment_creation_connects(tools: Path, endpoint: str, prefix: str) -> None:
    """What: a publisher stops when the ring has its name and the side segment not yet; a passive subscriber connects;
    the publisher goes on.

    Why: a passive subscriber creates nothing, so it must wait for the second file.

    Failure would mean: it takes the publisher for a stock one: it counts on less of the ring, and does not know what
    it lost.
    """
    ring = SHM / f"msgq_{prefix}" / endpoint
    env = {"LD_PRELOAD": str(tools / "interpose.so"), "MSGQ_TEST_CALLS": f"{int(signal.SIGSTOP)} before link 2"}
    with Child(connect, endpoint, "publisher", env=env) as maker:
        os.waitid(os.P_PID, maker.pid, os.WSTOPPED)
        task = Task(lambda: subscriber(endpoint, passive=True))
        wait_until(lambda: has_open(ring), "the passive subscriber has opened the ring")
        maker.kill(signal.SIGCONT)
        assert maker.result() == "connected"
        with task.result() as passive, publisher(endpoint) as pub:
            for _ in range(40):
                pub.send(bytes(100_000))
            count = len(passive.receive_many())
            assert count + passive.lost == 40


def has_open(path: Path) -> bool:
    """Whether this process has the file open."""
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a descriptor that was closed while we looked: the list's own
            if link.readlink() == path:
                return True
    return False


def connect_with_size(endpoint: str, segment_size: int) -> None:
    """Child: become the publisher of a ring of this size."""
    publisher(endpoint, segment_size=segment_size).close()


@pytest.mark.parametrize("size", [1 << 16, 4 << 20])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["lock", "allocate", "unlink", "link", "unlock"])
def test_resize_killed_around_each_system_call_leaves_ring_to_resize(
    tools: Path, endpoint: str, call: str, when: str, size: int
) -> None:
    """What: a publisher dies while it gives its size to an empty ring.

    Why: who dies has requested nothing: the next publisher may request another size, and subscribers go on.
    """
    grows = size > 1 << 20
    sub = subscriber(endpoint)
    if not grows:
        sub.close()
    plan = {"LD_PRELOAD": str(tools / "interpose.so"), "MSGQ_TEST_CALLS": f"{int(signal.SIGKILL)} {when} {call} 1"}
    with Child(connect_with_size, endpoint, size, env=plan) as child:
        code = child.process.wait()
    was_reached = code == -signal.SIGKILL
    assert was_reached or (call in ("link", "unlink") and grows), "calls of the other way to resize"
    # after the link, the ring has its size, and without a side segment it may belong to a stock process
    has_size = call == "unlock" or (call, when) == ("link", "after") or not was_reached
    next_size = size if has_size else 2 * size
    with publisher(endpoint, segment_size=next_size) as pub:
        sub = sub if grows else subscriber(endpoint)
        for _ in range(3):
            pub.send(bytes(next_size // 4))
            assert sub.receive() == bytes(next_size // 4)
        assert sub.lost == 0
    sub.close()
    with pytest.raises(SegmentSizeError, match=f"segment_size {next_size}.* but"):
        publisher(endpoint, segment_size=3 * size)
