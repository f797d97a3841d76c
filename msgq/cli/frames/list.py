"""`msgq frames list`: lists servers, their streams, and frames per second."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import click

from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, NAME_RANK, RATE_RANK, TableColumn, print_table
from msgq.cli.common.render import echo_json
from msgq.common import settings
from msgq.common.formatting import format_bytes, format_count
from msgq.errors import MsgqError
from msgq.impl.ring import Context, SubSocket
from visionipc import get_endpoint_name, wire
from visionipc.connection import open_stream, request_server_info

_SERVING_STATE = "serving"


@dataclass(frozen=True)
class StreamLine:
    """A stream of a server, or a server without streams. None: unknown.

    Attributes:
        state: "serving", or a problem.
    """

    server: str
    state: str
    pid: int | None = None
    stream: int | None = None
    format: str | None = None
    width: int | None = None
    height: int | None = None
    stride: int | None = None
    uv_offset: int | None = None
    bytes: int | None = None
    buffers: int | None = None
    rate: float | None = None


_StreamColumn = TableColumn[StreamLine]
_STREAM_COLUMNS = (
    _StreamColumn("server", lambda line: line.server, NAME_RANK, text_width=16),
    _StreamColumn("pid", lambda line: str(line.pid or "-")),
    _StreamColumn("stream", lambda line: format_count(line.stream), NAME_RANK),
    _StreamColumn("format", lambda line: line.format or "-", text_width=4),
    _StreamColumn("picture", lambda line: f"{line.width} x {line.height}" if line.width else "-"),
    _StreamColumn("stride", lambda line: format_count(line.stride)),
    _StreamColumn("bytes", lambda line: format_bytes(line.bytes)),
    _StreamColumn("buffers", lambda line: format_count(line.buffers)),
    _StreamColumn("frames/s", lambda line: "-" if line.rate is None else f"{line.rate:.1f}", RATE_RANK),
    _StreamColumn("state", lambda line: line.state, LOST_RANK, text_width=20),
)


@click.command("list", epilog=options.EXIT_CODES)
@options.measured_duration_option(0.5, "Duration of the measurement of frame rates, in seconds.")
@options.json_option
@options.prefix_option
def command(duration: float, as_json: bool, prefix: str | None) -> None:
    """List the frame servers in /tmp and their streams.

    The command holds no buffer, and is a passive subscriber of the streams. The frames of a stock server have the
    format NV12.
    """
    with settings.overrides(prefix):
        streams = scan_streams(duration)
    if as_json:
        for stream in streams:
            echo_json(stream)
    else:
        print_table(_STREAM_COLUMNS, streams)


def scan_streams(duration_s: float) -> list[StreamLine]:
    """Ask all servers for their streams, and count the frames of `duration_s` seconds."""
    streams = [stream for name in wire.list_server_names() for stream in _list_server_streams(name)]
    with ExitStack() as stack:
        watches = {}
        for stream in streams:
            if stream.stream is not None:
                with suppress(MsgqError):  # the topic does not exist yet, or cannot be read
                    watches[stream] = stack.enter_context(_open_passive_subscriber(stream.server, stream.stream))
        begin = time.monotonic()
        if watches:
            time.sleep(duration_s)
        return [
            replace(stream, rate=_measure_rate(watches[stream], begin)) if stream in watches else stream
            for stream in streams
        ]


def _list_server_streams(name: str) -> Iterator[StreamLine]:
    """Yield the streams of a server. A problem of one server or stream does not affect the others."""
    try:
        server = request_server_info(name)
    except MsgqError as error:
        yield StreamLine(name, str(error))
        return
    if server is None:
        yield StreamLine(name, "no process listens")
        return
    pid, kinds = server
    if not kinds:
        yield StreamLine(name, _SERVING_STATE, pid)
    for kind in sorted(kinds):
        try:
            stream = open_stream(name, kind)
        except MsgqError as error:
            yield StreamLine(name, str(error), pid, kind)
            continue
        if stream is not None:
            g, buffers = stream.records[0].geometry, stream.requested_buffers
            yield StreamLine(
                name,
                _SERVING_STATE,
                pid,
                kind,
                g.format.name,
                g.width,
                g.height,
                g.stride,
                g.uv_offset,
                g.size,
                buffers,
            )


def _open_passive_subscriber(name: str, kind: int) -> SubSocket:
    """Return a passive subscriber of a stream."""
    watch = SubSocket()
    watch.connect(Context(), get_endpoint_name(name, kind), passive=True)
    return watch


def _measure_rate(watch: SubSocket, begin: float) -> float:
    count = len(watch.receive_many()) + (watch.lost or 0)
    return round(count / (time.monotonic() - begin), 1)
