"""One run of the demo in the parent process: order of steps, and reports of the processes."""

import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgq
from msgq.cli.demo import endpoint_roles, plan, recording
from msgq.cli.demo.endpoint_roles import KilledWorker
from msgq.cli.demo.processes import ProcessGroup
from msgq.cli.demo.roles import remove_leftovers
from msgq.cli.demo.summary import RunSummary, summarize_run
from msgq.recording import Recorder
from msgq.stats import TopicStats, topics

_POLL_PERIOD_MS = 100
_FLOW_TIMEOUT_S = 30.0
_FINAL_REPORTS_TIMEOUT_S = 2.0


class ReportCollector:
    """Receives the reports: the parent subscribes to one topic per subscriber."""

    def __init__(self, run: str, demo_plan: plan.DemoPlan, stack: ExitStack) -> None:
        self.latest: dict[str, plan.SubscriberReport] = {}
        self._poller = msgq.Poller()
        for name in demo_plan.subscribers:
            socket = stack.enter_context(msgq.SubSocket())
            endpoint = plan.make_run_endpoint(run, plan.make_report_topic(name))
            socket.connect(msgq.context, endpoint, segment_size=plan.REPORT_RING_BYTES)
            self._poller.registerSocket(socket)

    def read_reports(self, timeout_ms: int) -> None:
        """Receive the reports. Waits at most `timeout_ms` for the first one."""
        for socket in self._poller.poll(timeout_ms):
            for text in socket.receive_many():
                report = plan.SubscriberReport.from_json(text)
                self.latest[report.subscriber] = report

    def read_final_reports(self) -> None:
        """Receive the last reports of processes that have ended."""
        deadline = time.monotonic() + _FINAL_REPORTS_TIMEOUT_S
        self.read_reports(0)
        while not all(report.final for report in self.latest.values()) and time.monotonic() < deadline:
            self.read_reports(_POLL_PERIOD_MS)

    def list_readings(self) -> list[plan.TopicReading]:
        """Return the latest results of all subscribers and topics."""
        return [reading for report in self.latest.values() for reading in report.readings]


class DemoRun:
    """One run. Owns its processes and their files in /dev/shm."""

    def __init__(
        self,
        run: str,
        demo_plan: plan.DemoPlan,
        duration_s: float,
        stop: threading.Event,
        recording: Path | None,
        show_event: Callable[[str], object],
    ) -> None:
        """Prepare a run.

        Parameters
        ----------
        recording : a directory; None: no recording, because the recorder does not support ZMQ.
        show_event : takes the text of each event, such as a kill, when the event occurs.
        """
        self._run, self._plan, self._duration_s, self._stop, self._recording = (
            run,
            demo_plan,
            duration_s,
            stop,
            recording,
        )
        self._recorder: Recorder | None = None
        self._failures: list[str] = []
        self._show_event = show_event
        self._begin = 0.0
        self._killed_workers: list[KilledWorker] = []

    def run(self) -> RunSummary:
        """Execute the whole run, or until `stop` is set. Then stop all processes, and return the results.

        Raises
        ------
        IpcError : the parent's own topics cannot be created. No files are left.
        """
        with ExitStack() as stack:
            stack.callback(remove_leftovers, self._run)
            self._processes = ProcessGroup(self._run, self._plan)
            stack.callback(self._processes.kill_all)
            self._reports = ReportCollector(self._run, self._plan, stack)
            complete = self._run_steps()
            elapsed_s = self._measure_elapsed_s()
            published = self._stop_processes()
            interrupted = self._stop.is_set() and not complete
            read_recording = self._read_recording(published)
            work = None
            if plan.JOBS_TOPIC.name in self._plan.topics:
                work = endpoint_roles.read_work_results(self._run, self._killed_workers)
            reports = self._reports.latest
            summary = summarize_run(
                self._plan, published, reports, elapsed_s, interrupted, self._failures, read_recording, work
            )
            return replace(summary, recording_path=str(self._recording) if self._recorder else None)

    def _read_recording(self, published: dict[str, plan.PublishedCounts]) -> tuple[recording.RecordedResults, ...]:
        """Read the recording, and compare it with the published messages."""
        if self._recorder is None or self._recording is None:
            return ()
        results = recording.read_recording(self._run, self._recording)
        self._failures += recording.find_recording_errors(results, published)
        return results

    def _run_steps(self) -> bool:
        """Execute all steps before the stop. Return False after an early end or a failure."""
        # Passive subscribers create nothing, so they come second; the topics come when everybody listens.
        subscribers = self._plan.subscribers.values()
        self._show_event(
            f"{len(self._plan.topics)} processes publish telemetry of this machine for {self._duration_s:g} s, "
            f"and {len(subscribers)} subscribe"
        )
        if not self._start_subscribers([subscriber.name for subscriber in subscribers if subscriber.kind != "passive"]):
            return False
        if not self._start_subscribers([subscriber.name for subscriber in subscribers if subscriber.kind == "passive"]):
            return False
        if self._recording is not None:  # the topics are there, and still silent
            self._recorder = recording.start_recorder(self._run, self._plan, self._recording)
        self._processes.start(self._plan.topics)
        if not self._wait_until(self._have_all_received, "a topic had no message"):
            return False
        self._begin = time.monotonic()
        return (
            self._wait_until_elapsed(self._duration_s / 2)
            and self._restart_publisher()
            and self._kill_workers()
            and self._wait_until_elapsed(self._duration_s)
        )

    def _start_subscribers(self, names: Collection[str]) -> bool:
        self._processes.start(names)
        return self._wait_until(lambda: self._reports.latest.keys() >= set(names), "a subscriber did not connect")

    def _have_all_received(self) -> bool:
        return all(
            reading.received for reading in self._reports.list_readings() if reading.topic != plan.JOBS_TOPIC.name
        )

    def _restart_publisher(self) -> bool:
        """Kill the publisher of one topic while it publishes, and start it again."""
        killed = self._processes.get_pid(plan.PULSE_TOPIC.name)
        self._processes.kill(plan.PULSE_TOPIC.name)
        self._processes.start([plan.PULSE_TOPIC.name])
        self._add_event(f"publisher of {plan.PULSE_TOPIC.name} killed (SIGKILL, {killed}) and restarted")
        return self._wait_until(self._have_all_seen_restart, f"{plan.PULSE_TOPIC.name} did not restart")

    def _kill_workers(self) -> bool:
        """Kill the doomed workers while each has a job. Another worker must finish the job."""
        at_work = partial(endpoint_roles.holds_job, self._run)
        for name in [subscriber.name for subscriber in self._plan.subscribers.values() if subscriber.is_killed]:
            pid = self._processes.get_pid(name)
            if not self._wait_until(partial(self._processes.kill_while_working, name, at_work), f"{name} had no job"):
                return False
            self._killed_workers.append(KilledWorker(name, pid or 0))
            self._add_event(f"{name} killed (SIGKILL, {pid}) during a job; the queue gives the job to another worker")
        return True

    def _have_all_seen_restart(self) -> bool:
        return all(
            reading.restarts for reading in self._reports.list_readings() if reading.topic == plan.PULSE_TOPIC.name
        )

    def _add_event(self, event: str) -> None:
        self._show_event(f"{self._measure_elapsed_s():.1f} s: {event}")

    def _measure_elapsed_s(self) -> float:
        return time.monotonic() - self._begin if self._begin else 0.0

    def _wait_until_elapsed(self, until_s: float) -> bool:
        due = self._begin + until_s
        return self._wait_until(lambda: time.monotonic() >= due, "", until_s + _FLOW_TIMEOUT_S)

    def _wait_until(self, done: Callable[[], bool], complaint: str, patience_s: float = _FLOW_TIMEOUT_S) -> bool:
        """Read reports until `done`. Return False after a stop request, the end of a process, or a timeout."""
        deadline = time.monotonic() + patience_s
        while not done():
            if self._stop.is_set():
                return False
            if fallen := self._processes.list_ended_roles():
                self._failures += [f"{name} ended unexpectedly" for name in fallen]
                return False
            if time.monotonic() > deadline:
                self._failures.append(f"{complaint} within {patience_s:g} s")
                return False
            self._reports.read_reports(_POLL_PERIOD_MS)
        return True

    def _stop_processes(self) -> dict[str, plan.PublishedCounts]:
        """Stop the publishers, and read their counters.

        Then let the subscribers receive the remaining messages, and report.
        """
        pids = self._list_pids()
        crashed = self._processes.stop(self._plan.topics)
        published = self._read_published_counts(pids)
        # Workers say what becomes of their jobs, which is recorded; so they end first.
        crashed += self._processes.stop(
            [subscriber.name for subscriber in self._plan.subscribers.values() if subscriber.kind == "worker"]
        )
        if self._recorder is not None:
            self._recorder.stop()
        crashed += self._processes.stop(self._plan.subscribers)
        self._failures += [f"{name} failed" for name in crashed]
        self._reports.read_final_reports()
        return published

    def _list_pids(self) -> dict[str, int | None]:
        return {name: self._processes.get_pid(name) for name in self._plan.topics}

    def _read_published_counts(self, pids: dict[str, int | None]) -> dict[str, plan.PublishedCounts]:
        if not plan.COUNTS_ARE_EXACT:
            return {name: plan.PublishedCounts(pid, None, None) for name, pid in pids.items()}
        by_endpoint = {topic.endpoint: topic for topic in topics()}
        published = {}
        for name, topic in self._plan.topics.items():
            endpoint = plan.make_run_endpoint(self._run, name)
            if topic in plan.OTHER_KIND_TOPICS:
                published[name] = endpoint_roles.read_published_counts(self._run, topic, pids[name])
            elif (stats := by_endpoint.get(endpoint)) is not None:
                published[name] = plan.PublishedCounts(pids[name], stats.messages, _count_payload_bytes(topic, stats))
        return published


def _count_payload_bytes(topic: plan.DemoTopic, counts: TopicStats) -> int | None:
    """Return the bytes of the messages. For frames, return the bytes of the pictures, which are not in the messages."""
    if topic.is_frame_stream and counts.messages is not None:
        return counts.messages * plan.PICTURE_BYTES
    return counts.bytes
