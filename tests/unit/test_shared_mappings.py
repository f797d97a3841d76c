"""Handles of one process share the mapping of a file. What another program does to the file must reach each handle."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import SegmentSizeError
from tests.support import SHM, Task, in_fork
from tests.unit.c_programs import Program
from tests.unit.ringfile import HEADER, ring_path, side_path

#: Opener of a handle of each kind, and the start of its file's name.
HANDLES: dict[str, tuple[Callable[[str], Any], str]] = {
    "channel": (msgq.Channel, "msgqchan_"),
    "queue": (msgq.MessageQueue, "msgqjobs_"),
    "vector": (lambda name: msgq.SeqlockVector(name, "f8", 64), "msgqrec_"),
}


def list_mappings(path: os.PathLike[str], pid: int | str = "self") -> list[str]:
    """Return the protection of each mapping of a whole file in a process, without pages that hold locks."""
    status = os.stat(path)
    found = []
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            span, protection, offset, _, inode = line.split()[:5]
            start, end = (int(address, 16) for address in span.split("-"))
            if int(inode) == status.st_ino and int(offset, 16) == 0 and end - start >= status.st_size:
                found.append(protection)
    return found


@pytest.mark.parametrize("kind", HANDLES)
def test_handles_of_one_file_share_one_mapping_until_the_last_is_dropped(kind: str, endpoint: str) -> None:
    open_handle, file_prefix = HANDLES[kind]
    handles = [open_handle(endpoint) for _ in range(3)]
    path = SHM / f"{file_prefix}{endpoint}"
    assert list_mappings(path) == ["rw-s"]
    while handles:
        assert list_mappings(path) == ["rw-s"]
        handles.pop().close()
        gc.collect()
    assert list_mappings(path) == []


def test_removed_and_recreated_file_has_its_own_mapping(endpoint: str) -> None:
    former, path = msgq.MessageQueue(endpoint), SHM / f"msgqjobs_{endpoint}"
    former.send(b"former")
    path.unlink()
    current = [msgq.MessageQueue(endpoint) for _ in range(2)]
    assert list_mappings(path) == ["rw-s"]
    assert current[0].receive(timeout=0) is None
    message = former.receive(timeout=0)
    assert message is not None
    assert message.data == b"former"


def test_end_of_previous_mapping_does_not_end_the_sharing_of_its_successor(endpoint: str) -> None:
    former, path = msgq.MessageQueue(endpoint), SHM / f"msgqjobs_{endpoint}"
    path.unlink()
    current = [msgq.MessageQueue(endpoint)]
    former.close()
    del former
    gc.collect()
    current.append(msgq.MessageQueue(endpoint))
    assert list_mappings(path) == ["rw-s"]


def test_garbage_collected_handles_in_a_cycle_leave_no_mapping(endpoint: str) -> None:
    cycle: list[Any] = [msgq.pub_sock(endpoint), msgq.MessageQueue(endpoint)]
    cycle.append(cycle)
    files = [ring_path(endpoint), side_path(endpoint), SHM / f"msgqjobs_{endpoint}"]
    assert [list_mappings(path) for path in files] == [["rw-s"]] * 3
    del cycle
    gc.collect()
    assert [list_mappings(path) for path in files] == [[]] * 3


def test_truncated_mapping_is_not_shared_with_a_new_handle(endpoint: str) -> None:
    first, path = msgq.SeqlockVector(endpoint, "f8", 64), SHM / f"msgqrec_{endpoint}"
    second = msgq.SeqlockVector(endpoint, "f8", 64)
    content = path.read_bytes()
    os.truncate(path, 0)
    for handle in (first, second):
        with pytest.raises(SegmentSizeError):
            handle[0]
    path.write_bytes(content)  # the size and the inode are as before
    third = msgq.SeqlockVector(endpoint, "f8", 64)
    third[0] = 5.0
    assert third[0] == 5.0
    with pytest.raises(SegmentSizeError):
        first[0]


def test_read_only_handle_does_not_get_the_writable_mapping(endpoint: str) -> None:
    with msgq.SeqlockVector(endpoint, "f8", 64), msgq.SeqlockVector(endpoint, passive=True):
        assert sorted(list_mappings(SHM / f"msgqrec_{endpoint}")) == ["r--s", "rw-s"]


@pytest.mark.parametrize("variable", ["MSGQ_SIGBUS", "MSGQ_PREALLOC"])
def test_handle_opened_with_another_setting_has_its_own_mapping(
    variable: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [msgq.MessageQueue(endpoint)]
    monkeypatch.setenv(variable, "0")
    handles.append(msgq.MessageQueue(endpoint))
    assert list_mappings(SHM / f"msgqjobs_{endpoint}") == ["rw-s", "rw-s"]


def test_file_that_fails_a_check_is_refused_in_spite_of_a_shared_mapping(endpoint: str) -> None:
    handle, path = msgq.MessageQueue(endpoint), SHM / f"msgqjobs_{endpoint}"
    other = path.with_name(f"msgqjobs_{endpoint}2")
    os.link(path, other)
    try:
        with pytest.raises(msgq.errors.SegmentError, match="2 names"):
            msgq.MessageQueue(endpoint)
    finally:
        other.unlink()
    handle.send(b"still usable")


def test_closed_handle_of_a_child_leaves_the_mapping_of_the_parent(endpoint: str) -> None:
    parent = msgq.MessageQueue(endpoint)

    def use_in_child() -> None:
        child = msgq.MessageQueue(endpoint)
        assert list_mappings(SHM / f"msgqjobs_{endpoint}") == ["rw-s"]
        child.send(b"from the child")
        child.close()
        parent.send(b"by the inherited handle")

    assert in_fork(use_in_child) == 0
    received = [parent.receive(timeout=1) for _ in range(2)]
    assert [message and message.data for message in received] == [b"from the child", b"by the inherited handle"]


# ---- topics: a ring and its side segment ----

SMALL_RING = 8192


def topic_mappings(endpoint: str) -> tuple[list[str], list[str]]:
    return list_mappings(ring_path(endpoint)), list_mappings(side_path(endpoint))


def test_sockets_of_one_topic_share_both_mappings_until_the_last_is_dropped(endpoint: str) -> None:
    sockets: list[Any] = [msgq.pub_sock(endpoint), *(msgq.sub_sock(endpoint) for _ in range(2))]
    while sockets:
        assert topic_mappings(endpoint) == (["rw-s"], ["rw-s"])
        sockets.pop().close()
        gc.collect()
    assert topic_mappings(endpoint) == ([], [])


def test_passive_subscriber_maps_the_topic_read_only(endpoint: str) -> None:
    with msgq.pub_sock(endpoint), msgq.sub_sock(endpoint, passive=True):
        assert topic_mappings(endpoint) == (["rw-s", "r--s"], ["rw-s", "r--s"]) or topic_mappings(endpoint) == (
            ["r--s", "rw-s"],
            ["r--s", "rw-s"],
        )


def test_closed_subscriber_leaves_the_messages_of_another(endpoint: str) -> None:
    pub, sub, other = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint), msgq.sub_sock(endpoint)
    waiting = Task(sub.receive)
    other.close()
    del other
    gc.collect()
    pub.send(b"to the one that waits")
    assert waiting.result() == b"to the one that waits"


def count_inotify_watches(path: os.PathLike[str]) -> int:
    """Return how often this process watches the file."""
    inode, found = os.stat(path).st_ino, 0
    for fd in os.listdir("/proc/self/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{fd}") as lines:
            found += sum(line.startswith("inotify") and f" ino:{inode:x} " in line for line in lines)
    return found


def test_closed_subscriber_leaves_the_watch_for_stock_publishers_of_another(endpoint: str) -> None:
    sub, other = msgq.sub_sock(endpoint, timeout=1), msgq.sub_sock(endpoint, timeout=1)
    assert [sub.receive(), other.receive()] == [None, None]
    assert count_inotify_watches(ring_path(endpoint)) == 1
    other.close()
    assert count_inotify_watches(ring_path(endpoint)) == 1
    sub.close()
    assert count_inotify_watches(ring_path(endpoint)) == 0


def test_socket_of_a_recreated_topic_does_not_get_the_previous_ring(endpoint: str) -> None:
    former, reader = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
    former.unlink()
    pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
    assert topic_mappings(endpoint) == (["rw-s"], ["rw-s"])
    former.send(b"former")
    pub.send(b"current")
    assert (reader.receive(), sub.receive()) == (b"former", b"current")


@pytest.mark.parametrize("locate", [ring_path, side_path])
def test_each_socket_reports_a_truncated_file_and_a_new_socket_works(endpoint: str, locate: Any) -> None:
    pub, sub, path = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint), locate(endpoint)
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)
    if locate is side_path:
        path.unlink()
    current, reader = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)
    current.send(b"current")
    assert reader.receive() == b"current"
    with pytest.raises(msgq.IpcError):
        pub.send(b"former")
    if locate is ring_path:
        with pytest.raises(SegmentSizeError):
            sub.receive(non_blocking=True)


def test_truncated_side_segment_is_reported_by_the_sockets_of_the_previous_and_the_grown_ring(endpoint: str) -> None:
    pub, sub = msgq.pub_sock(endpoint, SMALL_RING), msgq.sub_sock(endpoint)
    os.truncate(ring_path(endpoint), HEADER + 8 * SMALL_RING)
    late = msgq.sub_sock(endpoint)
    assert len(topic_mappings(endpoint)[0]) == 1  # the previous ring is smaller than the file
    os.truncate(side_path(endpoint), 0)
    with contextlib.suppress(SegmentSizeError):
        pub.all_readers_updated()
    for call in (lambda: pub.send(b"x"), sub.receive, late.receive):
        with pytest.raises(SegmentSizeError, match="truncated"):
            call()


def test_forked_child_uses_the_mappings_of_its_parent(endpoint: str) -> None:
    pub, sub = msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)

    def use_in_child() -> None:
        own = msgq.sub_sock(endpoint)
        assert topic_mappings(endpoint) == (["rw-s"], ["rw-s"])
        pub.send(b"from the child")
        assert own.receive() == sub.receive() == b"from the child"
        for socket in (pub, sub, own):
            socket.close()

    assert in_fork(use_in_child) == 0
    assert sub.receive() == b"from the child"
    with pytest.raises(msgq.errors.MultiplePublishersError):
        pub.send(b"from the parent")


def test_threads_that_open_and_close_one_topic_leave_no_mapping(endpoint: str) -> None:
    def open_and_close() -> None:
        for i in range(25):
            with msgq.sub_sock(endpoint, timeout=0) as sub:
                assert sub.receive() is None
            if i % 8 == 7:
                with contextlib.suppress(FileNotFoundError):
                    ring_path(endpoint).unlink()

    tasks = [Task(open_and_close) for _ in range(4)]
    for task in tasks:
        task.result()
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send(b"after the race")
        assert sub.receive() == b"after the race"
        assert topic_mappings(endpoint) == (["rw-s"], ["rw-s"])
    del pub, sub
    gc.collect()
    assert topic_mappings(endpoint) == ([], [])


# ---- C ----


def test_handles_of_a_c_program_share_the_mappings_until_the_last_is_closed(
    programs: Path, prefix: str, token: str
) -> None:
    files = [ring_path(f"{prefix}/{token}"), side_path(f"{prefix}/{token}"), SHM / f"msgqchan_{prefix}" / token]
    with Program(programs / "c-rows", token) as program:
        child = int(program.hear())
        assert [list_mappings(path, program.pid) for path in files] == [["rw-s"]] * 3
        for kind in ("publisher", "channel-publisher"):
            program.ask(kind)
        assert [list_mappings(path, program.pid) for path in files] == [["rw-s"]] * 3
        for kind in ("subscriber", "channel-subscriber"):
            program.ask(kind)
        assert [list_mappings(path, program.pid) for path in files] == [[]] * 3
        os.kill(child, signal.SIGKILL)
