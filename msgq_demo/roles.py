"""The programs of the demo: `python -m msgq_demo.roles NAME` runs one of them until the parent requests the end."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgq_demo import publishers, subscribers
from msgq_demo.endpoints import ALERTS, FRAMES, GAUGES, JOBS
from msgq_demo.process import DemoProcess

SHORT_RUN = ("cpu", "network", "pulse", "busy", "dashboard", "survivor", "fast", "slow")
KILLED_PUBLISHER, KILLED_WORKER = "pulse", "worker-2"


@dataclass(frozen=True)
class Role:
    """A program.

    Attributes
    ----------
    endpoint : endpoint of a publisher; "" for a subscriber.
    run : the program.
    may_lose : True for a subscriber that is slow on purpose, or whose losses depend on the machine.
    """

    run: Callable[[DemoProcess], None]
    endpoint: str = ""
    may_lose: bool = False


#: Rates are those at which the sources change: the kernel counts CPU time in ticks of 10 ms.
PUBLISHERS = {
    "cpu": Role(partial(publishers.publish_samples, rate_hz=100, sample=publishers.sample_cores), "cpu"),
    "network": Role(partial(publishers.publish_samples, rate_hz=100, sample=publishers.sample_network), "network"),
    # The ring of `pulse` holds more than ten seconds, so its subscriber has no reason to lose messages.
    "pulse": Role(partial(publishers.publish_bursts, rate_hz=500, burst_messages=10, ring_bytes=4 << 20), "pulse"),
    "busy": Role(partial(publishers.publish_bursts, rate_hz=1000, burst_messages=50, ring_bytes=1 << 20), "busy"),
    "sensor": Role(partial(publishers.publish_sensor, rate_hz=50), "sensor"),
    "estimate": Role(partial(publishers.answer_steps, cause="sensor", compute=publishers.estimate_load), "estimate"),
    "command": Role(
        partial(publishers.answer_steps, cause="estimate", compute=publishers.compute_work_share), "command"
    ),
    "heat": Role(partial(publishers.publish_alerts, rate_hz=100, sample=publishers.sample_cores), ALERTS),
    "fill": Role(partial(publishers.publish_alerts, rate_hz=20, sample=publishers.sample_storage), ALERTS),
    "gauges": Role(partial(publishers.write_gauges, rate_hz=20), GAUGES),
    "jobs": Role(partial(publishers.send_jobs, rate_hz=20), JOBS),
    "load": Role(partial(publishers.publish_frames, rate_hz=30), FRAMES),
}
WORKERS = {
    "worker-1": Role(subscribers.work),
    "worker-2": Role(partial(subscribers.work, pause_s=0.01)),
    "worker-3": Role(subscribers.work),
}
SUBSCRIBERS = {
    "dashboard": Role(lambda process: subscribers.subscribe(process, "cpu", "network")),
    "survivor": Role(lambda process: subscribers.subscribe(process, "pulse")),
    "fast": Role(lambda process: subscribers.subscribe(process, "busy"), may_lose=True),
    "slow": Role(lambda process: subscribers.subscribe(process, "busy", pause_s=0.02), may_lose=True),
    "display": Role(lambda process: subscribers.subscribe(process, "busy", conflate=True, pause_s=0.05), may_lose=True),
    "robot": Role(lambda process: subscribers.subscribe(process, "sensor", "estimate", "command")),
    "alarm": Role(subscribers.subscribe_alerts),
    "panel": Role(subscribers.watch_gauges, may_lose=True),
    "viewer": Role(subscribers.view_frames, may_lose=True),
    **WORKERS,
}


def remove_files(prefix: str) -> None:
    """Remove all files of a run: its prefix belongs to no other program."""
    for directory in Path("/dev/shm").glob(f"msgq*_{prefix}"):
        shutil.rmtree(directory, ignore_errors=True)
    for socket in Path("/tmp").glob(f"{prefix}_visionipc_*"):
        socket.unlink(missing_ok=True)


def main(name: str) -> None:
    """Run a program. Its process removes the files of the run if the parent is dead."""
    Path("/proc/self/comm").write_text(f"demo-{name}")  # shown by ps, `msgq top` and `msgq info`
    process = DemoProcess(name)
    try:
        (PUBLISHERS | SUBSCRIBERS)[name].run(process)
    finally:
        if process.orphaned:
            remove_files(os.environ["OPENPILOT_PREFIX"])


if __name__ == "__main__":
    main(*sys.argv[1:])
