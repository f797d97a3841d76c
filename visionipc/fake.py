"""Frames on the fake backend: a topic of the bus transports whole pictures, so simulations support frames.

A message is the picture in the format of recordings, followed by additional fields. Memory is not shared, no buffer is
held, and only a simulation drops frames. Times are those of the bus.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Self

from msgq.common import settings
from msgq.common.units import NS_PER_MS
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    InvalidValueError,
    MessageSizeError,
    MultiplePublishersError,
    StateError,
    StreamNotFoundError,
)
from msgq.impl.base.argument_checks import timeout_ms as check_timeout_ms
from msgq.impl.base.core import Context
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.topic import PubSocket, SubSocket
from visionipc import image_messages
from visionipc.client import VisionIpcClient
from visionipc.formats import Geometry
from visionipc.image_messages import IMAGE
from visionipc.impl.core import OutgoingFrame, VisionBuf, make_frame
from visionipc.server import StreamStats, VisionIpcServer

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

#: Server and clients request one size. A picture has a third of it at most. Only written pages take memory.
_RING_BYTES = 256 << 20
_TRAILER_STRUCT = struct.Struct("<QQQ?7x")  # timestamp_sof, timestamp_eof, uv_offset, valid
_UINT64_MAX = (1 << 64) - 1
_FRAME_ID_MAX = (1 << 32) - 1


def strip_trailer(message: bytes) -> bytes:
    """Return the picture in the format of recordings."""
    return message[: -_TRAILER_STRUCT.size]


class _FakeServerStream:
    """A stream of a server. See `visionipc.server._ServerStream`."""

    def __init__(self, endpoint: str, kind: int, layout: Geometry, count: int, prefix: str | None) -> None:
        self.endpoint, self.type, self.geometry, self.buffers = endpoint, kind, layout, count
        self.bus = current_bus()
        self.published = 0
        self.busy = False
        self.socket = PubSocket()
        self.socket._extract_picture = strip_trailer
        self.socket.connect(Context(), endpoint, _RING_BYTES, schema=IMAGE, prefix=prefix)

    def send(self, data: Buffer, frame_id: int, sof: int, eof: int, valid: bool = True) -> bool:
        """Publish a frame."""
        content = memoryview(data).cast("B")
        if len(content) != self.geometry.size:
            text = f"frame has {len(content)} bytes, but the buffers of the stream have {self.geometry.size}"
            raise MessageSizeError(text, self.endpoint)
        if not (0 <= frame_id <= _FRAME_ID_MAX and 0 <= sof <= _UINT64_MAX and 0 <= eof <= _UINT64_MAX):
            text = (
                f"frame_id {frame_id} must fit in 32 bits, and the timestamps {sof} and {eof} in 64; nothing was sent"
            )
            raise InvalidValueError(text, self.endpoint)
        picture = image_messages.image(image_messages.Picture(self.geometry, frame_id, sof, content))
        self.socket.send(picture + _TRAILER_STRUCT.pack(sof, eof, self.geometry.uv_offset, valid))
        self.published += 1
        return True

    def mark_replaced(self) -> None:
        """Do nothing: forked children have a bus of their own."""

    def stats(self) -> StreamStats:
        """Return the counters of the stream."""
        return StreamStats(self.endpoint, self.geometry, self.buffers, 0, self.published, 0, [], 0)

    def close(self) -> None:
        """Stop publishing."""
        self.socket.close()


class FakeOutgoingFrame:
    """A picture to render into. See `OutgoingFrame`."""

    def __init__(self, stream: _FakeServerStream) -> None:
        self._stream = stream
        self._bytes: bytearray | None = None
        self._over = self.dropped = False
        self.valid = True

    @property
    def data(self) -> memoryview[int]:
        """Writable bytes of the picture."""
        if self._bytes is None:
            raise EndpointClosedError("frame can be rendered only in its with block", self._stream.endpoint)
        return memoryview(self._bytes)

    @property
    def array(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """All bytes as an array."""
        import numpy as np

        return np.asarray(self.data)

    @property
    def image(self) -> np.ndarray[Any, Any]:
        """Picture as one array."""
        return self._stream.geometry.image(self.data)

    @property
    def planes(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Planes of the picture."""
        return self._stream.geometry.planes(self.data)

    def __enter__(self) -> Self:
        stream = self._stream
        if self._over or stream.busy:
            text = "frame is open in another with block; ask the server for another frame"
            raise ConcurrentUseError(text, stream.endpoint)
        self._over = stream.busy = True
        self._bytes = bytearray(stream.geometry.size)
        self.frame_id = stream.published
        self.timestamp_sof, self.timestamp_eof = stream.bus.clock.now_ns, 0
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        data = self._bytes
        if data is None:
            raise StateError(
                "with block of this frame has ended, or was not entered; ask the server for another frame",
                self._stream.endpoint,
            )
        self._bytes, self._stream.busy = None, False
        if kind is None:
            eof = self.timestamp_eof or self._stream.bus.clock.now_ns
            self._stream.send(bytes(data), self.frame_id, self.timestamp_sof, eof, self.valid)


class FakeServer(VisionIpcServer):
    """A server on the bus. `VisionIpcServer` documents the methods."""

    _streams: dict[int, Any]

    def __init__(self, name: str | bytes, *, prefix: str | None = None) -> None:
        super().__init__(name, prefix=prefix)
        self._bus = current_bus()
        self._key = self._prefix, self._name

    def _new_stream(self, endpoint: str, kind: int, layout: Geometry, count: int, huge_pages: bool) -> Any:
        return _FakeServerStream(endpoint, kind, layout, count, self._prefix)

    def start_listener(self) -> None:
        """Register the server for clients."""
        self._check_open()
        if self._bus.frame_servers.setdefault(self._key, self) is not self:
            raise MultiplePublishersError("another server uses this name; close it first", self._name)

    def _stream(self, kind: int) -> Any:
        self._check_open()  # a forked child has only a copy of the bus
        return super()._stream(kind)

    def frame(self, type: int) -> OutgoingFrame:
        """Return a picture to render into."""
        stream: Any = self._stream(type)
        frame: Any = FakeOutgoingFrame(stream)
        return frame  # type: ignore[no-any-return]

    def layout(self, kind: int) -> Geometry | None:
        """Return the picture layout of a stream; None: no such stream."""
        stream = self._streams.get(kind)
        return None if stream is None else stream.geometry

    def types(self) -> list[int]:
        """Return the types of its streams."""
        return list(self._streams)

    def close(self) -> None:
        """Stop the server."""
        if self._bus.frame_servers.get(self._key) is self:
            del self._bus.frame_servers[self._key]
        super().close()


def _make_frame(message: bytes) -> VisionBuf:
    """Return a received frame with its own bytes."""
    sof, eof, uv_offset, is_valid = _TRAILER_STRUCT.unpack(message[-_TRAILER_STRUCT.size :])
    picture = image_messages.picture(strip_trailer(message), uv_offset)
    return make_frame(picture.layout, memoryview(bytes(picture.data)), picture.frame_id, sof, eof, is_valid)


class FakeClient(VisionIpcClient):
    """A client on the bus. `VisionIpcClient` documents the methods."""

    _connected_layout: Geometry | None = None

    def connect(self, blocking: bool) -> bool:
        """Connect to the server. The client receives later frames."""
        bus, key = current_bus(), (self._prefix, self._name)
        if self._subscriber is None:
            socket: Any = SubSocket()
            options = {"conflate": self._conflate, "segment_size": _RING_BYTES, "prefix": self._prefix}
            socket.connect(Context(), self._endpoint, **options)
            self._subscriber = socket
        if blocking and key not in bus.frame_servers:
            bus.wait_until(
                lambda: key in bus.frame_servers or self._closed.is_set(), None, f"the server of frames {self._name!r}"
            )
            if self._closed.is_set():
                raise EndpointClosedError("the client was closed during connect", self._endpoint)
        server: FakeServer | None = bus.frame_servers.get(key)
        self._connected_layout = None if server is None else server.layout(self._type)
        if self._connected_layout is None:
            if blocking:
                raise StreamNotFoundError("stream not found", self._endpoint)
            return False
        self.connections += 1
        return True

    def is_connected(self) -> bool:
        """Return True if the client has a stream."""
        return self._connected_layout is not None

    def close(self) -> None:
        """Close the client."""
        super().close()
        self._connected_layout = None

    def _wait_disconnected(self, timeout_ms: float) -> None:
        limit_ns = check_timeout_ms(timeout_ms, self._endpoint) * NS_PER_MS
        current_bus().wait_until(self._closed.is_set, limit_ns, f"frames of {self._endpoint!r}")

    def _resolve_packet(self, packet: bytes) -> VisionBuf | bytes | None:
        frame = _make_frame(packet)
        if frame._valid_layout() != self._connected_layout:
            self._connected_layout = frame._valid_layout()
            self.connections += 1
        self.frame_id, self.valid = frame.frame_id, frame.valid_frame
        self.timestamp_sof, self.timestamp_eof = frame.timestamp_sof, frame.timestamp_eof
        return frame

    def _get_layout(self) -> Geometry | None:
        return self._connected_layout

    @property
    def num_buffers(self) -> int:
        """Number of buffers given to the server; 0 without a stream."""
        server: FakeServer | None = current_bus().frame_servers.get((self._prefix, self._name))
        if server is None or self._connected_layout is None:
            return 0
        return server.stats(self._type).buffers


def fake_streams(name: str, block: bool, prefix: str | None = None) -> set[int]:
    """Return the types of a server's streams. `block`: True: wait for a server with streams."""
    bus, key = current_bus(), (settings.resolve_prefix(prefix), name)

    def there() -> set[int]:
        server: FakeServer | None = bus.frame_servers.get(key)
        return set() if server is None else set(server.types())

    if block and not there():
        bus.wait_until(lambda: bool(there()), None, f"streams of the server of frames {name!r}")
    return there()
