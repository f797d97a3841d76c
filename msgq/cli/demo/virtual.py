"""The demo on the fake backend: the same roles as nodes of a simulation, in virtual time, executed twice.

The input is real telemetry of this machine, recorded before. The runs depend on neither the machine nor its clock: the
second run must send the same bytes at the same virtual times. A digest of all sent messages proves it.
"""

import itertools
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from typing import Any

from msgq.cli.demo import plan
from msgq.cli.demo.roles import publish_topic, run_subscriber
from msgq.cli.demo.run import ReportCollector
from msgq.cli.demo.summary import RunSummary, summarize_run
from msgq.cli.demo.telemetry import SAMPLE_FUNCTIONS
from msgq.impl.fake.clock import VirtualClock
from msgq.simulation import Fault, Simulation

_RECORDED_DURATION_S = 1.0
_INTERRUPT_PERIOD_S = 0.25  # between two checks for Ctrl-C, in virtual time
_RUN_NAME = "virtual"  # in the names of endpoints; both runs have the same

TelemetryRecording = dict[str, list[Any]]


def record_telemetry(stop: threading.Event) -> TelemetryRecording:
    """Record each source of telemetry at its rate for one second."""
    sources = [topic for topic in plan.DEMO_TOPICS.values() if topic.name in SAMPLE_FUNCTIONS]
    recording: TelemetryRecording = {topic.name: [SAMPLE_FUNCTIONS[topic.name]()] for topic in sources}
    begin = time.monotonic()
    looks = sorted((n / t.rate_hz, t.name) for t in sources for n in range(1, int(_RECORDED_DURATION_S * t.rate_hz)))
    for due_s, name in looks:
        time.sleep(max(0.0, begin + due_s - time.monotonic()))
        if stop.is_set():
            break
        recording[name].append(SAMPLE_FUNCTIONS[name]())
    return recording


class VirtualStop:
    """Stop signal for roles of a simulation, with the interface of `threading.Event`."""

    def __init__(self, clock: VirtualClock, end_s: float) -> None:
        self._clock, self.end_s = clock, end_s

    def is_set(self) -> bool:
        """Return True if the role should end."""
        return self._clock.time() >= self.end_s

    def wait(self, timeout: float) -> bool:
        """Wait `timeout` seconds of virtual time."""
        self._clock.sleep(timeout)
        return self.is_set()


class VirtualRun:
    """One run: executes the roles of the plan as nodes, and collects their reports."""

    def __init__(self, seed: int, duration_s: float, recording: TelemetryRecording, stop: threading.Event) -> None:
        self._seed, self._duration_s, self._recording, self._stop = seed, duration_s, recording, stop
        self._pids = itertools.count(1)  # of what would be a process each
        self._publishers: dict[str, int] = {}

    def run(self) -> RunSummary:
        """Run until the end in virtual time, or until `stop` is set."""
        restart = Fault("restart", plan.make_run_endpoint(_RUN_NAME, plan.PULSE_TOPIC.name), at=self._duration_s / 2)
        with ExitStack() as stack:
            sim = stack.enter_context(Simulation(self._seed, fault_schedule=[restart]))
            stack.enter_context(sim.clock.patch_time())
            collector = ReportCollector(_RUN_NAME, plan.FULL_PLAN, stack)
            sim.add(_read_reports_forever, collector, name="desk")
            self._publishing = VirtualStop(sim.clock, self._duration_s)
            self._subscribing = VirtualStop(sim.clock, self._duration_s + _INTERRUPT_PERIOD_S)
            for subscriber in sorted(
                plan.DEMO_SUBSCRIBERS.values(), key=lambda subscriber: subscriber.kind == "passive"
            ):
                sim.add(
                    run_subscriber, _RUN_NAME, subscriber, self._subscribing, next(self._pids), name=subscriber.name
                )
            for topic in plan.DEMO_TOPICS.values():
                sim.add(self._publish_topic, topic, name=_make_node_name(topic))
            interrupted = self._run_simulation(sim)
            published = self._read_published_counts(sim)
            summary = summarize_run(
                plan.FULL_PLAN, published, collector.latest, self._publishing.end_s, interrupted, ()
            )
            return replace(summary, seed=self._seed, digest=_digest_messages(sim))

    def _run_simulation(self, sim: Simulation) -> bool:
        """Run the simulation to its end. Return True after an early stop."""
        while sim.clock.time() < self._duration_s and not self._stop.is_set():
            sim.run(until=min(sim.clock.time() + _INTERRUPT_PERIOD_S, self._duration_s))
        interrupted = sim.clock.time() < self._duration_s
        self._publishing.end_s = sim.clock.time()
        self._subscribing.end_s = sim.clock.time() + _INTERRUPT_PERIOD_S
        sim.run()
        return interrupted

    def _publish_topic(self, topic: plan.DemoTopic) -> None:
        """Publish a topic. After a restart, continue as another process would."""
        self._publishers[topic.name] = pid = next(self._pids)
        samples = itertools.cycle(self._recording.get(topic.name, [None]))
        publish_topic(_RUN_NAME, plan.FULL_PLAN, topic, self._publishing, pid, samples.__next__)

    def _read_published_counts(self, sim: Simulation) -> dict[str, plan.PublishedCounts]:
        published = {}
        for name, pid in self._publishers.items():
            endpoint, node = plan.make_run_endpoint(_RUN_NAME, name), _make_node_name(plan.DEMO_TOPICS[name])
            messages = [sent.data for sent in sim.sent_messages if (sent.endpoint, sent.node) == (endpoint, node)]
            published[name] = plan.PublishedCounts(pid, len(messages), sum(map(len, messages)))
        return published


def run_twice(duration_s: float, seed: int, stop: threading.Event) -> RunSummary:
    """Record telemetry of this machine, and run the demo twice with it. The runs must be equal.

    Raises
    ------
    IpcError : a role failed.
    """
    recording = record_telemetry(stop)
    first = VirtualRun(seed, duration_s, recording, stop).run()
    if first.interrupted:
        return replace(first, digest=None)
    second = VirtualRun(seed, duration_s, recording, stop).run()
    if second.interrupted:
        return replace(first, interrupted=True, digest=None)
    if second != first:
        failure = f"two runs of the same input differ: digests {first.digest} and {second.digest}"
        return replace(first, ok=False, failures=(*first.failures, failure), digest=None)
    return first


def _make_node_name(topic: plan.DemoTopic) -> str:
    return f"{topic.name} publisher"


def _read_reports_forever(collector: ReportCollector) -> None:
    while True:
        collector.read_reports(-1)


def _digest_messages(sim: Simulation) -> str:
    """Return a digest of all sent messages: times, nodes, endpoints and payloads."""
    digest = sha256()
    for sent in sim.sent_messages:
        digest.update(f"{sent.time_ns} {sent.node} {sent.endpoint} {len(sent.data)} ".encode() + sent.data)
    return digest.hexdigest()
