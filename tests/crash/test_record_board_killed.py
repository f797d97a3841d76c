"""Processes that are killed at each step of what they do to a board: its keys and values stay, and can be claimed."""

from __future__ import annotations

import contextlib
import re
import signal
from typing import NamedTuple

import pytest

from msgq.errors import BoardFullError, KeyTakenError
from tests.crash.records import (
    LENGTH,
    Place,
    Step,
    at_each_step,
    board,
    key_name,
    key_number,
    key_value,
    kill,
    read_driver_numbers,
    read_driver_points,
    until_ready,
)

__all__ = ["board"]


class ProcessGroup(NamedTuple):
    """What the victim does, after "arm" step by step."""

    operations: str
    former: str = ""  # what another one did, who was killed then
    heir: bool = False  # the victim gets the row of that one, else one that was never used

    def written(self) -> list[int]:
        """Return the numbers that key 0 gets, in turn."""
        return [int(number) for number in re.findall(r"put:0:(\d+)", f"{self.former} {self.operations}")]


SCENES = {
    "declare new key": ProcessGroup("join ready arm declare:0 put:0:11"),
    "declare second key": ProcessGroup("join declare:1 ready arm declare:0 put:0:11"),
    "declare key of closed handle": ProcessGroup(
        "join ready arm declare:0 put:0:12", former="join declare:0 put:0:8 leave"
    ),
    "declare key of dead owner": ProcessGroup(
        "join ready arm declare:0 put:0:13", former="join declare:0 put:0:8 begin:0"
    ),
    "join after death of owner": ProcessGroup(
        "ready arm join declare:0 put:0:14", former="join declare:0 put:0:8 declare:1 begin:0", heir=True
    ),
    "write": ProcessGroup("join declare:0 put:0:10 ready arm put:0:11 put:0:14 put:0:17"),
    "write with sleeper": ProcessGroup("join declare:0 lie ready arm put:0:11"),
    "return key": ProcessGroup("join declare:0 put:0:10 ready arm return:0 declare:0"),
    "leave": ProcessGroup("join declare:1 declare:0 put:0:10 ready arm leave"),
}

#: The steps that must be among the points, or this test has lost its subject.
NAMED = {
    "declare new key": [
        "mq_file_lock_try: holds lock",
        "mq_board_add_key: half copied to parts->key_table[i].name",
        "mq_board_add_key: stored &parts->key_table[i].named",
        "mq_record_acquire_owner_word: stored owner",
        "mq_file_lock_close: gave back lock",
    ],
    "declare key of dead owner": [
        "mq_record_acquire_owner_word: asked whether it lives",
        "mq_record_acquire_owner_word: stored owner",
    ],
    "join after death of owner": ["mq_record_reclaim_row: stored owner", "mq_record_acquire_owner_word: stored owner"],
    "write": [
        "mq_cell_begin_write: stored copy",
        "mq_board_write_value: stored value",
        "mq_board_write_value: half copied to value + 1",
        "mq_cell_commit_exclusive_write: stored version",
    ],
    "write with sleeper": ["mq_eventcount_notify_mp: woke mq_futex_word(word)"],
    "return key": ["mq_record_release_owner_word: exchanged owner"],
    "leave": ["mq_record_release_owner_word: exchanged owner", "mq_participant_leave: exchanged &participant->uid"],
}


def kill_victim_at_step(board: Place, scene: ProcessGroup, step: Step) -> list[str]:
    """Have a victim killed at a step, on a board of its own, and somebody else declare all keys. Returns the steps."""
    with board.another(step.at) as where, where.watched():
        observed, passive = where.reader.observe(key_name(0)), where.handle(passive=True)
        if scene.former:
            where.killed(scene.former)
        if scene.heir:
            where.kill_free_rows()
        victim = where.driver(scene.operations, at=step.at)
        until_ready(victim)
        victim.proceed()
        lines = victim.ended(-signal.SIGKILL if step.at else 0)
        assert {*where.reader.keys()} <= {key_name(0), key_name(1)}, "a half of a name"
        stays = observed.read()
        if stays is None:
            assert not read_driver_numbers(lines, "wrote")
        else:
            assert key_number(stays.data) == scene.written()[stays.count - 1]
            assert passive[key_name(0)] == stays.data
            assert not stays.alive
        assert (stays.count if stays else 0) >= len(scene.written()) - len(
            re.findall("put", scene.operations.split("arm")[1])
        )
        goes_on(where, None if stays is None else stays.data)
        return read_driver_points(lines)


def goes_on(where: Place, stays: bytes | None) -> None:
    """A newcomer declares key 0, whose value stays, and all others there can be; it writes, and gives them back."""
    with contextlib.ExitStack() as stack:
        newcomer = where.handle()
        entry = stack.enter_context(newcomer.declare(key_name(0)))
        assert where.reader.observe(key_name(0)).data() == stays
        entry.write(key_value(99))
        assert key_number(where.reader[key_name(0)]) == 99
        entries = [stack.enter_context(newcomer.declare(key_name(key))) for key in range(1, LENGTH)]
        with pytest.raises(BoardFullError):
            newcomer.declare("one more")
        for number, each in enumerate(entries, 100):
            each.write(key_value(number))
        assert [key_number(data) for _, data in sorted(where.reader.items())] == [99, *range(100, 99 + LENGTH)]
    assert where.owners() == [0] * (LENGTH + 1)


@pytest.mark.parametrize("scene", SCENES)
def test_board_writer_killed_at_each_step_leaves_usable_board(board: Place, scene: str) -> None:
    """What: the victim dies at each of its steps in turn; others read all the time, and then a newcomer declares.

    Failure would mean: a key that nobody can have, a board with a place less, a half of a name, or a value that is lost
    with its owner.
    """
    at_each_step(lambda step: kill_victim_at_step(board, SCENES[scene], step), NAMED.get(scene, ()))


def test_board_key_after_killed_declaration_has_no_bytes_of_longer_name(board: Place) -> None:
    """What: one was killed while it wrote a name, which was longer than the next one.

    Failure would mean: a key that begins as it was called, and ends as another one.
    """
    long = 12_345_678_901_234_567_890
    victim = board.driver(f"join arm declare:{long}", "mq_board_add_key: copied to *")
    victim.ended(-signal.SIGKILL)
    assert board.reader.keys() == []
    assert key_name(long) not in board.reader
    board.waiting("join declare:3")
    assert board.reader.keys() == [key_name(3)]


def test_board_key_of_stopped_owner_is_available_after_its_death(board: Place) -> None:
    """Nor is it until its owner is dead; then at once, and the value stays."""
    owner = board.waiting("join declare:0 put:0:7 begin:0")
    owner.process.send_signal(signal.SIGSTOP)
    owner.wait_stopped()
    with pytest.raises(KeyTakenError, match=str(owner.pid)):
        board.reader.declare(key_name(0))
    value = board.reader.observe(key_name(0)).read()
    assert value.alive
    assert value.owner.pid == owner.pid
    kill(owner)
    with board.reader.declare(key_name(0)) as entry:
        assert key_number(board.reader[key_name(0)]) == 7
        entry.write(key_value(8))
    assert board.reader.observe(key_name(0)).read().count == 2
