"""Pictures of frame streams, as the recorder stores them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from msgq.cli.serve.message_reader import ReadMessage
from msgq.common import settings
from msgq.impl.base import clock
from msgq.recording.recorder.frame_receiver import JPEG_FORMAT, FrameReceiver, FrameStream
from visionipc.wire import parse_endpoint_name

_PICTURES_PER_SECOND_MAX = 30.0

_logger = logging.getLogger(__name__)


def find_picture_stream(endpoint: str) -> FrameStream | None:
    """Return the stream of pictures that a topic announces; None: the endpoint announces no frames."""
    names = parse_endpoint_name(endpoint)
    return None if names is None else FrameStream(*names, _PICTURES_PER_SECOND_MAX, JPEG_FORMAT)


class PictureReader:
    """Receives the newest pictures of a changing selection of streams, each in its own thread.

    A reader that is too slow skips frames. One thread at a time.
    """

    def __init__(self, prefix: str | None) -> None:
        """Start without streams. `prefix`: prefix of the endpoints; None: the current prefix."""
        self._prefix = settings.resolve_prefix(prefix)
        self._receivers: dict[str, FrameReceiver] = {}  # receivers by the endpoint that announces the frames
        self._ending_thread = ThreadPoolExecutor(1, "msgq serve pictures")  # a stopped server delays the end
        self._reported_errors: set[str] = set()

    def select_streams(self, streams: Mapping[str, FrameStream]) -> None:
        """Receive these streams from now on. `streams`: streams by the endpoints that announce the frames."""
        for endpoint in self._receivers.keys() - streams.keys():
            self._ending_thread.submit(self._receivers.pop(endpoint).stop_receiving)
        for endpoint in streams.keys() - self._receivers.keys():
            self._receivers[endpoint] = FrameReceiver(streams[endpoint], self._prefix)

    def close(self) -> None:
        """End all threads."""
        self.select_streams({})
        self._ending_thread.shutdown()

    def take_pictures(self) -> list[ReadMessage]:
        """Return the pictures since the last call."""
        clock_offset_ns = clock.time_ns() - time.monotonic_ns()
        pictures = []
        for endpoint, receiver in self._receivers.items():
            self._report_error(endpoint, receiver.error)
            schema = receiver.frame_stream.schema
            for frame in receiver.fetch_frames():
                time_ns = frame.received_ns - frame.latency_ns + clock_offset_ns
                pictures.append(ReadMessage(endpoint, time_ns, frame.message_bytes, schema))
        return pictures

    def _report_error(self, endpoint: str, error: Exception | None) -> None:
        if error is not None and endpoint not in self._reported_errors:
            self._reported_errors.add(endpoint)
            _logger.warning("no pictures of %s: %s", endpoint, error)
