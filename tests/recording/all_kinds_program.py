"""Programs that take from all kinds of endpoints, and send to all of them. It is imported by name, from a shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

OUTPUTS = ["channel/out", "queue/done", "records/best", "records/said", "topic-out", "visionipc_dark_0/image"]


def all_kinds() -> None:
    """Answer whatever comes, on the kind it came from; what is taken from the queue takes its time."""
    import msgq

    topic: Any = msgq.sub_sock("topic")
    lidar: Any = msgq.Channel("lidar", node="program").subscriber()
    quotes, state, jobs = msgq.SeqlockVector("quotes"), msgq.Board("state"), msgq.MessageQueue("jobs")
    pub = msgq.pub_sock("topic-out")
    channel = msgq.Channel("out").publisher()
    best = msgq.SeqlockVector("best", quotes.dtype, 2)
    said = msgq.Board("said", 4, 256).declare("newest")
    done = msgq.MessageQueue("done", max_messages=64)
    poller = msgq.Poller()
    sources: Any = [topic, lidar, quotes, state, jobs]
    for source in sources:
        poller.registerSocket(source)
    while True:
        ready: Any
        for ready in poller.poll(None):
            if ready is topic:
                pub.send(topic.receive() + b" seen")
            elif ready is lidar:
                channel.send(lidar.receive(0)[::-1])
            elif ready is quotes:
                changes = quotes.changes()
                best.write([0, 1], np.repeat(changes.rows[:1], 2))
            elif ready is state:
                said.write(json.dumps({key: value.data.decode() for key, value in state.changes().items()}).encode())
            elif (job := jobs.take(0)) is not None:
                with job:
                    done.send(job.data.upper(), priority=job.priority)


def frames() -> None:
    """Answer each picture with its negative."""
    from visionipc import FrameFormat, VisionIpcClient, VisionIpcServer

    with VisionIpcServer("dark") as server, VisionIpcClient("cam", 3, False) as client:
        server.create_buffers(0, 4, 2, 2, FrameFormat.RGB24)
        server.start_listener()
        client.connect(True)
        while True:
            with client.frame() as frame, server.frame(0) as negative:
                negative.image[:] = 255 - frame.image
                negative.frame_id = frame.frame_id


def main(log: str, output: str, seed: int, drop: float) -> None:
    """Replay a log into the program, and write what it sent."""
    from msgq.recording import LogReader, replay
    from msgq.recording.player.replay import write_sent_messages
    from msgq.simulation import Faults

    faults = Faults(drop=drop, delay=drop, reorder=drop, restart=drop / 4)
    write_sent_messages(replay(LogReader(log), all_kinds, frames, seed=seed, faults=faults), Path(output))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
