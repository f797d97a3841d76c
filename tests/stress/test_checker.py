"""Tests of the checker of `tools.chaos`: it accepts correct histories, and finds one wrong operation of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgq.errors import EndpointClosedError
from tests.support import wait_until
from tools.chaos.history import QUEUES, History
from tools.chaos.kinds import queues, worker
from tools.chaos.kinds.channels import Channels
from tools.chaos.kinds.frames import Frames
from tools.chaos.kinds.queues import OperationLog, QueueRecord, Queues
from tools.chaos.kinds.records import KEY_BEGUN, KEY_DONE, Records, make_key_value
from tools.chaos.kinds.topics import Topics
from tools.chaos.kinds.worker import Worker
from tools.chaos.kinds.workload import Lane, RunResult, WorkerContext, WorkerResult, Workload
from tools.chaos.plan import ALL_KINDS

FINAL = 99  # incarnation of the final checker


@pytest.fixture
def history(prefix: str) -> History:
    """History of a run whose endpoints have been made."""
    for lane in ALL_KINDS:
        lane.kind.create_files(lane)
    return History()


def finish(one: Worker, lane: Lane) -> list[str]:
    """End incarnation 1, and return the errors in the history of a lane."""
    one.stop_producing()
    wait_until(lambda: not one.listen(0.02), "all that was sent has come")
    one.close()
    context = one.context
    worker.check_at_end(WorkerContext(context.history, context.folder, FINAL, random.Random(0)), lane)
    results = [WorkerResult(1, True, False), WorkerResult(FINAL, False, False)]
    return lane.kind.check(RunResult(context.history, context.folder, lane, results))


# ---- one wrong operation ----


class Broken:
    """Something that writes, of which one call of a method goes wrong: "drop", "duplicate" or "tear"."""

    def __init__(self, real: Any, method: str, how: str, which: int = 3) -> None:
        self._real, self._method, self._how, self._left = real, method, how, which

    @property
    def done(self) -> bool:
        """Whether it has gone wrong."""
        return self._left <= 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        return partial(self._call, value) if name == self._method else value

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left:
            return method(*args, **options)
        if self._how == "drop":
            return True
        if self._how == "tear":
            args = tuple(self._torn(one) for one in args)
        else:
            method(*args, **options)
        return method(*args, **options)

    @staticmethod
    def _torn(value: Any) -> Any:
        """Return the same with another last byte, if it is data."""
        if isinstance(value, (bytes, memoryview)):
            data = bytes(value)
            return data[:-1] + bytes([data[-1] ^ 0x55])
        if isinstance(value, np.ndarray):
            return np.frombuffer(Broken._torn(value.tobytes()), value.dtype)
        return value


#: The kind, the attribute of its workload that writes, and the method that goes wrong. Empty: the owner of a key.
BREAKS: dict[str, tuple[type[Workload], str, str]] = {
    "topic": (Topics, "_pub", "send"),
    "channel": (Channels, "_pub", "send"),
    "frames": (Frames, "_server", "send"),
    "vector": (Records, "_vector", "write"),
    "board": (Records, "", "write"),
    "queue": (Queues, "queue", "send"),
}


def break_workload(workload: Any, attribute: str, method: str, how: str) -> Broken:
    """Let a workload go wrong in one of its next writes."""
    if not attribute:
        return break_board(workload, how)
    workload.produce()  # a server of frames is there after this
    broken = Broken(getattr(workload, attribute), method, how)
    setattr(workload, attribute, broken)
    return broken


def break_board(workload: Records, how: str) -> Broken:
    """Go wrong at once: who looks at values sees only the last one."""
    assert workload._declare(0)
    broken = Broken(workload._entries[0], "write", how, 1)
    workload._shared[KEY_BEGUN] = 1
    broken.write(make_key_value(1))
    workload._shared[KEY_DONE] = 1
    return broken


@pytest.mark.parametrize("how", ["drop", "duplicate", "tear"])
@pytest.mark.parametrize("kind", BREAKS)
def test_checker_reports_one_wrong_operation(history: History, tmp_path: Path, seed: int, kind: str, how: str) -> None:
    """A test of the test: one message, frame or value is dropped, made twice, or torn, and somebody must say so."""
    of_kind, attribute, method = BREAKS[kind]
    lane = next(each for each in ALL_KINDS if each.kind is of_kind)
    one = Worker(WorkerContext(history, tmp_path, 1, random.Random(seed), is_permanent=True), [lane])
    (workload,) = one.workloads
    complaints: list[str] = []
    try:
        broken = break_workload(workload, attribute, method, how)
        one.listen(0)
        steps = 0
        while steps < 5:
            workload.produce()
            one.listen(0)
            steps += broken.done
        complaints = finish(one, lane)
    except AssertionError as error:
        complaints.append(str(error))
        for step in (workload.stop_producing, workload.close):
            with suppress(AssertionError, EndpointClosedError):
                step()
    print(complaints)
    assert complaints
    assert "did not come true" not in complaints[0]


# ---- publishers that follow each other ----


def check_topic(folder: Path, publishers: list[tuple[int, ...]], received: int, lost: int, total: int) -> list[str]:
    """Check a topic: publishers by base, sent, made; and one subscriber that was there all the time."""
    history, lane = History(), Lane(Topics, "topic", 4096)
    for number, (base, sent, made) in enumerate(publishers, 1):
        history[number].base, history[number].sent, history[number].begun = base, sent, made
    history[98].received, history[98].lost, history[FINAL].total = received, lost, total
    results = [WorkerResult(number, number == 98, False) for number in (*range(1, len(publishers) + 1), 98, FINAL)]
    return Topics.check(RunResult(history, folder, lane, results))


@pytest.mark.parametrize(
    ("publishers", "received", "lost", "total"),
    [
        ([(0, 5, 5), (5, 3, 4)], 6, 3, 9),
        ([(0, 5, 5), (5, 0, 1), (5, 3, 4)], 6, 2, 8),
        ([(0, 5, 5)], 0, 5, 5),  # a subscriber that the machine gave no time has lost all, and knows it
    ],
)
def test_checker_reports_no_error_in_correct_history(
    tmp_path: Path, publishers: list[tuple[int, ...]], received: int, lost: int, total: int
) -> None:
    assert check_topic(tmp_path, publishers, received, lost, total) == []


@pytest.mark.parametrize(
    ("publishers", "received", "lost", "total", "wrong"),
    [
        ([(0, 5, 5)], 4, 0, 5, "4 received, 0 lost, of 5"),
        ([(0, 5, 5), (4, 3, 3)], 7, 0, 7, "the next began at 4"),
        ([(0, 5, 6), (7, 3, 3)], 10, 0, 10, "the next began at 7"),
        ([(1, 5, 5)], 6, 0, 6, "the first publisher found 1"),
    ],
    ids=["missing message", "too low count", "too high count", "late start"],
)
def test_checker_reports_errors_in_wrong_history(
    tmp_path: Path, publishers: list[tuple[int, ...]], received: int, lost: int, total: int, wrong: str
) -> None:
    """A test of the test."""
    assert wrong in "\n".join(check_topic(tmp_path, publishers, received, lost, total))


# ---- uncertain messages after a kill ----


def check_queue(folder: Path, received: list[int], killed: bool, receiving: int = 0, *acks: int) -> list[str]:
    """Check a queue: incarnation 1 has sent five messages, 2 has received some, and took the last one."""
    history = History()
    sender, receiver = (QueueRecord(history.words(incarnation, QUEUES)) for incarnation in (1, 2))
    sender.begun = sender.sent = receiver.counted_sent = 5
    receiver.receiving = receiving
    lines = OperationLog(WorkerContext(history, folder, 2, random.Random(0)))
    lines.add(queues.RECEIVED, *((1, index) for index in received))
    for what in acks:
        lines.add(what, (1, 4))
    lines.close()
    results = [WorkerResult(1, True, False), WorkerResult(2, False, killed)]
    return Queues.check(RunResult(history, folder, Lane(Queues, "jobs", 64), results))


@pytest.mark.parametrize(
    ("received", "killed", "receiving", "acks"),
    [
        ([0, 1, 2, 3, 4], False, 0, ()),
        ([0, 1, 2, 3], True, 1, ()),
        ([0, 1, 2, 3], True, 0, (queues.BEGINS,)),
        ([0, 1, 2, 3, 4], True, 0, (queues.BEGINS,)),  # it came back, and was received
        ([0, 1, 2, 3], False, 0, (queues.BEGINS, queues.ACKNOWLEDGED)),
    ],
)
def test_checker_accepts_one_missing_message_after_kill(
    tmp_path: Path, received: list[int], killed: bool, receiving: int, acks: tuple[int, ...]
) -> None:
    assert check_queue(tmp_path, received, killed, receiving, *acks) == []


@pytest.mark.parametrize(
    ("received", "killed", "receiving", "acks", "wrong"),
    [
        ([0, 1, 2, 3], False, 0, (), "1 messages of queue/jobs are missing, 0 may be: message 4 of incarnation 1"),
        ([0, 1, 2], True, 1, (), "2 messages of queue/jobs are missing, 1 may be"),
        ([0, 1, 2, 3], True, 0, (), "1 messages of queue/jobs are missing, 0 may be"),
        ([0, 1, 2, 3], True, 0, (queues.BEGINS, queues.EXPIRED), "1 messages of queue/jobs are missing, 0 may be"),
        ([0, 1, 2, 3, 4, 4], True, 1, (), "message 4 of incarnation 1 on queue/jobs was ended twice"),
        ([0, 1, 2, 3, 4, 5], False, 0, (), "message 5 of incarnation 1 on queue/jobs was received, and nobody sent it"),
        ([0, 1, 2, 3, 4], False, 1, (), "left an operation on queue/jobs open"),
    ],
)
def test_checker_reports_missing_messages_not_explained_by_kill(
    tmp_path: Path, received: list[int], killed: bool, receiving: int, acks: tuple[int, ...], wrong: str
) -> None:
    assert wrong in "\n".join(check_queue(tmp_path, received, killed, receiving, *acks))
