"""A work queue: every message that was sent is received or acknowledged once, or is still there.

What a life does with single messages is appended to a file, which a kill leaves as it is. A kill leaves one operation
open: a send of several messages (as many as the account says), a receive (the same), or one acknowledgement.
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
from tools.chaos.books import QUEUES, Account, Word
from tools.chaos.kinds.part import Figures, Outcome, Part, Place, within

NAME = "jobs"
PLACES, SIZE = 64, 1024
JOBS = 3  # that a life has taken at most
RECEIVED, BEGINS, ACKNOWLEDGED, EXPIRED = range(1, 5)  # what a line of a life's file says
_LIFE, _INDEX = 40, (1 << 40) - 1
_Words = npt.NDArray[np.uint64]


class Desk(Account):
    """What a life has written of the queue.

    Attributes
    ----------
    made, sent : messages that it began to send, and those whose sending had returned.
    receiving : messages that it is about to receive: so many may be gone with it.
    returned : jobs that it gave back, or kept longer than their lease.
    there : of the auditor: messages that were still there.
    """

    __slots__ = ()

    made = Word(0)
    sent = Word(1)
    receiving = Word(2)
    returned = Word(3)
    there = Word(4)
    counted_sent = Word(5)


class Lines:
    """The file of a life; each line is 8 bytes and written at once."""

    def __init__(self, place: Place) -> None:
        self._file = os.open(path_of(place.folder, place.life), os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def add(self, what: int, *messages: tuple[int, int]) -> None:
        """Write what was done with messages, each the life that sent it and which of its messages it is."""
        words = b"".join((what << 60 | life << _LIFE | index).to_bytes(8, "little") for life, index in messages)
        os.write(self._file, words)

    def close(self) -> None:
        """End the file. Closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def path_of(folder: Path, life: int) -> Path:
    """Return the file of a life."""
    return folder / f"queue-{life}"


class Queues(Part):
    """The queue of the lives of all kinds."""

    section = QUEUES

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._desk, self._lines = Desk(self.words), Lines(place)
        self._queue = MessageQueue(NAME)
        self._jobs: list[Any] = []
        self._last: dict[tuple[int, int], int] = {}  # (life, priority) -> its last message here

    def readers(self) -> list[Any]:
        return [self._queue]

    def act(self) -> None:
        count = 1 if self.rng.random() < 0.7 else self.rng.randrange(2, 8)
        some = [message(self.place.life, self._desk.sent + i, self.rng.randrange(200)) for i in range(count)]
        priority = self.rng.choice((0, 7, 7, 900))
        self._desk.made = self._desk.sent + count
        if count > 1:
            self._desk.sent += self._queue.send_many(some, priority, timeout=0)
        else:
            try:
                self._queue.send(some[0], priority, timeout=0)
                self._desk.sent += 1
            except QueueFullError:
                pass
        self._desk.made = self._desk.sent

    def take(self, _: Any) -> None:
        for _ in range(4):
            if self.rng.random() < 0.5:
                self._receive(1 if self.rng.random() < 0.6 else self.rng.randrange(2, 8))
            else:
                self._take_job()

    def _receive(self, count: int) -> None:
        self._desk.receiving = count
        one = self._queue.receive(0) if count == 1 else None
        got = self._queue.receive_many(count) if count > 1 else [] if one is None else [one]
        self._lines.add(RECEIVED, *(self._check(each) for each in got))
        self._desk.receiving = 0

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
        life, index = read(got.data)
        made = Desk(self.place.books.words(life, QUEUES)).made
        assert index < made, f"life {life} has made {made} messages, and not {index}"
        if got.deliveries == 1:
            before = self._last.get((life, got.priority), -1)
            assert index > before, f"message {index} of life {life} came after {before}"
            self._last[life, got.priority] = index
        return life, index

    def _end(self, job: Any) -> None:
        which = read(job.data)
        if self.rng.random() < 0.2:
            self._desk.returned += 1
            if self.rng.random() < 0.5:
                job.nack()
            return  # who deletes a job gives it back
        self._lines.add(BEGINS, which)
        try:
            job.ack()
        except LeaseExpiredError:
            self._lines.add(EXPIRED, which)
            self._desk.returned += 1
        else:
            self._lines.add(ACKNOWLEDGED, which)

    def quiet(self) -> None:
        while self._jobs:
            self._end(self._jobs.pop())

    def close(self) -> None:
        self.quiet()
        self._queue.close()
        self._lines.close()

    @staticmethod
    def make() -> None:
        MessageQueue(NAME, max_messages=PLACES, max_message_size=SIZE).close()

    @staticmethod
    def audit(place: Place) -> None:
        part = Queues(place)
        wait_until(lambda: not _settled(part), "what the dead had taken comes back")
        part._desk.counted_sent = msgq.stats.queue(NAME).sent
        part._queue.send(b"again", timeout=0)
        assert part._queue.receive(0) == (b"again", 0), "a queue that everybody left cannot be used"
        part.close()

    @staticmethod
    def balance(outcome: Outcome) -> list[str]:
        desks = {past.life: Desk(outcome.books.words(past.life, QUEUES)) for past in outcome.pasts}
        sent, made = sum(desk.sent for desk in desks.values()), sum(desk.made for desk in desks.values())
        counted = sum(desk.counted_sent for desk in desks.values())
        wrong = within(f"messages of queue/{NAME}", sent, counted, made)
        allowed = sum(desks[past.life].receiving for past in outcome.pasts if past.killed)
        wrong += _fates(outcome, desks, allowed)
        for past in outcome.pasts:
            desk = desks[past.life]
            if not past.killed and (desk.receiving or desk.made != desk.sent):
                wrong.append(f"life {past.life} left an operation on queue/{NAME} open, and was not killed")
        return wrong

    @staticmethod
    def figures(outcome: Outcome) -> list[Figures]:
        desks = [Desk(outcome.books.words(past.life, QUEUES)) for past in outcome.pasts]
        done, _ = fates(outcome)
        sent, returned, there = (sum(getattr(desk, name) for desk in desks) for name in ("sent", "returned", "there"))
        gone = max(sent - len(np.unique(done)), 0)  # with those that were killed while they received
        return [Figures("queue", sent, len(done), gone, f"{returned} came back, {there} still there")]


def _settled(part: Queues) -> bool:
    """Receive what is there, as the auditor; whether something may still come."""
    while True:
        before = os.fstat(part._lines._file).st_size
        part._receive(1)
        if os.fstat(part._lines._file).st_size == before:
            break
        part._desk.there += 1
    found = msgq.stats.queue(NAME)
    assert found.nonsense == 0, f"{found.nonsense} places of queue/{NAME} are nonsense"
    return bool(found.depth or found.in_flight or found.held or found.astray)


def fates(outcome: Outcome) -> tuple[_Words, _Words]:
    """Return which messages were received or acknowledged for sure, each as often as it was, and those of which
    nobody knows, because their consumer was killed while it acknowledged them.
    """
    done, unknown = [np.zeros(0, np.uint64)], list[int]()
    for past in outcome.pasts:
        path = path_of(outcome.folder, past.life)
        lines = np.fromfile(path, np.uint64) if path.exists() else done[0]
        what, which = lines >> np.uint64(60), lines & np.uint64((1 << 60) - 1)
        done.append(which[(what == RECEIVED) | (what == ACKNOWLEDGED)])
        if len(what) and what[-1] == BEGINS:
            unknown.append(int(which[-1]))
    return np.concatenate(done), np.array(unknown, np.uint64)


def _fates(outcome: Outcome, desks: dict[int, Desk], allowed: int) -> list[str]:
    """Compare what was sent with what became of each message; so many may have gone with those that were killed."""
    done, unknown = fates(outcome)
    which, times = np.unique(done, return_counts=True)
    wrong = [f"{_name(one)} was ended twice" for one in which[times > 1].tolist()]
    for one in which.tolist():
        desk = desks.get(one >> _LIFE)
        if desk is None or one & _INDEX >= desk.made:
            wrong.append(f"{_name(one)} was received, and nobody sent it")
    sent = [np.arange(desk.sent, dtype=np.uint64) | np.uint64(life << _LIFE) for life, desk in desks.items()]
    missing = np.setdiff1d(np.concatenate([which[:0], *sent]), np.concatenate([which, unknown]))
    if len(missing) > allowed:
        some = ", ".join(_name(one) for one in missing[:5].tolist())
        wrong.append(f"{len(missing)} messages of queue/{NAME} are missing, {allowed} may be: {some}")
    return wrong


def _name(word: int) -> str:
    return f"message {word & _INDEX} of life {word >> _LIFE} on queue/{NAME}"
