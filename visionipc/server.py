"""Frame servers: creation of buffers, and publication of frames."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import threading
import weakref
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Self

from msgq.common import naming, settings
from msgq.common.closing import ClosingContext
from msgq.errors import (
    EndpointClosedError,
    ForkedSocketError,
    InvalidValueError,
    StreamNotFoundError,
)
from msgq.impl.base.core import DescriptorMapping, MappedView
from msgq.impl.ring import Context, PubSocket
from visionipc import memfd, wire
from visionipc.backend import on_fake
from visionipc.formats import FrameFormat, Geometry, geometry
from visionipc.impl.core import LEASE_TABLE_BYTES, VERSION, OutgoingStream, ServerLeases, StreamSender
from visionipc.listener import Answer, Listener, Request
from visionipc.stock_keywords import accept_stock_names

if TYPE_CHECKING:
    from typing_extensions import Buffer


#: Spare buffers of a stream, which are added one at a time while clients hold all others, or have not received their
#: frames. Clients that hold a frame while they wait for the next one then do not stop the stream, and clients that lag
#: lose no frame, so programs written for stock work with few buffers. The memory of a spare buffer is allocated at its
#: first use.
SPARE_BUFFERS = 4


def with_spare(buffers: int) -> int:
    """Return the number of buffers of a stream, including spare buffers, for the argument `num` of `create_buffers`."""
    return min(buffers + SPARE_BUFFERS, wire.BUFFERS_MAX)


@dataclass(frozen=True, slots=True)
class StreamStats:
    """Counters of a server's stream.

    Attributes:
        endpoint: topic of the stream.
        geometry: layout of the buffers.
        buffers: number of buffers: those of `create_buffers`, and up to four spare buffers.
        held: number of buffers that clients hold now.
        published: number of published frames.
        dropped: number of frames that were not published, because clients held all buffers.
        clients: process ids of clients with leases. Stock clients have no leases. 0: a client in another PID namespace.
        taken_back: number of clients that died while they held buffers.
    """

    endpoint: str
    geometry: Geometry
    buffers: int
    held: int
    published: int
    dropped: int
    clients: list[int]
    taken_back: int


def _map_writable(fd: int, endpoint: str, populate: bool) -> DescriptorMapping:
    return DescriptorMapping(fd, os.fstat(fd).st_size, True, endpoint, populate=populate)


class _ServerStream(OutgoingStream):
    """Buffers, leases and topic of a stream."""

    def __init__(
        self, endpoint: str, kind: int, layout: Geometry, count: int, huge_pages: bool, prefix: str | None
    ) -> None:
        self.type = kind
        self.geometry = layout
        self._requested_buffers = count
        self.incarnation = secrets.randbits(64) or 1
        self._scratch: MappedView | None = None
        self._fds: list[int] = []
        self._socket = PubSocket()
        try:
            size = layout.size + wire.FRAME_ID_BYTES
            for _ in range(count):
                self._fds.append(memfd.create_memfd(endpoint, size, endpoint, huge_pages))
            regions = [_map_writable(fd, endpoint, populate=True) for fd in self._fds]
            for _ in range(count, with_spare(count)):
                self._fds.append(memfd.create_memfd(endpoint, size, endpoint, allocated=False))
                regions.append(_map_writable(self._fds[-1], endpoint, populate=False))
            self._fds.append(memfd.create_memfd(f"{endpoint} leases", LEASE_TABLE_BYTES, endpoint))
            table = _map_writable(self._fds[-1], endpoint, populate=True)
            self.leases = ServerLeases(table, self._fds[-1], count, endpoint)
            self._socket.connect(Context(), endpoint, prefix=prefix)
        except BaseException:
            self.close()
            raise
        super().__init__(endpoint, self._socket, self.leases, regions, layout.size, self.incarnation)

    def scratch(self) -> MappedView:
        """Return memory for a frame that will be dropped."""
        if self._scratch is None:
            fd = memfd.create_memfd("scratch", self.geometry.size, self.endpoint)
            try:
                self._scratch = MappedView(
                    DescriptorMapping(fd, self.geometry.size, True, self.endpoint), self.geometry.size, True
                )
            finally:
                os.close(fd)
        return self._scratch

    def grow(self) -> bool:
        """Add a spare buffer. Return False if none is left, or memory is missing."""
        *buffers, _ = self._fds
        if self.leases.buffers == len(buffers) or not memfd.allocate(buffers[self.leases.buffers]):
            return False
        self.leases.grow()
        return True

    def mark_replaced(self) -> None:
        """Let no forked child send on this stream, because the server creates it again."""
        self.leases.mark_replaced()

    def make_answer(self, leases: bool, pid: int) -> Answer:
        """Return records and descriptors for one client."""
        *buffers, table = self._fds
        records = b"".join(
            wire.Record(self.geometry, self.incarnation, index, self.type).pack(fd) for index, fd in enumerate(buffers)
        )
        answer = Answer([records])
        try:
            for fd in buffers:
                answer.fds.append(memfd.reopen_read_only(fd) if leases else os.dup(fd))
            if leases:
                answer.fds.append(os.dup(table))
                newest = self.leases.newest  # before `admit`: later frames consider the row
                row = self.leases.admit(pid)
                answer.revoke_grant = functools.partial(self.leases.drop_client, row, pid)
                grant = wire.Grant(self.geometry.format, self.geometry.channels, row, newest, self._requested_buffers)
                answer.data_parts.append(grant.pack(VERSION))
            else:
                self.leases.admit_stock_client()
        except BaseException:
            answer.close()
            raise
        return answer

    def reclaim_row(self, server_id: int, row: int, pid: int) -> None:
        """Free the row of a client that cannot use it.

        The client's pid is checked, because another client could send the request.
        """
        if server_id == self.incarnation and pid:
            self.leases.drop_client(row, pid)

    def stats(self) -> StreamStats:
        return StreamStats(
            self.endpoint,
            self.geometry,
            self.leases.buffers,
            self.leases.count_held_buffers(),
            self.published,
            self.dropped,
            self.leases.clients(),
            self.leases.taken_back,
        )

    def close(self) -> None:
        self._socket.close()
        self._scratch = None
        self.release_buffers()
        with contextlib.suppress(IndexError):  # two threads may close at once
            while True:
                os.close(self._fds.pop())


#: All servers by id. Unlike a WeakSet, a list of them is possible while another thread adds one.
_servers: weakref.WeakValueDictionary[int, VisionIpcServer] = weakref.WeakValueDictionary()


@atexit.register
def _close_all_servers() -> None:
    """Close all servers, so that no socket file is left."""
    for reference in _servers.valuerefs():
        if (server := reference()) is not None:
            server.close()


class VisionIpcServer(StreamSender, ClosingContext):
    """Serves streams of frames under a name, also to stock clients.

    Each stream has a fixed number of buffers in memory that clients map. A 48-byte message announces a frame, and no
    frame is copied. The server does not overwrite a buffer that a client of this library holds, until the client
    releases the buffer or dies. If clients hold all buffers, the server drops new frames and counts them. Stock clients
    hold no buffers. As with a stock server, their frames may change while they read.

    Timestamps are nanoseconds of any clock. The defaults use CLOCK_BOOTTIME, like stock's cameras
    (`time.clock_gettime_ns(time.CLOCK_BOOTTIME)`). CLOCK_BOOTTIME is the same in all processes.

    One thread at a time may use a stream. Different threads may use different streams. After a fork, the parent still
    answers clients, and the child may send: it takes over each stream with its first `send` or `frame`. The parent's
    next `send` of such a stream raises MultiplePublishersError.
    """

    _streams: dict[int, _ServerStream]

    def __new__(cls, name: str | bytes, *, prefix: str | None = None) -> Self:
        """Create a server. On the fake backend and in simulations, frames use its bus."""
        kind: type[Self] = (cls is VisionIpcServer and on_fake("FakeServer")) or cls
        return super().__new__(kind)

    def __init__(self, name: str | bytes, *, prefix: str | None = None) -> None:
        """Create a server. The server is visible after `start_listener`.

        Args:
            name: name of the server.
            prefix: prefix of the socket and the topics of this server, "" for none; None: OPENPILOT_PREFIX at this
                call.

        Raises:
            EndpointNameError: the name or the prefix does not fit a file name.
        """
        self._prefix = settings.resolve_prefix(prefix)
        self._name = naming.validate_endpoint_name(name, "server name")
        wire.socket_path(self._name, self._prefix)
        super().__init__()
        self._forks = memfd.fork_count
        self._lock = threading.Lock()  # protects _streams, which the listener's thread reads
        self._listener: Listener | None = None
        self._closed = False
        self._first_close = threading.Lock()  # acquired by the first close, and never released
        _servers[id(self)] = self

    @property
    def name(self) -> str:
        """Name of the server."""
        return self._name

    @accept_stock_names(tp="type", num_buffers="num")
    def create_buffers(
        self,
        type: int,
        num: int,
        width: int,
        height: int,
        format: FrameFormat = FrameFormat.NV12,
        channels: int = 1,
        *,
        huge_pages: bool = False,
    ) -> None:
        """Create a stream with rows without gaps. If the stream exists, create it again.

        Clients of an existing stream reconnect at the next frame, and their held frames stay valid. After an error, the
        previous stream continues.

        Args:
            type: number of the stream, 0 to 2**32 - 2.
            num: number of buffers, 1 to 128; 4 is a good number. If clients hold all buffers, or have not received
                their frames, the stream adds up to four spare buffers (128 buffers in total at most) and allocates
                their memory.
            width: width of the picture in pixels. For RAW: number of bytes.
            height: height of the picture in pixels. For RAW: 1.
            format: pixel format.
            channels: number of channels (FLOAT32 only).
            huge_pages: True: use pages of 2 MiB. The system must have reserved them.

        Raises:
            InvalidValueError: a number is out of range, or 64 streams exist.
            SegmentError: not enough memory.
        """
        layout = geometry(FrameFormat(format), width, height, channels)
        self._create_stream(type, num, layout, huge_pages)

    @accept_stock_names(tp="type", num_buffers="num")
    def create_buffers_with_sizes(
        self,
        type: int,
        num: int,
        width: int,
        height: int,
        size: int,
        stride: int,
        uv_offset: int,
        format: FrameFormat = FrameFormat.NV12,
        channels: int = 1,
        *,
        huge_pages: bool = False,
    ) -> None:
        """Create a stream with a given layout, for example of hardware; see `create_buffers`.

        Args:
            size: bytes of a buffer.
            stride: bytes from one row to the next.
            uv_offset: bytes from the start of the picture to the second plane.
        """
        numbers = map(index, (width, height, stride, uv_offset, size, channels))  # those of NumPy would wrap around
        layout = Geometry(FrameFormat(format), *numbers)
        self._create_stream(type, num, layout, huge_pages)

    def _create_stream(self, kind: int, count: int, layout: Geometry, huge_pages: bool) -> None:
        self._check_open()
        endpoint = wire.get_endpoint_name(self._name, kind)
        if not 0 <= kind < wire.LIST_REQUEST:
            raise InvalidValueError(f"stream type is {kind}; give 0 to {wire.LIST_REQUEST - 1}", self._name)
        if not 1 <= count <= wire.BUFFERS_MAX:
            raise InvalidValueError(f"number of buffers is {count}; give 1 to {wire.BUFFERS_MAX}", endpoint)
        layout.check(endpoint)
        with self._lock:
            if kind not in self._streams and len(self._streams) >= wire.STREAMS_MAX:
                text = f"server has {wire.STREAMS_MAX} streams, its limit; use another server"
                raise InvalidValueError(text, self._name)
            former = self._streams.get(kind)
            self._streams[kind] = stream = self._new_stream(endpoint, kind, layout, count, huge_pages)
            if former is not None:  # after the new stream, so that an error keeps the previous stream
                former.mark_replaced()
                former.close()
        if self._closed:  # another thread closed the server in the meantime
            stream.close()
            self._check_open()

    def _new_stream(self, endpoint: str, kind: int, layout: Geometry, count: int, huge_pages: bool) -> _ServerStream:
        return _ServerStream(endpoint, kind, layout, count, huge_pages, self._prefix)

    def start_listener(self) -> None:
        """Accept clients from now on. You may create streams before and after this call.

        Raises:
            MultiplePublishersError: another living process serves this name.
            SegmentError: the socket cannot be created.
        """
        self._check_open()
        if self._listener is None:
            me = weakref.ref(self)  # weak, so that an unreferenced server ends

            def answer(request: Request) -> Answer | None:
                server = me()
                return None if server is None else server._answer_request(request)

            self._listener = Listener(self._name, answer, self._prefix)

    def _answer_request(self, request: Request) -> Answer | None:
        """Return the answer to a client. Runs in the listener's thread."""
        if len(request.data) < wire.REQUEST_STRUCT.size:
            return None
        (kind,) = wire.REQUEST_STRUCT.unpack_from(request.data)
        with self._lock:
            if kind == wire.LIST_REQUEST:
                return Answer([b"".join(map(wire.REQUEST_STRUCT.pack, self._streams))])
            stream = self._streams.get(kind)
            if stream is None:
                return None
            if request.takes_leases and len(request.data) == wire.REQUEST_STRUCT.size + wire.RETURN_ROW_STRUCT.size:
                server_id, row = wire.RETURN_ROW_STRUCT.unpack_from(request.data, wire.REQUEST_STRUCT.size)
                stream.reclaim_row(server_id, row, request.pid)
                return None
            return stream.make_answer(request.takes_leases, request.pid)

    @accept_stock_names(tp="type")
    def send(self, type: int, data: Buffer, frame_id: int = 0, timestamp_sof: int = 0, timestamp_eof: int = 0) -> bool:
        """Copy a frame into a free buffer, and publish it.

        Args:
            type: number of the stream.
            data: contiguous bytes, exactly as many as the stream's `buffer_len`.
            frame_id: number of the frame, 32 bits.
            timestamp_sof: begin of the exposure, nanoseconds, 64 bits.
            timestamp_eof: end of the exposure, nanoseconds, 64 bits.

        Returns:
            False if the frame was dropped (and counted), because clients hold all buffers.

        Raises:
            StreamNotFoundError: the stream does not exist.
            MessageSizeError: `data` has another size.
            MultiplePublishersError: another process, which was forked from the same server, sends the stream now.
        """
        return self._stream(type).send(data, frame_id, timestamp_sof, timestamp_eof)

    def stats(self, type: int) -> StreamStats:
        """Return the counters of a stream."""
        return self._stream(type).stats()

    def _stream(self, kind: int) -> _ServerStream:
        stream = self._streams.get(kind)
        if stream is None:
            self._check_open()
            text = f"stream {kind} not found (existing: {sorted(self._streams)}); call create_buffers first"
            raise StreamNotFoundError(text, self._name)
        return stream

    def _check_open(self) -> None:
        if self._forks != memfd.fork_count:
            text = "server belongs to the parent process, which answers clients; create streams before the fork"
            raise ForkedSocketError(text, self._name)
        if self._closed:
            raise EndpointClosedError("server is closed", self._name)

    def close(self) -> None:
        """Stop the server. Clients keep their held frames. A second close has no effect.

        In a forked child, the call ends only what the child sends.
        """
        if not self._first_close.acquire(blocking=False):
            return
        self._closed = True
        if self._listener is not None and self._forks == memfd.fork_count:
            self._listener.close()
        for stream in list(self._streams.values()):
            stream.close()

    def __del__(self) -> None:
        if hasattr(self, "_first_close"):
            self.close()
