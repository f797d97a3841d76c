"""`msgq.topic.cleanup`: who uses a topic, what the dead left, and what of it goes; without the command."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import struct
from collections.abc import Iterator

import pytest

import msgq
from msgq.channel import Channel
from msgq.channel.cleanup import CHANNELS, remove_dead_channels
from msgq.common import shm_paths
from msgq.errors import SegmentError
from msgq.kinds import maintenance
from msgq.kinds.cleanup import FileRemoval
from msgq.topic import cleanup
from tests.support import SHM, Child, hear, say

HEADER_BYTES, PUBLISHER_UID = 384, 16


def publisher(endpoint: str) -> None:
    """Child: publish until killed."""
    with msgq.pub_sock(endpoint, 4096):
        say("up")
        hear()


def killed_publisher(endpoint: str) -> int:
    with Child(publisher, endpoint) as child:
        assert child.hear() == "up"
        child.kill()
        return child.pid


def stock_ring(prefix: str, endpoint: str) -> None:
    """What a stock publisher leaves: a ring without a side segment."""
    (SHM / f"msgq_{prefix}").mkdir(mode=0o700, exist_ok=True)
    header = bytearray(HEADER_BYTES)
    struct.pack_into("<Q", header, PUBLISHER_UID, 4711)
    path = SHM / f"msgq_{prefix}" / endpoint
    path.write_bytes(bytes(header) + bytes(1 << 16))
    path.chmod(0o600)


def ring_file_exists(endpoint: str, prefix: str) -> bool:
    return os.path.exists(shm_paths.ring_path(endpoint, prefix))


@pytest.fixture
def alive(prefix: str) -> Iterator[msgq.PubSocket]:
    with msgq.pub_sock("alive", 4096) as socket:
        yield socket


def test_cleanup_distinguishes_live_users_from_dead_processes(alive: msgq.PubSocket, prefix: str) -> None:
    pid = killed_publisher("left")
    living, unknown = cleanup.find_topic_users(msgq.stats.topic("alive"))
    assert ([word.split()[-1] for word in living], unknown) == ([str(os.getpid())], ())
    assert cleanup.find_dead_participants(msgq.stats.topic("alive")) == []
    assert cleanup.find_topic_users(msgq.stats.topic("left")) == ((), ())
    ((role, participant),) = cleanup.find_dead_participants(msgq.stats.topic("left"))
    assert (role, participant.pid) == ("publisher", pid)
    assert str(participant).endswith(f" {pid} (dead)")


def test_cleanup_keeps_topics_that_a_process_may_use(alive: msgq.PubSocket, prefix: str) -> None:
    killed_publisher("left")
    stock_ring(prefix, "stock")
    names = ["alive", "left", "nobody", "stock"]
    asked = {one.endpoint: one for one in cleanup.TOPICS.remove_unused(names, prefix, remove=False)}
    assert {name: (one.removed, one.can_be_forced) for name, one in asked.items()} == {
        "alive": (False, False),
        "left": (True, False),
        "stock": (False, True),
    }
    assert ring_file_exists("left", prefix)
    done = {one.endpoint: one for one in cleanup.TOPICS.remove_unused(names, prefix)}
    assert done == asked
    assert [ring_file_exists(name, prefix) for name in ("alive", "left", "stock")] == [True, False, True]
    forced = {one.endpoint: one.removed for one in cleanup.TOPICS.remove_unused(names, prefix, force=True)}
    assert forced == {"alive": False, "stock": True}
    assert not ring_file_exists("stock", prefix)


def test_cleanup_keeps_an_unreadable_topic(prefix: str) -> None:
    (SHM / f"msgq_{prefix}").mkdir(mode=0o700)
    (SHM / f"msgq_{prefix}" / "short").write_bytes(bytes(100))
    (kept,) = cleanup.TOPICS.remove_unused(["short"], prefix, force=True)
    assert (kept.removed, kept.can_be_forced) == (False, False)
    with pytest.raises(SegmentError) as error:
        msgq.stats.topic("short")
    (issue,) = maintenance.find_unreadable(prefix)
    assert issue == (str(error.value), "error")


def test_cleanup_names_the_damaged_file_of_a_topic(prefix: str) -> None:
    msgq.pub_sock("halved", 4096).close()
    os.truncate(side := shm_paths.side_segment_path("halved", prefix), 100)
    (kept,) = cleanup.TOPICS.remove_unused(["halved"], prefix, force=True)
    assert (kept.endpoint, kept.path, kept.removed) == ("halved", side, False)


def subscriber_of_channel(name: str) -> None:
    """Child: subscribe until killed."""
    with Channel(name) as channel, channel.subscriber():
        say("up")
        hear()


def test_cleanup_of_dead_channels_reports_only_removals_and_failures(prefix: str) -> None:
    for name in ("left", "shared"):
        with Child(subscriber_of_channel, name) as child:
            child.hear()
            child.kill()

    def fail(name: str, prefix: str, wanted: object) -> bool:
        raise SegmentError("is locked", name, f"/dev/shm/{name}", errno.EBUSY if name == "left" else errno.ENOENT)

    failing = dataclasses.replace(CHANNELS, remove=fail)
    (failure,) = failing.remove_dead(["left", "shared"], prefix)
    assert (failure.endpoint, failure.path, failure.removed) == ("channel/left", "/dev/shm/left", False)
    assert "is locked" in failure.reason
    with Channel("shared"):
        (removal,) = remove_dead_channels(prefix)
    assert (removal.endpoint, removal.reason) == ("channel/left", "only dead processes used it")


def test_cleanup_of_dead_topics_keeps_unused_and_used_topics(alive: msgq.PubSocket, prefix: str) -> None:
    msgq.pub_sock("unused", 4096).close()
    killed_publisher("left")
    msgq.pub_sock("halved", 4096).close()
    os.unlink(shm_paths.ring_path("halved", prefix))
    assert cleanup.find_orphaned_sides(prefix) == ["halved"]
    found = list(cleanup.remove_dead_topics(prefix))
    assert [(one.endpoint, one.removed) for one in found] == [("halved", True), ("left", True)]
    assert list(cleanup.remove_dead_topics(prefix)) == []
    assert sorted(one.endpoint for one in msgq.stats.topics()) == ["alive", "unused"]


def test_cleanup_finds_orphaned_side_segments_of_removed_prefix(prefix: str) -> None:
    msgq.pub_sock("topic", 4096).close()
    shutil.rmtree(shm_paths.topic_directories(prefix)[0])
    size = os.stat(path := shm_paths.side_segment_path("topic", prefix)).st_size
    wanted = [FileRemoval("topic", prefix, path, size, "side segment without a ring")]
    assert prefix in cleanup.find_orphaned_prefixes()
    assert list(cleanup.remove_orphaned_sides(prefix, remove=False)) == wanted
    assert os.path.exists(path)
    assert list(cleanup.remove_orphaned_sides(prefix)) == wanted
    assert not [place for place in shm_paths.topic_directories(prefix) if os.path.exists(place)]
    assert prefix not in cleanup.find_orphaned_prefixes()


def test_cleanup_reports_files_writable_by_other_users(alive: msgq.PubSocket, prefix: str) -> None:
    assert cleanup.find_permission_issues(prefix) == []
    os.chmod(shm_paths.ring_path("alive", prefix), 0o622)
    ((text, severity),) = cleanup.find_permission_issues(prefix)
    assert "mode 622" in text
    assert severity == "warning"
