"""A work queue: every message that was sent is received or acknowledged once, or is still there.

The operations of an incarnation on single messages are appended to a file, which survives a kill. A kill leaves one
operation open: a send of several messages (the record has their number), a receive (the same), or one acknowledgement.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import msgq
from msgq.common.stats.workqueue import QueueStats
from msgq.errors import LeaseExpiredError, QueueFullError
from msgq.workqueue import MessageQueue
from tests.support import wait_until
from tools.chaos.history import QUEUES, Field, Record
from tools.chaos.kinds.workload import Counts, Lane, RunResult, WorkerContext, Workload, check_none_left, check_within
from tools.chaos.messages import make_message, read_message

SIZE = 1024  # maximum bytes of a message
JOBS = 3  # maximum number of jobs that an incarnation holds
RECEIVED, BEGINS, ACKNOWLEDGED, EXPIRED = range(1, 5)  # operations in the file of an incarnation
_INCARNATION_SHIFT, _INDEX_MASK = 40, (1 << 40) - 1
_Words = npt.NDArray[np.uint64]


class QueueRecord(Record):
    """What an incarnation has written of the queue.

    Attributes:
        begun: messages that it began to send.
        sent: messages whose sending had returned.
        receiving: messages that it is about to receive: so many may be gone with it.
        returned: jobs that it gave back, or kept longer than their lease.
        remaining: messages that were still there for the final checker.
        counted_sent: all messages that were sent, as the final checker counted them.
    """

    __slots__ = ()

    begun = Field(0)
    sent = Field(1)
    receiving = Field(2)
    returned = Field(3)
    remaining = Field(4)
    counted_sent = Field(5)


class Received(NamedTuple):
    """A message that a buffer holds. Whether it came back is unknown, so its order is not checked."""

    data: bytes
    deliveries: int = 0
    priority: int = 0


class OperationLog:
    """The file of an incarnation; each line is 8 bytes and written at once."""

    def __init__(self, context: WorkerContext) -> None:
        self._file = os.open(
            path_of(context.folder, context.incarnation), os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        )

    def add(self, operation: int, *messages: tuple[int, int]) -> None:
        """Write an operation on messages. A message is named by the incarnation that sent it, and its index there."""
        words = b"".join(
            (operation << 60 | incarnation << _INCARNATION_SHIFT | index).to_bytes(8, "little")
            for incarnation, index in messages
        )
        os.write(self._file, words)

    def close(self) -> None:
        """End the file. Closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def path_of(folder: Path, incarnation: int) -> Path:
    """Return the file of an incarnation."""
    return folder / f"queue-{incarnation}"


class Queues(Workload):
    """A work queue."""

    section, record_type = QUEUES, QueueRecord

    def __init__(self, context: WorkerContext, lane: Lane) -> None:
        super().__init__(context, lane)
        self._log = OperationLog(context)
        self.queue = MessageQueue(lane.name)
        self._buffer = bytearray(SIZE)
        self._jobs: list[Any] = []
        self._last: dict[tuple[int, int], int] = {}  # (incarnation, priority) -> its last message here

    def readers(self) -> list[Any]:
        return [self.queue]

    def produce(self) -> None:
        count = 1 if self.rng.random() < 0.7 else self.rng.randrange(2, 8)
        batch = [
            make_message(self.context.incarnation, self.record.sent + i, self.rng.randrange(200)) for i in range(count)
        ]
        priority, timeout = self.rng.choice((0, 7, 7, 900)), self.rng.choice((0, 0, 0.02))
        self.record.begun = self.record.sent + count
        if count > 1:
            self.record.sent += self.queue.send_many(batch, priority, timeout=timeout)
        else:
            with contextlib.suppress(QueueFullError):
                self.queue.send(batch[0], priority, timeout=timeout)
                self.record.sent += 1
        self.record.begun = self.record.sent

    def take(self, _: Any, timeout: float = 0.0) -> bool:
        """Take some messages, in the ways there are. False: nothing is there, also for others who take later."""
        way = self.rng.random()
        if way < 0.3:
            return self._take_job(timeout)
        if way < 0.5:
            most = self.rng.randrange(2, 8)
            return self._receive(lambda: self.queue.receive_many(most), most)
        return self.receive(timeout, in_place=way < 0.6)

    def receive(self, timeout: float, in_place: bool = False) -> bool:
        """Receive one message."""
        return self._receive(lambda: [self._receive_in_place(timeout) if in_place else self.queue.receive(timeout)], 1)

    def _receive_in_place(self, timeout: float) -> Any:
        """Receive into a buffer."""
        found = self.queue.receive_into(self._buffer, timeout)
        return found and Received(bytes(self._buffer[: found[0]]))

    def _receive(self, call: Callable[[], list[Any]], most: int) -> bool:
        self.record.receiving = most
        got = [one for one in call() if one is not None]
        self._log.add(RECEIVED, *(self._check(one) for one in got))
        self.record.receiving = 0
        return bool(got)

    async def atake(self, _: Any) -> None:
        self.record.receiving = 1
        try:
            got = await self.queue.arecv()
            self._log.add(RECEIVED, self._check(got))
        finally:
            self.record.receiving = 0

    def _take_job(self, timeout: float) -> bool:
        """Take a job, and end one when there are enough: acknowledged, given back, or forgotten."""
        job = self.queue.take(timeout, lease=self.rng.choice((None, 0.02, 10.0)))
        if job is not None:
            self._check(job)
            self._jobs.append(job)
        while len(self._jobs) > self.rng.randrange(JOBS + 1):
            self._end(self._jobs.pop(self.rng.randrange(len(self._jobs))))
        return job is not None

    def _check(self, got: Any) -> tuple[int, int]:
        """Return whose message it is, which must be whole, and behind those of its sender unless it came back."""
        incarnation, index = read_message(got.data)
        begun = QueueRecord(self.context.history.words(incarnation, QUEUES)).begun
        assert index < begun, f"incarnation {incarnation} has made {begun} messages, and not {index}"
        if got.deliveries == 1:
            before = self._last.get((incarnation, got.priority), -1)
            assert index > before, f"message {index} of incarnation {incarnation} came after {before}"
            self._last[incarnation, got.priority] = index
        return incarnation, index

    def _end(self, job: Any) -> None:
        identity = read_message(job.data)
        if self.rng.random() < 0.2:
            self.record.returned += 1
            if self.rng.random() < 0.7:
                job.nack(delay=self.rng.choice((None, None, 0.01)))
            return  # the end of a job without ack returns the message
        self._log.add(BEGINS, identity)
        try:
            job.ack()
        except LeaseExpiredError:
            self._log.add(EXPIRED, identity)
            self.record.returned += 1
        else:
            self._log.add(ACKNOWLEDGED, identity)

    def let_go(self) -> None:
        while self._jobs:
            self._end(self._jobs.pop())

    def continue_in_fork(self, context: WorkerContext, words: list[int]) -> None:
        """See the class. What the parent has received stays in its file and its record."""
        super().continue_in_fork(context, [0] * len(words))
        self._log = OperationLog(context)

    def stop_producing(self) -> None:
        """See the class. Each operation has ended, and jobs stay until the handle closes."""

    def close(self) -> None:
        if self.rng.random() < 0.5:
            self.let_go()
        self.record.returned += len(self._jobs)  # the end of the handle returns them
        self.queue.close()
        self._log.close()

    @staticmethod
    def create_files(lane: Lane) -> None:
        MessageQueue(lane.name, max_messages=lane.size, max_message_size=SIZE).close()

    @staticmethod
    def check_at_end(context: WorkerContext, lane: Lane) -> None:
        workload = Queues(context, lane)
        wait_until(lambda: not _receive_remaining(workload), "what the dead had taken comes back")
        workload.record.counted_sent = msgq.stats.queue(lane.name).sent
        workload.queue.send(b"again", timeout=0)
        assert workload.queue.receive(0) == (b"again", 0), "a queue that everybody left cannot be used"
        _check_statistics(msgq.stats.queue(lane.name))
        workload.close()

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        name, records = run_result.lane.name, {result.incarnation: record for result, record in run_result.records()}
        sent, begun = sum(record.sent for record in records.values()), sum(record.begun for record in records.values())
        counted = sum(record.counted_sent for record in records.values())
        errors = check_within(f"messages of queue/{name}", sent, counted, begun)
        allowed = sum(records[result.incarnation].receiving for result in run_result.results if result.killed)
        errors += _check_messages(run_result, records, allowed)
        for result in run_result.results:
            record = records[result.incarnation]
            if not result.killed and (record.receiving or record.begun != record.sent):
                errors.append(
                    f"incarnation {result.incarnation} left an operation on queue/{name} open, and was not killed"
                )
        return errors

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        records = [record for _, record in run_result.records()]
        done, _ = read_operations(run_result)
        sent, returned, remaining = (
            sum(getattr(record, name) for record in records) for name in ("sent", "returned", "remaining")
        )
        missing = max(sent - len(np.unique(done)), 0)  # with those that were killed while they received
        details = f"{returned} came back, {remaining} still there"
        return [Counts(f"queue {run_result.lane.name}", sent, len(done), missing, details)]


def _receive_remaining(workload: Queues) -> bool:
    """Receive all waiting messages as the final checker. Return True if more messages may follow."""
    while workload.receive(0):
        workload.record.remaining += 1
    stats = msgq.stats.queue(workload.lane.name)
    assert stats.corrupt_slots == 0, f"{stats.corrupt_slots} slots of queue/{stats.name} are corrupt"
    return bool(stats.depth or stats.in_flight or stats.pending_slots or stats.lost_slots)


def _check_statistics(stats: QueueStats) -> None:
    """Nothing is left, in no place and of nobody but the final checker."""
    assert stats.free_slots == stats.max_messages, stats
    assert not [one for one in stats.handles if one.waits], stats.handles
    check_none_left(one.participant for one in stats.handles if one.participant.pid != os.getpid())


def read_operations(run_result: RunResult) -> tuple[_Words, _Words]:
    """Return the received or acknowledged messages, once per operation, and the messages with an unknown result.

    A result is unknown if the consumer was killed during the acknowledgement.
    """
    done, unknown = [np.zeros(0, np.uint64)], list[int]()
    for result in run_result.results:
        path = path_of(run_result.folder, result.incarnation)
        lines = np.fromfile(path, np.uint64) if path.exists() else done[0]
        operation, messages = lines >> np.uint64(60), lines & np.uint64((1 << 60) - 1)
        done.append(messages[(operation == RECEIVED) | (operation == ACKNOWLEDGED)])
        if len(operation) and operation[-1] == BEGINS:
            unknown.append(int(messages[-1]))
    return np.concatenate(done), np.array(unknown, np.uint64)


def _check_messages(run_result: RunResult, records: dict[int, QueueRecord], allowed: int) -> list[str]:
    """Compare the sent messages with their results. `allowed`: maximum messages that killed processes took along."""
    done, unknown = read_operations(run_result)
    messages, times = np.unique(done, return_counts=True)
    name = f"queue/{run_result.lane.name}"
    errors = [f"{_name(word, name)} was ended twice" for word in messages[times > 1].tolist()]
    for word in messages.tolist():
        record = records.get(word >> _INCARNATION_SHIFT)
        if record is None or word & _INDEX_MASK >= record.begun:
            errors.append(f"{_name(word, name)} was received, and nobody sent it")
    sent = [
        np.arange(record.sent, dtype=np.uint64) | np.uint64(incarnation << _INCARNATION_SHIFT)
        for incarnation, record in records.items()
    ]
    missing = np.setdiff1d(np.concatenate([messages[:0], *sent]), np.concatenate([messages, unknown]))
    if len(missing) > allowed:
        examples = ", ".join(_name(word, name) for word in missing[:5].tolist())
        errors.append(f"{len(missing)} messages of {name} are missing, {allowed} may be: {examples}")
    return errors


def _name(word: int, queue: str) -> str:
    return f"message {word & _INDEX_MASK} of incarnation {word >> _INCARNATION_SHIFT} on {queue}"
