"""The programs of the demo: `python -m msgq_demo.roles NAME` runs one of them until the parent requests the end."""

import glob
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgq_demo.demo_process import DemoProcess
from msgq_demo.endpoints import ALERTS, BUSY, FRAMES, GAUGES, JOBS, PULSE
from msgq_demo.publishers import (
    answer_steps,
    compute_work_share,
    estimate_load,
    publish_alerts,
    publish_batches,
    publish_frames,
    publish_samples,
    publish_sensor,
    sample_cores,
    sample_network,
    sample_storage,
    send_jobs,
    write_gauges,
)
from msgq_demo.subscribers import subscribe, subscribe_alerts, view_frames, watch_gauges, work


@dataclass(frozen=True)
class Role:
    """A program.

    Attributes:
        run: the program.
        endpoint: endpoint of a publisher; "" for a subscriber.
        may_lose: True for a subscriber that is slow on purpose, or whose losses depend on the machine.
    """

    run: Callable[[DemoProcess], None]
    endpoint: str = ""
    may_lose: bool = False


#: Rates are those at which the sources change: the kernel counts CPU time in ticks of 10 ms.
PUBLISHERS = {
    "cpu": Role(partial(publish_samples, rate_hz=100, sample=sample_cores), "cpu"),
    "network": Role(partial(publish_samples, rate_hz=100, sample=sample_network), "network"),
    # The ring of `pulse` holds more than ten seconds, so its subscriber has no reason to lose messages.
    "pulse": Role(partial(publish_batches, rate_hz=500, batch_messages=10, ring_bytes=4 << 20), PULSE),
    "busy": Role(partial(publish_batches, rate_hz=1000, batch_messages=50, ring_bytes=1 << 20), BUSY),
    "sensor": Role(partial(publish_sensor, rate_hz=50), "sensor"),
    "estimate": Role(partial(answer_steps, cause="sensor", compute=estimate_load), "estimate"),
    "command": Role(partial(answer_steps, cause="estimate", compute=compute_work_share), "command"),
    "heat": Role(partial(publish_alerts, rate_hz=100, sample=sample_cores), ALERTS),
    "fill": Role(partial(publish_alerts, rate_hz=20, sample=sample_storage), ALERTS),
    "gauges": Role(partial(write_gauges, rate_hz=20), GAUGES),
    "jobs": Role(partial(send_jobs, rate_hz=20), JOBS),
    "load": Role(partial(publish_frames, rate_hz=30), FRAMES),
}
WORKERS = {
    "worker-1": Role(work),
    "worker-2": Role(partial(work, pause_s=0.01)),
    "worker-3": Role(work),
}
SUBSCRIBERS = {
    "dashboard": Role(partial(subscribe, topics=("cpu", "network"))),
    "survivor": Role(partial(subscribe, topics=(PULSE,))),
    "fast": Role(partial(subscribe, topics=(BUSY,)), may_lose=True),
    "slow": Role(partial(subscribe, topics=(BUSY,), pause_s=0.02), may_lose=True),
    "display": Role(partial(subscribe, topics=(BUSY,), conflate=True, pause_s=0.05), may_lose=True),
    "robot": Role(partial(subscribe, topics=("sensor", "estimate", "command"))),
    "alarm": Role(subscribe_alerts),
    "panel": Role(watch_gauges, may_lose=True),
    "viewer": Role(view_frames, may_lose=True),
    **WORKERS,
}
KILLED_PUBLISHER, KILLED_WORKER = "pulse", "worker-2"
SHORT_RUN = ("cpu", "network", "pulse", "busy", "dashboard", "survivor", "fast", "slow")


def remove_files(prefix: str) -> None:
    """Remove all files of a run: its prefix belongs to no other program."""
    for directory in Path("/dev/shm").glob(f"msgq*_{glob.escape(prefix)}"):
        shutil.rmtree(directory, ignore_errors=True)
    for socket in Path("/tmp").glob(f"{glob.escape(prefix)}_visionipc_*"):
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
