"""A pipeline of four stages: `msgq stages` finds the slow stage, and the path of the messages.

python -m examples.pipeline
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any

import msgq
from examples.processes import SECONDS, finish, say, start
from msgq.common import timing

STEP = msgq.tracked([("number", "<i8"), ("value", "<f8")])
PERIOD = 0.02  # seconds between two images
LAST = -1  # number of the record that ends the pipeline
# Stages: the queue that a stage reads, the queue that it writes, and its working time in seconds.
STAGES = {
    "detect": ("images", "objects", 0.002),
    "track": ("objects", "tracks", 0.012),
    "plan": ("tracks", "plans", 0.001),
    "drive": ("plans", "commands", 0.001),
}
TOPICS = ("images", *(target for _, target, _ in STAGES.values()))
ENOUGH = 20  # messages, to judge a stage by


def camera(stop: Event) -> None:
    """Produce images until `stop` is set. Each image is an origin."""
    with msgq.RecordQueue("images", STEP) as images:
        number = 0
        while not stop.wait(PERIOD):
            images.produce((number, 0.0))
            number += 1
        images.produce((LAST, 0.0))
        say(f"camera: {number} images")


def stage(name: str) -> None:
    """Handle each record, and produce a result. The tracer gives the origin of the record to the result."""
    source, target, seconds = STAGES[name]
    with (
        msgq.RecordQueue(source, STEP) as incoming,
        msgq.RecordQueue(target, STEP) as outgoing,
        msgq.StageTracer(name) as tracer,
    ):
        for record in tracer.trace_messages(incoming):
            time.sleep(seconds)  # stands for the work
            outgoing.produce((record["number"], record["value"] + 1))
            if record["number"] == LAST:
                break


def run_stages(*options: str) -> list[dict[str, Any]]:
    """Return the lines of `msgq stages`."""
    command = [sys.executable, "-m", "msgq", "stages", "--json", "--window", "1.5", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_slow_stage() -> None:
    """Print the stage with the longest working time, and the path of the messages."""
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + SECONDS
    while len(rows) < len(STAGES) or min(row["messages"] for row in rows) < ENOUGH:  # loops until all stages work
        if time.monotonic() > deadline:
            raise RuntimeError(f"the stages do not all work: {rows}")
        rows = run_stages(*STAGES)
    slow = max(rows, key=lambda row: float(row["processing_time"]["p50"]))
    milliseconds = slow["processing_time"]["p50"] // 1_000_000
    say(f"slowest: {slow['stage']} works {milliseconds} ms on each message of {slow['endpoint']}")
    oldest = max(rows, key=lambda row: float(row["e2e_latency"]["p50"]))
    say(f"last: {oldest['stage']}")
    parent = {edge["endpoint"]: edge["parent"] for edge in run_stages("--tree", *TOPICS) if edge["parent"]}
    path = ["commands"]
    while path[0] in parent:
        path.insert(0, parent[path[0]])
    say(f"path: {' -> '.join(path)}")


def main() -> None:
    """Run the pipeline until the slow stage is found."""
    stop = get_context("spawn").Event()
    stages = [start(stage, name) for name in STAGES]
    source = start(camera, stop)
    try:
        find_slow_stage()
        stop.set()
        finish(source, *stages)
    finally:
        for process in (source, *stages):
            process.kill()
            process.join()
        about = [timing.make_timing_topic(name, handled) for name, (handled, *_) in STAGES.items()]
        clean = [sys.executable, "-m", "msgq", "clean", *TOPICS, *about]
        subprocess.run(clean, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
