"""A channel: several publishers, and in each incarnation a subscriber that copies and one that keeps views."""

from __future__ import annotations

import zlib
from typing import Any

import msgq
from msgq.channel import Channel
from msgq.errors import PoolExhaustedError
from msgq.impl.channel.core import Publisher, Sample, Subscriber
from tests.stress.channels import HEAD, message, read
from tools.chaos.history import CHANNELS, Field, History, Record
from tools.chaos.kinds.topics import check_complete
from tools.chaos.kinds.workload import Counts, RunResult, WorkerContext, Workload, check_within

NAME = "lanes"
CAPACITY = 64
VIEWS = 4  # that an incarnation keeps
BATCH = 20
SIZES = (0, 10, 200, 200, 4000, 20_000)  # bytes of messages, of which some make pools grow


class ChannelRecord(Record):
    """What an incarnation has written of the channel.

    Attributes
    ----------
    made, sent : messages that it began to publish, and those whose publishing had returned. `made` of incarnation 0
        is the number of all messages at the end.
    """

    __slots__ = ()

    made = Field(0)
    sent = Field(1)


class SubscriberRecord(Record):
    """The record of a subscriber about its messages."""

    __slots__ = ()

    received = Field(0)
    lost = Field(1)


SUBSCRIBERS = {"copying": 2, "viewing": 4}  # the words of an incarnation that each subscriber has


class Reader:
    """A subscriber, and checks of its messages: intact, in order, and each position received or lost."""

    def __init__(self, kind: str, subscriber: Subscriber, words: memoryview, history: History) -> None:
        self.kind, self.subscriber, self._history = kind, subscriber, history
        self._record, self._start = SubscriberRecord(words), subscriber.position or CAPACITY
        self._position = -1
        self._last: dict[
            int, tuple[int, int]
        ] = {}  # incarnation -> its last message here, and what was lost until then

    def check(self, data: Any, position: int, publisher: str) -> None:
        """Check a message that was just taken."""
        incarnation, index = read(data)
        received, lost = self.subscriber.received, self.subscriber.lost
        assert publisher == f"incarnation {incarnation}", (
            f"a message of incarnation {incarnation} says that it is of {publisher}"
        )
        assert index < ChannelRecord(self._history.words(incarnation, CHANNELS)).made, (
            f"incarnation {incarnation} has not made message {index}"
        )
        assert position > self._position, f"position {position} came after {self._position}"
        known = position + 1 - self._start
        assert received + lost == known, f"{self.kind}: {received} received, {lost} lost, of {known} positions"
        before, lost_before = self._last.get(incarnation, (index - 1, lost))
        assert index > before, f"{self.kind}: message {index} of incarnation {incarnation} came after {before}"
        missing = index - before - 1
        assert missing <= lost - lost_before, (
            f"{self.kind}: {missing} of incarnation {incarnation} are missing, and not lost"
        )
        self._position, self._last[incarnation] = position, (index, lost)
        self._record.received, self._record.lost = received, lost


class Channels(Workload):
    """The channel of the incarnations of all kinds."""

    section = CHANNELS

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._record = ChannelRecord(self.words)
        self._channel = Channel(NAME, node=f"incarnation {context.incarnation}")
        self._copying, self._viewing = (
            Reader(kind, self._channel.subscriber(max_views=VIEWS), self.words[first : first + 2], context.history)
            for kind, first in SUBSCRIBERS.items()
        )
        self._views: list[tuple[Sample, int]] = []
        self._pub: Publisher | None = self._channel.publisher(slot_bytes=self.rng.choice((64, 4096)))

    def readers(self) -> list[Any]:
        return [self._copying.subscriber, self._viewing.subscriber]

    def produce(self) -> None:
        if self._pub is None:
            return
        way, size = self.rng.random(), self.rng.choice(SIZES)
        try:
            if way < 0.6:
                self._begin(1)
                self._pub.send(self._next(0, size))
                self._record.sent += 1
            elif way < 0.8:
                count = self.rng.randrange(1, 40)
                self._begin(count)
                self._record.sent += self._pub.send_many([self._next(i, 100) for i in range(count)])
            else:
                self._publish_loan(self._pub, size)
        except PoolExhaustedError:
            self._record.made = self._record.sent = self._pub.sent

    def _begin(self, count: int) -> None:
        self._record.made = self._record.sent + count

    def _next(self, ahead: int, size: int) -> bytes:
        return message(self.context.incarnation, self._record.sent + ahead, size)

    def _publish_loan(self, publisher: Publisher, size: int) -> None:
        """Publish one of two loans, and give the other one back."""
        with publisher.loan(HEAD + size) as loan:
            publisher.loan(10).discard()
            data = self._next(0, size)
            with memoryview(loan) as view:
                view[:] = data
            self._begin(1)
        self._record.sent += 1

    def take(self, reader: Any) -> None:
        if reader is self._viewing.subscriber:
            self._take_views()
            return
        for _ in range(BATCH):
            data, last = reader.receive(0), reader.last
            if data is None:
                break
            self._copying.check(data, last.position, last.publisher.name)

    def _take_views(self) -> None:
        """Keep some views for a while; their bytes are the same at the end."""
        for _ in range(self.rng.randrange(1, BATCH)):
            if len(self._views) == VIEWS:
                self._release()
            if (view := self._viewing.subscriber.receive_view(0)) is None:
                break
            self._viewing.check(view, view.position, view.publisher.name)
            self._views.append((view, zlib.crc32(view)))

    def _release(self) -> None:
        view, checksum = self._views.pop(self.rng.randrange(len(self._views)))
        assert zlib.crc32(view) == checksum, f"somebody wrote into the view of position {view.position}"
        view.release()

    def stop_producing(self) -> None:
        if self._pub is not None:
            record, sent = self._record, self._pub.sent
            assert sent == record.sent == record.made, f"{record.sent} sent, {record.made} made, {sent} counted"
            self._pub.close()
            self._pub = None

    def close(self) -> None:
        while self._views:
            self._release()
        for reader in (self._copying, self._viewing):
            reader.subscriber.close()
        self._channel.close()

    @staticmethod
    def create_files() -> None:
        Channel(NAME, capacity=CAPACITY).close()

    @staticmethod
    def check_at_end(context: WorkerContext) -> None:
        channel = Channel(NAME, node="final checker")
        ChannelRecord(context.history.words(0, CHANNELS)).made = channel.messages
        with channel.subscriber() as subscriber, channel.publisher() as publisher:
            publisher.send(b"again")
            assert subscriber.receive(0) == b"again", "a channel that everybody left cannot be used"
        channel.close()
        stats = msgq.stats.channel(NAME)
        assert not [participant for participant in stats.participants if participant[1].alive is not False], (
            stats.participants
        )
        assert not stats.orphans, stats.orphans
        assert not [
            participant for participant in stats.viewers if participant.views and participant.participant.alive
        ], stats.viewers

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        total = ChannelRecord(run_result.history.words(0, CHANNELS)).made
        records = [
            ChannelRecord(run_result.history.words(result.incarnation, CHANNELS)) for result in run_result.results
        ]
        made, sent = sum(record.made for record in records), sum(record.sent for record in records)
        errors = check_within(f"messages of channel/{NAME}", sent, total, made)
        for incarnation in (result.incarnation for result in run_result.results if result.is_permanent):
            for kind, record in _subscriber_records(run_result.history, incarnation):
                errors += check_complete(f"{kind} {incarnation} of channel/{NAME}", record.received, record.lost, total)
        for result in run_result.results:
            published = ChannelRecord(run_result.history.words(result.incarnation, CHANNELS))
            if not result.killed and published.made != published.sent:
                text = f"has sent {published.sent} of {published.made} messages, and was not killed"
                errors.append(f"incarnation {result.incarnation} {text}")
        return errors

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        total, lines = ChannelRecord(run_result.history.words(0, CHANNELS)).made, []
        for subscriber in SUBSCRIBERS:
            records = [
                record
                for result in run_result.results
                for kind, record in _subscriber_records(run_result.history, result.incarnation)
                if kind == subscriber
            ]
            counts = sum(record.received for record in records), sum(record.lost for record in records)
            lines.append(Counts(f"channel, {subscriber}", total, *counts))
        return lines


def _subscriber_records(history: History, incarnation: int) -> list[tuple[str, SubscriberRecord]]:
    words = history.words(incarnation, CHANNELS)
    return [(kind, SubscriberRecord(words[first : first + 2])) for kind, first in SUBSCRIBERS.items()]
