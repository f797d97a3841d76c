"""Records the demo with the normal recorder, and reads the recording."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgq.channel.names import KIND as CHANNEL
from msgq.cli.demo import plan
from msgq.common.queue_events import Event
from msgq.common.texts import format_count_noun
from msgq.recording import EndpointInfo, FrameStream, LogReader, Recorder
from msgq.records.names import KIND as RECORDS
from msgq.workqueue.names import KIND as QUEUE

PICTURE_RATE_HZ = 2.0


@dataclass(frozen=True)
class RecordedResults:
    """Results of the recording for a topic, or for one publisher of a channel.

    `lost`: published messages missing in the recording, by gaps in the numbers. `published_messages`: messages
    published according to the recording: for a vector all writes, including overwritten values; for a queue the sent
    jobs.
    """

    topic: str
    messages: int
    bytes: int
    lost: int
    published_messages: int


def start_recorder(run: str, demo_plan: plan.DemoPlan, path: Path) -> Recorder:
    """Start recording a run before its first message."""
    endpoints = list(
        {
            plan.make_run_endpoint(run, name): None
            for name, topic in demo_plan.topics.items()
            if not topic.is_frame_stream
        }
    )
    pictures = [
        FrameStream(plan.make_server_name(run, topic.name), plan.STREAM_TYPE, PICTURE_RATE_HZ)
        for topic in demo_plan.topics.values()
        if topic.is_frame_stream
    ]
    if demo_plan is plan.FULL_PLAN:
        endpoints += plan.list_timing_topics(run)
    return Recorder(path, endpoints, frames=pictures, level=3)


def read_recording(run: str, path: Path) -> tuple[RecordedResults, ...]:
    """Read the recording of a run."""
    names = {plan.make_run_endpoint(run, name): name for name in plan.DEMO_TOPICS} | plan.list_timing_topics(run)
    log = LogReader(path)
    results: list[RecordedResults] = []
    for info in log.endpoints.values():
        if info.kind == CHANNEL.name:
            results += _count_by_publisher(path, info)
            continue
        published_messages = {RECORDS.name: _count_writes, QUEUE.name: _count_sent}.get(info.kind, _count_messages)(
            path, info
        )
        name = names.get(info.endpoint, "load, pictures")
        results.append(RecordedResults(name, info.messages, info.bytes, info.lost or 0, published_messages))
    return tuple(results)


def _count_messages(_: Path, info: EndpointInfo) -> int:
    return info.messages


def _count_by_publisher(path: Path, info: EndpointInfo) -> Iterator[RecordedResults]:
    sizes: dict[str, list[int]] = {}
    for message in LogReader(path, endpoints=[info.endpoint]):
        sizes.setdefault(message.publisher, []).append(len(message.data))
    for publisher, message_sizes in sorted(sizes.items()):
        yield RecordedResults(publisher, len(message_sizes), sum(message_sizes), info.lost or 0, len(message_sizes))


def _count_writes(path: Path, info: EndpointInfo) -> int:
    """Return the number of writes, from the count in the last change of each element."""
    changes = LogReader(path, endpoints=[info.endpoint]).to_numpy(info.endpoint)
    return int(sum(dict(zip(changes["index"].tolist(), changes["count"].tolist(), strict=True)).values()))


def _count_sent(path: Path, info: EndpointInfo) -> int:
    """Return the number of sent jobs; 0 if a job was not finished."""
    events = Counter(message.data[0] for message in LogReader(path, endpoints=[info.endpoint]))
    return events[Event.SENT] if events[Event.SENT] == events[Event.ACKNOWLEDGED] else 0


def find_recording_errors(
    results: tuple[RecordedResults, ...], published: Mapping[str, plan.PublishedCounts]
) -> Iterator[str]:
    """Yield the differences between the recording and the run."""
    by_topic = {topic_results.topic: topic_results for topic_results in results}
    for name, topic in published.items():
        if (
            plan.DEMO_TOPICS[name].is_frame_stream or name == plan.BUSY_TOPIC.name
        ):  # on a busy machine its ring is too small for anybody
            continue
        recorded_topic = by_topic.get(name)
        if recorded_topic is None or recorded_topic.published_messages != topic.messages:
            count = recorded_topic.published_messages if recorded_topic else 0
            yield f"{name}: {count} of {format_count_noun(topic.messages, 'message')} recorded"
        if recorded_topic is not None and recorded_topic.lost:
            yield f"{name}: {format_count_noun(recorded_topic.lost, 'message')} missing in the recording"
