"""Leases of buffers, and the work of each frame."""

from types import TracebackType
from typing import Any, Self, TypeVar, final

from typing_extensions import Buffer, disjoint_base

from msgq.impl.base.core import DescriptorMapping, MappedView, PinOwner
from msgq.impl.ring import PubSocket, SubSocket
from visionipc.buffers import VisionBuf
from visionipc.server import OutgoingFrame
from visionipc.wire import Record

LEASE_BUFFERS_MAX: int
LEASE_CLIENTS_MAX: int
LEASE_TABLE_BYTES: int
VERSION: int

@final
class ServerLeases:
    """The server's side. Not to be used after a fork, in the child."""

    @property
    def taken_back(self) -> int:
        """Clients that died holding a buffer."""

    @property
    def newest(self) -> int:
        """The generation of the newest frame; 0: none so far."""

    @property
    def buffers(self) -> int:
        """Number of buffers in use for frames."""

    def __init__(self, region: DescriptorMapping, fd: int, buffers: int, endpoint: str) -> None:
        """Begin a table, in zeroed writable memory of LEASE_TABLE_BYTES, for 1 to LEASE_BUFFERS_MAX buffers.

        Parameters
        ----------
        fd : descriptor of that memory, which stays open: by it clients are asked whether they live.
        """

    def admit(self, pid: int) -> int:
        """Give a client a row; pid 0: it cannot be seen from here.

        Raises
        ------
        IpcError : LEASE_CLIENTS_MAX live clients have rows.
        """

    def admit_stock_client(self) -> None:
        """From now on frames go round all buffers: a stock client gets them, and nothing will tell when it is gone."""

    def drop_client(self, row: int, pid: int) -> None:
        """Take a row away from a client that was never told of it, or cannot use it.

        Parameters
        ----------
        row : nothing happens when it is not this client's.
        pid : the client's.
        """

    def grow(self) -> None:
        """Add a buffer, whose memory the caller has allocated. It has the next index.

        Raises
        ------
        SegmentError : the table has LEASE_BUFFERS_MAX buffers.
        """

    def clients(self) -> list[int]:
        """Return the pids of the clients that are there."""

    def count_held_buffers(self) -> int:
        """Return how many buffers some client holds."""

@final
class ClientLeases(PinOwner):
    """The client's side: one row. The row is given back when the last reference, a frame's included, goes.

    Its views (`PinnedView`) hold a buffer each, which the server leaves alone until they are gone.
    """

    @property
    def since(self) -> int:
        """The generation of the newest frame when the server gave the row; 0: there was none."""

    def __init__(self, region: DescriptorMapping, fd: int, row: int, since: int, endpoint: str) -> None:
        """Take the row, for as long as this process lives and does not call exec.

        Parameters
        ----------
        fd : descriptor of the region's memory, not needed afterwards.
        row, since : as the server's grant says.
        """

    @property
    def dropped(self) -> int:
        """Frames that the server dropped since this row was taken, because clients held all buffers."""

    def end(self) -> None:
        """Await no more frames; those that are held stay so."""

_F = TypeVar("_F", bound=Frame)

@disjoint_base
class OutgoingStream:
    """A server's stream: its buffers, leases and topic. One thread at a time; refuses a second frame meanwhile."""

    @property
    def endpoint(self) -> str:
        """The topic."""

    @property
    def published(self) -> int:
        """Frames that were sent."""

    @property
    def dropped(self) -> int:
        """Frames that were not, because clients held all buffers."""

    def __init__(
        self,
        endpoint: str,
        publisher: PubSocket,
        leases: ServerLeases,
        regions: list[DescriptorMapping],
        size: int,
        server_id: int,
    ) -> None: ...
    def scratch(self) -> MappedView:
        """Return memory for a frame that will be dropped. To be defined by the subclass."""

    def grow(self) -> bool:
        """Add a spare buffer, and return whether there was one. Subclasses define it."""

    def send(self, data: Buffer, frame_id: int, sof: int, eof: int) -> bool:
        """Copy a frame into a free buffer, and publish it; False: dropped. See `VisionIpcServer.send`.

        Parameters
        ----------
        data : contiguous; copied without the GIL.
        frame_id : 32 bits.
        sof : when the exposure started, 64 bits.
        eof : when it ended, 64 bits.

        Raises
        ------
        MessageSizeError : `data` has another size.
        InvalidValueError : a number has more bits.
        ConcurrentUseError, EndpointClosedError, ForkedSocketError : the stream cannot be used now, or here.
        """

@disjoint_base
class FrameDraft:
    """A buffer of a stream, from the beginning of a with block to its end; `OutgoingFrame` says what it is for."""

    frame_id: int
    timestamp_sof: int
    timestamp_eof: int
    valid: bool

    @property
    def _stream(self) -> Any: ...
    @property
    def _view(self) -> MappedView | None: ...
    @property
    def dropped(self) -> bool:
        """Clients hold all buffers."""

    def __init__(self) -> None:
        """Raise TypeError: `StreamSender.frame` makes it."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish the frame, unless an exception leaves the block.

        Raises
        ------
        StateError : the block is over, or was never entered.
        """

@disjoint_base
class StreamSender:
    """The base of a server: gives out frames to render into."""

    @property
    def _streams(self) -> dict[int, Any]:
        """The streams, by type."""

    def __init__(self, kind: type[FrameDraft]) -> None:
        """`kind`: the class that frames shall have."""

    def frame(self, type: int) -> OutgoingFrame:
        """Return a free buffer to render into; see `OutgoingFrame`.

        Raises
        ------
        StreamNotFoundError : no such stream was made.
        EndpointClosedError, ForkedSocketError : the server is closed, or the parent's.
        ConcurrentUseError : another frame of the stream is open (when the block is entered).
        """

    def _stream(self, kind: int) -> Any:
        """Return the stream of a type, or raise what says why there is none. To be defined by the subclass."""

@disjoint_base
class Frame:
    """What a client knows of a frame; made by `IncomingStream.take`. `VisionBuf` says what it is for."""

    _view: MappedView | None
    @property
    def _record(self) -> Record: ...
    @property
    def _region(self) -> DescriptorMapping: ...
    @property
    def fd(self) -> int:
        """Descriptor of the buffer's memory."""

    @property
    def leased(self) -> bool:
        """The server leaves the buffer alone."""

    @property
    def frame_id(self) -> int:
        """As sent."""

    @property
    def timestamp_sof(self) -> int:
        """As sent, nanoseconds."""

    @property
    def timestamp_eof(self) -> int:
        """As sent, nanoseconds."""

    @property
    def valid_frame(self) -> bool:
        """As sent."""

@disjoint_base
class IncomingStream:
    """A client's stream, in one life of it: the buffers, mapped, and the client's leases."""

    @property
    def records(self) -> list[Record]:
        """One a buffer, `wire.Record`."""

    @property
    def regions(self) -> list[DescriptorMapping]:
        """The buffers' memory."""

    @property
    def fds(self) -> list[int]:
        """The buffers' descriptors."""

    @property
    def leases(self) -> ClientLeases | None:
        """The client's row; None when the server is stock."""

    @property
    def server_id(self) -> int:
        """Of this life."""

    def __init__(
        self, records: list[Record], regions: list[DescriptorMapping], fds: list[int], leases: ClientLeases | None
    ) -> None:
        """See the properties.

        Raises
        ------
        InvalidValueError : the lists are empty, or of different lengths.
        SegmentError : a buffer is shorter than its frames.
        """
    def take(self, packet: bytes, kind: type[_F]) -> _F | None:
        """Return the frame that a packet announces, held.

        Parameters
        ----------
        packet : as it came, see `wire.FRAME_PACKET_STRUCT`.
        kind : the class that the frame shall have.

        Returns
        -------
        None : the packet is of another life of the stream, or none; or its buffer is being written again; or this is
            a forked child.
        """

@disjoint_base
class StreamReceiver:
    """A client's way of a frame, as far as nothing is in it; and what it knows of the frame that it took last."""

    _subscriber: SubSocket | None
    _stream: Any
    frame_id: int
    timestamp_sof: int
    timestamp_eof: int
    valid: bool

    def __init__(self, kind: type[Frame]) -> None:
        """`kind`: the class that frames shall have."""

    def recv(self, timeout_ms: float = 100) -> VisionBuf | None:
        """Return the next frame (the newest, if the client conflates); None when there was none in time.

        Before `connect` there is none.

        Parameters
        ----------
        timeout_ms : milliseconds, 0 does not wait, -1 waits for ever. Sleeps with the GIL released.

        Raises
        ------
        EndpointClosedError : the client is closed; or it never connected, and would wait for ever.
        InvalidValueError : a time-out that is not possible.
        """

    def _recv_disconnected(self, timeout_ms: float) -> None:
        """Wait without a subscriber. To be defined by the subclass."""

    def _continue_recv(self, packet: bytes | None, timeout_ms: float, began: float) -> VisionBuf | None:
        """Go on from a packet whose frame is not to be had at once. To be defined by the subclass.

        Parameters
        ----------
        packet : as it came.
        timeout_ms : as for `recv`.
        began : when that began to wait, seconds of CLOCK_MONOTONIC.
        """

    def _take_frame(self, packet: bytes) -> VisionBuf | None:
        """Return the frame that a packet announces, as `IncomingStream.take`, and note what it says."""
