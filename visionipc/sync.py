"""Matching frames of several streams, by their timestamps."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from operator import index
from typing import Any, Protocol, Self

from msgq.common.closing import ClosingContext
from msgq.errors import InvalidValueError
from msgq.impl import backend
from msgq.impl.base.argument_checks import timeout_ms as check_timeout_ms
from visionipc.impl.core import VisionBuf


class FrameClient(Protocol):
    """Methods that `FrameSync` needs of a `VisionIpcClient`."""

    def recv(self, timeout_ms: float = ...) -> VisionBuf | None:
        """Return the next frame, or None."""

    def arecv(self) -> Coroutine[Any, Any, VisionBuf]:
        """Return the next frame in an asyncio task."""


class FrameSync(ClosingContext):
    """Matches frames of several streams by `timestamp_sof`. A match has one frame of each stream.

    If a frame has no partner in another stream, the frame is released and counted. The object holds at most one frame
    of each stream while it waits for the others. For sorted timestamps, the number of matches is the largest possible.
    If the timestamps of a stream go back (for example, a replay restarts), the held frames of the other streams are
    released.

    Frames that a client never received count in `VisionIpcClient.lost`, not here. Give the streams enough buffers for
    the longest delay between them. The streams may come from several servers with the same clock.

    The caller connects and closes the clients. One thread or task at a time may use the object.

    Attributes:
        tolerance_ns: largest difference of `timestamp_sof` between the frames of a match, in nanoseconds.
    """

    def __init__(self, clients: Sequence[FrameClient], tolerance_ns: int) -> None:
        """Create a matcher. `recv` receives the frames.

        Args:
            clients: one connected client for each stream. Do not use `conflate`, unless partners always arrive at the
                same time.
            tolerance_ns: nanoseconds, less than half of the time between two frames of the fastest stream.

        Raises:
            InvalidValueError: the tolerance is negative, or the clients are empty or repeated.
        """
        self._clients = list(clients)
        if not self._clients or len({id(client) for client in self._clients}) < len(self._clients):
            raise InvalidValueError(f"number of clients is {len(self._clients)}; give one client for each stream")
        if not tolerance_ns >= 0:
            raise InvalidValueError(f"tolerance is {tolerance_ns} ns; give 0 or more")
        self.tolerance_ns: int = index(tolerance_ns)
        self._held: list[VisionBuf | None] = [None] * len(self._clients)
        self._latest = [0] * len(self._clients)
        self._dropped = [0] * len(self._clients)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Number of received frames without partners, for each stream, in the order of the clients."""
        return tuple(self._dropped)

    def recv(self, timeout_ms: float = 100) -> tuple[VisionBuf, ...] | None:
        """Return the next matching frames in the order of the clients. Return None after the time-out.

        Args:
            timeout_ms: milliseconds; 0 does not wait, -1 waits without limit.

        Raises:
            EndpointClosedError, InvalidValueError: as in `VisionIpcClient.recv`.
        """
        check_timeout_ms(timeout_ms)
        until = backend.monotonic() + timeout_ms / 1000
        left_ms = timeout_ms
        while (stream := self._next_stream()) is not None:
            frame = self._clients[stream].recv(left_ms)
            if frame is None:
                return None
            self._hold_frame(stream, frame)
            if timeout_ms > 0:
                left_ms = (until - backend.monotonic()) * 1000
                if left_ms <= 0:  # a stream of frames without partners may be endless
                    break
        return None if self._next_stream() is not None else self._match_frames()

    async def arecv(self) -> tuple[VisionBuf, ...]:
        """Return the next matching frames in an asyncio task. A cancelled call loses no frame."""
        while (stream := self._next_stream()) is not None:
            self._hold_frame(stream, await self._clients[stream].arecv())
        return self._match_frames()

    areceive = arecv

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, tuple[VisionBuf, ...]]:
        return self.arecv()

    def _next_stream(self) -> int | None:
        """Return a stream that needs a frame; None: the held frames match."""
        if None in self._held:
            return self._held.index(None)
        oldest_allowed = max(self._latest) - self.tolerance_ns
        for stream, time_ns in enumerate(self._latest):
            if time_ns < oldest_allowed:  # so will be every later frame of the newest stream: no partner can come
                self._drop_frame(stream)
        return self._held.index(None) if None in self._held else None

    def _hold_frame(self, stream: int, frame: VisionBuf) -> None:
        if frame.timestamp_sof < self._latest[stream]:
            for other, held in enumerate(self._held):
                if held is not None:
                    self._drop_frame(other)
            self._latest = [0] * len(self._clients)  # the other streams may go back, too
        self._held[stream] = frame
        self._latest[stream] = frame.timestamp_sof

    def _drop_frame(self, stream: int) -> None:
        self._held[stream] = None
        self._dropped[stream] += 1

    def _match_frames(self) -> tuple[VisionBuf, ...]:
        frames = tuple(frame for frame in self._held if frame is not None)
        self._held = [None] * len(self._clients)
        return frames

    def close(self) -> None:
        """Release the held frames, without counting them.

        A `recv` of another thread continues. To end it, close one of the clients.
        """
        self._held = [None] * len(self._clients)
