"""Plan of the demo: published endpoints of all kinds, subscribers, and their reports to the parent."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from msgq.common import settings
from msgq.common.timing import make_timing_topic
from msgq.kinds import get_kind
from visionipc import get_endpoint_name

DEMO_BACKEND = settings.get_backend_name()
#: All in one process and in virtual time (see virtual).
IS_VIRTUAL = DEMO_BACKEND == "fake"
#: Whether every message is accounted for. Over ZMQ it is not: a subscriber is not told what it lost; a publisher does
#: not know how far its forerunner came, and what is sent between the two is gone; no counters outlive a process; and
#: nobody watches unseen. So there these results are unknown and not checked, and the passive subscriber is left out.
COUNTS_ARE_EXACT = DEMO_BACKEND != "zmq"
#: Channels, vectors and work queues are not carried over ZMQ.
HAS_ALL_KINDS = DEMO_BACKEND != "zmq"

REPORT_RING_BYTES = 64 << 10


@dataclass(frozen=True)
class DemoTopic:
    """Output of one process of the demo.

    `rate_hz`: measurements per second, or batches of binary messages per second. `kind`: kind of its endpoint, as in
    `msgq.kinds`; "frames" is a visionipc stream, which its endpoint announces. `shared`: name of the channel that it
    shares with other publishers. `traced`: its messages carry an origin. `cause`: topic whose messages cause its
    messages, one each; without a cause, each message is an origin.
    """

    name: str
    rate_hz: float
    burst_messages: int = 0
    ring_bytes: int = 0
    kind: str = "topic"
    shared_channel: str = ""
    has_origin: bool = False
    cause_topic: str = ""

    @property
    def is_frame_stream(self) -> bool:
        """True for a stream of frames."""
        return self.kind == "frames"


# As often as the sources move: the kernel accounts CPU time in ticks of 10 ms and counts every packet at once,
# memory and disk results stay the same for longer, and a walk over all processes is expensive.
TELEMETRY_TOPICS = (
    DemoTopic("cpu", 100),
    DemoTopic("network", 100),
    DemoTopic("memory", 20),
    DemoTopic("disk", 20),
    DemoTopic("processes", 2),
    DemoTopic("sensor", 50, has_origin=True),
)
# The control loop of a robot: measure, estimate, respond. Each step has its own process.
LOOP_TOPICS = (
    DemoTopic("estimate", 50, has_origin=True, cause_topic="sensor"),
    DemoTopic("command", 50, has_origin=True, cause_topic="estimate"),
)
# The ring of `pulse` holds more than ten seconds: its subscribers have no excuse for losing anything.
# In virtual time a message takes as long as twenty on the ring: there are fewer, and a smaller ring for the slow one.
BUSY_TOPIC = (
    DemoTopic("busy", 50, burst_messages=10, ring_bytes=16 << 10)
    if IS_VIRTUAL
    else DemoTopic("busy", 1000, 50, 1 << 20)
)
PULSE_TOPIC = (
    DemoTopic("pulse", 50, burst_messages=2, ring_bytes=4 << 20) if IS_VIRTUAL else DemoTopic("pulse", 500, 10, 4 << 20)
)
# The load as a moving picture. Frames need processes and a clock; so does the ring they are announced on, whatever the
# backend of the other topics.
FRAME_TOPICS = () if IS_VIRTUAL else (DemoTopic("load", 30, kind="frames"),)
STREAM_TYPE = 0
PICTURE_SIZE = (1920, 1080)  # NV12
PICTURE_BYTES = 1920 * 1080 * 3 // 2
# Monitors of the machine. Both are publishers of one channel.
ALERT_TOPICS = (
    DemoTopic("heat", 100, kind="channel", shared_channel="alerts"),
    DemoTopic("fill", 20, kind="channel", shared_channel="alerts"),
)
# The newest results of the machine. Each result is an element that is overwritten, so a late reader misses only old
# results.
GAUGES_TOPIC = DemoTopic("gauges", 20, kind="records")
# Files of Python's library, each to be read and summed up by one of three workers; bursts, so that all have work.
JOBS_TOPIC = DemoTopic("jobs", 20, burst_messages=6, kind="queue")
OTHER_KIND_TOPICS = (*ALERT_TOPICS, GAUGES_TOPIC, JOBS_TOPIC) if HAS_ALL_KINDS else ()
DEMO_TOPICS = {
    topic.name: topic
    for topic in (*TELEMETRY_TOPICS, *LOOP_TOPICS, PULSE_TOPIC, BUSY_TOPIC, *FRAME_TOPICS, *OTHER_KIND_TOPICS)
}


@dataclass(frozen=True)
class DemoSubscriber:
    """One subscribing process.

    `pause_s`: seconds that it pauses instead of receiving. `is_lossless`: it must not lose messages. `doomed`: it is
    killed while it has a job, and is not restarted.
    """

    name: str
    kind: str
    topics: tuple[str, ...]
    pause_s: float = 0.0
    is_lossless: bool = False
    is_killed: bool = False


DEMO_SUBSCRIBERS = {
    subscriber.name: subscriber
    for subscriber in (
        DemoSubscriber(
            "dashboard", "polling", tuple(topic.name for topic in (*TELEMETRY_TOPICS, *LOOP_TOPICS)), is_lossless=True
        ),
        DemoSubscriber("survivor", "blocking", ("pulse",), is_lossless=True),
        DemoSubscriber("observer", "passive", ("pulse",), is_lossless=True),
        DemoSubscriber("fast", "blocking", ("busy",)),
        DemoSubscriber("display", "conflating", ("busy",), pause_s=0.05),
        DemoSubscriber("slow", "blocking", ("busy",), pause_s=0.02),
        DemoSubscriber("viewer", "frames", ("load",)),
        DemoSubscriber("alarm", "channel", ("heat", "fill"), is_lossless=True),
        DemoSubscriber("panel", "vector", ("gauges",)),
        DemoSubscriber("worker-1", "worker", ("jobs",)),
        DemoSubscriber("worker-2", "worker", ("jobs",), pause_s=0.01, is_killed=not IS_VIRTUAL),
        DemoSubscriber("worker-3", "worker", ("jobs",)),
    )
    if (COUNTS_ARE_EXACT or subscriber.kind != "passive") and DEMO_TOPICS.keys() >= set(subscriber.topics)
}


@dataclass(frozen=True)
class DemoPlan:
    """Topics and subscribers of a run by name, each a process, and the default duration of the traffic."""

    name: str
    topics: Mapping[str, DemoTopic]
    subscribers: Mapping[str, DemoSubscriber]
    duration_s: float

    @property
    def has_recorded_frames(self) -> bool:
        """True if the recording has pictures. Over ZMQ, the demo has no recording."""
        return COUNTS_ARE_EXACT and any(topic.is_frame_stream for topic in self.topics.values())


def _make_short_plan() -> DemoPlan:
    """Return a plan of few processes, because each interpreter takes long to start on a busy machine."""
    topics = {topic.name: topic for topic in (*TELEMETRY_TOPICS[:2], PULSE_TOPIC, BUSY_TOPIC)}
    subscribers = [DEMO_SUBSCRIBERS[name] for name in ("dashboard", "survivor", "fast", "slow")]
    return DemoPlan(
        "short",
        topics,
        {one.name: replace(one, topics=tuple(name for name in one.topics if name in topics)) for one in subscribers},
        duration_s=2.0,
    )


FULL_PLAN = DemoPlan("full", DEMO_TOPICS, DEMO_SUBSCRIBERS, duration_s=15.0)
SHORT_PLAN = _make_short_plan()
DEMO_PLANS = {demo_plan.name: demo_plan for demo_plan in (FULL_PLAN, SHORT_PLAN)}


@dataclass(frozen=True)
class PublishedCounts:
    """Number of messages published on a topic, and the publishing process; None: unknown, or no process."""

    pid: int | None
    messages: int | None
    bytes: int | None


@dataclass(frozen=True)
class PublisherRestart:
    """Takeover of a topic by another process.

    `outage_ms`: time from the last message before to the first message after.
    """

    previous_pid: int
    pid: int
    lost: int | None
    outage_ms: float


@dataclass(frozen=True)
class FlowRates:
    """Messages and bytes per second, and median and 99th percentile of the latency in microseconds."""

    rate: float
    byte_rate: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class TopicReading:
    """Results of one subscriber for one topic.

    `lost`: the library's count. `missing_messages`: count by the sequence numbers in the messages. `span_s`: time
    between publishing the first and the last message.
    """

    topic: str
    received: int
    bytes: int
    lost: int | None
    missing_messages: int
    span_s: float
    overall: FlowRates
    restarts: tuple[PublisherRestart, ...]

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Return a reading from the fields of its JSON form."""
        overall = FlowRates(**fields.pop("overall"))
        restarts = tuple(PublisherRestart(**restart) for restart in fields.pop("restarts"))
        return cls(**fields, overall=overall, restarts=restarts)


@dataclass(frozen=True)
class SubscriberReport:
    """Report of a subscribing process about itself, sent as JSON on its own topic."""

    subscriber: str
    pid: int
    final: bool
    readings: tuple[TopicReading, ...]

    def to_json(self) -> bytes:
        """Return the message to send."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Return the report from the result of `to_json`."""
        fields = json.loads(text)
        fields["readings"] = tuple(map(TopicReading.from_fields, fields["readings"]))
        return cls(**fields)


def make_run_endpoint(run: str, name: str) -> str:
    """Return the endpoint of a topic or report in one run of the demo. `run` is unique among runs."""
    topic = DEMO_TOPICS.get(name, DemoTopic(name, 0))
    if topic.is_frame_stream:
        return get_endpoint_name(make_server_name(run, name), STREAM_TYPE)
    mark = get_kind(topic.kind).name_prefix
    return mark + make_endpoint_name(run, topic)


def make_endpoint_name(run: str, topic: DemoTopic) -> str:
    """Return the bare name of a topic's channel, vector or queue."""
    return f"demo-{run}-{topic.shared_channel or topic.name}"


def make_server_name(run: str, name: str) -> str:
    """Return the name of the frame server for a topic."""
    return f"demo-{run}-{name}"


def make_report_topic(subscriber: str) -> str:
    """Return the name of the topic on which a subscriber reports."""
    return f"report-{subscriber}"


def list_run_endpoints(run: str) -> list[str]:
    """Return all topics of a run on the backend. Topics of frames are always on the ring."""
    topics = (name for name, topic in DEMO_TOPICS.items() if topic.kind == "topic")
    return [
        *(make_run_endpoint(run, name) for name in (*topics, *map(make_report_topic, DEMO_SUBSCRIBERS))),
        *list_timing_topics(run),
    ]


def list_timing_topics(run: str) -> dict[str, str]:
    """Return the timing topics of the loop's stages, each with a name without the run."""
    return {
        make_timing_topic(
            topic.name, make_run_endpoint(run, topic.cause_topic)
        ): f"{topic.name} handles {topic.cause_topic}"
        for topic in LOOP_TOPICS
        if topic.cause_topic
    }
