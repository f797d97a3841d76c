"""The memory of a publisher's pool."""

import errno
import os
from collections.abc import Iterator

import pytest

import msgq
from msgq.common import shm_paths
from msgq.impl.channel.pool_files import list_pools
from tests.support import run_child
from tests.unit import children

CAPACITY = 64
PAGE_BYTES = 4096


def read_pool_status(name: str) -> os.stat_result:
    """Return the status of the only pool of the channel."""
    (uid,) = [uid for channel, uid in list_pools("") if channel == name]
    return os.stat(shm_paths.pool_path(name, "", uid))


def count_hole_bytes(status: os.stat_result) -> int:
    return -(-status.st_size // PAGE_BYTES) * PAGE_BYTES - status.st_blocks * 512


@pytest.fixture
def channel(token: str) -> Iterator[msgq.Channel]:
    with msgq.Channel(token, capacity=CAPACITY) as opened:
        yield opened
        opened.unlink()


def test_pool_slots_get_memory_before_their_first_use(channel: msgq.Channel) -> None:
    """Opening a publisher of large messages must not take the time, or the memory, of the whole pool."""
    with channel.publisher(slot_bytes=PAGE_BYTES) as pub:
        holes = [count_hole_bytes(read_pool_status(channel.name))]
        for _ in range(pub.slots):
            pub.send(b"1")
            holes.append(count_hole_bytes(read_pool_status(channel.name)))
    assert holes[0] >= CAPACITY * PAGE_BYTES
    assert holes[1] > 0, "the first message populates a part of the slots"
    assert holes == sorted(holes, reverse=True)
    assert holes[-1] == 0


def test_pool_has_all_memory_at_once_with_prealloc(channel: msgq.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are those of the moment in which the channel object was opened."""
    monkeypatch.setenv("MSGQ_PREALLOC", "1")
    with msgq.Channel(channel.name) as preallocating:
        monkeypatch.delenv("MSGQ_PREALLOC")
        with preallocating.publisher(slot_bytes=PAGE_BYTES):
            assert count_hole_bytes(read_pool_status(channel.name)) == 0


def test_send_without_memory_for_a_slot_raises(token: str) -> None:
    """Without a handler of SIGBUS, a write into a hole of a full file system ends the process."""
    answer = run_child(children.full_file_system_for_pool, token, env={"MSGQ_SIGBUS": "0"})
    if answer == ["not permitted"]:
        pytest.skip("needs the right to mount")
    texts, sent, received, lost = answer
    assert texts
    for text in texts:
        assert text.startswith(f"{errno.ENOSPC} {token!r}: ")
        assert "cannot allocate memory for the message" in text
        assert "bytes free" in text
    assert sent == received, "each sent message arrives"
    assert lost == 0
    assert sent[-20:] == list(range(40, 60)), "with memory, each message is sent"
    assert len(sent) < 60


def test_publisher_with_pool_larger_than_free_memory_is_refused(token: str) -> None:
    answer = run_child(children.pool_on_full_file_system, token)
    if answer == ["not permitted"]:
        pytest.skip("needs the right to mount")
    name, number, text, left = answer
    assert (name, number) == ("SegmentError", errno.ENOSPC)
    assert "bytes free" in text
    assert not [entry for entry in left if entry.startswith("msgqpool")]
