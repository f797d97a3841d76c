"""Processes that stop while they create a topic, or are killed while they choose the sizes of a topic or queue."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from msgq.errors import SegmentSizeError
from msgq.workqueue import MessageQueue
from tests.command import run
from tests.crash.harness import plan
from tests.stress.roles import publisher, subscriber
from tests.support import SHM, Child, Task, wait_until


def connect(endpoint: str, role: str) -> str:
    """Child: connect, and come to an end."""
    with (publisher if role == "publisher" else subscriber)(endpoint):
        return "connected"


def test_passive_subscriber_before_side_segment_creation_connects(interposer: Path, endpoint: str, prefix: str) -> None:
    """What: a publisher stops when the ring has its name and the side segment not yet; a passive subscriber connects;
    the publisher goes on.

    Why: a passive subscriber creates nothing, so it must wait for the second file.

    Failure would mean: it takes the publisher for a stock one: it counts on less of the ring, and does not know what
    it lost.
    """
    ring = SHM / f"msgq_{prefix}" / endpoint
    env = {"LD_PRELOAD": str(interposer), **plan(signal.SIGSTOP, 2, "call: before link")}
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


def test_clean_removes_old_directory_of_killed_creator(
    interposer: Path, endpoint: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What: a publisher dies after it created the first directory of its prefix, and before the directory has a name.

    Why: the directory is empty, so no process misses it, but its creator cannot remove it any more.
    """
    monkeypatch.setenv("MSGQ_MODE", "660")  # a directory for one user has its name at once
    env = {"LD_PRELOAD": str(interposer)} | plan(signal.SIGKILL, 1, "call: before fchmod")
    with Child(connect, endpoint, "publisher", env=env) as child:
        assert child.process.wait() == -signal.SIGKILL
    (draft,) = SHM.glob(f".msgq*_{prefix}.*")
    assert run("clean", "--json").output == "", "its creator may live"
    os.utime(draft, (0, 0))
    assert f"{draft}: its creator was killed" in run("doctor", code=None).output
    for option, action in (("--dry-run", "would remove"), ("--json", '"action": "removed"')):
        assert draft.exists()
        assert action in run("clean", option).output
    assert not draft.exists()
    subscriber(endpoint).close()


def test_clean_keeps_directory_with_a_file(prefix: str) -> None:
    draft = SHM / f".msgq_{prefix}.abcdef"
    draft.mkdir(mode=0o700)
    try:
        (draft / "file").touch()
        os.utime(draft, (0, 0))
        assert run("clean", "--json").output == ""
        assert draft.exists()
    finally:
        shutil.rmtree(draft)


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
    interposer: Path, endpoint: str, call: str, when: str, size: int
) -> None:
    """What: a publisher dies while it gives its size to an empty ring.

    Why: who dies has requested nothing: the next publisher may request another size, and subscribers go on.
    """
    grows = size > 1 << 20
    sub = subscriber(endpoint)
    if not grows:
        sub.close()
    env = {"LD_PRELOAD": str(interposer), **plan(signal.SIGKILL, 1, f"call: {when} {call}")}
    with Child(connect_with_size, endpoint, size, env=env) as child:
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


def choose_sizes(name: str, max_messages: int) -> None:
    """Child: request the number of messages."""
    MessageQueue(name, max_messages=max_messages).close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["lock", "allocate", "unlock"])
def test_choice_of_sizes_killed_around_each_system_call_leaves_usable_queue(
    interposer: Path, endpoint: str, call: str, when: str
) -> None:
    """What: a process dies while it chooses the sizes of a queue that others have open.

    Why: until the sizes are stored, any process may choose others, also larger ones than the file has memory for.
    """
    env = {"LD_PRELOAD": str(interposer), **plan(signal.SIGKILL, 1, f"call: {when} {call}")}
    with MessageQueue(endpoint) as consumer:
        with Child(choose_sizes, endpoint, 100, env=env) as child:
            assert child.process.wait() == -signal.SIGKILL
        max_messages = 100 if call == "unlock" else 200
        with MessageQueue(endpoint, max_messages=max_messages) as producer:
            messages = [b"%d" % number for number in range(max_messages)]
            assert producer.send_many([*messages, b""], timeout=0) == max_messages
            assert [message.data for message in consumer.receive_many()] == messages
            producer.unlink()
