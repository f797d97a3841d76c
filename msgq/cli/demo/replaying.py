"""Plays the recording of a run twice into programs that use all kinds of endpoints. The results must be equal."""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgq
from msgq.cli.demo import endpoint_roles, plan
from msgq.common.selection import SelectedEndpoints
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.kinds import kind_of
from msgq.recording import LogReader, compare, replay
from visionipc import VisionIpcClient
from visionipc.image_messages import SUFFIX

_REPLAYED_MAX_S = 5  # of a recording, at most: each message takes its time, and stays in memory until the end
_SIZES_OUTPUT = "bytes"
_OTHER_OUTPUTS = {"channel/alarms", "records/highest", "records/counts", "queue/sums"}
_PICTURES_OUTPUT = "pictures"


def replay_recording(run: str, demo_plan: plan.DemoPlan, recording: Path) -> Iterator[tuple[bool, str]]:
    """Play a recording twice into programs. Yield pairs of success and text."""
    has_all_kinds = demo_plan.topics.keys() >= {topic.name for topic in plan.OTHER_KIND_TOPICS}
    topics = [plan.TELEMETRY_TOPICS[0], *(plan.OTHER_KIND_TOPICS if has_all_kinds else ())]
    pictures = {
        plan.make_run_endpoint(run, topic.name) + SUFFIX: plan.make_server_name(run, topic.name)
        for topic in demo_plan.topics.values()
        if topic.is_frame_stream
    }
    wanted = SelectedEndpoints([*(plan.make_run_endpoint(run, topic.name) for topic in topics), *pictures])
    log = LogReader(recording, endpoints=wanted)
    log = log.between(None, (log.start_time or 0) + _REPLAYED_MAX_S * NS_PER_S)
    programs, outputs = [partial(_sum_sizes, run)], {_SIZES_OUTPUT}
    if has_all_kinds:
        programs.append(partial(_answer_other_kinds, run))
        outputs |= _OTHER_OUTPUTS
    for endpoint, server in pictures.items():
        if endpoint in log.endpoints:
            programs.append(partial(_digest_pictures, server))
            outputs.add(_PICTURES_OUTPUT)
        else:
            yield True, "replayed without pictures: the recording has none"
    comparison = compare(replay(log, *programs), replay(log, *programs))
    if not comparison:
        yield False, f"replayed twice in virtual time, with different results: {comparison}"
        return
    input_counts = _format_counts_by_kind((info.kind, info.messages) for info in log.endpoints.values())
    output_counts = _format_counts_by_kind(
        (kind_of(name).name, tally.a) for name, tally in comparison.endpoints.items()
    )
    held = comparison.endpoints.keys() == outputs
    yield held, f"replayed twice in virtual time: {input_counts} led to the same {output_counts}"


def _format_counts_by_kind(endpoints: Iterable[tuple[str, int]]) -> str:
    """Return a text with the number of messages and endpoints of each kind."""
    messages: Counter[str] = Counter()
    count = 0
    for kind, number in endpoints:
        messages[kind] += number
        count += 1
    if count == 1:
        return format_count_noun(messages.total(), "message")
    each = ", ".join(f"{kind} {number:,}" for kind, number in sorted(messages.items()))
    return f"{messages.total():,} messages of {format_count_noun(count, 'endpoint')} ({each})"


def _sum_sizes(run: str) -> None:
    """Answer messages of a topic with the sum of their sizes."""
    total = 0
    sizes = msgq.pub_sock(_SIZES_OUTPUT)
    for message in msgq.sub_sock(plan.make_run_endpoint(run, plan.TELEMETRY_TOPICS[0].name)):
        total += len(message)
        sizes.send(total.to_bytes(8, "little"))


def _answer_other_kinds(run: str) -> None:
    """Answer messages of channels, vectors and queues on another endpoint of the kind, and count jobs on a board."""
    alerts = endpoint_roles.open_alert_channel(run, plan.ALERT_TOPICS[0]).subscriber()
    gauges, jobs = endpoint_roles.open_gauge_vector(run), endpoint_roles.open_job_queue(run)
    alarms = msgq.Channel("alarms").publisher()
    highest = msgq.SeqlockVector("highest", gauges.dtype, len(gauges))
    counts = msgq.Board("counts", 1, 8).declare("jobs")
    sums = msgq.MessageQueue("sums", max_messages=1 << 16, max_message_size=4)
    poller = msgq.Poller()
    sources: list[Any] = [alerts, gauges, jobs]
    for source in sources:
        poller.registerSocket(source)
    done = 0
    while True:
        ready: Any
        for ready in poller.poll(None):
            if ready is alerts:
                alarms.send(alerts.receive(0) or b"")
            elif ready is gauges:
                changes = gauges.changes()
                higher = changes.rows["value"] > highest.read()["value"][changes.indices]
                highest.write(changes.indices[higher], changes.rows[higher])
            elif (job := jobs.take(0)) is not None:
                with job:
                    sums.send(zlib.crc32(job.data).to_bytes(4, "little"))
                    done += 1
                    counts.write(done.to_bytes(8, "little"))


def _digest_pictures(server: str) -> None:
    """Publish a digest of each picture."""
    seen = msgq.pub_sock(_PICTURES_OUTPUT)
    with VisionIpcClient(server, plan.STREAM_TYPE, False) as client:
        client.connect(True)
        while True:
            with client.frame() as frame:
                seen.send(zlib.crc32(frame.data).to_bytes(4, "little"))
