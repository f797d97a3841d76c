"""`msgq bench`: measures the ring of this machine within seconds."""

from collections.abc import Sequence
from contextlib import closing

import click

from msgq.cli.common import options
from msgq.cli.common.columns import NAME_RANK, RATE_RANK, TableColumn, print_table
from msgq.cli.common.render import echo_json
from msgq.common.formatting import format_bytes, format_microseconds, format_rate
from msgq.monitor.ring_benchmark import RING_BYTES, BenchmarkError, RingBenchmarkResult, measure_ring

_MESSAGE_SIZES = (64, 1024, 65536, 1 << 20)


_ResultColumn = TableColumn[RingBenchmarkResult]
_RESULT_COLUMNS = (
    _ResultColumn("size", lambda result: format_bytes(result.size), NAME_RANK, text_width=8),
    _ResultColumn("one way p50 us", lambda result: format_microseconds(result.p50_us), RATE_RANK),
    _ResultColumn("p90", lambda result: format_microseconds(result.p90_us)),
    _ResultColumn("p99", lambda result: format_microseconds(result.p99_us)),
    _ResultColumn("max", lambda result: format_microseconds(result.max_us)),
    _ResultColumn("messages/s", lambda result: format_rate(result.rate), RATE_RANK),
    _ResultColumn("bytes/s", lambda result: format_bytes(result.byte_rate)),
    _ResultColumn("received", lambda result: f"{result.received_share:.1%}"),
)


@click.command(epilog=options.EXIT_CODES)
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1, RING_BYTES // 4),
    multiple=True,
    metavar="BYTES",
    help=f"Size of the messages, in bytes. Repeatable.  [default: {', '.join(map(str, _MESSAGE_SIZES))}]",
)
@click.option(
    "--duration",
    type=options.NumberRange(0.05, 3600.0),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="Duration of each of the two measurements, in seconds.",
)
@options.json_option
def command(sizes: Sequence[int], duration: float, as_json: bool) -> None:
    """Measure latency and throughput of the ring on this machine.

    Two processes exchange messages. For latency, one process sends a message, and waits for an answer from the other
    process. For throughput, one process sends as fast as possible, and the other process receives. Both processes
    sleep while they wait. At the end, the command removes its topics.
    """
    results = []
    try:
        with closing(measure_ring(sizes or _MESSAGE_SIZES, duration)) as measured:  # an interrupt removes the topics
            for result in measured:
                if as_json:
                    echo_json(result)
                results.append(result)
    except BenchmarkError as error:
        raise click.ClickException(str(error)) from error
    if not as_json:
        print_table(_RESULT_COLUMNS, results)
