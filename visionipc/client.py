"""Clients of frame servers."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from msgq.common import naming, settings
from msgq.common.closing import ClosingContext
from msgq.errors import EndpointClosedError, InvalidValueError, IpcError, StreamNotFoundError, WaitTimeoutError
from msgq.impl.base.argument_checks import timeout_ms as check_timeout_ms
from msgq.impl.ring import Context, SubSocket
from visionipc import memfd, wire
from visionipc.backend import on_fake
from visionipc.connection import ANSWER_TIMEOUT_S, Stream, open_stream, request_stream_types
from visionipc.formats import FrameFormat, Geometry
from visionipc.impl.core import StreamReceiver, VisionBuf, import_numpy
from visionipc.stock_keywords import accept_stock_names

if TYPE_CHECKING:
    from collections.abc import Coroutine

_RETRY_INTERVAL_S = 0.02  # no event reports that a server listens
_REOPEN_TIMEOUT_S = 0.1  # time for the answer of a new server during a wait for a frame
_SKIP_TIMEOUT_S = 0.02  # time after a wait to skip packets that are not frames, because their number has no limit


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counters of a client's stream.

    Attributes:
        lost: number of published frames that the client did not receive; None: unknown, because the server is stock.
        dropped: number of frames that the server did not publish, because clients held all buffers.
        connections: number of connections of the client.
        buffers: number of buffers that the server created the stream with; 0: not connected.
    """

    lost: int | None
    dropped: int
    connections: int
    buffers: int


def _stream_has_buffer(stream: Stream, server_id: int, index: int) -> bool:
    return server_id == stream.server_id and index < len(stream.regions)


class VisionIpcClient(StreamReceiver, ClosingContext):
    """Receives the frames of one stream, in order, each at most once.

    If the server restarts or creates the stream again, the client reconnects at the next frame. `connections`
    increases, and the properties of the picture may change.

    One thread at a time may use a client. After a fork, the child's client reconnects at its next `recv`.

    Attributes:
        frame_id: `frame_id` of the last received frame.
        timestamp_sof: `timestamp_sof` of the last received frame; see `VisionIpcServer` for clocks.
        timestamp_eof: `timestamp_eof` of the last received frame; see `VisionIpcServer` for clocks.
        valid: flag that the sender set for the last received frame.
        endpoint: topic that announces the frames.
        width: width of the stream's pictures in pixels; None without a stream, like `buffer_len`.
        height: height of the stream's pictures in pixels; None without a stream.
        stride: bytes of a row, see `FrameFormat`; None without a stream.
        uv_offset: byte offset of the UV plane, see `FrameFormat`; None without a stream.
        format: format of the pictures, see `FrameFormat`; None without a stream.
        connections: number of connections. Increases when the server creates the stream again.
    """

    _stream: Stream | None

    @accept_stock_names(stream="type")
    def __new__(
        cls,
        name: str | bytes,
        type: int,
        conflate: bool,
        context: object | None = None,
        *,
        prefix: str | None = None,
    ) -> Self:
        """Create a client. On the fake backend and in simulations, frames use its bus."""
        kind: Any = (cls is VisionIpcClient and on_fake("FakeClient")) or cls
        client: Self = super().__new__(kind)
        return client

    @accept_stock_names(stream="type")
    def __init__(
        self,
        name: str | bytes,
        type: int,
        conflate: bool,
        context: object | None = None,
        *,
        prefix: str | None = None,
    ) -> None:
        """Create a client. `connect` opens the connection.

        Args:
            name: name of the server.
            type: type of the stream.
            conflate: True: `recv` skips all frames except the newest.
            context: None (stock's default). Stock also accepts an OpenCL context.
            prefix: prefix of the server, "" for none; None: OPENPILOT_PREFIX at this call.

        Raises:
            InvalidValueError: `context` is not None.
            EndpointNameError: the name or the prefix is invalid.
        """
        super().__init__()
        self._prefix = settings.resolve_prefix(prefix)
        self._name = naming.validate_endpoint_name(name, "server name")
        self._type = int(type)
        self._endpoint = wire.get_endpoint_name(self._name, self._type)
        if context is not None:
            text = f"context is {context!r}, but OpenCL is not supported; omit context"
            raise InvalidValueError(text, self._endpoint)
        self._conflate = conflate
        self._stale_frames = 0
        self._dropped = 0  # frames dropped in previous incarnations of the stream
        self._unreachable_id = -1  # server_id of an unreachable or previous server
        self._next_attempt = 0.0  # earliest time of the next attempt, so that many ids do not cause many attempts
        self._forks = memfd.fork_count
        self._closed = threading.Event()
        self.connections: int = 0

    # ---- coming and going ----

    def connect(self, blocking: bool) -> bool:
        """Connect to the server. The client receives frames that are published from now on.

        Args:
            blocking: True: wait for the server. Signal handlers run during the wait.

        Returns:
            False if no server exists. Without `blocking`, also False if the server has no such stream yet.

        Raises:
            StreamNotFoundError: `blocking`, and the server has no such stream.
            WaitTimeoutError: the server does not answer.
            EndpointClosedError: `blocking`, and another thread closed the client.
            CorruptSegmentError, SegmentError, IpcError: the answer of the server is invalid, or cannot be mapped.
        """
        import_numpy()
        if self._subscriber is None:
            self._subscriber = SubSocket()
            self._subscriber.connect(Context(), self._endpoint, conflate=self._conflate, prefix=self._prefix)
        try:
            while not self._open_stream():
                if not blocking:
                    return False
                if self._closed.wait(_RETRY_INTERVAL_S):
                    raise EndpointClosedError("the client was closed during connect", self._endpoint)
        except StreamNotFoundError:
            if blocking:
                raise
            return False
        return True

    def _open_stream(self, within: float = ANSWER_TIMEOUT_S) -> bool:
        self._dropped, self._stream = self.dropped, None
        self._forks = memfd.fork_count
        self._stream = open_stream(self._name, self._type, within, self._prefix)
        if self._stream is None:
            return False
        if self._closed.is_set():  # another thread closed the client in the meantime
            self._stream = None
            raise EndpointClosedError("client is closed", self._endpoint)
        self.connections += 1
        return True

    def is_connected(self) -> bool:
        """Return True if the client has a stream, and the server has not created the stream again."""
        return self._stream is not None

    @staticmethod
    def available_streams(name: str | bytes, block: bool = True, *, prefix: str | None = None) -> set[int]:
        """Return the types of a server's streams.

        Args:
            name: name of the server.
            block: True: wait for a server that has streams. False: the result may be empty.
            prefix: prefix of the server, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            WaitTimeoutError, CorruptSegmentError, IpcError: as in `connect`.
        """
        name = naming.validate_endpoint_name(name, "server name")
        if (fake := on_fake("fake_streams")) is not None:
            types: set[int] = fake(name, block, prefix)
            return types
        while not (available := request_stream_types(name, prefix=prefix)) and block:
            time.sleep(_RETRY_INTERVAL_S)
        return available or set()

    def close(self) -> None:
        """Close the client. Held frames stay valid. A wait of another thread ends with EndpointClosedError."""
        self._closed.set()
        if self._subscriber is not None:
            self._subscriber.close()
        self._dropped, self._stream = self.dropped, None

    # ---- receiving ----

    def _continue_recv(self, packet: bytes | None, timeout_ms: float, began: float) -> VisionBuf | None:
        socket = self._get_subscriber()
        deadline = began + timeout_ms / 1000
        while packet is not None:
            received = self._resolve_packet(packet)
            if isinstance(received, VisionBuf):
                return received
            if timeout_ms >= 0:
                seconds_left = deadline - time.monotonic()
                if seconds_left < -_SKIP_TIMEOUT_S:
                    self._stale_frames += received is not None  # taken from the ring, and given up
                    return None
                socket.setTimeout(max(0, math.ceil(seconds_left * 1000)))
            packet = socket.receive(timeout_ms == 0) if received is None else received
        return None

    def _recv_disconnected(self, timeout_ms: float) -> None:
        """Wait for the duration of the timeout without a connection."""
        check_timeout_ms(timeout_ms, self._endpoint)
        if timeout_ms == -1:
            self._get_subscriber()  # raises the error of a closed client
        self._wait_disconnected(timeout_ms)

    def _wait_disconnected(self, timeout_ms: float) -> None:
        if self._closed.wait(min(timeout_ms / 1000, threading.TIMEOUT_MAX)):
            raise EndpointClosedError("client is closed", self._endpoint)

    def frame(self, timeout_ms: float = -1) -> VisionBuf:
        """Return the next frame for a block: ``with client.frame() as frame: ...``.

        Args:
            timeout_ms: milliseconds; -1 waits without limit.

        Raises:
            WaitTimeoutError: no frame arrived in time.
        """
        frame = self.recv(timeout_ms)
        if frame is None:
            raise WaitTimeoutError(f"no frame within {timeout_ms} ms", self._endpoint)
        return frame

    def _get_subscriber(self) -> SubSocket:
        if self._subscriber is None:
            raise EndpointClosedError("client is not connected; call connect() first", self._endpoint)
        return self._subscriber

    def _resolve_packet(self, packet: bytes) -> VisionBuf | bytes | None:
        """Return the frame of a packet, or a packet to try instead.

        None: the packet belongs to another incarnation of the stream, or its frame was overwritten and no newer packet
        exists.
        """
        stream = self._find_stream(packet)
        if stream is None:
            self._stale_frames += 1
            return None
        frame = self._take_frame(packet)
        return self._skip_to_newest(stream, packet) if frame is None else frame

    def _find_stream(self, packet: bytes) -> Stream | None:
        """Return the stream of a packet, after a reconnection if necessary; None: not available."""
        if len(packet) != wire.FRAME_PACKET_STRUCT.size:
            return None
        server_id, index, *_ = wire.FRAME_PACKET_STRUCT.unpack(packet)
        stream = self._stream
        if self._forks != memfd.fork_count or stream is None or not _stream_has_buffer(stream, server_id, index):
            stream = self._reopen_stream(server_id, index)
        return stream if stream is not None and _stream_has_buffer(stream, server_id, index) else None

    def _reopen_stream(self, server_id: int, index: int) -> Stream | None:
        """Reconnect for a packet of an unknown stream. Either the stream was created again, or the packet is old."""
        if self._forks == memfd.fork_count and (
            server_id == self._unreachable_id or time.monotonic() < self._next_attempt
        ):
            return None
        try:
            self._open_stream(_REOPEN_TIMEOUT_S)
        except IpcError:  # starting, stopping, or without this stream at the moment: a frame a little later asks again
            self._next_attempt = time.monotonic() + _RETRY_INTERVAL_S
            return None
        stream = self._stream
        if stream is not None and not _stream_has_buffer(stream, server_id, index):
            self._unreachable_id = server_id
            self._next_attempt = time.monotonic() + _RETRY_INTERVAL_S
        return stream

    def _skip_to_newest(self, stream: Stream, packet: bytes) -> bytes | None:
        """Return the newest packet after the server has reused a buffer.

        A slow client continues at the newest frame, as on the ring. None: the frame was published before the client had
        a row, so later frames are available.
        """
        self._stale_frames += 1
        if stream.was_published_before_admission(wire.FRAME_PACKET_STRUCT.unpack(packet)[3]):
            return None
        pending = self._get_subscriber().receive_many()
        if not pending:
            return None
        self._stale_frames += len(pending) - 1
        return pending[-1]

    # ---- the event loop ----

    @property
    def _reader(self) -> SubSocket:
        """Subscriber of the frames' messages, for pollers."""
        return self._get_subscriber()

    def fileno(self) -> int:
        """Return a descriptor that is readable while a frame may be available; see `SubSocket.fileno`."""
        return self._get_subscriber().fileno()

    async def arecv(self) -> VisionBuf:
        """Return the next frame in an asyncio task; see `SubSocket.arecv`."""
        from msgq.impl.base import event_loop

        socket: Any = self._get_subscriber()
        while (frame := self.recv(0)) is None:
            await event_loop.wait_readable_async([socket])
        return frame

    areceive = arecv

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, VisionBuf]:
        return self.arecv()

    # ---- the picture ----

    @property
    def endpoint(self) -> str:
        """Topic that announces the frames."""
        return self._endpoint

    def _get_layout(self) -> Geometry | None:
        return None if self._stream is None else self._stream.records[0].geometry

    @property
    def width(self) -> int | None:
        """Width of the picture in pixels."""
        return layout.width if (layout := self._get_layout()) else None

    @property
    def height(self) -> int | None:
        """Height of the picture in pixels."""
        return layout.height if (layout := self._get_layout()) else None

    @property
    def stride(self) -> int | None:
        """Bytes from one row to the next."""
        return layout.stride if (layout := self._get_layout()) else None

    @property
    def uv_offset(self) -> int | None:
        """Bytes from the start of the picture to the second plane."""
        return layout.uv_offset if (layout := self._get_layout()) else None

    @property
    def format(self) -> FrameFormat | None:
        """Pixel format; NV12 for a stock server."""
        return layout.format if (layout := self._get_layout()) else None

    @property
    def buffer_len(self) -> int | None:
        """Bytes of a picture."""
        return layout.size if (layout := self._get_layout()) else None

    @property
    def num_buffers(self) -> int:
        """Number of buffers that the server created the stream with, without spare buffers; 0 without a stream."""
        return 0 if self._stream is None else self._stream.requested_buffers

    @property
    def lost(self) -> int | None:
        """Number of frames published since `connect` and not received; None: unknown, because the server is stock.

        The count includes frames skipped by `conflate=True`, and frames whose buffer was overwritten before `recv` took
        them. The count excludes frames that the server did not publish; see `dropped`.
        """
        lost = self._get_subscriber().lost
        return None if lost is None else lost + self._stale_frames

    def stats(self) -> ClientStats:
        """Return the counters since `connect`, and the number of connections."""
        return ClientStats(self.lost, self.dropped, self.connections, self.num_buffers)

    @property
    def dropped(self) -> int:
        """Number of frames since `connect` that the server did not publish, because clients held all buffers.

        A stock server never drops frames: the server overwrites buffers that clients read.
        """
        stream = self._stream
        return self._dropped + (0 if stream is None or stream.leases is None else stream.leases.dropped)
