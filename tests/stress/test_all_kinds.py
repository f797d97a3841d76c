"""All five kinds at once in one process with one poller; and the checker of `tools.chaos` finds errors."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgq.errors import EndpointClosedError
from tests.stress.records import value
from tests.support import LONGER, wait_until
from tools.chaos.history import INCARNATIONS_MAX, QUEUES, History
from tools.chaos.kinds import queues, worker
from tools.chaos.kinds.channels import Channels
from tools.chaos.kinds.frames import Frames
from tools.chaos.kinds.queues import OperationLog, QueueRecord, Queues
from tools.chaos.kinds.records import KEY_BEGUN, KEY_DONE, Records
from tools.chaos.kinds.topics import Topics
from tools.chaos.kinds.worker import Worker
from tools.chaos.kinds.workload import RunResult, WorkerContext, WorkerResult, Workload
from tools.chaos.process import fork

STEPS = int(4000 * LONGER)
AUDITOR = INCARNATIONS_MAX - 1


@pytest.fixture
def history(prefix: str) -> History:
    """Histories of a run whose endpoints have been made."""
    made = History()
    worker.create_files()
    made.begun = True
    return made


def context(history: History, folder: Path, incarnation: int, seed: int) -> WorkerContext:
    return WorkerContext(history, folder, incarnation, random.Random(seed + incarnation), is_permanent=incarnation == 1)


def finish(one: Worker, history: History, folder: Path, others: int = 0) -> RunResult:
    """End this process's incarnation, and return the history of all."""
    one.stop_producing()
    wait_until(lambda: not one.listen(worker.WAIT_MS), "all that was sent has come")
    one.close()
    worker.check_at_end(context(history, folder, AUDITOR, 0))
    incarnations = [
        WorkerResult(1, True, False),
        *(WorkerResult(2 + i, False, False) for i in range(others)),
        WorkerResult(AUDITOR, False, False),
    ]
    return RunResult(history, folder, incarnations)


@pytest.mark.nightly
def test_poller_in_one_process_receives_from_endpoints_of_all_kinds(
    history: History, tmp_path: Path, seed: int
) -> None:
    """What: a process publishes, sends, renders and writes, and gets all of it back by one poller.

    Why: five kinds share waiting, rows, clocks and locks in one process; each was tested by itself.

    Failure would mean: the poller does not tell of something, or kinds disturb each other.
    """
    one = Worker(context(history, tmp_path, 1, seed))
    for _ in range(STEPS):
        one.produce()
        one.listen(0)
    found = finish(one, history, tmp_path)
    assert worker.check(found) == []
    for line in worker.counts(found):
        print(line)
        assert line.made > 0, line
        assert line.taken > 0, line


@pytest.mark.nightly
def test_poller_wakes_for_messages_of_all_kinds_from_two_processes(history: History, tmp_path: Path, seed: int) -> None:
    """What: this process makes nothing; it sleeps in its poller, and two others make things of all kinds.

    Failure would mean: one that sleeps for all kinds is not woken, or is told of too little.
    """
    one = Worker(context(history, tmp_path, 1, seed))
    pids = [
        fork(tmp_path / str(incarnation), make_some, context(history, tmp_path, incarnation, seed))
        for incarnation in (2, 3)
    ]
    ended = list[int]()

    def both_ended() -> bool:
        for pid in set(pids) - set(ended):
            if os.waitpid(pid, os.WNOHANG)[0]:
                ended.append(pid)
        return len(ended) == 2

    while not both_ended():
        one.listen(worker.WAIT_MS)
    complaints = [path.read_text() for path in (tmp_path / "2", tmp_path / "3") if path.exists()]
    assert complaints == []
    found = finish(one, history, tmp_path, others=2)
    assert worker.check(found) == []
    for line in worker.counts(found):
        assert line.taken > 0, line


def make_some(where: WorkerContext) -> int:
    """Child: make things and take things for a while."""
    one = Worker(where)
    for step in range(STEPS // 4):
        one.produce()
        one.listen(1 if step % 50 == 0 else 0)  # so that the other one sleeps, too
    one.stop_producing()
    one.close()
    return 0


# ---- the checker finds errors ----


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


def break_topics(workload: Topics, how: str) -> Broken:
    assert workload._pub is not None
    broken: Any = Broken(workload._pub._socket, "send", how)
    workload._pub._socket = broken
    return broken  # type: ignore[no-any-return]


def break_channels(workload: Channels, how: str) -> Broken:
    broken: Any = Broken(workload._pub, "send", how)
    workload._pub = broken
    return broken  # type: ignore[no-any-return]


def break_frames(workload: Frames, how: str) -> Broken:
    workload.produce()
    broken: Any = Broken(workload._server, "send", how)
    workload._server = broken
    return broken  # type: ignore[no-any-return]


def break_vector(workload: Records, how: str) -> Broken:
    broken: Any = Broken(workload._vector, "write", how)
    workload._vector = broken
    return broken  # type: ignore[no-any-return]


def break_board(workload: Records, how: str) -> Broken:
    """Go wrong at once: who looks at values sees only the last one."""
    assert workload._declare(0)
    broken = Broken(workload._entries[0], "write", how, 1)
    workload._keys[KEY_BEGUN] = 1
    broken.write(value(1))
    workload._keys[KEY_DONE] = 1
    return broken


def break_queues(workload: Queues, how: str) -> Broken:
    broken: Any = Broken(workload._queue, "send", how)
    workload._queue = broken
    return broken  # type: ignore[no-any-return]


BREAKS: dict[str, tuple[type[Workload], Callable[[Any, str], Broken]]] = {
    "topic": (Topics, break_topics),
    "channel": (Channels, break_channels),
    "frames": (Frames, break_frames),
    "vector": (Records, break_vector),
    "board": (Records, break_board),
    "queue": (Queues, break_queues),
}


@pytest.mark.parametrize("how", ["drop", "duplicate", "tear"])
@pytest.mark.parametrize("kind", BREAKS)
def test_checker_reports_one_wrong_operation(history: History, tmp_path: Path, seed: int, kind: str, how: str) -> None:
    """A test of the test: one message, frame or value is dropped, made twice, or torn, and somebody must say so."""
    one = Worker(context(history, tmp_path, 1, seed))
    of_kind, breaks = BREAKS[kind]
    workload = next(workload for workload in one.workloads if isinstance(workload, of_kind))
    complaints: list[str] = []
    try:
        broken = breaks(workload, how)
        one.listen(0)
        steps = 0
        while steps < 5:
            workload.produce()
            one.listen(0)
            steps += broken.done
        complaints = worker.check(finish(one, history, tmp_path))
    except AssertionError as error:
        complaints.append(str(error))
        close_workloads(one)
    print(complaints)
    assert complaints
    assert "did not come true" not in complaints[0]


def close_workloads(one: Worker) -> None:
    """Close what is open, whatever else is found to be wrong."""
    for workload in one.workloads:
        for step in (workload.stop_producing, workload.close):
            with suppress(AssertionError, EndpointClosedError):
                step()


# ---- what a kill leaves open ----


def check_queue(folder: Path, received: list[int], killed: bool, receiving: int = 0, *acks: int) -> list[str]:
    """Check a queue: incarnation 1 has sent five messages, 2 has received some, and took the last one."""
    history = History()
    sender, receiver = (QueueRecord(history.words(incarnation, QUEUES)) for incarnation in (1, 2))
    sender.made = sender.sent = receiver.counted_sent = 5
    receiver.receiving = receiving
    lines = OperationLog(WorkerContext(history, folder, 2, random.Random(0)))
    lines.add(queues.RECEIVED, *((1, index) for index in received))
    for what in acks:
        lines.add(what, (1, 4))
    lines.close()
    return Queues.check(RunResult(history, folder, [WorkerResult(1, True, False), WorkerResult(2, False, killed)]))


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
