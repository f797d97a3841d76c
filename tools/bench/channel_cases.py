"""The rows of the table of channels: many publishers, one order."""

from dataclasses import replace

from tools.bench.cases import KIB, MIB, Case, Target

_SEND = Case("send_0", "send(), 64 B, 0 subscribers", "ns", "send", subscribers=0)
_HELD = replace(_SEND, peer_role="hold")
_VIEWS = Case(
    "views_64k",
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
    "burst_64",
    "received by 10 subscribers on 2 loaded cores, one message every 10 us, depth 64",
    "percent",
    "burst_send",
    peer_role="burst_take",
    subscribers=10,
    apart=True,
    loaded=True,
    slices=3,
    seconds=0.3,
)
_FLOOD = replace(
    _BURST,
    key="flood_64",
    title="received by each of 10 subscribers on 2 cores, of 20,000 messages at full rate, depth 64",
    role="flood_send",
    loaded=False,
    slices=6,
)
_FLOOD_RATE = replace(_FLOOD, key="flood_rate_64", title="the same, in a second of publishing", unit="rate")

CHANNEL_CASES = (
    _SEND,
    replace(
        _HELD,
        key="send_1",
        title="send(), 64 B, 1 attached subscriber that does not sleep",
        targets=(Target("kickmsg", 0.65, "≤ 0.65x kickmsg"),),
        subscribers=1,
    ),
    replace(
        _HELD,
        key="send_14",
        title="the same, 14 subscribers",
        targets=(Target("send_0", 1.2, "≤ 1.2x the same with 0"),),
        subscribers=14,
    ),
    Case("pair", "send + receive pair, one thread, 64 B", "ns", "pair", (Target("kickmsg", 0.7, "≤ 0.7x kickmsg"),)),
    Case(
        "ping",
        "ping-pong one-way, busy",
        "ns",
        "ping",
        (
            Target("kickmsg", 0.75, "≤ 0.75x kickmsg"),
            Target("floor", 1.6, "≤ 1.6x the floor"),
            Target("median", 2.0, "p99 ≤ 2x its median"),
        ),
        peer_role="pong",
        batch=16,
    ),
    Case(
        "ping_asleep",
        "ping-pong one-way, asleep for 2 ms",
        "ns",
        "ping_asleep",
        (Target("floor", 1.1, "≤ 1.1x the floor"),),
        peer_role="pong_asleep",
        batch=10,
        seconds=0.2,
    ),
    _VIEWS,
    replace(_VIEWS, key="views_1m", title="1 MiB, nothing lost, lent memory and views", size=MIB, batch=1),
    Case(
        "after_kill",
        "the longest send() of 130 after another publisher was killed",
        "worst",
        "after_kill",
        (Target("absolute", 1_000_000, "none above 1 ms"),),
        peer_role="be_killed",
        seconds=1.0,
    ),
    Case(
        "open",
        "open a publisher and a subscriber",
        "ns",
        "open_both",
        (Target("kickmsg", 1.5, "≤ 1.5x kickmsg"),),
    ),
    _BURST,
    replace(_BURST, key="burst_256", title="the same, depth 256", depth=256),
    _FLOOD,
    replace(_FLOOD, key="flood_256", title="the same, depth 256", depth=256),
    _FLOOD_RATE,
    replace(_FLOOD_RATE, key="flood_rate_256", title="the same, depth 256", depth=256),
)
