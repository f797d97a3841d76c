"""The rows of the table of channels: many publishers, one order."""

from dataclasses import replace

from tools.bench.bus_cases import paced
from tools.bench.cases import ASLEEP, BUSY, KIB, MIB, SLEEPING, Case, Target, ping, ping_asleep

_BURST_TITLE = "share received by 10 subscribers on 2 loaded cores, one message every 10 us"
_FLOOD_TITLE = "share received by each of 10 subscribers on 2 cores: 20,000 messages at full rate"
_RATE_TITLE = "messages received by each of 10 subscribers in a second of publishing at full rate"
_SEND = Case("channel_send_0", "send(), 64 B, 0 subscribers", "ns", "send", subscribers=0)
_HELD = replace(_SEND, peer_role="hold")
_VIEWS = Case(
    "channel_views_64k",
    "64 KiB, nothing lost, lent memory and views",
    "rate",
    "stream_send",
    (Target("peer", 1.0, "≥ the best peer"),),
    peer_role="stream_take",
    size=64 * KIB,
    batch=4,
    depth=8,
    lossless=True,
    in_place=True,
)
_BURST = Case(
    "channel_burst_64",
    f"{_BURST_TITLE}, depth 64",
    "percent",
    "burst_send",
    peer_role="burst_take",
    subscribers=10,
    apart=True,
    loaded=True,
    seconds=0.3,
    repeats=3,
)
_FLOOD = replace(
    _BURST,
    key="channel_flood_64",
    title=f"{_FLOOD_TITLE}, depth 64",
    role="flood_send",
    loaded=False,
    slices=1,
    repeats=3,
)
_ROOM = replace(
    _FLOOD,
    key="channel_room_64",
    title=f"{_FLOOD_TITLE}, `wait_for_room` before each message, depth 64",
    role="flood_send_patiently",
)
_ROOM_RATE = replace(
    _ROOM,
    key="channel_room_rate_64",
    title=f"{_RATE_TITLE}, `wait_for_room` before each message, depth 64",
    unit="rate",
)
_FLOOD_RATE = replace(_FLOOD, key="channel_flood_rate_64", title=f"{_RATE_TITLE}, depth 64", unit="rate")

CHANNEL_CASES = (
    _SEND,
    replace(
        _HELD,
        key="channel_send_1",
        title="send(), 64 B, 1 attached subscriber that does not sleep",
        targets=(Target("kickmsg", 0.65, "≤ 0.65x kickmsg"),),
        subscribers=1,
    ),
    replace(
        _HELD,
        key="channel_send_14",
        title="send(), 64 B, 14 attached subscribers that do not sleep",
        targets=(Target("channel_send_0", 1.2, "≤ 1.2x channel_send_0"),),
        subscribers=14,
    ),
    Case(
        "channel_pair",
        "send and receive in one thread, 64 B",
        "ns",
        "pair",
        (Target("kickmsg", 0.7, "≤ 0.7x kickmsg"),),
    ),
    ping(
        "channel_ping",
        BUSY,
        Target("kickmsg", 0.75, "≤ 0.75x kickmsg"),
        Target("floor", 1.6, "≤ 1.6x the floor"),
        Target("median", 2.0, "p99 ≤ 2x its median"),
    ),
    ping_asleep("channel_ping_asleep", ASLEEP, SLEEPING),
    _VIEWS,
    replace(_VIEWS, key="channel_views_1m", title="1 MiB, nothing lost, lent memory and views", size=MIB, batch=1),
    Case(
        "channel_after_kill",
        "the longest send() of 130 after another publisher was killed",
        "worst",
        "after_kill",
        (Target("absolute", 1_000_000, "none above 1 ms"),),
        peer_role="be_killed",
        seconds=1.0,
        repeats=3,
    ),
    Case(
        "channel_open",
        "open a publisher and a subscriber",
        "ns",
        "open_both",
        (Target("kickmsg", 1.5, "≤ 1.5x kickmsg"),),
    ),
    _BURST,
    replace(_BURST, key="channel_burst_256", title=f"{_BURST_TITLE}, depth 256", depth=256),
    _FLOOD,
    replace(_FLOOD, key="channel_flood_256", title=f"{_FLOOD_TITLE}, depth 256", depth=256),
    _FLOOD_RATE,
    replace(_FLOOD_RATE, key="channel_flood_rate_256", title=f"{_RATE_TITLE}, depth 256", depth=256),
    _ROOM,
    _ROOM_RATE,
    paced("channel_bus", "256 B at 100 Hz to 8 sleeping subscribers", 8, rate=100.0),
)
