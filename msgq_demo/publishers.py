"""Programs that publish telemetry of this machine, each on one endpoint."""

import struct
import sysconfig
from collections import deque
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

import msgq
from msgq_demo.demo_process import DemoProcess
from msgq_demo.endpoints import FRAME_SERVER, FRAME_STREAM, GAUGE_COUNT, STEP_DTYPE, open_gauges, open_jobs

_BATCH_MESSAGE = bytes(48)
_ALERT_DTYPE = [("percent", "<f8")]
_STEP_STRUCT = struct.Struct("<d")
_RECENT_STEPS = 10
_LOAD_LIMIT_PERCENT = 50.0
_JOBS_AT_ONCE = 6
_PICTURE_SIZE, _BUFFER_COUNT = (1920, 1080), 4


def sample_cores() -> list[float]:
    """Return the load of each core since the previous sample, in percent."""
    return psutil.cpu_percent(percpu=True)  # type: ignore[no-any-return]


def sample_network() -> dict[str, dict[str, int]]:
    """Return the counters of each network interface."""
    return {name: counters._asdict() for name, counters in psutil.net_io_counters(pernic=True).items()}


def sample_storage() -> list[float]:
    """Return the usage of memory and disk, in percent."""
    return [psutil.virtual_memory().percent, psutil.disk_usage("/").percent]


def publish_samples(process: DemoProcess, rate_hz: float, sample: Callable[[], Any]) -> None:
    """Publish results of `sample` as JSON, on a topic with the name of the process."""
    with msgq.pub_sock(process.name, schema=msgq.Schema.json(process.name), tracked=True) as publisher:
        for _ in process.tick(rate_hz):
            publisher.send({process.name: sample()})


def publish_batches(process: DemoProcess, rate_hz: float, batch_messages: int, ring_bytes: int) -> None:
    """Publish many small messages. A new publisher continues the topic of a dead one without losses."""
    with msgq.pub_sock(process.name, ring_bytes, tracked=True) as publisher:
        for _ in process.tick(rate_hz):
            publisher.send_many([_BATCH_MESSAGE] * batch_messages)


def publish_sensor(process: DemoProcess, rate_hz: float) -> None:
    """Publish the load of the machine. Each message is the origin of an estimate and of a command."""
    with msgq.pub_sock(process.name, schema=STEP_DTYPE, tracked=True) as publisher:
        for _ in process.tick(rate_hz):
            publisher.send((psutil.cpu_percent(),))


def answer_steps(process: DemoProcess, cause: str, compute: Callable[[Sequence[float]], float]) -> None:
    """Answer each message of the topic `cause`. The tracer passes on its origin, and reports the times of this stage.

    `compute` takes the recent values of `cause`.
    """
    recent: deque[float] = deque(maxlen=_RECENT_STEPS)
    with (
        msgq.sub_sock(cause, timeout=100) as causes,
        msgq.pub_sock(process.name, schema=STEP_DTYPE, tracked=True) as publisher,
        msgq.StageTracer(process.name) as tracer,
    ):
        process.report_ready()
        while not process.stop.is_set():
            for step in tracer.trace_messages(causes):
                recent.extend(_STEP_STRUCT.unpack(step.data))
                publisher.send((compute(recent),))


def estimate_load(recent: Sequence[float]) -> float:
    """Return the mean load."""
    return fmean(recent)


def compute_work_share(recent: Sequence[float]) -> float:
    """Return the share of its work that a machine with this load should do, in percent."""
    return 100 * min(1.0, _LOAD_LIMIT_PERCENT / max(recent[-1], 1.0))


def publish_alerts(process: DemoProcess, rate_hz: float, sample: Callable[[], Sequence[float]]) -> None:
    """Publish the highest value of `sample` on a channel, which has several publishers."""
    schema = msgq.Schema.of(_ALERT_DTYPE, "Alert")
    with msgq.Node(process.name) as node:
        publisher = node.advertise("alerts", capacity=1024, schema=schema)
        for _ in process.tick(rate_hz):
            publisher.send(_STEP_STRUCT.pack(max(sample())))


def write_gauges(process: DemoProcess, rate_hz: float) -> None:
    """Overwrite the elements of a vector with load averages, memory usage, and the load of the first cores."""
    with open_gauges() as gauges:
        for _ in process.tick(rate_hz):
            loads = (100 * load for load in psutil.getloadavg())
            values = [*loads, psutil.virtual_memory().percent, *sample_cores()][:GAUGE_COUNT]
            gauges[: len(values)] = values


def send_jobs(process: DemoProcess, rate_hz: float) -> None:
    """Send paths of files of Python's library, several at once, so that all workers have work."""
    files = cycle(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
    with open_jobs() as jobs:
        for _ in process.tick(rate_hz):
            jobs.send_many([bytes(file) for file in islice(files, _JOBS_AT_ONCE)])


def publish_frames(process: DemoProcess, rate_hz: float) -> None:
    """Publish the load of the machine as a moving picture. Clients read the picture in the server's memory."""
    from msgq_demo.picture import LoadPicture  # NumPy: other programs start faster without it
    from visionipc import VisionIpcServer

    picture = LoadPicture(*_PICTURE_SIZE)
    with VisionIpcServer(FRAME_SERVER) as server:
        server.create_buffers(FRAME_STREAM, _BUFFER_COUNT, *_PICTURE_SIZE)
        server.start_listener()
        for _ in process.tick(rate_hz):
            picture.append_column(sample_cores())
            with server.frame(FRAME_STREAM) as frame:
                picture.copy_planes(*frame.planes)
