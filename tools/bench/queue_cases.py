"""The rows of the table of work queues: each message for one consumer."""

from dataclasses import replace

from tools.bench.bus_cases import bus
from tools.bench.cases import ASLEEP, BUSY, SLEEPING, SLEEPING_P99, Case, Target, ping, ping_asleep

SPARE = 8  # places beside those of the messages that wait
MOST_PLACES = 65536


def _pair(waiting: int, bound: float | None = None) -> Case:
    """Send and receive while so many messages wait."""
    targets = () if bound is None else (Target("posix_ipc", bound, f"≤ {bound}x posix_ipc"),)
    title = f"send and receive in one thread, 64 B, {waiting:,} waiting"
    return Case(f"queue_pair_{waiting}", title, "ns", "queue_pair", targets, depth=waiting + SPARE)


def _ranked(waiting: int) -> Case:
    """Do the same with 8 priorities in turn."""
    title = f"send and receive in one thread, 8 priorities in turn, 64 B, {waiting:,} waiting"
    return replace(_pair(waiting), key=f"queue_ranks_{waiting}", title=title, role="rank_pair")


_STREAM = Case(
    "queue_stream_10",
    "64 B to another process, nothing lost, 10 slots",
    "rate",
    "queue_send",
    (Target("posix_ipc", 2.0, "≥ 2x posix_ipc"),),
    peer_role="queue_take",
    depth=10,
    seconds=0.15,
)

QUEUE_CASES = (
    _pair(0),
    _pair(10, 0.2),
    _pair(128, 0.35),
    _pair(1024, 1.0),
    _pair(4096),
    _pair(MOST_PLACES - SPARE),
    _ranked(128),
    _ranked(1024),
    replace(
        _pair(10), key="queue_take_10", title="send, take and ack in one thread, 64 B, 10 waiting", role="ack_pair"
    ),
    _STREAM,
    replace(_STREAM, key="queue_stream_128", title="64 B to another process, nothing lost, 128 slots", depth=128),
    replace(
        _STREAM,
        key="queue_crowd_128",
        title="4 senders and 4 workers, 64 B, nothing lost, 128 slots",
        role="crowd_lead",
        targets=(Target("posix_ipc", 1.5, "≥ 1.5x posix_ipc"),),
        peer_role="",
        crew=("crowd_send",) * 3 + ("crowd_take",) * 4,
        batch=16,
        depth=128,
        seconds=0.15,
    ),
    ping("queue_ping", BUSY, depth=10),
    ping_asleep("queue_ping_asleep", ASLEEP, SLEEPING, SLEEPING_P99, depth=10),
    bus(
        "queue_bus",
        "256 B at 500 Hz to 4 sleeping workers, 128 slots",
        "pace_jobs",
        crew=("take_jobs",) * 4,
        depth=128,
        rate=500.0,
    ),
    Case("queue_open", "open two handles, one to send and one to receive", "ns", "open_both", depth=10),
)
