"""Sources of the live stream: rings or ZMQ sockets, whose messages are stored in chunks of a recording."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgq.common import settings
from msgq.common.selection import EndpointPattern, SelectedEndpoints
from msgq.errors import InvalidValueError, SegmentError
from msgq.impl import backend
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.mcap_io.segment_writer import EncodedChannel, encode_channel
from msgq.recording.recorder.core import Capture
from msgq.recording.recorder.endpoints import RecordedEndpoints

if TYPE_CHECKING:
    from msgq.impl.ring import SubSocket
    from msgq.spark.source.source_options import SourceOptions

_DISCOVERY_INTERVAL_S = 0.5  # time between two scans for new endpoints
_BATCH_MESSAGES_MAX = 1000  # maximum messages from one ZMQ socket, before other sockets are read

_logger = logging.getLogger(__name__)


class BusFeed(Protocol):
    """Delivers new messages. One thread at a time.

    Attributes:
        channels: channels of the messages in the chunks.
    """

    channels: dict[int, EncodedChannel]

    @property
    def max_message_bytes(self) -> int:
        """Maximum bytes of the next message."""

    def take_messages(self, chunk: ChunkBuffer, seconds: float) -> bool:
        """Add messages to a chunk for `seconds`. Return True early if the chunk is full."""

    def count_lost_messages(self) -> int | None:
        """Return the number of messages that were published and not taken; None: unknown."""

    def close(self) -> None:
        """End the subscriptions."""


def open_bus_feed(options: SourceOptions) -> BusFeed:
    """Return a feed of the selected endpoints.

    Raises:
        InvalidValueError: the backend does not support this selection, or works within one process only.
        IpcError: as `SubSocket.connect`.
    """
    name = options.backend or settings.get_backend_name()
    if name == "fake":
        raise InvalidValueError("backend 'fake' works in a single process only; use 'msgq' or 'zmq' for the live bus")
    prefix = settings.resolve_prefix(options.prefix)
    if name == "zmq":
        return ZmqFeed(_require_endpoint_names(options.endpoints, options.excluded_endpoints), prefix)
    return RingFeed(SelectedEndpoints(options.endpoints, options.excluded_endpoints or ()), prefix)


def _require_endpoint_names(
    endpoints: Sequence[EndpointPattern] | None, exclude: Sequence[EndpointPattern] | None
) -> list[str]:
    names = [name for name in endpoints or () if isinstance(name, str)]
    if not names or len(names) < len(endpoints or ()) or exclude:
        raise InvalidValueError("backend 'zmq' cannot list endpoints; name them: option('endpoints', 'imu,gps')")
    return names


class RingFeed:
    """Reads rings passively, including rings that appear later."""

    def __init__(self, selection: SelectedEndpoints, prefix: str) -> None:
        self.channels: dict[int, EncodedChannel] = {}
        self._capture = Capture()
        self._sources = RecordedEndpoints(self._capture, selection, prefix)
        self._refusal_reasons: dict[str, str] = {}
        self._discover_endpoints()

    def _discover_endpoints(self) -> None:
        self._sources.rescan_endpoints()
        self._discovery_time_s = time.monotonic()
        for endpoint, reason in self._sources.refusal_reasons.items() - self._refusal_reasons.items():
            _logger.warning("endpoint %r is not in the stream: %s", endpoint, reason)
        self._refusal_reasons = dict(self._sources.refusal_reasons)

    @property
    def max_message_bytes(self) -> int:
        """Maximum bytes of a message in the rings."""
        return self._sources.largest_message_bytes

    def take_messages(self, chunk: ChunkBuffer, seconds: float) -> bool:
        """Add messages to a chunk for `seconds`. Return True early if the chunk is full."""
        if time.monotonic() - self._discovery_time_s >= _DISCOVERY_INTERVAL_S:
            self._discover_endpoints()
        full = False
        try:
            full = self._capture.capture_messages(chunk, seconds)
        except SegmentError as error:
            _logger.warning("%s", error)
        self.channels.update(self._sources.iter_new_channels(len(self.channels) + 1))
        self._sources.handle_changes()
        return full

    def count_lost_messages(self) -> int | None:
        """Return the number of messages overwritten before they were taken; None: unknown (stock publisher)."""
        losses = list(self._sources.count_losses().values())
        return None if None in losses else sum(loss for loss in losses if loss is not None)

    def close(self) -> None:
        """Do nothing, because passive readers are not registered in a ring."""


class ZmqFeed:
    """Reads ZMQ sockets. ZMQ does not report dropped messages, so sequences count received messages."""

    def __init__(self, names: Sequence[str], prefix: str) -> None:
        module = backend.load_backend("zmq")
        self._capture = Capture()
        self._poller = module.Poller()
        self._context = module.Context()
        self._sockets: dict[SubSocket, int] = {}
        self._pending: deque[tuple[int, int, int, int, bytes]] = deque()  # arguments of `ChunkBuffer.append_message`
        self._received_counts: dict[int, int] = {}
        self.channels: dict[int, EncodedChannel] = {}
        for name in names:
            number = self._capture.reserve_channel_id()
            socket = module.SubSocket()
            with settings.overrides(prefix):
                socket.connect(self._context, name)
            self._poller.registerSocket(socket)
            self._sockets[socket], self._received_counts[number] = number, 0
            self.channels[number] = encode_channel(number, name, None, 1, metadata_keys.RECORDER_SEQUENCE)

    @property
    def max_message_bytes(self) -> int:
        """Bytes of the waiting message, if any."""
        return len(self._pending[0][-1]) if self._pending else 0

    def take_messages(self, chunk: ChunkBuffer, seconds: float) -> bool:
        """Add messages to a chunk for `seconds`. Return True early if the chunk is full."""
        if not self._pending:
            self._receive_pending(seconds)
        while self._pending:
            if not chunk.append_message(*self._pending[0]):
                return True
            self._pending.popleft()
        return False

    def _receive_pending(self, seconds: float) -> None:
        for socket in self._poller.poll(round(seconds * 1000)):
            number = self._sockets[socket]
            for data in socket.receive_many(_BATCH_MESSAGES_MAX):
                now = self._capture.read_host_clock_ns()
                self._pending.append((number, self._received_counts[number] % 2**32, now, now, data))
                self._received_counts[number] += 1

    def count_lost_messages(self) -> int | None:
        """Return None, because ZMQ does not report losses."""
        return None

    def close(self) -> None:
        """Close the sockets."""
        for socket in self._sockets:
            socket.close()
