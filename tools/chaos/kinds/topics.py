"""Topics: a publisher that others supersede, and a subscriber that knows which message must be next."""

from __future__ import annotations

import contextlib
import time
import zlib
from itertools import pairwise
from typing import Any

import numpy as np

import msgq
from msgq.errors import MultiplePublishersError
from tests.support import DEADLINE
from tools.chaos.history import TOPICS, TopicRecord
from tools.chaos.kinds.workload import (
    Counts,
    Lane,
    RunResult,
    WorkerContext,
    Workload,
    check_complete,
    check_none_left,
    count_received,
)
from tools.chaos.messages import Ledger, Messages, largest_message_size

BATCH = 20  # messages that are taken one by one at a time, before other readers have their turn
PAUSE = 0.001  # maximum seconds of a pause in the middle of a send
ROW_BYTES = 104


class Topics(Workload):
    """A topic with messages of all sizes."""

    section, record_type = TOPICS, TopicRecord
    sizes: tuple[int, int] | None = None  # smallest and largest message; None: all that fit into the ring

    def __init__(self, context: WorkerContext, lane: Lane) -> None:
        super().__init__(context, lane)
        smallest, largest = self.sizes or (1, largest_message_size(lane.size))
        seed = zlib.crc32(lane.name.encode())
        self._stream = Messages(context.history, seed, largest, smallest, context.incarnation)
        if context.reads:
            way = context.way
            self._sub = msgq.sub_sock(lane.name, conflate=way == "conflating", passive=way == "passive")
            self._buffer = bytearray(largest)
            self._ledger = Ledger(self._stream, 0 if context.is_permanent else None, context.way)
        self._pub: msgq.PubSocket | None = None
        if context.writes:
            with contextlib.suppress(MultiplePublishersError):  # another one in the middle of a send does not yield
                self._pub = msgq.pub_sock(lane.name)
                self._base: int = self._pub.stats().messages
                self.record.base = self._base
        self.is_over = context.writes and self._pub is None

    def readers(self) -> list[Any]:
        return [self._sub]

    def produce(self) -> None:
        if self._pub is None:
            return
        try:
            self.record.sent += self._send(self._pub, self._base + self.record.sent)
        except MultiplePublishersError:
            self.record.sent = self.record.begun = self._count_published(
                self._pub
            )  # some of a batch may have been sent
            self._pub.close()
            self._pub, self.is_over = None, True

    def _send(self, socket: msgq.PubSocket, number: int) -> int:
        """Send the next message or messages, in one of the ways there are; return how many."""
        way = self.rng.random()
        if way < 0.7:
            socket.send(self._stream.message(number))
        elif way < 0.85:
            self._send_in_place(socket, self._stream.message(number))
        else:
            return socket.send_many([self._stream.message(number + i) for i in range(self.rng.randrange(1, 150))])
        return 1

    def _send_in_place(self, socket: msgq.PubSocket, message: bytes) -> None:
        """Send now and then with a pause in the middle, so that many kills, stops and takeovers interrupt a send."""
        half = len(message) // 2
        with socket.reserve(len(message)) as view:
            view[:half] = message[:half]
            if self.rng.random() < 0.2:
                time.sleep(PAUSE * self.rng.random())
            view[half:] = message[half:]

    def _count_published(self, socket: msgq.PubSocket) -> int:
        return int(socket.stats().messages) - self._base

    def take(self, reader: Any, timeout: float = 0.0) -> bool:
        way, before = self.rng.random(), self.record.received
        if way < 0.2:
            many = self._receive_many(reader, timeout)
            self._ledger.take(many, reader.lost, one_by_one=False)
        else:
            for i in range(BATCH):
                message = self._receive_one(reader, way < 0.4, 0.0 if i else timeout)
                self._ledger.take([] if message is None else [message], reader.lost)
                if message is None:  # it may have been lapped all the same
                    break
        return self._count(before)

    def _receive_one(self, socket: msgq.SubSocket, in_place: bool, timeout: float) -> bytes | None:
        if not in_place:
            return socket.receive(timeout=timeout)
        socket.setTimeout(timeout * 1000)
        size = socket.receive_into(self._buffer, non_blocking=not timeout)
        return None if size is None else bytes(self._buffer[:size])

    def _receive_many(self, socket: msgq.SubSocket, timeout: float) -> list[bytes]:
        socket.setTimeout(timeout * 1000)
        return socket.receive_many(self.rng.choice((None, 1, 7, 100)), wait_for_one=timeout > 0)

    async def atake(self, reader: Any) -> None:
        before, message = self.record.received, await reader.arecv()
        self._ledger.take([message], reader.lost)
        self._count(before)

    def _count(self, before: int) -> bool:
        self.record.received, self.record.lost = self._ledger.received, self._ledger.lost_before
        return bool(self.record.received > before)

    def stop_producing(self) -> None:
        if self._pub is not None:
            record, counted = self.record, self._count_published(self._pub)
            self._pub.close()
            self._pub = None
            assert counted == record.sent == record.begun, (
                f"{record.sent} sent, {record.begun} begun, {counted} counted"
            )

    def close(self) -> None:
        if self.context.reads:
            self.take(self._sub)  # a subscriber that was lapped in the middle of a batch knows its losses only now
            self._sub.close()

    @staticmethod
    def create_files(lane: Lane) -> None:
        msgq.sub_sock(lane.name, segment_size=lane.size).close()

    @staticmethod
    def check_at_end(context: WorkerContext, lane: Lane) -> None:
        with msgq.sub_sock(lane.name) as sub, msgq.pub_sock(lane.name) as pub:
            TopicRecord(context.history.words(context.incarnation, TOPICS)).total = pub.stats().messages
            pub.send(b"again")
            assert sub.receive(non_blocking=True) == b"again", "a topic that everybody left cannot be used"
        check_none_left(one.participant for one in msgq.stats.topic(lane.name).subscribers)

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        return check_successions(run_result) + check_complete(run_result)

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        return count_received(run_result, f"topic {run_result.lane.name}")


class Rows(Topics):
    """A topic with messages of one size, which are also sent and received as arrays."""

    sizes = ROW_BYTES, ROW_BYTES

    def _send(self, socket: msgq.PubSocket, number: int) -> int:
        if self.rng.random() < 0.5:
            return super()._send(socket, number)
        rows = b"".join(self._stream.message(number + i) for i in range(self.rng.randrange(1, 300)))
        return socket.send_many(np.frombuffer(rows, np.uint8).reshape(-1, ROW_BYTES))

    def _receive_many(self, socket: msgq.SubSocket, timeout: float) -> list[bytes]:
        if self.rng.random() < 0.2:
            return super()._receive_many(socket, timeout)
        socket.setTimeout(timeout * 1000)
        limit = self.rng.choice((None, 5, 1000))
        rows = socket.receive_array(np.dtype((np.void, ROW_BYTES)), limit, wait_for_one=timeout > 0)
        return [bytes(row) for row in rows]


class Patient(Topics):
    """A topic whose publishers send only when everybody has read everything, so nobody loses a message."""

    def _send(self, socket: msgq.PubSocket, number: int) -> int:
        socket.wait_for_readers(DEADLINE, 0.0001)
        assert socket.all_readers_updated()
        count = self.rng.randrange(1, 3)  # two of the largest fit
        for i in range(count):
            socket.send(self._stream.message(number + i))
        return count

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        return Topics.check(run_result) + [
            f"{result.way} {result.incarnation} lost {record.lost} messages of a publisher that waits"
            for result, record in run_result.records()
            if result.is_permanent and record.lost and result.way not in ("conflating", "passive")
        ]


def check_successions(run_result: RunResult) -> list[str]:
    """Check that each publisher began with the count that the previous publisher recorded at its end."""
    records = (record for _, record in run_result.records() if record.base is not None)
    chain = sorted((record.base, record.sent, record.begun) for record in records)
    chain.append((run_result.total, 0, 0))
    name = run_result.lane.name
    errors = [f"{name}: the first publisher found {chain[0][0]} messages"] if chain[0][0] else []
    for (base, sent, begun), (next_base, _, _) in pairwise(chain):
        if not sent <= next_base - base <= begun:
            text = f"a publisher that began at {base} began {begun} messages and had sent {sent}; the next began at"
            errors.append(f"{name}: {text} {next_base}")
    return errors
