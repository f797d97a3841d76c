"""The rows of the tables: the measured work, and the targets of msgq."""

from dataclasses import dataclass, replace
from typing import Any

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Target:
    """The library's figure must be `bound` times a reference, or better.

    Attributes:
        reference: ``peer`` (the best one), the name of a system, the key of another case, ``median`` (of our latencies;
            the figure is their 99th percentile), ``p99`` (the floor's 99th percentile), or ``absolute`` (the bound is
            the figure).
        text: the same in words.
    """

    reference: str
    bound: float
    text: str


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        key: name of the row on the command line.
        title: name of the row in the tables.
        unit: ``ns`` (less is better), ``worst`` (ns, the longest time of all calls), ``rate`` (messages/s; more is
            better), ``percent`` (of the sent messages; more is better), ``wakeups`` (wake-ups/s; less is better),
            ``cpu`` (ns of processor time; less is better), ``cpu_rate`` (messages per second of processor time; more is
            better), or ``bytes`` (less is better).
        role: name of the work of one process, see `roles` and `works`. The process of the publisher starts first.
        peer_role: name of the work of the other process.
        size: bytes of a message.
        batch: messages between two checks of the control words.
        subscribers: number of subscribers.
        apart: True: each subscriber has its own process.
        crew: roles of further processes.
        loaded: True: two further processes keep both cores busy.
        depth: capacity in messages, and maximum number of messages on their way; 0: the system's default.
        lossless: True: a lost message is an error.
        in_place: True: as few copies as possible.
        fresh: True: the open creates the segment.
        frames: True: frames of visionipc. `size` is the bytes of a frame, and `depth` is the number of buffers.
        interpreters: True: each process is a new interpreter, so that its memory is the memory of a program.
        kind: kind of endpoint of msgq; "prefix": a topic in a prefix; "services": topics with a SubMaster.
        watchers: number of further processes that read all the time.
        program: name of the C program of the floor.
        slices: turns of each system in a repeat.
        seconds: duration of a turn in s, without the warm-up.
        repeats: maximum number of repeats; 0: no maximum.
        messages: number of messages of a recording.
        rate: messages published per second; of a bus: messages of each topic per second.
        endpoints: number of endpoints of a recording, or of topics of a bus.
        limit_s: a process kills itself when its preparation or a slice takes longer, so that nothing can hang.
    """

    key: str
    title: str
    unit: str
    role: str
    targets: tuple[Target, ...] = ()
    peer_role: str = ""
    size: int = 64
    subscribers: int = 1
    apart: bool = False
    crew: tuple[str, ...] = ()
    loaded: bool = False
    batch: int = 64
    depth: int = 64
    lossless: bool = False
    in_place: bool = False
    fresh: bool = False
    frames: bool = False
    interpreters: bool = False
    kind: str = ""
    watchers: int = 0
    program: str = ""
    slices: int = 2
    seconds: float = 0.03
    repeats: int = 0
    messages: int = 0
    rate: float = 0.0
    endpoints: int = 1
    limit_s: int = 60

    def quick(self) -> "Case":
        """Return the row for a short and rough measurement."""
        return replace(self, slices=min(self.slices, 2), seconds=self.seconds / 4).scale(0.1)

    def scale(self, factor: float) -> "Case":
        """Return the row with more or fewer messages of recordings."""
        return replace(self, messages=int(self.messages * factor))

    @property
    def more_is_better(self) -> bool:
        """Whether the figure is one that should grow."""
        return self.unit in ("rate", "cpu_rate", "percent")


def ping(key: str, title: str, *targets: Target, **changes: Any) -> Case:
    """Return a row in which two busy processes answer each other."""
    case = Case(key, title, "ns", "ping", targets, peer_role="pong", batch=16)
    return replace(case, **changes)


def ping_asleep(key: str, title: str, *targets: Target, **changes: Any) -> Case:
    """Return a row in which each process sleeps until the other one answers."""
    case = Case(key, title, "ns", "ping_asleep", targets, peer_role="pong_asleep", batch=10, seconds=0.15)
    return replace(case, **changes)


BUSY = "delivery to a busy process, 64 B, one way"
ASLEEP = "delivery to a process asleep for 2 ms, 64 B, one way"
SLEEPING = Target("floor", 1.1, "≤ 1.1x the floor")
SLEEPING_P99 = Target("p99", 1.1, "p99 ≤ 1.1x the floor's")
_SEND = Case(
    "send_0", "send(), 64 B, 0 subscribers", "ns", "send", (Target("floor", 2.2, "≤ 2.2x the floor"),), subscribers=0
)
_DRAIN = Case("receive_ready", "receive(True), until no message is left, 64 B", "ns", "drain", depth=2048)
_STREAM = Case(
    "stream_64",
    "64 B, nothing lost, one by one, the receiver polls",
    "rate",
    "stream_send",
    (Target("floor", 0.85, "≥ 0.85x the floor"), Target("peer", 1.0, "≥ the best peer")),
    peer_role="stream_take",
    depth=0,
    lossless=True,
)
_BLOCKING = replace(
    _STREAM,
    key="blocking_64",
    title="64 B, nothing lost, one by one, the receiver blocks",
    targets=(Target("floor", 0.95, "≥ 0.95x the floor"), Target("peer", 1.0, "≥ the best peer")),
    role="stream_wake",
    peer_role="stream_block",
    depth=1024,
)
_LARGE = replace(_STREAM, targets=(Target("floor", 0.9, "≥ 0.9x the floor"),), size=64 * KIB, depth=8, batch=4)
_HUGE = replace(_LARGE, size=MIB, batch=1)

NV12_1080P = 1920 * 1080 * 3 // 2
NV12_4K = 3840 * 2160 * 3 // 2
_FRAMES: dict[str, Any] = {"size": NV12_1080P, "depth": 8, "in_place": True, "frames": True}
_PUBLISH = Case(
    "frame_1080p",
    "publish a rendered 1080p frame, no client asleep",
    "ns",
    "send",
    (Target("absolute", 5_000, "≤ 5 us"),),
    peer_role="hold",
    **_FRAMES,
)
_FRAME_STREAM = replace(
    _PUBLISH,
    key="frame_stream",
    title="1080p frames, nothing lost, every 1,024th byte read",
    unit="rate",
    role="stream_send",
    targets=(Target("peer", 1.2, "≥ 1.2x the best peer"),),
    peer_role="stream_take",
    batch=2,
    lossless=True,
)
_FRAME_PING = ping(
    "frame_ping",
    "1080p frame delivered and read, one at a time, one way",
    Target("peer", 1 / 1.2, "≤ the best peer / 1.2"),
    **_FRAMES,
    batch=2,
)
_FRAME_ASLEEP = ping_asleep(
    "frame_asleep",
    "1080p frame delivered to a client asleep for 10 ms (floor: a message of 64 B)",
    SLEEPING,
    **_FRAMES,
    seconds=0.3,
)
FRAME_CASES = (
    _PUBLISH,
    replace(_PUBLISH, key="frame_4k", title="publish a rendered 2160p frame, no client asleep", size=NV12_4K),
    replace(
        _PUBLISH,
        key="frame_copy",
        title="send() of a 1080p frame, a client never receives: all buffers in turn (floor: numpy.copyto)",
        targets=(Target("floor", 1.15, "≤ 1.15x the floor"), Target("peer", 1.0, "≤ the best peer")),
        in_place=False,
    ),
    _FRAME_STREAM,
    replace(
        _FRAME_STREAM, key="frame_stream_4k", title="2160p frames, nothing lost, every 1,024th byte read", size=NV12_4K
    ),
    _FRAME_PING,
    replace(
        _FRAME_PING, key="frame_ping_4k", title="2160p frame delivered and read, one at a time, one way", size=NV12_4K
    ),
    replace(
        _FRAME_PING,
        key="frame_ping_copy",
        title="1080p frame by send() and receive, one at a time, one way",
        targets=(Target("peer", 1.0, "≤ the best peer"),),
        in_place=False,
    ),
    _FRAME_ASLEEP,
    replace(
        _FRAME_ASLEEP,
        key="frame_asleep_4k",
        title="2160p frame delivered to a client asleep for 10 ms (floor: a message of 64 B)",
        size=NV12_4K,
    ),
)

CASES = (
    _SEND,
    replace(
        _SEND,
        key="send_14",
        title="send(), 64 B, 14 attached subscribers that do not sleep",
        targets=(Target("send_0", 1.2, "≤ 1.2x send_0"),),
        peer_role="hold",
        subscribers=14,
    ),
    Case("pair", "send and receive in one thread, 64 B", "ns", "pair", (Target("floor", 2.2, "≤ 2.2x the floor"),)),
    Case(
        "receive_empty", "receive(), no message waiting", "ns", "receive", (Target("floor", 1.6, "≤ 1.6x the floor"),)
    ),
    Case(
        "send_list",
        "send_many() of a list of 64 messages, 64 B, for each message",
        "ns",
        "send_list",
        (Target("send_0", 1 / 1.5, "≤ send() / 1.5"),),
    ),
    _DRAIN,
    replace(
        _DRAIN,
        key="receive_loop",
        title="for message in sub, 64 B",
        role="drain_in_loop",
        targets=(Target("receive_ready", 1 / 1.5, "≤ receive() / 1.5"),),
    ),
    _STREAM,
    _BLOCKING,
    replace(_BLOCKING, key="blocking_1k", title="1 KiB, nothing lost, one by one, the receiver blocks", size=KIB),
    replace(
        _STREAM,
        key="batch_64",
        title="64 B, nothing lost, by send_many and receive_array (floor: pure C)",
        role="batch_send",
        peer_role="batch_take",
        targets=(Target("floor", 1 / 3, "≥ a third of pure C"),),
        batch=1024,
        program="stream",
    ),
    replace(_LARGE, key="stream_64k", title="64 KiB, nothing lost, copied"),
    replace(_LARGE, key="in_place_64k", title="64 KiB, nothing lost, fewest copies of each system", in_place=True),
    replace(_HUGE, key="stream_1m", title="1 MiB, nothing lost, copied"),
    replace(_HUGE, key="in_place_1m", title="1 MiB, nothing lost, fewest copies of each system", in_place=True),
    ping("ping", BUSY, Target("floor", 1.3, "≤ 1.3x the floor")),
    ping_asleep("ping_asleep", ASLEEP, SLEEPING),
    Case(
        "fire",
        "age of a message on its receipt, one message every 20 us, the receiver blocks, 64 B",
        "ns",
        "fire",
        peer_role="under_fire",
    ),
    Case("open", "open a publisher and a subscriber", "ns", "open_both", (Target("absolute", 60_000, "≤ 60 us"),)),
    Case("open_prefix", "open a publisher and a subscriber, msgq in a prefix", "ns", "open_both", kind="prefix"),
    Case("open_fresh", "open the first publisher and subscriber of a new topic", "ns", "open_both", fresh=True),
    Case(
        "idle",
        "wake-ups of an idle blocked subscriber",
        "wakeups",
        "idle_publish",
        (Target("absolute", 0.5, "no periodic wake-up"),),
        peer_role="idle_subscribe",
        slices=1,
        seconds=1.0,
        repeats=1,
    ),
)
LIMITS = {
    "cache_line_ns": "a cache line from one core to the other, one way",
    "syscall_ns": "a system call",
    "clock_ns": "reading the clock",
    "futex_wake_nobody_ns": "futex wake, no sleeper",
    "futex_wake_call_ns": "futex wake of one sleeper: the call",
    "futex_wake_to_run_ns": "futex wake of one sleeper: until it runs",
    "copy_64KiB_GBps": "memcpy of 64 KiB within 512 KiB",
    "copy_1MiB_GBps": "memcpy of 1 MiB within 8 MiB",
    "copy_memory_GBps": "memcpy of 1 MiB within 256 MiB",
}
