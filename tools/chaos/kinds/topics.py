"""Topics: a publisher that others supersede, and a subscriber that knows which message must be next."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgq
from msgq.errors import MultiplePublishersError
from tests.stress import roles
from tests.stress.traffic import Ledger, largest
from tools.chaos.books import TOPICS, Books, Messages, Row
from tools.chaos.kinds.part import Figures, Outcome, Part, Place

BATCH = 20  # messages that are taken at a time, before the other kinds have their turn


@dataclass(frozen=True)
class Topic:
    """A topic of the run; `seed` is that of its messages."""

    endpoint: str
    ring_bytes: int
    seed: int


SHARED = Topic("ring-all", 1 << 16, 0x5EED)  # of the lives of all kinds; each that comes takes it over


class TopicPublisher:
    """A publisher that writes down what it begins to send, and what it has sent.

    Raises
    ------
    MultiplePublishersError : a publisher in the middle of a send did not yield. In `send`: another one took over.
    """

    def __init__(self, topic: Topic, books: Books, life: int) -> None:
        self._row, self._stream = books[life], Messages(books, topic.seed, largest(topic.ring_bytes), life)
        self._socket = roles.publisher(topic.endpoint)
        self._base: int = self._socket.stats().messages
        self._row.base = self._base

    def send(self, rng: random.Random, pause: float) -> None:
        """Send a message or several, in one of the ways there are, now and then with a pause in the middle of one."""
        row, number = self._row, self._base + self._row.sent
        try:
            if rng.random() < 0.03:
                _dawdle(self._socket, self._stream.message(number), pause * rng.random())
                row.sent += 1
            else:
                row.sent += roles.send_some(self._socket, self._stream, number, rng)
        except MultiplePublishersError:
            row.sent = row.made = self._counted()  # of a batch, some may have been sent
            raise

    def check(self) -> None:
        """See that the library has counted as we did."""
        row, counted = self._row, self._counted()
        assert counted == row.sent == row.made, f"{row.sent} sent, {row.made} made, {counted} counted"

    def _counted(self) -> int:
        return int(self._socket.stats().messages) - self._base

    def close(self) -> None:
        """Leave the topic."""
        self._socket.close()


def _dawdle(socket: msgq.PubSocket, message: bytes, pause: float) -> None:
    """Send a message that lies half written for a while: so that many a kill, stop and takeover falls into a send."""
    half = len(message) // 2
    with socket.reserve(len(message)) as view:
        view[:half] = message[:half]
        time.sleep(pause)
        view[half:] = message[half:]


class Topics(Part):
    """The topic of the lives of all kinds."""

    section = TOPICS

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._row = Row(self.words)
        self._sub = msgq.sub_sock(SHARED.endpoint)
        stream = Messages(place.books, SHARED.seed, largest(SHARED.ring_bytes))
        self._ledger = Ledger(stream, 0 if place.stays else None, "all kinds")
        self._pub: TopicPublisher | None = None
        with contextlib.suppress(MultiplePublishersError):  # then it subscribes only
            self._pub = TopicPublisher(SHARED, place.books, place.life)

    def readers(self) -> list[Any]:
        return [self._sub]

    def act(self) -> None:
        if self._pub is None:
            return
        try:
            self._pub.send(self.rng, 0.001)
        except MultiplePublishersError:
            self._pub.close()
            self._pub = None

    def take(self, _: Any) -> None:
        for _ in range(BATCH):
            message = self._sub.receive(non_blocking=True)
            self._ledger.take([] if message is None else [message], self._sub.lost)
            if message is None:  # it may have been lapped all the same
                break
        self._row.received, self._row.lost = self._ledger.received, self._ledger.lost_before

    def quiet(self) -> None:
        if self._pub is not None:
            try:
                self._pub.check()
            finally:
                self._pub.close()
                self._pub = None

    def close(self) -> None:
        self.take(self._sub)  # who was lapped in the middle of a batch knows only now how much of it was lost
        self._sub.close()

    @staticmethod
    def make() -> None:
        msgq.sub_sock(SHARED.endpoint, segment_size=SHARED.ring_bytes).close()

    @staticmethod
    def audit(place: Place) -> None:
        with msgq.sub_sock(SHARED.endpoint) as sub, roles.publisher(SHARED.endpoint) as pub:
            place.books.words(0, TOPICS)[8] = pub.stats().messages
            pub.send(b"again")
            assert sub.receive(non_blocking=True) == b"again", "a topic that everybody left cannot be used"
        found = msgq.stats.topic(SHARED.endpoint)
        assert not [one for one in found.subscribers if one.participant.alive is not False], found.subscribers

    @staticmethod
    def balance(outcome: Outcome) -> list[str]:
        total = outcome.books.words(0, TOPICS)[8]
        wrong = successions(SHARED.endpoint, (outcome.books[past.life] for past in outcome.pasts), total)
        for life in (past.life for past in outcome.pasts if past.stayed):
            row = outcome.books[life]
            wrong += complete(f"all kinds {life} of {SHARED.endpoint}", row.received, row.lost, total)
        return wrong

    @staticmethod
    def figures(outcome: Outcome) -> list[Figures]:
        rows = [outcome.books[past.life] for past in outcome.pasts]
        received, lost = sum(row.received for row in rows), sum(row.lost for row in rows)
        return [Figures("topics", outcome.books.words(0, TOPICS)[8], received, lost)]


def successions(endpoint: str, rows: Iterable[Row], total: int) -> list[str]:
    """Each publisher must begin with the count with which the one before it ended, as that one wrote it down itself."""
    chain = sorted((row.base, row.sent, row.made) for row in rows if row.base is not None)
    chain.append((total, 0, 0))
    wrong = [f"{endpoint}: the first publisher found {chain[0][0]} messages"] if chain[0][0] else []
    for (base, sent, made), (successor, _, _) in pairwise(chain):
        if not sent <= successor - base <= made:
            text = f"a publisher that began at {base} made {made} messages and had sent {sent}; the next began at"
            wrong.append(f"{endpoint}: {text} {successor}")
    return wrong


def complete(who: str, received: int, lost: int, total: int) -> list[str]:
    """Who was there from the start has received every message, or counts it as lost."""
    if received + lost == total:
        return []
    return [f"{who}: {received} received, {lost} lost, of {total} that were published"]
