"""Common code of the subcommands that receive frames: selection of the stream, and descriptions of frames."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.signals import call_on_interrupt
from msgq.common import naming, settings
from msgq.errors import StreamNotFoundError, WaitTimeoutError
from visionipc import VisionBuf, VisionIpcClient
from visionipc.connection import request_stream_types

_POLL_PERIOD_MS = 50  # time between two checks for Ctrl-C

server_argument = click.argument("server", metavar="SERVER")
stream_option = click.option(
    "--stream",
    type=click.IntRange(0),
    metavar="TYPE",
    help="Type number of the stream.  [default: lowest type number of the server]",
)
timeout_option = click.option(
    "--timeout",
    type=options.NumberRange(0.0, 86400.0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for a frame, in seconds.",
)


@dataclass(frozen=True)
class FrameLine:
    """A frame in --json output: `VisionBuf` without its bytes. `path`: path of the saved file."""

    frame_id: int
    timestamp_sof: int
    timestamp_eof: int
    format: str
    width: int
    height: int
    stride: int
    uv_offset: int
    bytes: int
    path: str | None = None


def describe_frame(frame: VisionBuf, path: Path | None = None) -> FrameLine:
    """Return the description of a frame."""
    layout = (frame.width, frame.height, frame.stride, frame.uv_offset, len(frame.data))
    times = (frame.frame_id, frame.timestamp_sof, frame.timestamp_eof)
    return FrameLine(*times, frame.format.name, *layout, str(path) if path else None)


@contextmanager
def open_frames(
    server: str, stream: int | None, prefix: str | None, timeout_s: float, conflate: bool
) -> Iterator[Iterator[VisionBuf]]:
    """Connect to an existing server, and return its frames on arrival, until Ctrl-C. The caller releases each frame.

    The iterator raises WaitTimeoutError if no frame arrives within `timeout_s`.
    """
    stop = threading.Event()
    with settings.overrides(prefix), _connect_client(server, stream, conflate) as client, call_on_interrupt(stop.set):
        yield _receive_frames(client, timeout_s, stop)


def _connect_client(name: str, kind: int | None, conflate: bool) -> VisionIpcClient:
    served = request_stream_types(
        naming.validate_endpoint_name(name, "server name")
    )  # asked first: a client makes its topic, also in vain
    if kind is None:
        kind = min(served or (), default=0)
    if served and kind not in served:
        raise StreamNotFoundError(
            f"stream {kind} not found; the server has {', '.join(map(str, sorted(served)))}", name
        )
    client = VisionIpcClient(name, kind, conflate)
    if served is None or not client.connect(False):
        client.close()
        raise click.ClickException(f"frame server {name!r} not found; run `msgq frames list`")
    return client


def _receive_frames(client: VisionIpcClient, timeout_s: float, stop: threading.Event) -> Iterator[VisionBuf]:
    deadline = time.monotonic() + timeout_s
    while not stop.is_set():
        frame = client.recv(_POLL_PERIOD_MS)
        if frame is not None:
            yield frame
            deadline = time.monotonic() + timeout_s
        elif time.monotonic() > deadline:
            raise WaitTimeoutError(f"no frame within {timeout_s:g} s")
