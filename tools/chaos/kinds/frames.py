"""Frames: one life at a time serves, all hold frames for a while, and every word of a frame is its number."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

import msgq
from msgq.errors import MultiplePublishersError, WaitTimeoutError
from tests.support import wait_until
from tools.chaos.books import FRAMES, Row
from tools.chaos.kinds.part import Figures, Outcome, Part, Place
from tools.chaos.kinds.topics import complete, successions
from visionipc import FrameFormat, VisionBuf, VisionIpcClient, VisionIpcServer, get_endpoint_name

NAME = "camera"
BUFFERS = 10
FRAME_BYTES = 1 << 14
HELD = 2  # frames that a life keeps


def published() -> int:
    """Return how many frames were announced in all lives of the server: the number of the next one."""
    found = msgq.stats.topic(get_endpoint_name(NAME, 0)).messages
    assert found is not None
    return found


def opened() -> VisionIpcServer:
    """Return a server with a stream, which listens.

    Raises
    ------
    MultiplePublishersError : another life serves.
    """
    server = VisionIpcServer(NAME)
    server.start_listener()  # first: who makes the stream takes its topic over
    server.create_buffers(0, BUFFERS, FRAME_BYTES, 1, FrameFormat.RAW)
    return server


def number_of(frame: VisionBuf) -> int:
    """Return the number of a frame, which must be whole."""
    words = frame.data.view(np.uint64)
    number = int(words[0])
    assert (words == number).all(), f"frame {number} is torn: {np.unique(words)}"
    return number


class Frames(Part):
    """The stream of the lives of all kinds."""

    section = FRAMES

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._row = Row(self.words)
        self._server: VisionIpcServer | None = None
        self._served = False
        self._client = VisionIpcClient(NAME, 0, False)
        with contextlib.suppress(WaitTimeoutError):  # the server is stopped; the first frame connects
            self._client.connect(False)
        self._bell = msgq.sub_sock(get_endpoint_name(NAME, 0))  # rings when a frame is announced, for the poller
        self._held: list[tuple[int, VisionBuf]] = []
        self._last = -1

    def readers(self) -> list[Any]:
        return [self._bell]

    def act(self) -> None:
        if self._server is None:
            if not self._served:
                self._serve()
            return
        row = self._row
        number = (row.base or 0) + row.sent
        row.made = row.sent + 1
        if self._publish(self._server, number):
            row.sent += 1
        else:
            row.made, row.dropped = row.sent, row.dropped + 1

    def _serve(self) -> None:
        try:
            self._server = opened()
        except MultiplePublishersError:
            return
        self._served, self._row.base = True, published()

    def _publish(self, server: VisionIpcServer, number: int) -> bool:
        if self.rng.random() < 0.3:
            return server.send(0, np.full(FRAME_BYTES // 8, number, np.uint64).data, number)
        with server.frame(0) as frame:
            frame.data.view(np.uint64)[:] = number
            frame.frame_id = number & 0xFFFFFFFF
        return not frame.dropped

    def take(self, _: Any) -> None:
        self._bell.receive_many()
        while (frame := self._client.recv(0)) is not None:
            self._check(number_of(frame))
            self._held.append((self._last, frame))
            while len(self._held) > HELD:
                self._let_go()
        self._row.lost = self._lost()

    def _check(self, number: int) -> None:
        assert number > self._last, f"frame {number} came after {self._last}"
        expected = self._row.received + self._lost()
        assert not self.place.stays or number == expected, f"frame {number} came in place of {expected}"
        self._last = number
        self._row.received += 1

    def _lost(self) -> int:
        lost = self._client.lost
        assert lost is not None, "the count of lost frames became unknown, but every server is ours"
        return lost

    def _let_go(self) -> None:
        number, frame = self._held.pop(self.rng.randrange(len(self._held)))
        found = number_of(frame)
        assert found == number, f"frame {number} became {found} while it was held"

    def quiet(self) -> None:
        if self._server is not None:
            found, row = self._server.stats(0), self._row
            counts = f"{row.sent} sent, {row.dropped} dropped by our count: {found}"
            assert (found.published, found.dropped) == (row.sent, row.dropped), counts
            self._server.close()
            self._server = None

    def close(self) -> None:
        self.take(self._bell)  # as of a topic: what was lost may be known only now
        while self._held:
            self._let_go()
        self._client.close()
        self._bell.close()

    @staticmethod
    def make() -> None:
        opened().close()

    @staticmethod
    def audit(place: Place) -> None:
        with opened() as server, VisionIpcClient(NAME, 0, False) as client:
            number = place.books.words(0, FRAMES)[8] = published()
            assert client.connect(False), "a stream that everybody left cannot be used"
            assert server.send(0, np.full(FRAME_BYTES // 8, number, np.uint64).data, number)
            with client.frame(1000) as frame:
                assert number_of(frame) == number
            client.close()
            wait_until(lambda: server.send(0, bytes(FRAME_BYTES)) and not server.stats(0).held, "leases come back")

    @staticmethod
    def balance(outcome: Outcome) -> list[str]:
        total, books = outcome.books.words(0, FRAMES)[8], outcome.books
        rows = {past.life: Row(books.words(past.life, FRAMES)) for past in outcome.pasts}
        wrong = successions(f"frames of {NAME}", rows.values(), total)
        for past in outcome.pasts:
            if past.stayed:
                row = rows[past.life]
                wrong += complete(f"client {past.life} of {NAME}", row.received, row.lost, total)
        return wrong

    @staticmethod
    def figures(outcome: Outcome) -> list[Figures]:
        rows = [Row(outcome.books.words(past.life, FRAMES)) for past in outcome.pasts]
        received, lost, dropped = (sum(getattr(row, name) for row in rows) for name in ("received", "lost", "dropped"))
        return [Figures("frames", outcome.books.words(0, FRAMES)[8], received, lost, f"{dropped} dropped")]
