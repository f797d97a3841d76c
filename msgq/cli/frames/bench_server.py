"""The server of `msgq frames bench`: `python -m msgq.cli.frames.bench_server PREFIX NAME WIDTH HEIGHT RATE`.

It ends when its standard input does. RATE 0: a frame goes out as soon as an earlier one has been received.
"""

import sys
from pathlib import Path

from msgq.common import naming
from msgq.common.parent_watch import ParentWatch
from msgq.common.rate_loop import rate_loop
from msgq.impl.ring import Context, SubSocket
from msgq.impl.ring.core import unlink_topic
from visionipc import VisionIpcServer, get_endpoint_name, wire

STREAM = 0
_BUFFERS = 8
_AHEAD = _BUFFERS - 2  # one is looked at, one is written: more would overtake the client
_STEP_MS = 50


def acknowledgements(name: str) -> str:
    """Return the topic on which the client says how many frames it has received: 8 bytes, little-endian."""
    return f"{name}-acknowledged"


def sweep(name: str) -> None:
    """Remove all that a run left in /dev/shm and /tmp."""
    unlink_topic(get_endpoint_name(name, STREAM))
    unlink_topic(acknowledgements(name))
    Path(wire.socket_path(name)).unlink(missing_ok=True)


def main(prefix: str, name: str, width: str, height: str, rate: str) -> None:
    """Serve until told to end."""
    parent_watch = ParentWatch()
    parent_watch.start()
    with naming.overrides(prefix):
        _serve(parent_watch, name, int(width), int(height), float(rate))
        if parent_watch.orphaned:
            sweep(name)


def _serve(parent_watch: ParentWatch, name: str, width: int, height: int, rate: float) -> None:
    with SubSocket() as acks, VisionIpcServer(name) as server:
        acks.connect(Context(), acknowledgements(name), conflate=True)
        acks.setTimeout(_STEP_MS)
        server.create_buffers(STREAM, _BUFFERS, width, height)
        server.start_listener()
        while not server.stats(STREAM).clients and not parent_watch.stop.wait(0.001):
            pass
        if rate:
            _steadily(server, rate, parent_watch)
        else:
            _as_received(server, acks, parent_watch)


def _publish(server: VisionIpcServer) -> None:
    with server.frame(STREAM):
        pass  # rendered before: what is measured is the way, not the picture


def _steadily(server: VisionIpcServer, rate: float, parent_watch: ParentWatch) -> None:
    for _ in rate_loop(rate, parent_watch.stop):
        _publish(server)


def _as_received(server: VisionIpcServer, acks: SubSocket, parent_watch: ParentWatch) -> None:
    sent = receive_frames = 0
    while not parent_watch.stop.is_set():
        while sent - receive_frames < _AHEAD:
            _publish(server)
            sent += 1
        message = acks.receive()
        if message is not None:
            receive_frames = int.from_bytes(message, "little")


if __name__ == "__main__":
    main(*sys.argv[1:])
