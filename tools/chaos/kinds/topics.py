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
from tests.stress.traffic import Ledger, largest_message_size
from tools.chaos.history import TOPICS, History, Messages, TopicRecord
from tools.chaos.kinds.workload import Counts, RunResult, WorkerContext, Workload

BATCH = 20  # messages that are taken at a time, before the other kinds have their turn


@dataclass(frozen=True)
class Topic:
    """A topic of the run; `seed` is that of its messages."""

    endpoint: str
    ring_bytes: int
    seed: int


SHARED = Topic("ring-all", 1 << 16, 0x5EED)  # of the incarnations of all kinds; each that comes takes it over


class TopicPublisher:
    """A publisher that records its started and its completed sends.

    Raises
    ------
    MultiplePublishersError : a publisher in the middle of a send did not yield. In `send`: another one took over.
    """

    def __init__(self, topic: Topic, history: History, incarnation: int) -> None:
        self._record, self._stream = (
            history[incarnation],
            Messages(history, topic.seed, largest_message_size(topic.ring_bytes), incarnation),
        )
        self._socket = roles.publisher(topic.endpoint)
        self._base: int = self._socket.stats().messages
        self._record.base = self._base

    def send(self, rng: random.Random, pause: float) -> None:
        """Send a message or several, in one of the ways there are, now and then with a pause in the middle of one."""
        record, number = self._record, self._base + self._record.sent
        try:
            if rng.random() < 0.03:
                _send_slowly(self._socket, self._stream.message(number), pause * rng.random())
                record.sent += 1
            else:
                record.sent += roles.send_some(self._socket, self._stream, number, rng)
        except MultiplePublishersError:
            record.sent = record.made = self._count_published()  # of a batch, some may have been sent
            raise

    def check(self) -> None:
        """See that the library has counted as we did."""
        record, counted = self._record, self._count_published()
        assert counted == record.sent == record.made, f"{record.sent} sent, {record.made} made, {counted} counted"

    def _count_published(self) -> int:
        return int(self._socket.stats().messages) - self._base

    def close(self) -> None:
        """Leave the topic."""
        self._socket.close()


def _send_slowly(socket: msgq.PubSocket, message: bytes, pause: float) -> None:
    """Send a message with a pause in the middle, so that many kills, stops and takeovers interrupt a send."""
    half = len(message) // 2
    with socket.reserve(len(message)) as view:
        view[:half] = message[:half]
        time.sleep(pause)
        view[half:] = message[half:]


class Topics(Workload):
    """The topic of the incarnations of all kinds."""

    section = TOPICS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._record = TopicRecord(self.words)
        self._sub = msgq.sub_sock(SHARED.endpoint)
        stream = Messages(context.history, SHARED.seed, largest_message_size(SHARED.ring_bytes))
        self._ledger = Ledger(stream, 0 if context.is_permanent else None, "all kinds")
        self._pub: TopicPublisher | None = None
        with contextlib.suppress(MultiplePublishersError):  # then it subscribes only
            self._pub = TopicPublisher(SHARED, context.history, context.incarnation)

    def readers(self) -> list[Any]:
        return [self._sub]

    def produce(self) -> None:
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
        self._record.received, self._record.lost = self._ledger.received, self._ledger.lost_before

    def stop_producing(self) -> None:
        if self._pub is not None:
            try:
                self._pub.check()
            finally:
                self._pub.close()
                self._pub = None

    def close(self) -> None:
        self.take(self._sub)  # a subscriber that was lapped in the middle of a batch knows its losses only now
        self._sub.close()

    @staticmethod
    def create_files() -> None:
        msgq.sub_sock(SHARED.endpoint, segment_size=SHARED.ring_bytes).close()

    @staticmethod
    def check_at_end(context: WorkerContext) -> None:
        with msgq.sub_sock(SHARED.endpoint) as sub, roles.publisher(SHARED.endpoint) as pub:
            context.history.words(0, TOPICS)[8] = pub.stats().messages
            pub.send(b"again")
            assert sub.receive(non_blocking=True) == b"again", "a topic that everybody left cannot be used"
        stats = msgq.stats.topic(SHARED.endpoint)
        assert not [participant for participant in stats.subscribers if participant.participant.alive is not False], (
            stats.subscribers
        )

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        total = run_result.history.words(0, TOPICS)[8]
        errors = check_successions(
            SHARED.endpoint, (run_result.history[result.incarnation] for result in run_result.results), total
        )
        for incarnation in (result.incarnation for result in run_result.results if result.is_permanent):
            record = run_result.history[incarnation]
            errors += check_complete(
                f"all kinds {incarnation} of {SHARED.endpoint}", record.received, record.lost, total
            )
        return errors

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        records = [run_result.history[result.incarnation] for result in run_result.results]
        received, lost = sum(record.received for record in records), sum(record.lost for record in records)
        return [Counts("topics", run_result.history.words(0, TOPICS)[8], received, lost)]


def check_successions(endpoint: str, records: Iterable[TopicRecord], total: int) -> list[str]:
    """Check that each publisher began with the count that the previous publisher recorded at its end."""
    chain = sorted((record.base, record.sent, record.made) for record in records if record.base is not None)
    chain.append((total, 0, 0))
    errors = [f"{endpoint}: the first publisher found {chain[0][0]} messages"] if chain[0][0] else []
    for (base, sent, made), (next_base, _, _) in pairwise(chain):
        if not sent <= next_base - base <= made:
            text = f"a publisher that began at {base} made {made} messages and had sent {sent}; the next began at"
            errors.append(f"{endpoint}: {text} {next_base}")
    return errors


def check_complete(subscriber: str, received: int, lost: int, total: int) -> list[str]:
    """Who was there from the start has received every message, or counts it as lost."""
    if received + lost == total:
        return []
    return [f"{subscriber}: {received} received, {lost} lost, of {total} that were published"]
