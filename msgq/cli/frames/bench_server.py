"""Server of `msgq frames bench`: `python -m msgq.cli.frames.bench_server PREFIX NAME WIDTH HEIGHT RATE`.

The server ends when its standard input closes. RATE 0: send a frame as soon as an earlier frame was received.
"""

import sys
from pathlib import Path

from msgq.common import settings
from msgq.common.parent_watch import ParentWatch
from msgq.common.rate_loop import rate_loop
from msgq.impl.ring import Context, SubSocket
from msgq.impl.ring.core import unlink_topic
from visionipc import VisionIpcServer, get_endpoint_name, wire

STREAM_TYPE = 0
_BUFFER_COUNT = 8
_FRAMES_AHEAD_MAX = _BUFFER_COUNT - 2  # the client reads one buffer, and the server writes one
_POLL_PERIOD_MS = 50


def acknowledgement_topic(name: str) -> str:
    """Return the topic on which the client publishes the number of received frames: 8 bytes, little-endian."""
    return f"{name}-acknowledged"


def remove_leftovers(name: str) -> None:
    """Remove all files of a run in /dev/shm and /tmp."""
    unlink_topic(get_endpoint_name(name, STREAM_TYPE))
    unlink_topic(acknowledgement_topic(name))
    Path(wire.socket_path(name)).unlink(missing_ok=True)


def main(prefix: str, name: str, width: str, height: str, rate: str) -> None:
    """Serve until the standard input closes."""
    parent_watch = ParentWatch()
    parent_watch.start()
    with settings.overrides(prefix):
        _serve_frames(parent_watch, name, int(width), int(height), float(rate))
        if parent_watch.orphaned:
            remove_leftovers(name)


def _serve_frames(parent_watch: ParentWatch, name: str, width: int, height: int, rate: float) -> None:
    with SubSocket() as acks, VisionIpcServer(name) as server:
        acks.connect(Context(), acknowledgement_topic(name), conflate=True)
        acks.setTimeout(_POLL_PERIOD_MS)
        server.create_buffers(STREAM_TYPE, _BUFFER_COUNT, width, height)
        server.start_listener()
        while not server.stats(STREAM_TYPE).clients and not parent_watch.stop.wait(0.001):
            pass
        if rate:
            _publish_steadily(server, rate, parent_watch)
        else:
            _publish_as_received(server, acks, parent_watch)


def _publish_frame(server: VisionIpcServer) -> None:
    with server.frame(STREAM_TYPE):
        pass  # the picture is rendered before, because only the transport is measured


def _publish_steadily(server: VisionIpcServer, rate: float, parent_watch: ParentWatch) -> None:
    for _ in rate_loop(rate, parent_watch.stop):
        _publish_frame(server)


def _publish_as_received(server: VisionIpcServer, acks: SubSocket, parent_watch: ParentWatch) -> None:
    sent = receive_frames = 0
    while not parent_watch.stop.is_set():
        while sent - receive_frames < _FRAMES_AHEAD_MAX:
            _publish_frame(server)
            sent += 1
        message = acks.receive()
        if message is not None:
            receive_frames = int.from_bytes(message, "little")


if __name__ == "__main__":
    main(*sys.argv[1:])
