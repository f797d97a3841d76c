"""Frames: one incarnation at a time serves, all hold frames for a while, and every word of a frame is its number."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

import msgq
from msgq.errors import MultiplePublishersError, WaitTimeoutError
from tests.support import wait_until
from tools.chaos.history import FRAMES, TopicRecord
from tools.chaos.kinds.topics import check_successions
from tools.chaos.kinds.workload import Counts, Lane, RunResult, WorkerContext, Workload, check_complete, count_received
from visionipc import FrameFormat, VisionBuf, VisionIpcClient, VisionIpcServer, get_endpoint_name

BUFFERS = 6
FRAMES_KEPT = 2  # frames that an incarnation keeps


def count_published(name: str) -> int:
    """Return how many frames were announced in all incarnations of the server: the number of the next one."""
    messages = msgq.stats.topic(get_endpoint_name(name, 0)).messages
    assert messages is not None
    return messages


def open_server(name: str, frame_bytes: int = 1 << 14) -> VisionIpcServer:
    """Return a server with a stream, which listens.

    Raises:
        MultiplePublishersError: another incarnation serves.
    """
    server = VisionIpcServer(name)
    server.start_listener()  # first, because the creation of a stream takes its topic over
    server.create_buffers(0, BUFFERS, frame_bytes, 1, FrameFormat.RAW)
    return server


def number_of(frame: VisionBuf) -> int:
    """Return the number of a frame, which must be whole."""
    words = frame.array.view(np.uint64)
    number = int(words[0])
    assert (words == number).all(), f"frame {number} is torn: {np.unique(words)}"
    return number


class Frames(Workload):
    """A stream of frames."""

    section, record_type = FRAMES, TopicRecord

    def __init__(self, context: WorkerContext, lane: Lane) -> None:
        super().__init__(context, lane)
        self._server: VisionIpcServer | None = None
        self._served = False
        self._frames: list[tuple[int, VisionBuf]] = []
        self._last = -1
        if context.reads:
            self._client = VisionIpcClient(lane.name, 0, context.way == "conflating")
            with contextlib.suppress(WaitTimeoutError):  # the server is stopped; the first frame connects
                self._client.connect(False)
            # rings when a frame is announced, for the poller
            self._notifications = msgq.sub_sock(get_endpoint_name(lane.name, 0))

    def readers(self) -> list[Any]:
        return [self._notifications]

    def produce(self) -> None:
        if self._server is None:
            if not self._served:
                self._serve()
            return
        record = self.record
        number = (record.base or 0) + record.sent
        record.begun = record.sent + 1
        if self._publish(self._server, number):
            record.sent += 1
        else:
            record.begun, record.dropped = record.sent, record.dropped + 1

    def _serve(self) -> None:
        try:
            self._server = open_server(self.lane.name, self.lane.size)
        except MultiplePublishersError:
            return
        self._served, self.record.base = True, count_published(self.lane.name)

    def _publish(self, server: VisionIpcServer, number: int) -> bool:
        if self.rng.random() < 0.3:
            return server.send(0, np.full(self.lane.size // 8, number, np.uint64).data, number)
        with server.frame(0) as frame:
            frame.array.view(np.uint64)[:] = number
            frame.frame_id = number & 0xFFFFFFFF
        return not frame.dropped

    def take(self, _: Any, timeout: float = 0.0) -> bool:
        """See the class. The client may give up on frames of servers that have ended, and more frames may follow."""
        before = self.record.received + self.record.lost
        self._notifications.receive_many()
        while (frame := self._client.recv(int(timeout * 1000))) is not None:
            self._keep(frame)
            timeout = 0.0
        self.record.lost = self._lost()
        return bool(self.record.received + self.record.lost > before)

    async def atake(self, _: Any) -> None:
        self._keep(await self._client.arecv())

    def _keep(self, frame: VisionBuf) -> None:
        self._check(number_of(frame))
        self._frames.append((self._last, frame))
        while len(self._frames) > self.rng.randrange(FRAMES_KEPT + 1):
            self._release()

    def _check(self, number: int) -> None:
        assert number > self._last, f"frame {number} came after {self._last}"
        expected = self.record.received + self._lost()
        assert not self.context.is_permanent or number == expected, f"frame {number} came in place of {expected}"
        self._last = number
        self.record.received += 1

    def _lost(self) -> int:
        lost = self._client.lost
        assert lost is not None, "the count of lost frames became unknown, but every server is ours"
        return lost

    def _release(self) -> None:
        number, frame = self._frames.pop(self.rng.randrange(len(self._frames)))
        current = number_of(frame)
        assert current == number, f"frame {number} became {current} while it was held"
        assert frame.valid(), f"frame {number} became invalid while it was held"

    def let_go(self) -> None:
        while self._frames:
            self._release()

    def stop_producing(self) -> None:
        if self._server is not None:
            stats, record = self._server.stats(0), self.record
            counts = f"{record.sent} sent, {record.dropped} dropped by our count: {stats}"
            assert (stats.published, stats.dropped) == (record.sent, record.dropped), counts
            self._server.close()
            self._server = None

    def close(self) -> None:
        if self.context.reads:
            while self.take(self._notifications):  # some losses are known only now, which is the same in topics
                pass
            self.let_go()
            self._client.close()
            self._notifications.close()

    @staticmethod
    def create_files(lane: Lane) -> None:
        open_server(lane.name, lane.size).close()

    @staticmethod
    def check_at_end(context: WorkerContext, lane: Lane) -> None:
        with open_server(lane.name, lane.size) as server, VisionIpcClient(lane.name, 0, False) as client:
            number = count_published(lane.name)
            TopicRecord(context.history.words(context.incarnation, FRAMES)).total = number
            assert client.connect(False), "a stream that everybody left cannot be used"
            assert server.send(0, np.full(lane.size // 8, number, np.uint64).data, number)
            with client.frame(1000) as frame:
                assert number_of(frame) == number
            client.close()
            wait_until(lambda: server.send(0, bytes(lane.size)) and not server.stats(0).held, "leases come back")

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        return check_successions(run_result) + check_complete(run_result)

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        dropped = sum(record.dropped for _, record in run_result.records())
        return count_received(run_result, f"frames {run_result.lane.name}", f"{dropped} dropped")
