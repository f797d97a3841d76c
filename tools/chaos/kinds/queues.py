"""A work queue: every message that was sent is received or acknowledged once, or is still there.

The operations of an incarnation on single messages are appended to a file, which survives a kill. A kill leaves one
operation open: a send of several messages (the record has their number), a receive (the same), or one acknowledgement.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import msgq
from msgq.errors import LeaseExpiredError, QueueFullError
from msgq.workqueue import MessageQueue
from tests.stress.channels import message, read
from tests.support import wait_until
from tools.chaos.history import QUEUES, Field, Record
from tools.chaos.kinds.workload import Counts, RunResult, WorkerContext, Workload, check_within

NAME = "jobs"
PLACES, SIZE = 64, 1024
JOBS = 3  # maximum number of jobs that an incarnation holds
RECEIVED, BEGINS, ACKNOWLEDGED, EXPIRED = range(1, 5)  # operations in the file of an incarnation
_INCARNATION_SHIFT, _INDEX_MASK = 40, (1 << 40) - 1
_Words = npt.NDArray[np.uint64]


class QueueRecord(Record):
    """What an incarnation has written of the queue.

    Attributes
    ----------
    made, sent : messages that it began to send, and those whose sending had returned.
    receiving : messages that it is about to receive: so many may be gone with it.
    returned : jobs that it gave back, or kept longer than their lease.
    there : of the auditor: messages that were still there.
    """

    __slots__ = ()

    made = Field(0)
    sent = Field(1)
    receiving = Field(2)
    returned = Field(3)
    remaining = Field(4)
    counted_sent = Field(5)


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
    """The queue of the incarnations of all kinds."""

    section = QUEUES

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._record, self._log = QueueRecord(self.words), OperationLog(context)
        self._queue = MessageQueue(NAME)
        self._jobs: list[Any] = []
        self._last: dict[tuple[int, int], int] = {}  # (incarnation, priority) -> its last message here

    def readers(self) -> list[Any]:
        return [self._queue]

    def produce(self) -> None:
        count = 1 if self.rng.random() < 0.7 else self.rng.randrange(2, 8)
        batch = [
            message(self.context.incarnation, self._record.sent + i, self.rng.randrange(200)) for i in range(count)
        ]
        priority = self.rng.choice((0, 7, 7, 900))
        self._record.made = self._record.sent + count
        if count > 1:
            self._record.sent += self._queue.send_many(batch, priority, timeout=0)
        else:
            try:
                self._queue.send(batch[0], priority, timeout=0)
                self._record.sent += 1
            except QueueFullError:
                pass
        self._record.made = self._record.sent

    def take(self, _: Any) -> None:
        for _ in range(4):
            if self.rng.random() < 0.5:
                self._receive(1 if self.rng.random() < 0.6 else self.rng.randrange(2, 8))
            else:
                self._take_job()

    def _receive(self, count: int) -> None:
        self._record.receiving = count
        received = self._queue.receive(0) if count == 1 else None
        got = self._queue.receive_many(count) if count > 1 else [] if received is None else [received]
        self._log.add(RECEIVED, *(self._check(each) for each in got))
        self._record.receiving = 0

    def _take_job(self) -> None:
        """Take a job, and end one when there are enough: acknowledged, given back, or forgotten."""
        job = self._queue.take(0, lease=self.rng.choice((None, 0.02, 10.0)))
        if job is not None:
            self._check(job)
            self._jobs.append(job)
        while len(self._jobs) > self.rng.randrange(JOBS + 1):
            self._end(self._jobs.pop(self.rng.randrange(len(self._jobs))))

    def _check(self, got: Any) -> tuple[int, int]:
        """Return whose message it is, which must be whole, and behind those of its sender unless it came back."""
        incarnation, index = read(got.data)
        made = QueueRecord(self.context.history.words(incarnation, QUEUES)).made
        assert index < made, f"incarnation {incarnation} has made {made} messages, and not {index}"
        if got.deliveries == 1:
            before = self._last.get((incarnation, got.priority), -1)
            assert index > before, f"message {index} of incarnation {incarnation} came after {before}"
            self._last[incarnation, got.priority] = index
        return incarnation, index

    def _end(self, job: Any) -> None:
        identity = read(job.data)
        if self.rng.random() < 0.2:
            self._record.returned += 1
            if self.rng.random() < 0.5:
                job.nack()
            return  # the end of a job without ack returns the message
        self._log.add(BEGINS, identity)
        try:
            job.ack()
        except LeaseExpiredError:
            self._log.add(EXPIRED, identity)
            self._record.returned += 1
        else:
            self._log.add(ACKNOWLEDGED, identity)

    def stop_producing(self) -> None:
        while self._jobs:
            self._end(self._jobs.pop())

    def close(self) -> None:
        self.stop_producing()
        self._queue.close()
        self._log.close()

    @staticmethod
    def create_files() -> None:
        MessageQueue(NAME, max_messages=PLACES, max_message_size=SIZE).close()

    @staticmethod
    def check_at_end(context: WorkerContext) -> None:
        workload = Queues(context)
        wait_until(lambda: not _receive_remaining(workload), "what the dead had taken comes back")
        workload._record.counted_sent = msgq.stats.queue(NAME).sent
        workload._queue.send(b"again", timeout=0)
        assert workload._queue.receive(0) == (b"again", 0), "a queue that everybody left cannot be used"
        workload.close()

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        records = {
            result.incarnation: QueueRecord(run_result.history.words(result.incarnation, QUEUES))
            for result in run_result.results
        }
        sent, made = sum(record.sent for record in records.values()), sum(record.made for record in records.values())
        counted = sum(record.counted_sent for record in records.values())
        errors = check_within(f"messages of queue/{NAME}", sent, counted, made)
        allowed = sum(records[result.incarnation].receiving for result in run_result.results if result.killed)
        errors += _check_messages(run_result, records, allowed)
        for result in run_result.results:
            record = records[result.incarnation]
            if not result.killed and (record.receiving or record.made != record.sent):
                errors.append(
                    f"incarnation {result.incarnation} left an operation on queue/{NAME} open, and was not killed"
                )
        return errors

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        records = [QueueRecord(run_result.history.words(result.incarnation, QUEUES)) for result in run_result.results]
        done, _ = read_operations(run_result)
        sent, returned, remaining = (
            sum(getattr(record, name) for record in records) for name in ("sent", "returned", "remaining")
        )
        missing = max(sent - len(np.unique(done)), 0)  # with those that were killed while they received
        return [Counts("queue", sent, len(done), missing, f"{returned} came back, {remaining} still there")]


def _receive_remaining(workload: Queues) -> bool:
    """Receive all waiting messages as the auditor. Return True if more messages may follow."""
    while True:
        before = os.fstat(workload._log._file).st_size
        workload._receive(1)
        if os.fstat(workload._log._file).st_size == before:
            break
        workload._record.remaining += 1
    stats = msgq.stats.queue(NAME)
    assert stats.corrupt_slots == 0, f"{stats.corrupt_slots} slots of queue/{NAME} are corrupt"
    return bool(stats.depth or stats.in_flight or stats.pending_slots or stats.lost_slots)


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
    errors = [f"{_name(word)} was ended twice" for word in messages[times > 1].tolist()]
    for word in messages.tolist():
        record = records.get(word >> _INCARNATION_SHIFT)
        if record is None or word & _INDEX_MASK >= record.made:
            errors.append(f"{_name(word)} was received, and nobody sent it")
    sent = [
        np.arange(record.sent, dtype=np.uint64) | np.uint64(incarnation << _INCARNATION_SHIFT)
        for incarnation, record in records.items()
    ]
    missing = np.setdiff1d(np.concatenate([messages[:0], *sent]), np.concatenate([messages, unknown]))
    if len(missing) > allowed:
        examples = ", ".join(_name(word) for word in missing[:5].tolist())
        errors.append(f"{len(missing)} messages of queue/{NAME} are missing, {allowed} may be: {examples}")
    return errors


def _name(word: int) -> str:
    return f"message {word & _INDEX_MASK} of incarnation {word >> _INCARNATION_SHIFT} on queue/{NAME}"
