"""A channel: several publishers, and subscribers that copy and keep views."""

from __future__ import annotations

import zlib
from typing import Any

import msgq
from msgq.channel import Channel
from msgq.errors import PoolExhaustedError
from msgq.impl.channel.core import Publisher, Sample
from tools.chaos.history import CHANNELS, TopicRecord
from tools.chaos.kinds.workload import (
    Counts,
    Lane,
    RunResult,
    WorkerContext,
    Workload,
    check_complete,
    check_none_left,
    check_within,
    count_received,
)
from tools.chaos.messages import make_message, read_message

VIEWS = 4  # views that an incarnation keeps
BATCH = 20
SIZES = (0, 10, 200, 200, 4000, 20_000)  # bytes of messages, of which some make pools grow
LARGEST = 1 << 15


class Channels(Workload):
    """A channel with messages of all sizes."""

    section, record_type = CHANNELS, TopicRecord

    def __init__(self, context: WorkerContext, lane: Lane) -> None:
        super().__init__(context, lane)
        self._is_passive = context.way == "passive" and not context.writes
        self._channel = Channel(lane.name, node=f"incarnation {context.incarnation}", passive=self._is_passive)
        self._views: list[tuple[Sample, int]] = []
        if context.reads:
            self._sub = self._channel.subscriber(max_views=VIEWS, conflate=context.way == "conflating")
            self._buffer = bytearray(LARGEST)
            self._start = self._sub.position or lane.size
            self._position = -1
            self._last: dict[int, tuple[int, int]] = {}  # incarnation -> its last message, and what was lost until then
        self._pub: Publisher | None = None
        if context.writes:
            self._pub = self._channel.publisher(slot_bytes=self.rng.choice((64, 256, 4096)))

    def readers(self) -> list[Any]:
        return [self._sub]

    def produce(self) -> None:
        if self._pub is None:
            return
        way, size = self.rng.random(), self.rng.choice(SIZES)
        try:
            if way < 0.6:
                self._begin(1)
                self._pub.send(self._next(0, size))
                self.record.sent += 1
            elif way < 0.8:
                count = self.rng.randrange(1, 40)
                self._begin(count)
                self.record.sent += self._pub.send_many([self._next(i, 100) for i in range(count)])
            else:
                self._publish_loans(self._pub, size)
        except PoolExhaustedError:
            self.record.begun = self.record.sent = self._pub.sent

    def _begin(self, count: int) -> None:
        self.record.begun = self.record.sent + count

    def _next(self, ahead: int, size: int) -> bytes:
        return make_message(self.context.incarnation, self.record.sent + ahead, size)

    def _publish_loans(self, publisher: Publisher, size: int) -> None:
        """Publish loans in another order than they were taken in, and give one back."""
        loans = [publisher.loan(len(self._next(0, size))) for _ in range(self.rng.randrange(1, 4))]
        publisher.loan(10).discard()
        self.rng.shuffle(loans)
        for loan in loans:
            data = self._next(0, size)
            with memoryview(loan) as view:
                view[: len(data)] = data
            self._begin(1)
            loan.publish(len(data))
            self.record.sent += 1

    def take(self, reader: Any, timeout: float = 0.0) -> bool:
        before = self.record.received
        for i in range(self.rng.randrange(1, BATCH)):
            if not self._take_one(0.0 if i else timeout):
                break
        return bool(self.record.received > before)

    def _take_one(self, timeout: float) -> bool:
        """Take one message as a copy, in place, or as a view that is kept for a while."""
        way = self.rng.random()
        if way < 0.4 and not self._is_passive:
            return self._take_view(timeout)
        if way < 0.6:
            size = self._sub.receive_into(self._buffer, timeout)
            data = None if size is None else bytes(self._buffer[:size])
        else:
            data = self._sub.receive(timeout)
        return data is not None and self._check_last(data)

    def _take_view(self, timeout: float) -> bool:
        if len(self._views) == VIEWS:
            self._release()
        if (view := self._sub.receive_view(timeout)) is None:
            return False
        self._check(view, view.position, view.publisher.name)
        self._views.append((view, zlib.crc32(view)))
        return True

    async def atake(self, reader: Any) -> None:
        self._check_last(await reader.arecv())

    def _check_last(self, data: bytes) -> bool:
        last = self._sub.last
        assert last is not None
        self._check(data, last.position, last.publisher.name)
        return True

    def _check(self, data: Any, position: int, publisher: str) -> None:
        """Check a message that was just taken: intact, in order, and each position received or lost."""
        incarnation, index = read_message(data)
        received, lost, way = self._sub.received, self._sub.lost, self.context.way
        assert publisher == f"incarnation {incarnation}", (
            f"a message of incarnation {incarnation} says that it is of {publisher}"
        )
        assert index < TopicRecord(self.context.history.words(incarnation, CHANNELS)).begun, (
            f"incarnation {incarnation} has not made message {index}"
        )
        assert position > self._position, f"position {position} came after {self._position}"
        positions = position + 1 - self._start
        assert received + lost == positions, f"{way}: {received} received, {lost} lost, of {positions} positions"
        before, lost_before = self._last.get(incarnation, (index - 1, lost))
        assert index > before, f"{way}: message {index} of incarnation {incarnation} came after {before}"
        missing = index - before - 1
        assert missing <= lost - lost_before, f"{way}: {missing} of incarnation {incarnation} are missing, and not lost"
        self._position, self._last[incarnation] = position, (index, lost)
        self._count()

    def _count(self) -> None:
        self.record.received, self.record.lost = self._sub.received, self._sub.lost

    def _release(self) -> None:
        view, checksum = self._views.pop(self.rng.randrange(len(self._views)))
        assert zlib.crc32(view) == checksum, f"somebody wrote into the view of position {view.position}"
        view.release()

    def let_go(self) -> None:
        while self._views:
            self._release()

    def stop_producing(self) -> None:
        if self._pub is not None:
            record, sent = self.record, self._pub.sent
            assert sent == record.sent == record.begun, f"{record.sent} sent, {record.begun} begun, {sent} counted"
            self._pub.close()
            self._pub = None

    def close(self) -> None:
        if self.context.reads:
            self.take(self._sub)  # some losses are known only now, which is the same in topics
            self._count()
            self.let_go()
            self._sub.close()
        self._channel.close()

    @staticmethod
    def create_files(lane: Lane) -> None:
        Channel(lane.name, capacity=lane.size).close()

    @staticmethod
    def check_at_end(context: WorkerContext, lane: Lane) -> None:
        channel = Channel(lane.name, node="final checker")
        TopicRecord(context.history.words(context.incarnation, CHANNELS)).total = channel.messages
        with channel.subscriber() as subscriber, channel.publisher() as publisher:
            publisher.send(b"again")
            assert subscriber.receive(0) == b"again", "a channel that everybody left cannot be used"
        channel.close()
        stats = msgq.stats.channel(lane.name)
        check_none_left(participant for _, participant in stats.participants)
        check_none_left(one.participant for one in stats.viewers if one.views)
        assert not stats.orphans, stats.orphans

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        records = list(run_result.records())
        begun, sent = sum(record.begun for _, record in records), sum(record.sent for _, record in records)
        errors = check_within(f"messages of channel/{run_result.lane.name}", sent, run_result.total, begun)
        errors += check_complete(run_result)
        return errors + [
            f"incarnation {result.incarnation} has sent {record.sent} of {record.begun} messages, and was not killed"
            for result, record in records
            if not result.killed and record.begun != record.sent
        ]

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        return count_received(run_result, f"channel {run_result.lane.name}")
