"""Handles of one process share the mapping of a file. What another program does to the file must reach each handle."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest

import msgq
from msgq.errors import SegmentSizeError
from tests.support import SHM, in_fork

#: How to open a handle of each kind, and its file.
HANDLES: dict[str, tuple[Callable[[str], Any], str]] = {
    "channel": (msgq.Channel, "msgqchan_"),
    "queue": (msgq.MessageQueue, "msgqjobs_"),
    "vector": (lambda name: msgq.SeqlockVector(name, "f8", 64), "msgqrec_"),
}


def list_mappings(path: os.PathLike[str]) -> list[str]:
    """Return the protection of each mapping of a whole file in this process, without pages that hold locks."""
    status = os.stat(path)
    found = []
    with open("/proc/self/maps") as lines:
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
    assert former.receive(timeout=0).data == b"former"


def test_end_of_former_mapping_does_not_end_the_sharing_of_its_successor(endpoint: str) -> None:
    former, path = msgq.MessageQueue(endpoint), SHM / f"msgqjobs_{endpoint}"
    path.unlink()
    current = [msgq.MessageQueue(endpoint)]
    former.close()
    del former
    gc.collect()
    current.append(msgq.MessageQueue(endpoint))
    assert list_mappings(path) == ["rw-s"]


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
    assert [parent.receive(timeout=1).data for _ in range(2)] == [b"from the child", b"by the inherited handle"]
