"""Programs that receive and measure the messages of endpoints."""

import time
import zlib
from collections.abc import Iterator, Sequence

import msgq
from msgq_demo.demo_process import DemoProcess
from msgq_demo.endpoints import ALERTS, FRAME_SERVER, FRAME_STREAM, FRAMES, GAUGES, JOBS, open_gauges, open_jobs


def subscribe(process: DemoProcess, topics: Sequence[str], conflate: bool = False, pause_s: float = 0.0) -> None:
    """Receive the messages of topics, and pause after each message."""
    poller = msgq.Poller()
    sockets = {topic: msgq.sub_sock(topic, poller, conflate=conflate) for topic in topics}

    def receive(timeout_s: float) -> Iterator[tuple[str, int]]:
        for socket in poller.poll(1000 * timeout_s):
            while (message := socket.receive_tracked(non_blocking=True)) is not None:
                yield socket.endpoint, message.publish_time
                if pause_s:
                    process.stop.wait(pause_s)

    process.measure(topics, receive, lambda topic: sockets[topic].lost)


def subscribe_alerts(process: DemoProcess) -> None:
    """Receive the messages of all publishers of a channel."""
    with msgq.Node(process.name) as node:
        subscriber = node.subscribe("alerts")

        def receive(timeout_s: float) -> Iterator[tuple[str, int]]:
            if subscriber.receive(timeout=timeout_s) is not None and subscriber.last is not None:
                yield ALERTS, subscriber.last.publish_time

        process.measure([ALERTS], receive, lambda _: subscriber.lost)


def watch_gauges(process: DemoProcess) -> None:
    """Read the changes of a vector. Values that were overwritten before this program read them count as lost."""
    with open_gauges() as gauges:
        seen = 0

        def receive(timeout_s: float) -> Iterator[tuple[str, int]]:
            nonlocal seen
            changes = gauges.receive(timeout=timeout_s)
            for publish_time in changes.times.tolist() if changes else ():
                seen += 1
                yield GAUGES, publish_time

        process.measure([GAUGES], receive, lambda _: int(gauges.counts().sum()) - seen)


def work(process: DemoProcess, pause_s: float = 0.0) -> None:
    """Take jobs, and read the files that they name. If this process dies, another worker gets its unfinished job."""
    with open_jobs() as jobs:

        def receive(timeout_s: float) -> Iterator[tuple[str, int]]:
            job = jobs.take(timeout=timeout_s)
            if job is None:
                return
            with job:
                yield JOBS, job.sent_time
                with open(job.data, "rb") as file:
                    zlib.crc32(file.read())
                time.sleep(pause_s)

        process.measure([JOBS], receive, lambda _: 0)


def view_frames(process: DemoProcess) -> None:
    """Receive the frames of a stream, without copies."""
    from visionipc import VisionIpcClient

    with VisionIpcClient(FRAME_SERVER, FRAME_STREAM, conflate=False) as client:
        while not client.connect(blocking=False) and not process.stop.wait(0.02):
            pass

        def receive(timeout_s: float) -> Iterator[tuple[str, int]]:
            frame = client.recv(timeout_ms=1000 * timeout_s)
            if frame is not None:
                with frame:
                    yield FRAMES, frame.publish_time

        process.measure([FRAMES], receive, lambda _: client.lost)
