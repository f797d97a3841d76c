"""C programs open endpoints as Python does: the same memory, and an own identity for each process and thread."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import msgq
from msgq.channel.cleanup import CHANNELS
from msgq.common import shm_paths
from msgq.impl.channel.pool_files import list_pools
from tests.support import SHM, run_child
from tests.unit.c_programs import Program
from tests.unit.children import fill, small_shared_memory

LARGE = 1_000_000


def answer(reply: str) -> int:
    """Return the result in the reply of c-channel."""
    return int(reply.split()[0])


def pools(name: str, prefix: str) -> list[str]:
    return [shm_paths.pool_path(name, prefix, uid) for channel, uid in list_pools(prefix) if channel == name]


def memory_of_pool(name: str, prefix: str) -> tuple[int, int]:
    """Return the bytes of the only pool of the channel, and how many of them have memory."""
    (pool,) = pools(name, prefix)
    status = os.stat(pool)
    return status.st_size, status.st_blocks * 512


def kill_publisher(program: Path) -> None:
    """Leave a pool without messages."""
    with Program(program) as publisher:
        assert answer(publisher.ask("open c 100")) == 0
        publisher.kill()


def test_c_publisher_removes_empty_pools_of_dead_publishers_at_open_and_close(programs: Path, prefix: str) -> None:
    kill_publisher(programs / "c-channel")
    former = pools("c", prefix)
    with Program(programs / "c-channel") as program:
        assert answer(program.ask("open c 100")) == 0
        own = pools("c", prefix)
        assert len(former) == len(own) == 1
        assert own != former
        kill_publisher(programs / "c-channel")
        assert len(pools("c", prefix)) == 2
        program.end()
    assert pools("c", prefix) == [], "the own pool has no messages, either"


def test_channel_with_row_of_c_program_is_in_use_until_its_end(programs: Path, prefix: str) -> None:
    """The row is enough: the program has no shared lock of the channel besides it."""
    with Program(programs / "c-channel") as program:
        assert answer(program.ask("open c 100")) == 0
        assert msgq.stats.channel("c").opened is False
        [kept] = CHANNELS.remove_unused(["c"], prefix)
        assert not kept.removed
        program.end()
    [removal] = CHANNELS.remove_unused(["c"], prefix)
    assert removal.removed


def test_pool_of_c_publisher_has_holes_as_in_python(programs: Path, prefix: str) -> None:
    with Program(programs / "c-channel") as program:
        assert answer(program.ask(f"open c {LARGE}")) == 0
        opened = memory_of_pool("c", prefix)
        assert answer(program.ask("send 100")) >= 0
        sent = memory_of_pool("c", prefix)
        program.end()
    with msgq.Channel("python") as channel, channel.publisher(slot_bytes=LARGE) as publisher:
        assert memory_of_pool("python", prefix) == opened
        publisher.send(bytes(100))
        assert memory_of_pool("python", prefix) == sent
    assert opened[1] < LARGE < sent[1] < opened[0], "the first message populates one slot"


def test_pool_of_c_publisher_has_all_memory_with_prealloc(programs: Path, prefix: str) -> None:
    with Program(programs / "c-channel", env={"MSGQ_PREALLOC": "1"}) as program:
        assert answer(program.ask("open c 4096")) == 0
        size, memory = memory_of_pool("c", prefix)
        assert memory >= size
        program.end()


def test_topic_of_c_publisher_has_holes_as_in_python(programs: Path, prefix: str) -> None:
    def memory(name: str) -> list[int]:
        return [(SHM / f"{start}{prefix}" / name).stat().st_blocks for start in ("msgq_", "msgqside_")]

    with Program(programs / "topic", "subscribe", "c", "1") as program:
        assert program.hear() == "ready"
        with msgq.sub_sock("python"):
            assert memory("c") == memory("python")


def send_on_full_file_system(program: str) -> list[str]:
    """Return what a C publisher answers while /dev/shm is full, and afterwards."""
    if not small_shared_memory("5m"):
        return ["not permitted"]
    with Program(Path(program)) as publisher, open("/dev/shm/filler", "wb", buffering=0) as filler:
        answers = [publisher.ask("open c 60000")]
        fill(filler)
        answers += [publisher.ask(f"send {LARGE // 20}") for _ in range(2)]
        filler.truncate(0)
        answers += [publisher.ask(f"send {LARGE // 20}"), publisher.ask(f"open d {LARGE}")]
        publisher.end()
    return answers


def test_c_send_without_memory_for_a_slot_fails(programs: Path) -> None:
    """Without a handler of SIGBUS, a write into a hole of a full file system ends the process."""
    answers = run_child(send_on_full_file_system, str(programs / "c-channel"), env={"MSGQ_SIGBUS": "0"})
    if answers == ["not permitted"]:
        pytest.skip("needs the right to mount")
    opened, *refused, sent, too_large = answers
    assert answer(opened) == 0 <= answer(sent)
    for reply in (*refused, too_large):
        assert answer(reply) == -28, reply
    assert all(re.search("channel c: nothing was sent: /dev/shm has no memory for a slot", reply) for reply in refused)
    assert "cannot allocate" in too_large


def test_c_publisher_of_forked_child_has_identity_of_child(programs: Path, prefix: str) -> None:
    with Program(programs / "c-channel") as program:
        assert answer(program.ask("open c 100")) == 0
        [parent] = msgq.stats.channel("c").publishers
        child = answer(program.ask("fork"))
        assert answer(program.ask("open c 100")) == 0
        pids = [publisher.participant.pid for publisher in msgq.stats.channel("c").publishers]
        program.end()
    assert parent.participant.pid == program.pid
    assert sorted(pids) == sorted([program.pid, child])


def test_c_publishers_opened_in_many_threads_at_once_have_the_same_identity(programs: Path, prefix: str) -> None:
    with Program(programs / "c-channel") as program:
        assert answer(program.ask("threads c 16")) == 16
        participants = [publisher.participant for publisher in msgq.stats.channel("c").publishers]
        assert [(each.pid, each.name, each.alive) for each in participants] == [(program.pid, "c-channel", True)] * 16
        program.end()
