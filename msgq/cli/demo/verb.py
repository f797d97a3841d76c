"""`msgq demo`: real telemetry of this machine between processes, with a publisher killed and restarted."""

import math
import os
import secrets
import sys
import threading
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import psutil  # noqa: F401  # not used here: its lack is noticed before processes start

from msgq.cli.common.render import echo_json, get_console
from msgq.cli.common.signals import call_on_interrupt
from msgq.cli.demo import plan
from msgq.cli.demo.recording import write_report
from msgq.cli.demo.replaying import replay_recording
from msgq.cli.demo.run import DemoRun
from msgq.cli.demo.summary import RunSummary
from msgq.cli.demo.view import LiveView, print_summary
from msgq.cli.demo.virtual import run_twice

_HELP_EPILOG = (
    "Exit codes: 0 all checks passed, also after Ctrl-C; "
    "1 a check failed (see the summary), or failure (message on stderr); 2 wrong usage."
)


def _parse_number(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """Refuse NaN, which passes range checks that use comparisons."""
    if math.isnan(value):
        raise click.BadParameter("NaN is not a number of seconds; give 1 to 86400")
    return value


@click.command(epilog=_HELP_EPILOG)
@click.option(
    "--duration",
    type=click.FloatRange(1.0, 86400.0),
    default=15.0,
    show_default=True,
    callback=_parse_number,
    metavar="SECONDS",
    help="Duration of the traffic, in seconds.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Directory for the recording.  [default: not kept]",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML report about the recording to FILE. Needs Spark. The lake is stored next to FILE.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the summary, as one JSON object.")
def command(duration: float, output: Path | None, report: Path | None, as_json: bool) -> None:
    """Demonstrate msgq with the telemetry of this machine.

    Processes publish CPU, memory, disk, network and process data, and a busy topic. Another process publishes a video
    of the load: 1080p, 30 frames/s, without copies. Other processes receive in different ways: blocking, polling,
    conflating or passive. One subscriber is too slow. One process turns sensor values into estimates. Another process
    turns estimates into commands. The HTML report (--report) shows both hops.

    During the run, the demo kills and restarts a publisher. The subscribers of this publisher lose no messages. The
    demo records the run, reads the recording, and compares the recording with the sent messages. Then the demo
    replays the recording twice in virtual time, with equal results. A terminal shows the run live. Otherwise, a
    summary is printed at the end.

    With MSGQ_BACKEND=zmq, the demo runs over ZMQ, and losses are unknown. With MSGQ_BACKEND=fake, the demo records
    one second of telemetry. Then the demo runs twice with this telemetry, in one process and in virtual time. Both
    runs must send the same bytes.
    """
    if plan.DEMO_BACKEND == "zmq":
        os.environ.setdefault("MSGQ_ZMQ_TRANSPORT", "ipc")  # somebody may have one of the ports
    screen = get_console()
    live = screen.is_terminal and not as_json
    stop = threading.Event()
    with call_on_interrupt(stop.set), ExitStack() as stack:
        if plan.IS_VIRTUAL:
            summary = run_twice(duration, secrets.randbits(32), stop)
        else:
            recording = output or Path(stack.enter_context(TemporaryDirectory(prefix="msgq-demo-"))) / "recording"
            view = stack.enter_context(LiveView(screen) if live else nullcontext())
            run = secrets.token_hex(3)
            summary = DemoRun(run, duration, stop, recording if plan.COUNTS_ARE_EXACT else None).run(view)
            if plan.COUNTS_ARE_EXACT and not summary.interrupted:
                summary = _replay_and_report(summary, run, recording, report)
    if as_json:
        echo_json(summary)
    else:
        print_summary(screen, summary)
    sys.exit(not summary.ok)


def _replay_and_report(summary: RunSummary, run: str, recording: Path, report: Path | None) -> RunSummary:
    """Replay the recording, and write the report if requested. Return the summary with the results of both."""
    said = list(replay_recording(run, recording))
    if report is not None:
        said += write_report(recording, report)
    failures = (*summary.failures, *(text for held, text in said if not held))
    notes = (*summary.notes, *(text for held, text in said if held))
    return replace(summary, notes=notes, failures=failures, ok=not failures)
