"""Frames: one incarnation at a time serves, all hold frames for a while, and every word of a frame is its number."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

import msgq
from msgq.errors import MultiplePublishersError, WaitTimeoutError
from tests.support import wait_until
from tools.chaos.history import FRAMES, TopicRecord
from tools.chaos.kinds.topics import check_complete, check_successions
from tools.chaos.kinds.workload import Counts, RunResult, WorkerContext, Workload
from visionipc import FrameFormat, VisionBuf, VisionIpcClient, VisionIpcServer, get_endpoint_name

NAME = "camera"
BUFFERS = 10
FRAME_BYTES = 1 << 14
FRAMES_KEPT = 2  # frames that an incarnation keeps


def count_published() -> int:
    """Return how many frames were announced in all incarnations of the server: the number of the next one."""
    messages = msgq.stats.topic(get_endpoint_name(NAME, 0)).messages
    assert messages is not None
    return messages


def open_server() -> VisionIpcServer:
    """Return a server with a stream, which listens.

    Raises
    ------
    MultiplePublishersError : another incarnation serves.
    """
    server = VisionIpcServer(NAME)
    server.start_listener()  # first, because the creation of a stream takes its topic over
    server.create_buffers(0, BUFFERS, FRAME_BYTES, 1, FrameFormat.RAW)
    return server


def number_of(frame: VisionBuf) -> int:
    """Return the number of a frame, which must be whole."""
    words = frame.array.view(np.uint64)
    number = int(words[0])
    assert (words == number).all(), f"frame {number} is torn: {np.unique(words)}"
    return number


class Frames(Workload):
    """The stream of the incarnations of all kinds."""

    section = FRAMES

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._record = TopicRecord(self.words)
        self._server: VisionIpcServer | None = None
        self._served = False
        self._client = VisionIpcClient(NAME, 0, False)
        with contextlib.suppress(WaitTimeoutError):  # the server is stopped; the first frame connects
            self._client.connect(False)
        self._notifications = msgq.sub_sock(
            get_endpoint_name(NAME, 0)
        )  # rings when a frame is announced, for the poller
        self._frames: list[tuple[int, VisionBuf]] = []
        self._last = -1

    def readers(self) -> list[Any]:
        return [self._notifications]

    def produce(self) -> None:
        if self._server is None:
            if not self._served:
                self._serve()
            return
        record = self._record
        number = (record.base or 0) + record.sent
        record.made = record.sent + 1
        if self._publish(self._server, number):
            record.sent += 1
        else:
            record.made, record.dropped = record.sent, record.dropped + 1

    def _serve(self) -> None:
        try:
            self._server = open_server()
        except MultiplePublishersError:
            return
        self._served, self._record.base = True, count_published()

    def _publish(self, server: VisionIpcServer, number: int) -> bool:
        if self.rng.random() < 0.3:
            return server.send(0, np.full(FRAME_BYTES // 8, number, np.uint64).data, number)
        with server.frame(0) as frame:
            frame.array.view(np.uint64)[:] = number
            frame.frame_id = number & 0xFFFFFFFF
        return not frame.dropped

    def take(self, _: Any) -> None:
        self._notifications.receive_many()
        while (frame := self._client.recv(0)) is not None:
            self._check(number_of(frame))
            self._frames.append((self._last, frame))
            while len(self._frames) > FRAMES_KEPT:
                self._release()
        self._record.lost = self._lost()

    def _check(self, number: int) -> None:
        assert number > self._last, f"frame {number} came after {self._last}"
        expected = self._record.received + self._lost()
        assert not self.context.is_permanent or number == expected, f"frame {number} came in place of {expected}"
        self._last = number
        self._record.received += 1

    def _lost(self) -> int:
        lost = self._client.lost
        assert lost is not None, "the count of lost frames became unknown, but every server is ours"
        return lost

    def _release(self) -> None:
        number, frame = self._frames.pop(self.rng.randrange(len(self._frames)))
        current = number_of(frame)
        assert current == number, f"frame {number} became {current} while it was held"

    def stop_producing(self) -> None:
        if self._server is not None:
            stats, record = self._server.stats(0), self._record
            counts = f"{record.sent} sent, {record.dropped} dropped by our count: {stats}"
            assert (stats.published, stats.dropped) == (record.sent, record.dropped), counts
            self._server.close()
            self._server = None

    def close(self) -> None:
        self.take(self._notifications)  # as in topics, some losses are known only now
        while self._frames:
            self._release()
        self._client.close()
        self._notifications.close()

    @staticmethod
    def create_files() -> None:
        open_server().close()

    @staticmethod
    def check_at_end(context: WorkerContext) -> None:
        with open_server() as server, VisionIpcClient(NAME, 0, False) as client:
            number = context.history.words(0, FRAMES)[8] = count_published()
            assert client.connect(False), "a stream that everybody left cannot be used"
            assert server.send(0, np.full(FRAME_BYTES // 8, number, np.uint64).data, number)
            with client.frame(1000) as frame:
                assert number_of(frame) == number
            client.close()
            wait_until(lambda: server.send(0, bytes(FRAME_BYTES)) and not server.stats(0).held, "leases come back")

    @staticmethod
    def check(run_result: RunResult) -> list[str]:
        total, history = run_result.history.words(0, FRAMES)[8], run_result.history
        records = {
            result.incarnation: TopicRecord(history.words(result.incarnation, FRAMES)) for result in run_result.results
        }
        errors = check_successions(f"frames of {NAME}", records.values(), total)
        for result in run_result.results:
            if result.is_permanent:
                record = records[result.incarnation]
                errors += check_complete(f"client {result.incarnation} of {NAME}", record.received, record.lost, total)
        return errors

    @staticmethod
    def counts(run_result: RunResult) -> list[Counts]:
        records = [TopicRecord(run_result.history.words(result.incarnation, FRAMES)) for result in run_result.results]
        received, lost, dropped = (
            sum(getattr(record, name) for record in records) for name in ("received", "lost", "dropped")
        )
        return [Counts("frames", run_result.history.words(0, FRAMES)[8], received, lost, f"{dropped} dropped")]
