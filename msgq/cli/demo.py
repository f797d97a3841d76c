"""`msgq demo`: starts the example program msgq_demo."""

import sys
import threading
from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.signals import call_on_interrupt
from msgq.common import settings
from msgq.common.optional import require_extra

_DURATION_S, _FULL_DURATION_S = 2.0, 15.0
_HELP_EPILOG = (
    "Exit codes: 0 all checks passed, also after Ctrl-C; "
    "1 a check failed (see the last lines), or failure (message on stderr); 2 wrong usage."
)


@click.command(epilog=_HELP_EPILOG)
@click.option("--full", is_flag=True, help="Run all processes, with all kinds of endpoints. Needs the extra frames.")
@click.option(
    "--duration",
    type=options.NumberRange(1.0, 86400.0),
    metavar="SECONDS",
    help=f"Duration of the traffic, in seconds.  [default: {_DURATION_S:g}, with --full {_FULL_DURATION_S:g}]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Directory for the recording.  [default: a new directory in /tmp]",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the results, as one JSON object.")
def command(full: bool, duration: float | None, output: Path | None, as_json: bool) -> None:
    """Demonstrate msgq with the telemetry of this machine.

    Processes publish CPU and network data, and two busy topics. Other processes subscribe, and measure latencies. One
    subscriber is too slow, and counts its losses. During the run, the demo kills and restarts a publisher. The
    subscriber of this publisher loses no messages. The demo records the run, reads the recording, and compares the
    recording with the sent messages. Then the demo replays the recording twice in virtual time, with equal results. The
    recording stays on the disk.

    With --full, processes also publish alerts on a channel, gauges in a vector, jobs in a work queue, and a video of
    the load: 1080p, 30 frames/s, without copies. One process publishes sensor values, another process turns them into
    estimates, and a third one turns estimates into commands. The demo also kills a worker of the queue.

    The source code of the demo is an example of a system that uses msgq: see the package msgq_demo.
    """
    if (backend := settings.get_backend_name()) != "msgq":
        raise click.UsageError(f"MSGQ_BACKEND is {backend}, but the demo needs shared memory; unset MSGQ_BACKEND")
    if full:
        require_extra("msgq demo --full", "frames", "cv2")
    from msgq_demo.results import print_results
    from msgq_demo.run import run_demo

    stop = threading.Event()
    with call_on_interrupt(stop.set):
        duration_s = duration or (_FULL_DURATION_S if full else _DURATION_S)
        results = run_demo(full, duration_s, output, stop, (lambda _: None) if as_json else echo)
    if as_json:
        echo_json(results)
    else:
        print_results(results)
    sys.exit(bool(results.failures))
