"""Frames of visionipc as messages of a recording, in the format of `visionipc.image_messages`."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from msgq.common import settings
from msgq.common.schema import Schema
from msgq.errors import InvalidValueError, IpcError, MissingLibraryError, RecordingError
from visionipc import FrameFormat, Geometry, VisionBuf, VisionIpcClient, get_endpoint_name, image_messages
from visionipc.image_messages import COMPRESSED_IMAGE, IMAGE, SUFFIX, Picture, image

RAW_FORMAT, JPEG_FORMAT = "raw", "jpeg"
_POLL_MS = 100.0
_RATE_TOLERANCE = 0.25  # periods that a frame may come too early: cameras have jitter
_WAITING_FRAMES_MAX = 8  # frames; a recorder that does not come for them has trouble enough


@dataclass(frozen=True, slots=True)
class FrameStream:
    """A frame stream to record, or all streams of a server.

    Attributes:
        server: name of the server.
        stream: type of the stream; None: all streams of the server, also those that it creates later.
        rate: maximum frames per second; None: all available frames.
        format: "raw": unchanged pictures. "jpeg": pictures compressed by OpenCV.
        quality: quality of JPEG, 1 to 100.
    """

    server: str
    stream: int | None = None
    rate: float | None = None
    format: str = RAW_FORMAT
    quality: int = 85

    def __post_init__(self) -> None:
        if (
            self.format not in (RAW_FORMAT, JPEG_FORMAT)
            or not 1 <= self.quality <= 100
            or (self.rate is not None and self.rate <= 0)
        ):
            raise InvalidValueError(f"{self!r} is invalid; use raw or jpeg, a quality of 1 to 100, and a rate above 0")
        if self.format == JPEG_FORMAT:
            _import_opencv()

    def __str__(self) -> str:
        return f"{'frames' if self.stream is None else f'stream {self.stream}'} of {self.server!r}"

    @property
    def stream_type(self) -> int:
        """Type of the stream. Raises InvalidValueError for all streams of a server."""
        if self.stream is None:
            raise InvalidValueError(f"{self!r} selects all streams of the server; give the type of one stream")
        return self.stream

    @property
    def endpoint(self) -> str:
        """Topic that the recording gives the frames of one stream."""
        return get_endpoint_name(self.server, self.stream_type) + (
            SUFFIX if self.format == RAW_FORMAT else "/compressed"
        )

    @property
    def schema(self) -> Schema:
        """Schema of the messages."""
        return IMAGE if self.format == RAW_FORMAT else COMPRESSED_IMAGE


def _import_opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise MissingLibraryError(
            "JPEG needs OpenCV, which is not installed: pip install 'msgq-bus[frames]'"
        ) from error
    return cv2


def encode_frame(frame: VisionBuf, stream: FrameStream) -> bytes:
    """Return a frame as a message of a recording.

    Raises:
        MissingLibraryError: the format needs OpenCV, and OpenCV is not installed.
        RecordingError: OpenCV cannot compress the frame.
    """
    if stream.format == RAW_FORMAT:
        channels = frame.image.shape[2] if frame.format is FrameFormat.FLOAT32 else 1
        sizes = frame.width, frame.height, frame.stride, frame.uv_offset, len(frame.data)
        layout = Geometry(frame.format, *sizes, channels)
        return image(Picture(layout, frame.frame_id, frame.timestamp_sof, frame.data))
    cv2 = _import_opencv()
    done, data = cv2.imencode(".jpg", frame.to_rgb()[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, stream.quality])
    if not done:
        raise RecordingError(
            f"frame of {frame.width} x {frame.height} pixels cannot be compressed by OpenCV", stream.endpoint
        )
    header = image_messages.header(frame.frame_id, frame.timestamp_sof)
    return image_messages.message(COMPRESSED_IMAGE, {"header": header, "format": "jpeg", "data": data})


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """A frame on its way into a chunk.

    Attributes:
        message_bytes: encoded message.
        received_ns: time of receipt by CLOCK_MONOTONIC. The recorder fetches the frame up to `chunk_seconds` later.
        latency_ns: time from publishing to receipt; 0 if the frame has no valid timestamp.
    """

    message_bytes: bytes
    received_ns: int
    latency_ns: int


class FrameRateLimiter:
    """Chooses frames, at most one in a period on average."""

    def __init__(self, period_s: float) -> None:
        """Accept the first frame. Period 0 accepts all frames."""
        self._period_s = period_s
        self._next_frame_s = -math.inf

    def accept_frame(self, received_s: float) -> bool:
        """Return True if the frame received at this time is wanted. Missing frames are not made up for later."""
        if received_s < self._next_frame_s - self._period_s * _RATE_TOLERANCE:
            return False
        is_after_gap = received_s >= self._next_frame_s + self._period_s
        self._next_frame_s = (received_s if is_after_gap else self._next_frame_s) + self._period_s
        return True


class FrameReceiver:
    """Receives one stream in its own thread, and keeps messages until `fetch_frames`.

    Attributes:
        frame_stream: received stream.
        lost_frames: number of frames that arrived faster than the recorder received or fetched them. None: unknown,
            because the server is stock. Frames skipped by `rate` are no losses.
        error: error that ended the thread; None: no error.
        was_found: True after the first connection.
        is_wanted: False: frames are released, without losses.
    """

    def __init__(self, stream: FrameStream, prefix: str, is_wanted: bool = True) -> None:
        self.frame_stream = stream
        self.error: Exception | None = None
        self.was_found = False
        self._dropped_frames = 0
        self._missed_frames: int | None = 0
        self._skipped_frames = 0  # frames that the client has skipped until now, also in pauses
        self._prefix = prefix
        self._waiting_frames: deque[RecordedFrame] = deque()
        self.is_wanted = is_wanted
        self._is_stopping = False
        self._thread = threading.Thread(target=self._receive_until_stop, name="msgq frames", daemon=True)
        self._thread.start()

    @property
    def lost_frames(self) -> int | None:
        """Number of lost frames; see the class."""
        return None if self._missed_frames is None else self._missed_frames + self._dropped_frames

    def fetch_frames(self) -> list[RecordedFrame]:
        """Return the frames since the last call."""
        return [self._waiting_frames.popleft() for _ in range(len(self._waiting_frames))]

    def _receive_until_stop(self) -> None:
        try:
            with settings.overrides(self._prefix):
                self._receive_frames()
        except Exception as error:  # OpenCV's, too; the recorder shows it
            self.error = error

    def _receive_frames(self) -> None:
        period_s = 0.0 if self.frame_stream.rate is None else 1 / self.frame_stream.rate
        limiter = FrameRateLimiter(period_s)
        server, stream_type = self.frame_stream.server, self.frame_stream.stream_type
        with VisionIpcClient(server, stream_type, period_s > 0) as client:
            # The list comes first, because a client creates its topic even if the server lacks the stream.
            while not self._is_stopping and not (stream_type in list_streams(server) and _try_connect(client)):
                time.sleep(_POLL_MS / 1000)
            self.was_found = client.is_connected()
            while not self._is_stopping:
                frame = client.recv(_POLL_MS)
                if not period_s:
                    self._count_skipped_frames(client.lost)
                if frame is None:
                    continue
                with frame:
                    received_ns = time.monotonic_ns()
                    if not limiter.accept_frame(received_ns / 1e9):  # rejects, because a delay would add to the latency
                        continue
                    latency_ns = _compute_latency_ns(frame.timestamp_eof or frame.timestamp_sof)
                    self._keep_frame(RecordedFrame(encode_frame(frame, self.frame_stream), received_ns, latency_ns))

    def _count_skipped_frames(self, passed_over: int | None) -> None:
        if passed_over is None or self._missed_frames is None:
            self._missed_frames = None
            return
        if self.is_wanted:
            self._missed_frames += passed_over - self._skipped_frames
        self._skipped_frames = passed_over

    def _keep_frame(self, frame: RecordedFrame) -> None:
        if not self.is_wanted:
            return
        if len(self._waiting_frames) >= _WAITING_FRAMES_MAX:
            self._dropped_frames += 1
        else:
            self._waiting_frames.append(frame)

    def stop_receiving(self) -> None:
        """Stop receiving."""
        self._is_stopping = True
        self._thread.join()


def _compute_latency_ns(timestamp: int) -> int:
    """Return the time since a timestamp of CLOCK_BOOTTIME; 0 if the timestamp is missing or in the future."""
    return max(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - timestamp, 0) if timestamp else 0


def list_streams(server: str) -> set[int]:
    """Return the types of a server's streams; empty without a server, or if it does not answer."""
    try:
        return VisionIpcClient.available_streams(server, block=False)
    except IpcError:  # the server is starting or stopping
        return set()


def _try_connect(client: VisionIpcClient) -> bool:
    try:
        return client.connect(False)
    except IpcError:  # it is just starting, or has not made the stream yet
        return False
