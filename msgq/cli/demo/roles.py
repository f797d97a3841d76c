"""Processes of the demo, each in a new Python: `python -m msgq.cli.demo.roles RUN PLAN publish|subscribe NAME`.

The parent writes a word to the standard input to request the end. If the standard input closes without a word, the
parent is dead. The role then removes the run's files in /dev/shm, and ends.
"""

import contextlib
import json
import logging
import os
import struct
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgq
from msgq import stats
from msgq.cli.demo import control_loop, endpoint_roles, picture, plan
from msgq.cli.demo.meter import DemoMeter, MessageStamp
from msgq.common.parent_watch import ParentWatch
from msgq.common.rate_loop import StopSignal, rate_loop
from msgq.common.terminal import escape_terminal
from msgq.errors import MsgqError, WaitTimeoutError
from msgq.impl.ring.core import unlink_topic

_POLL_PERIOD_S = 0.02
_RECORDER_NOTICE_S = 1.5  # until the recorder, which looks each half a second, knows of all what their messages are
_RECEIVE_TIMEOUT_MS = 100
_REPORT_PERIOD_NS = 250_000_000
_logger = logging.getLogger(__name__)

_STAMP_STRUCT = struct.Struct("<QQQ40x")  # a meter.Stamp; 64 bytes with its padding
_STEP_STAMP_STRUCT = struct.Struct("<16xQQQ8x")  # of a control_loop.STEP


def main(run: str, plan_name: str, role: str, name: str) -> int:
    """Play one role until the standard input requests the end."""
    # Shown by ps and top, and taken over by msgq as the name of the participant.
    Path("/proc/self/comm").write_text(f"demo-{name}")
    demo_plan = plan.DEMO_PLANS[plan_name]
    parent_watch = ParentWatch()
    parent_watch.start()
    try:
        if role == "subscribe":
            run_subscriber(run, demo_plan.subscribers[name], parent_watch.stop, os.getpid())
        elif plan.DEMO_TOPICS[name].is_frame_stream:
            picture.publish_picture(run, plan.DEMO_TOPICS[name], parent_watch.stop, partial(sample_machine, "cpu"))
        else:
            topic, sample = demo_plan.topics[name], partial(sample_machine, name)
            publish_topic(run, demo_plan, topic, parent_watch.stop, os.getpid(), sample)
    except MsgqError as error:
        _logger.error(
            "msgq demo: %s: %s", name, escape_terminal(str(error))
        )  # to the standard error, as nobody else listens
        return 1
    finally:
        if parent_watch.orphaned:
            remove_leftovers(run)
    return 0


def remove_leftovers(run: str) -> None:
    """Remove all files of a run."""
    for topic in plan.DEMO_TOPICS.values():
        if topic.is_frame_stream:
            picture.remove_leftovers(run, topic)
    endpoint_roles.remove_leftovers(run)
    for endpoint in plan.list_run_endpoints(run):
        if plan.DEMO_BACKEND == "zmq":
            with contextlib.suppress(MsgqError):  # another process removes the files now or at its end
                msgq.pub_sock(endpoint).close()  # removes its own files, which are those that the dead one left
        else:
            unlink_topic(endpoint)


def sample_machine(name: str) -> Any:
    """Measure the machine. Roles without telemetry do not import the packages for it."""
    from msgq.cli.demo.telemetry import SAMPLE_FUNCTIONS

    return SAMPLE_FUNCTIONS[name]()


def publish_topic(
    run: str, demo_plan: plan.DemoPlan, topic: plan.DemoTopic, stop: StopSignal, pid: int, sample: Callable[[], Any]
) -> None:
    """Publish a topic with the results of `sample`. A publisher that follows a dead one continues its sequence.

    `pid` identifies the publisher to subscribers.
    """
    wait_for_publishers = partial(_wait_for_publishers, run, demo_plan, stop)
    if topic.has_origin:
        _publish_steps(run, topic, stop, pid, sample, wait_for_publishers)
        return
    if topic in plan.OTHER_KIND_TOPICS:
        endpoint_roles.publish_to_endpoint(run, topic, stop, pid, sample, wait_for_publishers)
        return
    with msgq.pub_sock(plan.make_run_endpoint(run, topic.name), topic.ring_bytes) as socket:
        _wait_for_subscribers(socket, demo_plan, topic, stop)
        wait_for_publishers()
        if topic.burst_messages:
            _publish_batches(socket, topic, stop, pid)
        else:
            _publish_telemetry(socket, topic, stop, pid, sample)


def _publish_steps(
    run: str,
    topic: plan.DemoTopic,
    stop: StopSignal,
    pid: int,
    sample: Callable[[], Any],
    wait_for_publishers: Callable[[], object],
) -> None:
    """Publish records of the control loop."""
    endpoint = plan.make_run_endpoint(run, topic.name)
    with contextlib.ExitStack() as stack:
        causes = None
        if topic.cause_topic:  # from before we say that we are there
            causes = stack.enter_context(
                msgq.RecordQueue(plan.make_run_endpoint(run, topic.cause_topic), control_loop.STEP_DTYPE)
            )
        with msgq.PubSocket() as socket:  # only this socket knows the subscribers
            socket.connect(msgq.context, endpoint, schema=control_loop.STEP_SCHEMA)
            _wait_for_subscribers(socket, plan.FULL_PLAN, topic, stop)
        steps = stack.enter_context(msgq.RecordQueue(endpoint, control_loop.STEP_DTYPE))
        steps.produce([])  # makes its publisher
        wait_for_publishers()
        if causes is not None:
            control_loop.answer_causes(steps, topic, stop, pid, causes)
        else:
            if plan.DEMO_BACKEND == "msgq":  # others go by their forerunners
                stop.wait(_RECORDER_NOTICE_S)
            control_loop.publish_measurements(steps, topic, stop, pid, sample)


def _wait_for_subscribers(
    socket: msgq.PubSocket, demo_plan: plan.DemoPlan, topic: plan.DemoTopic, stop: StopSignal
) -> None:
    """Wait until all subscribers receive. Over ZMQ, a connected subscriber may not receive yet."""
    expected = [
        subscriber
        for subscriber in demo_plan.subscribers.values()
        if topic.name in subscriber.topics and subscriber.kind != "passive"
    ]
    answering = [subscriber for subscriber in plan.LOOP_TOPICS if subscriber.cause_topic == topic.name]
    while not stop.is_set():
        with contextlib.suppress(WaitTimeoutError):
            socket.wait_for_readers(_RECEIVE_TIMEOUT_MS / 1000, n=len(expected) + len(answering))
            return


def _wait_for_publishers(run: str, demo_plan: plan.DemoPlan, stop: StopSignal) -> None:
    """Wait until every topic has its publisher, because latencies are not meaningful while interpreters start."""
    for topic in demo_plan.topics.values() if plan.DEMO_BACKEND == "msgq" else ():
        while not _has_publisher(run, topic):
            if stop.wait(_POLL_PERIOD_S):
                return


def _has_publisher(run: str, topic: plan.DemoTopic) -> bool:
    if topic in plan.OTHER_KIND_TOPICS:
        return endpoint_roles.has_publisher(run, topic)
    return stats.topic(plan.make_run_endpoint(run, topic.name)).publisher is not None


def _publish_batches(socket: msgq.PubSocket, topic: plan.DemoTopic, stop: StopSignal, pid: int) -> None:
    sequence = socket.stats().messages
    pack, send, now = _STAMP_STRUCT.pack, socket.send, time.monotonic_ns
    for _ in rate_loop(topic.rate_hz, stop):
        for _ in range(topic.burst_messages):
            send(pack(now(), sequence, pid))
            sequence += 1


def _publish_telemetry(
    socket: msgq.PubSocket, topic: plan.DemoTopic, stop: StopSignal, pid: int, sample: Callable[[], Any]
) -> None:
    for sequence in rate_loop(topic.rate_hz, stop):
        data = json.dumps(sample())
        # Stamped last: looking at the machine is not part of the latency.
        stamp = f'{{"published_ns": {time.monotonic_ns()}, "sequence": {sequence}, "pid": {pid}, "{topic.name}": '
        socket.send(f"{stamp}{data}}}".encode())


class ReportedSource(Protocol):
    """Properties of a subscriber that a report needs."""

    @property
    def lost(self) -> int | None:
        """Number of lost messages or frames; None: unknown."""


class DemoReporter:
    """Meters of one subscribing process, and the topic of its reports to the parent."""

    def __init__(
        self,
        socket: msgq.PubSocket,
        subscriber: plan.DemoSubscriber,
        pid: int,
        subscribed: Mapping[str, ReportedSource],
    ) -> None:
        self._socket, self._name, self._pid, self._subscribed = socket, subscriber.name, pid, subscribed
        self.meters = {topic: DemoMeter(topic) for topic in subscriber.topics}
        self._due_ns = 0
        self.send_report()

    def send_report_if_due(self, now_ns: int) -> None:
        """Report a few times per second. `now_ns`: current time."""
        if now_ns >= self._due_ns:
            self.send_report()

    def send_report(self, final: bool = False) -> None:
        """Send a report to the parent."""
        readings = tuple(meter.make_reading(self._subscribed[topic].lost) for topic, meter in self.meters.items())
        self._socket.send(plan.SubscriberReport(self._name, self._pid, final, readings).to_json())
        self._due_ns = time.monotonic_ns() + _REPORT_PERIOD_NS


def run_subscriber(run: str, subscriber: plan.DemoSubscriber, stop: StopSignal, pid: int) -> None:
    """Receive as the subscriber of the plan until `stop`, and then the remaining messages. Send reports throughout."""
    with contextlib.ExitStack() as stack:
        report_endpoint = plan.make_run_endpoint(run, plan.make_report_topic(subscriber.name))
        reports = stack.enter_context(msgq.pub_sock(report_endpoint, plan.REPORT_RING_BYTES))
        if subscriber.kind == "frames":
            _view_pictures(run, subscriber, reports, stop, pid)
            return
        if subscriber.kind in endpoint_roles.READER_CLASSES:
            _read_other_kind(run, subscriber, reports, stop, pid)
            return
        subscribed = {
            topic: stack.enter_context(
                _open_subscriber(
                    run, plan.DEMO_TOPICS[topic], subscriber.kind == "conflating", subscriber.kind == "passive"
                )
            )
            for topic in subscriber.topics
        }
        reporter = DemoReporter(reports, subscriber, pid, subscribed)
        if len(subscribed) > 1:
            _receive_from_many(subscribed, reporter, stop)
        else:
            _receive_from_one(subscribed, reporter, subscriber.pause_s, stop)
        for topic, socket in subscribed.items():
            _drain_socket(socket, reporter.meters[topic], plan.DEMO_TOPICS[topic])
        reporter.send_report(final=True)


def _view_pictures(
    run: str, subscriber: plan.DemoSubscriber, reports: msgq.PubSocket, stop: StopSignal, pid: int
) -> None:
    (topic,) = subscriber.topics
    with picture.PictureViewer(run, plan.DEMO_TOPICS[topic]) as viewer:
        reporter = DemoReporter(reports, subscriber, pid, {topic: viewer})
        while not stop.is_set():
            viewer.receive(reporter.meters[topic], _RECEIVE_TIMEOUT_MS)
            reporter.send_report_if_due(time.monotonic_ns())
        while viewer.receive(reporter.meters[topic], 0):
            pass
        reporter.send_report(final=True)


def _read_other_kind(
    run: str, subscriber: plan.DemoSubscriber, reports: msgq.PubSocket, stop: StopSignal, pid: int
) -> None:
    with contextlib.closing(endpoint_roles.READER_CLASSES[subscriber.kind](run, subscriber)) as reader:
        reporter = DemoReporter(reports, subscriber, pid, dict.fromkeys(subscriber.topics, reader))
        while not stop.is_set():
            reader.receive_next(reporter.meters, _RECEIVE_TIMEOUT_MS / 1000)
            reporter.send_report_if_due(time.monotonic_ns())
        while reader.receive_next(reporter.meters, 0):
            pass
        reporter.send_report(final=True)


def _open_subscriber(run: str, topic: plan.DemoTopic, conflate: bool = False, passive: bool = False) -> msgq.SubSocket:
    socket = msgq.SubSocket()
    socket.connect(
        msgq.context,
        plan.make_run_endpoint(run, topic.name),
        conflate=conflate,
        segment_size=topic.ring_bytes,
        passive=passive,
    )
    socket.setTimeout(_RECEIVE_TIMEOUT_MS)
    return socket


def _receive_from_one(
    subscribed: dict[str, msgq.SubSocket], reporter: DemoReporter, pause_s: float, stop: StopSignal
) -> None:
    ((topic, socket),) = subscribed.items()
    meter, now = reporter.meters[topic], time.monotonic_ns
    while not stop.is_set():
        message = socket.receive()
        now_ns = now()
        if message is not None:
            meter.count_message(_STAMP_STRUCT.unpack(message), len(message), now_ns)
        reporter.send_report_if_due(now_ns)
        if pause_s:
            stop.wait(pause_s)


def _receive_from_many(subscribed: dict[str, msgq.SubSocket], reporter: DemoReporter, stop: StopSignal) -> None:
    poller = msgq.Poller()
    names = {}
    for name, socket in subscribed.items():
        poller.registerSocket(socket)
        names[socket.endpoint] = name
    while not stop.is_set():
        for socket in poller.poll(_RECEIVE_TIMEOUT_MS):
            name = names[socket.endpoint]
            _drain_socket(socket, reporter.meters[name], plan.DEMO_TOPICS[name])
        reporter.send_report_if_due(time.monotonic_ns())


def _drain_socket(socket: msgq.SubSocket, meter: DemoMeter, topic: plan.DemoTopic) -> None:
    stamp_of = (
        _STEP_STAMP_STRUCT.unpack
        if topic.has_origin
        else _STAMP_STRUCT.unpack
        if topic.burst_messages
        else _parse_json_stamp
    )
    while (message := socket.receive(non_blocking=True)) is not None:
        now_ns = time.monotonic_ns()
        meter.count_message(stamp_of(message), len(message), now_ns)


def _parse_json_stamp(message: bytes) -> MessageStamp:
    fields = json.loads(message)
    return fields["published_ns"], fields["sequence"], fields["pid"]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
