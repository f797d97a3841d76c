"""Playback of frames: a server's buffers get the recorded pictures, with the same bytes."""

from __future__ import annotations

import re
import time

from msgq.kinds.playback import (
    EndpointSpec,
    EndpointWriter,
    KindPlayback,
    PlaybackMessage,
    PlaybackTarget,
    UnplayableError,
)
from visionipc import Geometry, VisionIpcServer
from visionipc.fake import FakeServer
from visionipc.image_messages import Picture, picture

BUFFER_COUNT = 4
_RAW_ENDPOINT = re.compile(r"visionipc_(.+)_(\d{1,10})/image")
_RAW_SUFFIX = "/image"


class FramesWriter(EndpointWriter):
    """Publishes a stream of a server. The writers of one server's streams share the server. See `EndpointWriter`.

    Picture, layout, `frame_id` and `timestamp_sof` are recorded values. `timestamp_eof` is the time of playing, on
    CLOCK_BOOTTIME or the fake backend's clock.
    """

    def __init__(self, spec: EndpointSpec, target: PlaybackTarget) -> None:
        super().__init__(spec)
        found = _RAW_ENDPOINT.fullmatch(spec.endpoint)
        if found is None:
            raise UnplayableError("recording has no raw pictures; record with --frame-format raw")
        self._target = target
        self._stream = int(found[2])
        self._layout: Geometry | None = None
        first = _decode_picture(spec.sample_message)
        self._server = target.shared.get(found[1]) or _get_server_class(target)(found[1], prefix=target.prefix)
        target.shared[found[1]] = self._server
        self._server.start_listener()  # refuses a name that another process serves, before anything is made
        self._set_layout(first)

    def _set_layout(self, frame: Picture) -> None:
        """Create the stream. If the layout of the pictures changes, create the stream again."""
        layout = frame.layout
        if layout == self._layout:
            return
        sizes = layout.width, layout.height, layout.size, layout.stride, layout.uv_offset
        self._server.create_buffers_with_sizes(self._stream, BUFFER_COUNT, *sizes, layout.format, layout.channels)
        self._layout = layout

    def send(self, message: PlaybackMessage) -> None:
        """See `EndpointWriter`."""
        frame = _decode_picture(message.data)
        self._set_layout(frame)
        fake = self._target.backend == "fake"
        now = self._target.time_ns() if fake else time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if not self._server.send(self._stream, frame.data, frame.frame_id, frame.timestamp_sof, now):
            raise UnplayableError("clients hold all buffers")

    def wait_for_readers(self, timeout: float) -> bool:
        """See `EndpointWriter`."""
        if self._target.backend == "fake":  # its servers do not know their clients
            return True
        return self._target.wait_for_reader(
            lambda: len(self._server.stats(self._stream).clients), timeout, self.spec.endpoint
        )

    def close(self) -> None:
        """See `EndpointWriter`. Closes all streams of the server."""
        self._server.close()


def _get_server_class(target: PlaybackTarget) -> type[VisionIpcServer]:
    """Return the server class of a backend."""
    return FakeServer if target.backend == "fake" else VisionIpcServer


def _decode_picture(data: bytes) -> Picture:
    try:
        return picture(data)
    except ValueError as error:
        raise UnplayableError(str(error)) from None


class PictureSample:
    """Stores the first picture of a stream. See `MessageSample`."""

    def __init__(self) -> None:
        self.data, self.refusal_reason = b"", ""

    def add(self, data: bytes) -> bool:
        """See `MessageSample`."""
        self.data = data
        return True


class _FramesPlayback(KindPlayback):
    def find_announced_endpoint(self, name: str) -> str | None:
        """Return the topic that announces a stream, if the stream's pictures can be played as frames; else None."""
        return name.removesuffix(_RAW_SUFFIX) if name.endswith(_RAW_SUFFIX) else None


PLAYBACK = _FramesPlayback(FramesWriter, PictureSample)
