"""Leases of buffers, and sending and receiving of frames."""

from types import TracebackType
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

from msgq.impl.base.core import DescriptorMapping, MappedView, PinOwner
from msgq.impl.ring import PubSocket, SubSocket
from visionipc.formats import FrameFormat, Geometry
from visionipc.wire import Record

LEASE_BUFFERS_MAX: int
LEASE_CLIENTS_MAX: int
LEASE_TABLE_BYTES: int
VERSION: int

@final
class ServerLeases:
    """The lease table, as the server and its forked children use it. stream_state.h describes the shared state."""

    @property
    def published(self) -> int:
        """Number of published frames."""

    @property
    def dropped(self) -> int:
        """Number of frames that were not published, because clients held all buffers."""

    @property
    def taken_back(self) -> int:
        """Number of clients that died with a lease."""

    @property
    def newest(self) -> int:
        """Generation of the newest frame; 0: no frame yet."""

    @property
    def buffers(self) -> int:
        """Number of buffers in use for frames."""

    def __init__(self, region: DescriptorMapping, fd: int, buffers: int, endpoint: str) -> None:
        """Create a table for 1 to LEASE_BUFFERS_MAX buffers in zeroed writable memory of LEASE_TABLE_BYTES.

        Args:
            fd: descriptor of the memory. The descriptor stays open, because the locks on the memory show which clients
                are alive.
        """

    def admit(self, pid: int) -> int:
        """Assign a row to a client, and return the row's index. pid 0: the client is in another PID namespace.

        Raises:
            IpcError: LEASE_CLIENTS_MAX live clients have rows.
        """

    def admit_stock_client(self) -> None:
        """From now on, use all buffers in turn, because a stock client takes no leases and never announces its end."""

    def drop_client(self, row: int, pid: int) -> None:
        """Free the row of a client that did not receive the row's number, or that cannot use the row.

        Args:
            row: index of the row. A row of another client is not changed.
            pid: process id of the client.
        """

    def mark_replaced(self) -> None:
        """Note that the server has created the stream again. Forked children that have not sent raise at a frame."""

    def grow(self) -> None:
        """Add a buffer with the next index. The caller has allocated its memory.

        Raises:
            SegmentError: the table has LEASE_BUFFERS_MAX buffers.
        """

    def clients(self) -> list[int]:
        """Return the pids of the connected clients."""

    def count_held_buffers(self) -> int:
        """Return the number of buffers with a lease."""

@final
class ClientLeases(PinOwner):
    """One row of the lease table, as a client uses it.

    The row is freed when the last reference to this object and its frames disappears. Each view (`PinnedView`) of the
    row holds one buffer. The server does not write a held buffer.
    """

    @property
    def since(self) -> int:
        """Generation of the newest frame when the server assigned the row; 0: no frame."""

    def __init__(self, region: DescriptorMapping, fd: int, row: int, since: int, endpoint: str) -> None:
        """Take the row until this process ends or calls exec.

        Args:
            fd: descriptor of the region's memory. After the call, the caller may close the descriptor.
            row: row of the server's grant.
            since: begin of the server's grant.
        """

    @property
    def dropped(self) -> int:
        """Number of frames that the server dropped after this row was taken, because clients held all buffers."""

    def end(self) -> None:
        """Stop waiting for frames. The client still holds its frames."""

def import_numpy() -> None:
    """Import NumPy now, because the import takes as long as many frames."""

@disjoint_base
class OutgoingStream:
    """A stream of a server: buffers, leases and topic.

    One thread at a time may use a stream. A stream has at most one open frame. A forked child takes over the stream
    with its first frame.
    """

    @property
    def endpoint(self) -> str:
        """Name of the topic."""

    @property
    def published(self) -> int:
        """Number of sent frames."""

    @property
    def dropped(self) -> int:
        """Number of frames that were not sent, because clients held all buffers."""

    def __init__(
        self,
        endpoint: str,
        publisher: PubSocket,
        leases: ServerLeases,
        regions: list[DescriptorMapping],
        size: int,
        server_id: int,
    ) -> None: ...
    def release_buffers(self) -> None:
        """Release the memory of the buffers after the topic was closed, unless a frame is open. Views keep theirs."""

    def scratch(self) -> MappedView:
        """Return memory into which a program can render a frame that will be dropped. Subclasses define this method."""

    def grow(self) -> bool:
        """Add a spare buffer to the stream. Return False if no spare buffer is left. Subclasses define this method."""

    def send(self, data: Buffer, frame_id: int, sof: int, eof: int) -> bool:
        """Copy a frame into a free buffer, and publish the frame. False: dropped. See `VisionIpcServer.send`.

        Args:
            data: contiguous bytes; the copy runs without the GIL.
            frame_id: 32 bits.
            sof: start of the exposure in nanoseconds, 64 bits.
            eof: end of the exposure in nanoseconds, 64 bits.

        Raises:
            MessageSizeError: `data` has another size.
            InvalidValueError: a number is too large.
            ConcurrentUseError: another frame of the stream is open.
            EndpointClosedError: the stream is closed.
            MultiplePublishersError: another process of the server sends the stream now.
        """

@disjoint_base
class OutgoingFrame:
    """A buffer for the next frame: ``with server.frame(type) as frame: frame.image[:] = ...``.

    The end of the block publishes the frame. An exception in the block discards the frame. Do not keep arrays of the
    frame after the block, because clients see later writes. Each frame has one block: a second block raises
    ConcurrentUseError. Leaving a block that has ended or was never entered raises StateError.

    Attributes:
        frame_id: number of the frame; default: its index in the stream, from 0.
        timestamp_sof: nanoseconds; default: CLOCK_BOOTTIME at the start of the block.
        timestamp_eof: nanoseconds; 0, the default: CLOCK_BOOTTIME at the end of the block.
        valid: flag for clients.
        data: bytes of the picture, writable, as a memoryview.
        array: bytes of the picture, writable, as an array.
        image: writable array of the picture; see `FrameFormat`.
        planes: writable arrays of the picture's planes; see `FrameFormat`.
        dropped: True if clients hold all buffers. The frame is then not published, and the drop is counted
            (`VisionIpcServer.stats`).
    """

    frame_id: int
    timestamp_sof: int
    timestamp_eof: int
    valid: bool

    @property
    def dropped(self) -> bool:
        """True if the frame will be dropped, because clients hold all buffers."""

    @property
    def data(self) -> memoryview[int]:
        """All bytes, writable.

        Raises:
            EndpointClosedError: the block has ended, or was not entered.
        """

    @property
    def array(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """All bytes as an array, shape (buffer_len,), uint8."""

    @property
    def image(self) -> np.ndarray[Any, Any]:
        """Picture as one array, with the shape of its `FrameFormat`.

        Raises:
            InvalidValueError: the planes have gaps; use `planes`.
        """

    @property
    def planes(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Planes of the picture: Y and UV for NV12; Y, U and V for YUV420P; otherwise the picture."""

    def __init__(self) -> None:
        """Raise TypeError: `VisionIpcServer.frame` creates frames."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish the frame. If the block raised, the frame is not published.

        Raises:
            StateError: the block has already ended, or was never entered.
            ForkedSocketError: the parent process entered the block.
        """

@disjoint_base
class StreamSender:
    """Base of `VisionIpcServer`: provides frames to render into."""

    @property
    def _streams(self) -> dict[int, Any]:
        """Streams by type."""

    def frame(self, type: int) -> OutgoingFrame:
        """Return a free buffer to render into; see `OutgoingFrame`.

        Raises:
            StreamNotFoundError: the server has no stream of this type.
            EndpointClosedError: the server is closed.
            ConcurrentUseError: another frame of the stream is open. The error is raised at the entry of the block.
            MultiplePublishersError: another process of the server sends the stream now. The error is raised at the
                entry or the end of the block.
        """

    def _stream(self, kind: int) -> Any:
        """Return the stream of a type, or raise StreamNotFoundError. Subclasses define this method."""

@disjoint_base
class VisionBuf:
    """One frame, read-only. A frame of a server of this library stays unchanged while any view of it exists.

    The buffer returns to the server when the frame and all its arrays are deleted. The end of a ``with`` block, or
    `release`, ends the frame's own hold. Any thread may use the arrays, also after the end of client and server. After
    a fork, the arrays belong to the parent: in the child, their content may change.

    Attributes:
        width: width of the picture in pixels.
        height: height of the picture in pixels.
        stride: bytes of a row, see `FrameFormat`.
        uv_offset: byte offset of the UV plane, see `FrameFormat`.
        format: format of the picture, see `FrameFormat`.
        data: bytes of the picture, as a memoryview.
        array: bytes of the picture, as an array.
        image: array of the picture; see `FrameFormat`.
        planes: arrays of the picture's planes; see `FrameFormat`.
        idx: number of the buffer.
        fd: descriptor of the buffer's memory, open while the client is connected. Do not close it.
        frame_id: number given by the sender.
        timestamp_sof: begin of the exposure given by the sender, nanoseconds, by convention of CLOCK_BOOTTIME; see
            `VisionIpcServer`.
        timestamp_eof: end of the exposure given by the sender, as `timestamp_sof`.
        valid_frame: validity given by the sender.
        origin_time: origin time, in nanoseconds of the host's clock; 0: unknown.
        publish_time: publishing time, in nanoseconds of the host's clock; 0: unknown.
    """

    @property
    def width(self) -> int:
        """Width of the picture in pixels."""

    @property
    def height(self) -> int:
        """Height of the picture in pixels."""

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""

    @property
    def uv_offset(self) -> int:
        """Bytes from the start of the picture to the second plane."""

    @property
    def format(self) -> FrameFormat:
        """Pixel format; NV12 for a stock server."""

    @property
    def idx(self) -> int:
        """Number of the buffer."""

    @property
    def data(self) -> memoryview[int]:
        """All bytes, read-only.

        Raises:
            EndpointClosedError: the frame was released.
        """

    @property
    def array(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """All bytes as a read-only array, shape (buffer_len,), uint8."""

    @property
    def image(self) -> np.ndarray[Any, Any]:
        """Picture as one array, with the shape of its `FrameFormat`.

        Raises:
            InvalidValueError: the planes have gaps; use `planes`. Also the errors of `planes`.
        """

    @property
    def planes(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Planes of the picture: Y and UV for NV12; Y, U and V for YUV420P; otherwise the picture.

        Raises:
            InvalidValueError: a stock server sent a layout that does not fit its bytes.
        """

    @property
    def fd(self) -> int:
        """File descriptor of the buffer's memory."""

    @property
    def leased(self) -> bool:
        """True if the client holds a lease: the server does not write the buffer."""

    @property
    def frame_id(self) -> int:
        """Number of the frame, as sent."""

    @property
    def timestamp_sof(self) -> int:
        """Start of the exposure, as sent, in nanoseconds."""

    @property
    def timestamp_eof(self) -> int:
        """End of the exposure, as sent, in nanoseconds."""

    @property
    def origin_time(self) -> int:
        """Time of `timestamp_sof` in nanoseconds of the host's clock: the origin of messages that follow from it.

        0: unknown, because the timestamp is 0 or later than CLOCK_BOOTTIME, so it is of another clock.
        """

    @property
    def publish_time(self) -> int:
        """Time of `timestamp_eof` in nanoseconds of the host's clock; 0: unknown, as in `origin_time`."""

    @property
    def valid_frame(self) -> bool:
        """True if the sender marked the frame as valid."""

    def _valid_layout(self) -> Geometry:
        """Return a layout that fits the bytes. Raises the errors of `planes`."""

    def to_rgb(self) -> npt.NDArray[np.uint8]:
        """Return a copy of the picture as RGB, shape (H, W, 3), uint8; see `visionipc.convert.to_rgb`.

        Raises:
            MissingLibraryError: the format needs OpenCV or PyAV, and neither is installed.
            InvalidValueError: the format (FLOAT32, RAW) has no colours.
        """
    def valid(self) -> bool:
        """Return True if the buffer still contains this frame. Always True for held frames of servers of this library.

        A stock server overwrites buffers in use. Copy the data first, then call `valid`. If the result is True, the
        copy is good.
        """

    def release(self) -> None:
        """Release the buffer, except for arrays that still use it. A second release has no effect."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

def make_frame(geometry: Geometry, view: Buffer, frame_id: int, sof: int, eof: int, valid: bool) -> VisionBuf:
    """Return a frame with its own bytes, for the fake backend.

    Args:
        geometry: layout of the picture.
        view: bytes of the picture.
        frame_id: number of the frame.
        sof: start of the exposure in nanoseconds.
        eof: end of the exposure in nanoseconds.
        valid: flag of the sender.
    """

@disjoint_base
class IncomingStream:
    """A stream of one connection of a client: mapped buffers, and leases."""

    @property
    def records(self) -> list[Record]:
        """One `wire.Record` for each buffer."""

    @property
    def regions(self) -> list[DescriptorMapping]:
        """Mapped memory of each buffer."""

    @property
    def fds(self) -> list[int]:
        """File descriptor of each buffer."""

    @property
    def leases(self) -> ClientLeases | None:
        """Row of the client; None if the server is stock."""

    @property
    def server_id(self) -> int:
        """Id of the server."""

    def __init__(
        self, records: list[Record], regions: list[DescriptorMapping], fds: list[int], leases: ClientLeases | None
    ) -> None:
        """Create a stream from lists with one entry for each buffer.

        The stream empties `fds`, and closes the descriptors when it is deleted. It then also leaves its row.

        Raises:
            InvalidValueError: the lists are empty, have different lengths, or have more than LEASE_BUFFERS_MAX entries.
            SegmentError: a buffer is shorter than its frames.
        """

    def take(self, packet: bytes) -> VisionBuf | None:
        """Return the frame that a packet announces, and take a lease on its buffer.

        Args:
            packet: received bytes, see `wire.FRAME_PACKET_STRUCT`.

        Returns:
            The frame. None in a forked child, if the packet is invalid or from another server, or if the server has
            begun to write the buffer again.
        """

@disjoint_base
class StreamReceiver:
    """Base of `VisionIpcClient`: receives frames, and stores the numbers and times of the last frame."""

    _subscriber: SubSocket | None
    _stream: Any
    frame_id: int
    timestamp_sof: int
    timestamp_eof: int
    valid: bool

    def recv(self, timeout_ms: float = 100) -> VisionBuf | None:
        """Return the next frame, or the newest frame if the client conflates. Return None after the time-out.

        Args:
            timeout_ms: milliseconds; 0 does not wait, -1 waits without limit. The GIL is released during the wait.

        Raises:
            EndpointClosedError: the client is closed, or the wait has no limit and the client was never connected.
            InvalidValueError: an invalid time-out.
        """

    def _recv_disconnected(self, timeout_ms: float) -> None:
        """Wait for the time-out before the client has a subscriber. Subclasses define this method."""

    def _continue_recv(self, packet: bytes | None, timeout_ms: float, began: float) -> VisionBuf | None:
        """Receive further packets after a packet whose frame is not available. Subclasses define this method.

        Args:
            packet: received bytes.
            timeout_ms: as for `recv`.
            began: start of the wait, in seconds of CLOCK_MONOTONIC.
        """

    def _take_frame(self, packet: bytes) -> VisionBuf | None:
        """Return the frame that a packet announces, like `IncomingStream.take`, and store its numbers and times."""
