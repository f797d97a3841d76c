"""Plays the recording of a run into new programs, twice and in virtual time. The programs must send the same messages.

The programs are ordinary ones: without the simulation of `replay`, they would run on the live endpoints.
"""

import zlib
from collections.abc import Callable
from pathlib import Path

import msgq
from msgq.recording import LogReader, compare, replay
from msgq_demo.endpoints import ALERTS, FRAME_SERVER, FRAME_STREAM, GAUGES, JOBS, open_gauges, open_jobs
from visionipc import VisionIpcClient

_REPLAYED_NS = 5 * 10**9  # each message takes its time, and stays in memory until the end


def sum_sizes() -> None:
    """Answer each message of a topic with the sum of all sizes."""
    total = 0
    sizes = msgq.pub_sock("sizes")
    for message in msgq.sub_sock("cpu"):
        total += len(message)
        sizes.send(total.to_bytes(8, "little"))


def forward_alerts() -> None:
    """Forward the messages of a channel to another channel."""
    alarms = msgq.Channel("alarms").publisher()
    for alert in msgq.Channel("alerts").subscriber():
        alarms.send(alert)


def keep_highest_gauges() -> None:
    """Keep the highest value of each gauge in another vector."""
    gauges = open_gauges()
    highest = msgq.SeqlockVector("highest", gauges.dtype, len(gauges))
    for changes in gauges.watch():
        higher = changes.rows > highest.read(changes.indices)
        highest.write(changes.indices[higher], changes.rows[higher])


def answer_jobs() -> None:
    """Do the jobs of a queue. Send the results to another queue, and count them on a board."""
    sums = msgq.MessageQueue("sums", max_messages=1 << 16, max_message_size=4)
    finished = msgq.Board("counts").declare("finished")
    for count, job in enumerate(open_jobs().jobs(), 1):
        sums.send(zlib.crc32(job.data).to_bytes(4, "little"))
        finished.write(count.to_bytes(8, "little"))


def digest_pictures() -> None:
    """Publish a digest of each picture."""
    digests = msgq.pub_sock("digests")
    with VisionIpcClient(FRAME_SERVER, FRAME_STREAM, conflate=False) as client:
        client.connect(blocking=True)
        while True:
            with client.frame() as frame:
                digests.send(zlib.crc32(frame.data).to_bytes(4, "little"))


#: Programs by the endpoint that they read.
_PROGRAMS: dict[str, Callable[[], None]] = {
    "cpu": sum_sizes,
    ALERTS: forward_alerts,
    GAUGES: keep_highest_gauges,
    JOBS: answer_jobs,
}


def replay_twice(recording: Path) -> str:
    """Replay the beginning of a recording. Return a description; "": the two replays sent different messages."""
    recorded = LogReader(recording).endpoints
    programs = {name: program for name, program in _PROGRAMS.items() if name in recorded}
    programs |= {name: digest_pictures for name, info in recorded.items() if info.kind == "frames"}
    log = LogReader(recording, endpoints=list(programs))
    log = log.between(None, (log.start_time or 0) + _REPLAYED_NS)
    comparison = compare(replay(log, *programs.values()), replay(log, *programs.values()))
    if not comparison or len(comparison.endpoints) < len(programs):
        return ""
    sent = sum(tally.a for tally in comparison.endpoints.values())
    return f"{log.messages:,} messages of {', '.join(programs)} led to the same {sent:,} messages"
