"""`msgq demo`: real telemetry of this machine between processes, with a publisher that is killed in the middle."""

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
    "Exit codes: 0 everything held that must hold, also when Ctrl-C ended it early; "
    "1 it did not (the summary says what), or something failed; 2 wrong usage."
)


def _parse_number(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """NaN lies within every range that is checked by comparing."""
    if math.isnan(value):
        raise click.BadParameter("is not a number")
    return value


@click.command(epilog=_HELP_EPILOG)
@click.option(
    "--duration",
    type=click.FloatRange(1.0, 86400.0),
    default=15.0,
    show_default=True,
    callback=_parse_number,
    help="Seconds of traffic.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Keep the recording in this directory.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Take the recording through Spark, and write a page about it there; the lake is put beside it.",
)
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object, and nothing else.")
def command(duration: float, output: Path | None, report: Path | None, as_json: bool) -> None:
    """Show msgq at work with this machine's own telemetry.

    Processes publish CPU, memory, disk, network and processes, and a busy topic; others subscribe: blocking, polling,
    conflating, passive, one too slow to keep up. A sensor is answered by an estimate, and that by a command, which say
    of what they are a consequence: the report shows the way. The load is also a moving picture, 1080p at 30 frames a
    second, that goes to a viewer without being copied. In the middle a publisher is killed and started again; its
    subscribers lose nothing. Everything is recorded meanwhile, read back, compared, and replayed twice in virtual time
    with the same outcome. A terminal shows it live; without one there is the summary at the end.

    MSGQ_BACKEND=zmq has the same cast over ZMQ, where losses are unknown; MSGQ_BACKEND=fake plays it in one process and
    in virtual time, from a second of recorded telemetry: twice, to show that the same bytes are sent.
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
    """Replay the recording, and write the report if wanted; what came of it joins the summary."""
    said = list(replay_recording(run, recording))
    if report is not None:
        said += write_report(recording, report)
    failures = (*summary.failures, *(text for held, text in said if not held))
    notes = (*summary.notes, *(text for held, text in said if held))
    return replace(summary, notes=notes, failures=failures, ok=not failures)
