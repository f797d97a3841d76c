"""`msgq clean` of prefixes that ended, beside others that clean, and beside processes that come meanwhile."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.common import settings, shm_paths
from msgq.impl.ring.core import unlink_orphan, unlink_topic
from msgq.topic import cleanup
from tests import command
from tests.support import DEADLINE, SHM, Child, Task, hear, run_child, say, wait_until

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def own_shared_memory() -> None:
    """Child: have a /dev/shm of its own, or end."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"")
    ):
        say("not permitted")
        sys.exit()


def in_own_shared_memory(function: Callable[[], Any]) -> Any:
    """Run a function of this module in a process that has a /dev/shm of its own: nobody else's is swept."""
    answer = run_child(function, env={"OPENPILOT_PREFIX": ""})
    if answer == "not permitted":
        pytest.skip("needs the right to mount")
    return answer


def prefix_that_ended(prefix: str, *endpoints: str) -> None:
    """What openpilot leaves: it removes the directory of the rings alone."""
    with settings.overrides(prefix):
        for endpoint in endpoints:
            msgq.pub_sock(endpoint).close()
    shutil.rmtree(shm_paths.topic_directories(prefix)[0])


def run_clean(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run("clean", "--json", *words).output.splitlines()]


def clean_many() -> dict[str, Any]:
    own_shared_memory()
    for number in range(20):
        prefix_that_ended(f"ended{number}", "one", "two")
    (SHM / "msgqside_bare").mkdir(mode=0o700)
    with settings.overrides("lives"):
        msgq.pub_sock("idle").close()
        publisher = msgq.pub_sock("busy")
    noted = [json.loads(line) for line in command.run("doctor", "--json", code=0).output.splitlines()]
    tried = run_clean("--dry-run")
    before = sorted(os.listdir("/dev/shm"))
    first = run_clean()
    after = sorted(os.listdir("/dev/shm"))
    every = run_clean("--all-prefixes")
    publisher.close()
    return {
        "noted": next(one["text"] for one in noted if one["check"] == "files"),
        "tried": len(tried),
        "before": len(before),
        "removed": first,
        "after": after,
        "again": run_clean(),
        "every": [(one["prefix"], one["endpoint"], one["action"]) for one in every],
    }


def test_clean_removes_leftovers_of_ended_prefixes_and_keeps_used_prefixes() -> None:
    said = in_own_shared_memory(clean_many)
    assert "40 side segments without a ring" in said["noted"]
    assert "`msgq clean` removes them" in said["noted"]
    assert (said["tried"], said["before"]) == (41, 24)
    assert len(said["removed"]) == 41
    assert {one["action"] for one in said["removed"]} == {"removed"}
    assert sum(one["bytes"] for one in said["removed"]) == 40 * 65536
    assert said["after"] == ["msgq_lives", "msgqclock", "msgqside_lives"], "the clock of the host is no rubbish"
    assert said["again"] == []
    assert said["every"] == [["lives", "busy", "kept"], ["lives", "idle", "removed"]]


def test_all_prefixes_option_of_clean_excludes_other_options() -> None:
    command.run("clean", "--all-prefixes", "--prefix", "p", code=2)
    command.run("clean", "--all-prefixes", "endpoint", code=2)


def test_clean_keeps_side_segment_of_recreated_topic(prefix: str) -> None:
    """Its side segment is of another ring."""
    prefix_that_ended(prefix, "topic")
    with msgq.sub_sock("topic", timeout=0) as sub, msgq.pub_sock("topic") as pub:
        pub.send(b"x")
        assert (sub.receive(), sub.lost) == (b"x", 0)
        assert run_clean("--dry-run")[0]["action"] == "kept"


@pytest.mark.parametrize("words", [["--dry-run"], [], ["--all-prefixes"]])
def test_clean_without_prefix_option_keeps_directories_of_topics(prefix: str, words: list[str]) -> None:
    msgq.pub_sock("topic").close()
    run_clean(*words)
    assert all(map(os.path.exists, shm_paths.topic_directories(prefix)))


def test_clean_with_prefix_option_removes_empty_directories(prefix: str) -> None:
    msgq.pub_sock("topic").close()
    msgq.Channel("channel").close()
    with msgq.pub_sock("busy"):
        run_clean("--prefix", prefix)
        assert all(map(os.path.exists, shm_paths.topic_directories(prefix)))
    run_clean("--prefix", prefix)
    assert [name for name in os.listdir("/dev/shm") if name.endswith(prefix)] == []


def test_sockets_work_after_clean_removes_their_files(prefix: str) -> None:
    with msgq.sub_sock("topic", timeout=0) as sub, msgq.pub_sock("topic") as pub:
        shutil.rmtree(shm_paths.topic_directories(prefix)[0])
        assert [one["endpoint"] for one in run_clean()] == ["topic"]
        assert not [path for path in shm_paths.topic_directories(prefix) if os.path.exists(path)]
        pub.send(b"x")
        assert sub.receive() == b"x"


def test_clean_keeps_side_segment_if_ring_is_created_during_clean(prefix: str) -> None:
    prefix_that_ended(prefix, "topic")
    assert cleanup.find_orphaned_sides(prefix) == ["topic"]
    with msgq.pub_sock("topic") as pub, msgq.sub_sock("topic", timeout=0) as sub:
        inode = os.stat(shm_paths.side_segment_path("topic", prefix)).st_ino
        assert not unlink_orphan("topic", prefix)
        assert os.stat(shm_paths.side_segment_path("topic", prefix)).st_ino == inode
        pub.send(b"x")
        assert sub.receive() == b"x"


def connect_again_and_again(endpoint: str) -> int:
    """Child: connect while others clean; how often it came to nothing."""
    rings, sides = shm_paths.topic_directories(settings.get_prefix())
    say("ready")
    hear()
    failures = 0
    for number in range(300):
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, timeout=0) as sub:
            pub.send(b"%d" % number)
            failures += sub.receive() != b"%d" % number
        if number % 3 == 0:
            shutil.rmtree(rings, ignore_errors=True)
        if number % 30 == 0:  # the next connection could be faster than all sweeps
            wait_until(lambda: not os.path.exists(f"{sides}/{endpoint}"), "another process removed the orphan")
    return failures


def test_clean_removes_orphans_during_connections_of_other_processes(prefix: str) -> None:
    """What: a process connects both roles, and removes the directory of the rings, again and again; this one clears.

    Why: the side segment of a new ring must not be taken for that of the one before, nor a directory be missing.

    Failure would mean: participants that do not see each other, or a connect that fails for no reason of its own.
    """
    with Child(connect_again_and_again, "topic") as child:
        assert child.hear() == "ready"
        child.say()
        over = threading.Event()

        def remove_orphans() -> int:
            count = 0
            while not over.is_set():
                count += len(list(cleanup.remove_orphaned_sides(prefix)))
            return count

        sweeping = Task(remove_orphans)
        try:
            assert child.hear() == 0
        finally:
            over.set()
        assert sweeping.result() > 0


def test_two_simultaneous_clean_commands_succeed(prefix: str) -> None:
    """Each finds files that the other removes between its look and its hand."""
    for ended in (False, False, True):
        for number in range(40):
            msgq.pub_sock(f"topic{number}", 4096).close()
        if ended:
            shutil.rmtree(shm_paths.topic_directories(prefix)[0])
        with ExitStack() as stack:
            running = [stack.enter_context(command.start("clean")) for _ in range(3)]
            said = [process.communicate(timeout=DEADLINE) for process in running]
            assert [process.returncode for process in running] == [0, 0, 0], said
        assert not list(SHM.glob(f"msgq*_{prefix}/*"))


@pytest.mark.parametrize("step", ["TopicLock", "read", "unlink_topic"])
def test_clean_succeeds_if_topic_disappears_at_any_step(
    prefix: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Right before each of the steps that a clean takes for one topic."""
    for endpoint in ("here", "stays"):
        msgq.pub_sock(endpoint, 4096).close()
    real = getattr(cleanup, step)

    def vanish(*arguments: Any) -> Any:
        if "here" in arguments:
            unlink_topic("here", prefix)
        return real(*arguments)

    monkeypatch.setattr(cleanup, step, vanish)
    assert [one["endpoint"] for one in run_clean() if one["endpoint"] != "here"] == ["stays"]
    assert not list(SHM.glob(f"msgq*_{prefix}/*"))


@pytest.mark.ci
def test_clean_of_a_locked_topic_does_not_block_other_topics(prefix: str) -> None:
    """By somebody who is stopped, for instance; the lock is waited for, 5 s."""
    for endpoint in ("locked", "free"):
        msgq.pub_sock(endpoint, 4096).close()
    with open(shm_paths.ring_path("locked", prefix), "rb") as ring:
        fcntl.flock(ring, fcntl.LOCK_EX)
        assert {one["endpoint"]: one["action"] for one in run_clean()} == {"free": "removed", "locked": "kept"}
    assert Path(shm_paths.ring_path("locked", prefix)).exists()


def test_clean_keeps_topic_with_unregistered_subscribers(endpoint: str) -> None:
    """The table has room for 128; the next one is in no list, and its topic was removed under it."""
    subs = [msgq.sub_sock(endpoint) for _ in range(129)]
    for sub in subs[:128]:
        sub.close()
    kept = json.loads(command.run("clean", "--json", endpoint, code=1).output)
    assert (kept["action"], kept["reason"]) == ("kept", "in use by unlisted subscribers")
    subs[128].close()
    (removed,) = run_clean(endpoint)
    assert removed["action"] == "removed"
