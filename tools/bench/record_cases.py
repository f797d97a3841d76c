"""The rows of the table of records: values that are overwritten, queues of records, and what tracking costs."""

from dataclasses import replace

from tools.bench.cases import SLEEPING, SLEEPING_P99, Case, Target, ping, ping_asleep

WRITE = Target("kickmsg", 1.0, "≤ 1.0x kickmsg"), Target("iceoryx2", 0.5, "≤ 0.5x iceoryx2")
READ = Target("kickmsg", 0.8, "≤ 0.8x kickmsg"), Target("iceoryx2", 0.5, "≤ 0.5x iceoryx2")
MANY = 1000


def _alone(kind: str, title: str, aimed: bool, watchers: int = 0) -> tuple[Case, Case]:
    """Write, and read, one value of 64 bytes while so many others read it."""
    suffix = f"_{watchers}" if watchers else ""
    watchers_text = f", {watchers} others read" if watchers else ""
    write = Case(
        f"write_{kind}{suffix}", f"write 64 B, {title}{watchers_text}", "ns", "overwrite", WRITE if aimed else ()
    )
    read = Case(f"read_{kind}{suffix}", f"read 64 B, {title}{watchers_text}", "ns", "look", READ if aimed else ())
    write, read = (replace(case, kind=kind, watchers=watchers) for case in (write, read))
    return write, read


def _delivery(kind: str) -> tuple[Case, Case]:
    """Write values to a busy reader, and to a sleeping one."""
    busy = f"delivery of a write to a busy reader, {kind}, one way"
    asleep = f"delivery of a write to a reader asleep for 2 ms, {kind}, one way"
    return (
        ping(f"seen_{kind}", busy, kind=kind),
        ping_asleep(f"asleep_{kind}", asleep, SLEEPING, SLEEPING_P99, kind=kind),
    )


_SEEN, _ASLEEP = _delivery("seqlock")
_SEEN_BOARD, _ASLEEP_BOARD = _delivery("board")
_MANY = Case(
    "read_many",
    "read 1,000 elements of 32 B in one call (floor: numpy.copyto)",
    "ns",
    "read_many",
    (Target("floor", 3.0, "≤ 3x the floor"),),
    size=32,
    depth=MANY,
    kind="shared",
)
_CHANGES = Case(
    "changes_1k",
    "find 8 changed of 1,024 elements of 8 B (floor: a strided compare)",
    "ns",
    "find_changes",
    size=8,
    depth=1024,
    kind="shared",
)
_QUEUE = Case(
    "spmc",
    "records of 64 B by arrays of 1,024, nothing lost, one producer (floor: pure C)",
    "rate",
    "batch_send",
    (Target("floor", 0.4, "≥ 0.4x pure C"),),
    peer_role="batch_take",
    batch=1024,
    depth=0,
    lossless=True,
    program="records",
    kind="spmc",
)
_TWO = Case(
    "two_same",
    "2 processes write one element, 64 B, both together",
    "rate",
    "write_first",
    crew=("write_second",),
    depth=1,
    kind="shared",
)

_EXCHANGE = Case(
    "record_queue_pair",
    "produce + receive of one record of a queue, 64 B, one producer",
    "ns",
    "exchange",
    (Target("topic_pair", 1.5, "≤ 1.5x a topic's message"),),
    kind="spmc",
    depth=2048,
)
_DRAIN = replace(
    _EXCHANGE,
    key="record_ready",
    title="receive(0), until no record is left, 64 B, one producer",
    role="drain",
    targets=(),
)

RECORD_CASES = (
    Case("record_pair", "write and read in one thread, 64 B, seqlock", "ns", "pair", kind="seqlock"),
    *_alone("board", "board", True),
    *_alone("board", "board", True, 5),
    *_alone("seqlock", "seqlock", True),
    *_alone("seqlock", "seqlock", True, 5),
    *_alone("shared", "element of a vector", False),
    *_alone("exclusive", "element of an exclusive vector", False),
    *(
        replace(case, key=f"{case.key}_f8", title=title, size=8)
        for case, title in zip(
            _alone("number", "", False), ("write a number into a vector", "read a number from a vector"), strict=True
        )
    ),
    _MANY,
    replace(_MANY, key="write_many", title="write 1,000 elements of 32 B in one call", role="write_many", targets=()),
    replace(
        _MANY,
        key="write_many_exclusive",
        title="write 1,000 elements of 32 B of an exclusive vector in one call",
        role="write_many",
        targets=(),
        kind="exclusive",
    ),
    replace(_MANY, key="instant", title="read 1,000 elements of 32 B at one instant", role="read_instant", targets=()),
    _CHANGES,
    replace(
        _CHANGES,
        key="changes_1m",
        title="find 8 changed of 1,048,576 elements of 8 B (floor: a strided compare)",
        depth=1 << 20,
        seconds=0.1,
    ),
    _SEEN,
    replace(_SEEN, key="seen_seqlock_5", title=f"{_SEEN.title}, 5 others read", watchers=5),
    _SEEN_BOARD,
    _ASLEEP,
    _ASLEEP_BOARD,
    _QUEUE,
    replace(
        _QUEUE,
        key="mpmc",
        title="records of 64 B by arrays of 1,024, nothing lost, several producers allowed (floor: pure C)",
        targets=(Target("floor", 0.15, "≥ 0.15x pure C"),),
        kind="mpmc",
    ),
    replace(
        _EXCHANGE, key="topic_pair", title="send + receive of a message of a topic, 64 B", targets=(), kind="topic"
    ),
    _EXCHANGE,
    replace(
        _EXCHANGE,
        key="record_channel_pair",
        title="produce + receive of one record of a queue, 64 B, several producers allowed",
        targets=(Target("topic_pair", 3.0, "≤ 3x a topic's message"),),
        kind="mpmc",
    ),
    _DRAIN,
    replace(
        _DRAIN,
        key="record_loop",
        title="for record in queue, 64 B, one producer",
        role="drain_in_loop",
        targets=(Target("record_ready", 1.0, "≤ receive()"),),
    ),
    Case(
        "tracked",
        "additional time of a tracked message of a topic",
        "ns",
        "track",
        (Target("absolute", 120, "≤ 120 ns"),),
        kind="topic",
    ),
    Case("record_open", "open a vector twice, write and read", "ns", "open_both", kind="shared", depth=1024),
    Case("board_open", "open a board twice, write and read", "ns", "open_both", kind="board"),
    _TWO,
    replace(_TWO, key="two_apart", title="2 processes write an element each, 64 B, both together", depth=2),
)
