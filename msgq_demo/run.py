"""One run: starts all processes, records them, kills two of them, stops the others, and collects the results."""

import contextlib
import json
import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgq
from msgq import stats
from msgq.errors import SegmentError
from msgq.recording import FrameStream, Recorder
from msgq_demo.endpoints import FRAME_SERVER, FRAME_STREAM, FRAMES, START_KEY, STATUS_BOARD
from msgq_demo.process_group import ProcessGroup
from msgq_demo.replaying import replay_twice
from msgq_demo.results import Flow, Restart, Results, Work, find_failures, read_recording
from msgq_demo.roles import (
    KILLED_PUBLISHER,
    KILLED_WORKER,
    PUBLISHERS,
    SHORT_RUN,
    SUBSCRIBERS,
    WORKERS,
    remove_files,
)

_STEP_TIMEOUT_S = 30.0
_POLL_PERIOD_S = 0.01
_PICTURES_HZ = 2.0


def run_demo(
    full: bool, duration_s: float, output: Path | None, stop: threading.Event, show: Callable[[str], object]
) -> Results:
    """Run the demo, and replay its recording.

    Args:
        full: True: run all programs. False: run the programs of `SHORT_RUN`.
        output: directory for the recording; None: a new directory in /tmp.
        stop: set on Ctrl-C. The run then ends early, with results.
        show: takes a text for each event, such as a kill.
    """
    token = secrets.token_hex(3)
    prefix = "-".join(filter(None, (os.environ.get("OPENPILOT_PREFIX"), "demo", token)))
    recording = output or Path(tempfile.gettempdir(), f"msgq-demo-{token}")
    names = [name for name in (*PUBLISHERS, *SUBSCRIBERS) if full or name in SHORT_RUN]
    with ExitStack() as stack:
        stack.callback(remove_files, prefix)
        results = _DemoRun(prefix, names, duration_s, recording, stop, show).run(stack)
    if results.recording_path:
        results.recording = list(read_recording(recording))
    results.failures += find_failures(results)
    if results.recording_path and not results.interrupted:
        results.replay = replay_twice(recording)
        results.failures += [] if results.replay else ["replayed twice, with different results"]
    return results


class _EndedEarlyError(Exception):
    """The run cannot continue. The text is the reason, or "" after Ctrl-C."""


@dataclass
class _DemoRun:
    """The steps of a run. `names`: names of the programs. The other arguments are those of `run_demo`."""

    prefix: str
    names: Sequence[str]
    duration_s: float
    recording: Path
    stop: threading.Event
    show: Callable[[str], object]

    def __post_init__(self) -> None:
        self._publishers = [name for name in self.names if name in PUBLISHERS]
        self._endpoints = list(dict.fromkeys(PUBLISHERS[name].endpoint for name in self._publishers))
        self._processes = ProcessGroup(self.prefix)
        self._recorder: Recorder | None = None
        self._killed_worker_pid: int | None = None
        self._begin = time.monotonic()
        self._results = Results()

    def run(self, stack: ExitStack) -> Results:
        """Execute all steps, and return what the processes and the counters say."""
        stack.callback(self._processes.kill_all)
        self._board = stack.enter_context(msgq.Board(STATUS_BOARD, prefix=self.prefix))
        try:
            self._start_all()
            self._wait_until_elapsed(self.duration_s / 2)
            self._restart_publisher()
            if KILLED_WORKER in self.names:
                self._kill_worker()
            self._wait_until_elapsed(self.duration_s)
        except _EndedEarlyError as reason:
            self._results.interrupted = not str(reason)
            self._results.failures += filter(None, [str(reason)])
        self._results.duration_s = round(time.monotonic() - self._begin, 3)
        self._stop_processes()
        return self._results

    def _start_all(self) -> None:
        """Start all processes, then the recorder, and then the messages."""
        self.show(
            f"{len(self._publishers)} processes publish telemetry of this machine for {self.duration_s:g} s, "
            f"and {len(self.names) - len(self._publishers)} subscribe"
        )
        self.show(f"watch them in a second terminal: msgq top --prefix {self.prefix}")
        self._processes.start(self.names)
        self._wait_until(lambda: len(self._board.items()) == len(self.names), "a process did not start")
        self._recorder = self._start_recorder()
        self._board.declare(START_KEY).write(b"now")
        self._wait_until(lambda: all(self._count_published().values()), "an endpoint had no message")
        self._begin = time.monotonic()

    def _start_recorder(self) -> Recorder:
        self._results.recording_path = str(self.recording)
        endpoints = [endpoint for endpoint in self._endpoints if endpoint != FRAMES]
        timings = [re.compile("timing:.*")] if "estimate" in endpoints else []
        frames = [FrameStream(FRAME_SERVER, FRAME_STREAM, _PICTURES_HZ)] if FRAMES in self._endpoints else []
        return Recorder(self.recording, [*endpoints, *timings], frames=frames, prefix=self.prefix)

    def _restart_publisher(self) -> None:
        """Kill a publisher while it publishes, and start it again."""
        killed_pid, killed_time = self._processes.kill(KILLED_PUBLISHER), time.monotonic()
        before = self._count_published()[KILLED_PUBLISHER]
        self._processes.start([KILLED_PUBLISHER])
        self._wait_until(lambda: self._count_published()[KILLED_PUBLISHER] > before, "the publisher did not restart")
        outage_ms = round(1000 * (time.monotonic() - killed_time))
        self._results.restart = Restart(KILLED_PUBLISHER, killed_pid, outage_ms)
        self._show_event(f"publisher of {KILLED_PUBLISHER} killed (SIGKILL) and replaced after {outage_ms} ms")

    def _kill_worker(self) -> None:
        """Kill a worker that has a job. Another worker must finish the job."""

        def kill() -> bool:
            self._killed_worker_pid = self._processes.kill_during(KILLED_WORKER, self._has_job)
            return self._killed_worker_pid is not None

        self._wait_until(kill, f"{KILLED_WORKER} had no job")
        self._show_event(f"{KILLED_WORKER} killed (SIGKILL) during a job; another worker gets the job")

    def _has_job(self, pid: int) -> bool:
        return any(row.taken for row in stats.queue("jobs", self.prefix).handles if row.participant.pid == pid)

    def _stop_processes(self) -> None:
        """Stop the publishers, then the workers, whose events are recorded, and then the other subscribers."""
        failed = self._processes.stop(self._publishers)
        self._results.published = self._count_published()
        failed += self._processes.stop(WORKERS)
        self._results.work = self._read_work()
        if self._recorder is not None:
            self._recorder.stop()
        failed += self._processes.stop(self.names)
        self._results.failures += [f"{name} failed" for name in failed]
        reports = dict(self._board.items())
        for name in self.names:
            self._results.flows += [Flow(name, *flow) for flow in json.loads(reports.get(name, "[]"))]

    def _read_work(self) -> Work | None:
        with contextlib.suppress(SegmentError):  # short run, or no process has opened the queue
            jobs = stats.queue("jobs", self.prefix)
            return Work(
                jobs.sent, jobs.acknowledged, jobs.returned, jobs.depth + jobs.in_flight, self._killed_worker_pid
            )
        return None

    def _count_published(self) -> dict[str, int]:
        """Return the number of messages of each endpoint; 0 for an endpoint that does not exist yet."""
        counts = dict.fromkeys(self._endpoints, 0)
        for endpoint in self._endpoints:
            with contextlib.suppress(SegmentError):
                counts[endpoint] = stats.endpoint(endpoint, self.prefix).messages or 0
        return counts

    def _show_event(self, event: str) -> None:
        self.show(f"{time.monotonic() - self._begin:.1f} s: {event}")

    def _wait_until_elapsed(self, duration_s: float) -> None:
        due = self._begin + duration_s
        self._wait_until(lambda: time.monotonic() >= due, "", duration_s + _STEP_TIMEOUT_S)

    def _wait_until(self, is_done: Callable[[], bool], complaint: str, timeout_s: float = _STEP_TIMEOUT_S) -> None:
        """Wait for a condition. Raise `_EndedEarlyError` on Ctrl-C, after the end of a process, or at the time-out."""
        deadline = time.monotonic() + timeout_s
        while not is_done():
            if self.stop.is_set():
                raise _EndedEarlyError
            if ended := self._processes.list_ended():
                raise _EndedEarlyError(f"{', '.join(ended)} ended too early")
            if time.monotonic() > deadline:
                raise _EndedEarlyError(f"{complaint} within {timeout_s:g} s")
            time.sleep(_POLL_PERIOD_S)
