"""`msgq demo`: real telemetry of this machine between processes, with a publisher killed and restarted."""

import math
import os
import secrets
import shutil
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click
import psutil  # noqa: F401  # not used here: its lack is noticed before processes start

from msgq.cli.common.console import get_console
from msgq.cli.common.render import echo_json
from msgq.cli.common.signals import call_on_interrupt
from msgq.cli.demo import plan
from msgq.cli.demo.replaying import replay_recording
from msgq.cli.demo.run import DemoRun
from msgq.cli.demo.summary import RunSummary
from msgq.cli.demo.view import print_next_commands, print_summary
from msgq.cli.demo.virtual import run_twice
from msgq.common.optional import require_extra

_HELP_EPILOG = (
    "Exit codes: 0 all checks passed, also after Ctrl-C; "
    "1 a check failed (see the summary), or failure (message on stderr); 2 wrong usage."
)


def _parse_number(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse NaN, which passes range checks that use comparisons."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("NaN is not a number of seconds; give 1 to 86400")
    return value


@click.command(epilog=_HELP_EPILOG)
@click.option("--full", is_flag=True, help="Run all processes, with all kinds of endpoints. Needs the extra frames.")
@click.option(
    "--duration",
    type=click.FloatRange(1.0, 86400.0),
    callback=_parse_number,
    metavar="SECONDS",
    help=f"Duration of the traffic, in seconds.  "
    f"[default: {plan.SHORT_PLAN.duration_s:g}, with --full {plan.FULL_PLAN.duration_s:g}]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Directory for the recording.  [default: a new directory in /tmp]",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the summary, as one JSON object.")
def command(full: bool, duration: float | None, output: Path | None, as_json: bool) -> None:
    """Demonstrate msgq with the telemetry of this machine.

    Processes publish CPU and network data, and two busy topics. Other processes subscribe, and measure latencies. One
    subscriber is too slow, and counts its losses. During the run, the demo kills and restarts a publisher. The
    subscriber of this publisher loses no messages. The demo records the run, reads the recording, and compares the
    recording with the sent messages. Then the demo replays the recording twice in virtual time, with equal results. The
    recording stays on the disk.

    With --full, processes also publish memory, disk and process data, alerts on a channel, gauges in a vector, jobs
    in a work queue, and a video of the load: 1080p, 30 frames/s, without copies. One process turns sensor values into
    estimates. Another process turns estimates into commands. The demo also kills a worker of the queue.

    With MSGQ_BACKEND=zmq, the demo runs over ZMQ, without a recording, and losses are unknown. With MSGQ_BACKEND=fake,
    the demo records one second of telemetry. Then the full demo runs twice with this telemetry, in one process and in
    virtual time. Both runs must send the same bytes.
    """
    if plan.DEMO_BACKEND == "zmq":
        os.environ.setdefault("MSGQ_ZMQ_TRANSPORT", "ipc")  # another program may use one of the ports
    screen = get_console()
    demo_plan = plan.FULL_PLAN if full or plan.IS_VIRTUAL else plan.SHORT_PLAN
    if demo_plan.has_recorded_frames:
        require_extra("msgq demo --full", "frames", "cv2")
    duration_s, run, stop = duration or demo_plan.duration_s, secrets.token_hex(3), threading.Event()
    with call_on_interrupt(stop.set), ExitStack() as stack:
        if plan.IS_VIRTUAL:
            summary = run_twice(duration_s, secrets.randbits(32), stop)
        else:
            recording = _choose_recording_path(output, run, stack) if plan.COUNTS_ARE_EXACT else None
            show_event = (lambda _: None) if as_json else screen.print
            summary = DemoRun(run, demo_plan, duration_s, stop, recording, show_event).run()
            if recording is not None and summary.recording_path and not summary.interrupted:
                summary = _add_replay(summary, run, demo_plan, recording)
            stack.pop_all()
    if as_json:
        echo_json(summary)
    else:
        print_summary(screen, summary)
        print_next_commands(screen, summary, plan.make_run_endpoint(run, plan.TELEMETRY_TOPICS[0].name))
    sys.exit(not summary.ok)


def _choose_recording_path(output: Path | None, run: str, stack: ExitStack) -> Path:
    """Return the directory for the recording. If the demo fails without a summary, `stack` removes a new directory."""
    if output is not None:
        return output
    recording = Path(tempfile.gettempdir(), f"msgq-demo-{run}")
    stack.callback(shutil.rmtree, recording, ignore_errors=True)
    return recording


def _add_replay(summary: RunSummary, run: str, demo_plan: plan.DemoPlan, recording: Path) -> RunSummary:
    """Replay the recording. Return the summary with the results of the replay."""
    said = list(replay_recording(run, demo_plan, recording))
    failures = (*summary.failures, *(text for held, text in said if not held))
    notes = (*summary.notes, *(text for held, text in said if held))
    return replace(summary, notes=notes, failures=failures, ok=not failures)
