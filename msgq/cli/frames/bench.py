"""`msgq frames bench`: measures frames between two processes on this machine.

Two runs, each with a server in a separate process. In the first run, the server sends a frame as soon as an earlier
frame was received. The second run has a steady rate, and measures the latency of a client that sleeps between frames.
"""

import secrets
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace

import click

from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, NAME_RANK, RATE_RANK, TableColumn, print_table
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.signals import call_on_interrupt
from msgq.cli.frames.bench_server import STREAM_TYPE, acknowledgement_topic, remove_leftovers
from msgq.common import settings
from msgq.common.formatting import format_bytes, format_count
from msgq.common.histogram import Histogram
from msgq.errors import WaitTimeoutError
from msgq.impl.ring import Context, PubSocket
from visionipc import VisionIpcClient

_PROCESS_TIMEOUT_S = 20.0  # time for a process to start, or to end
_POLL_PERIOD_MS = 50
_TOUCHED_BYTES = slice(None, None, 1024)  # bytes of a frame to read. A client that reads all bytes measures the memory


@dataclass(frozen=True)
class FrameBenchResult:
    """Result of a run. Latencies are in microseconds, from the end of the server's block to the end of `recv`."""

    run: str
    width: int
    height: int
    seconds: float
    frames: int
    lost: int | None
    rate: float
    byte_rate: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float


_RunColumn = TableColumn[FrameBenchResult]
_RUN_COLUMNS = (
    _RunColumn("run", lambda run: run.run, NAME_RANK, text_width=18),
    _RunColumn("frames", lambda run: format_count(run.frames)),
    _RunColumn("frames/s", lambda run: format_count(run.rate), RATE_RANK),
    _RunColumn("bytes/s", lambda run: format_bytes(run.byte_rate)),
    _RunColumn("lost", lambda run: format_count(run.lost), LOST_RANK),
    _RunColumn("p50 us", lambda run: f"{run.p50_us:,.1f}"),
    _RunColumn("p90 us", lambda run: f"{run.p90_us:,.1f}"),
    _RunColumn("p99 us", lambda run: f"{run.p99_us:,.1f}"),
    _RunColumn("p99.9 us", lambda run: f"{run.p999_us:,.1f}"),
)


@click.command(epilog=options.EXIT_CODES)
@click.option(
    "--width",
    type=click.IntRange(2, 1 << 14),
    default=1920,
    show_default=True,
    metavar="PIXELS",
    help="Width of the frames, an even number of pixels.",
)
@click.option(
    "--height",
    type=click.IntRange(2, 1 << 14),
    default=1080,
    show_default=True,
    metavar="PIXELS",
    help="Height of the frames, an even number of pixels.",
)
@click.option(
    "--rate",
    type=options.NumberRange(1.0, 10_000.0),
    default=100.0,
    show_default=True,
    metavar="RATE",
    help="Rate of the second run, in frames/s. The first run sends as fast as possible.",
)
@click.option(
    "--duration",
    type=options.NumberRange(0.1, 3600.0),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="Duration of each run, in seconds.",
)
@options.json_option
@options.prefix_option
def command(width: int, height: int, rate: float, duration: float, as_json: bool, prefix: str | None) -> None:
    """Measure the transfer of NV12 frames between two processes.

    The server process renders the frames before the measurement. The client process reads one byte of every 1,024
    bytes. With --json, the command prints one object for each run.
    """
    stop = threading.Event()
    runs = []
    with settings.overrides(prefix), call_on_interrupt(stop.set):
        for name, hertz in (("as fast as received", 0.0), (f"{rate:g} frames/s", rate)):
            if not stop.is_set():
                runs.append(replace(_measure_frames(width, height, hertz, duration, stop), run=name))
    if as_json:
        for run in runs:
            echo_json(run)
    else:
        echo(f"NV12, {width} x {height}")
        print_table(_RUN_COLUMNS, runs)


def _measure_frames(width: int, height: int, rate: float, duration_s: float, stop: threading.Event) -> FrameBenchResult:
    name = f"bench-{secrets.token_hex(3)}"
    module, prefix = "msgq.cli.frames.bench_server", settings.get_prefix()
    command = [sys.executable, "-m", module, prefix, name, str(width), str(height), str(rate)]
    with ExitStack() as stack:
        stack.callback(remove_leftovers, name)
        acks = stack.enter_context(PubSocket())
        acks.connect(Context(), acknowledgement_topic(name))
        # In a session of its own, where Ctrl-C is not meant for it.
        server = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
        stack.callback(server.kill)
        client = stack.enter_context(VisionIpcClient(name, STREAM_TYPE, False))
        _connect_client(client, server, stop)
        run = _receive_frames(client, acks, duration_s, stop)
        server.communicate(b"end", _PROCESS_TIMEOUT_S)
        if server.returncode:
            raise click.ClickException(f"server process failed (exit code {server.returncode})")
        return run


def _connect_client(client: VisionIpcClient, server: subprocess.Popen[bytes], stop: threading.Event) -> None:
    deadline = time.monotonic() + _PROCESS_TIMEOUT_S
    while not client.connect(False):
        if server.poll() is not None or time.monotonic() > deadline:
            raise WaitTimeoutError(f"server process did not start within {_PROCESS_TIMEOUT_S} s")
        if stop.is_set():
            raise click.Abort
        time.sleep(0.01)


def _receive_frames(
    client: VisionIpcClient, acks: PubSocket, duration_s: float, stop: threading.Event
) -> FrameBenchResult:
    latencies, count = Histogram(), 0
    now = begin = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    while now < begin + duration_s * 1e9 and not stop.is_set():
        frame = client.recv(_POLL_PERIOD_MS)
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if frame is None:
            continue
        with frame:
            latencies.add(now - frame.timestamp_eof)
            frame.array[_TOUCHED_BYTES].max()
        count += 1
        acks.send(count.to_bytes(8, "little"))
    seconds = (now - begin) / 1e9
    rate = count / seconds
    latency = latencies.percentiles_us(0.5, 0.9, 0.99, 0.999)
    width, height, size = client.width or 0, client.height or 0, client.buffer_len or 0  # None: the server has gone
    return FrameBenchResult(
        "", width, height, round(seconds, 3), count, client.lost, round(rate, 1), rate * size, *latency
    )
