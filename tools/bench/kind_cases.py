"""The rows of the table of kinds: the same work with each kind of endpoint, in turns on the same two cores."""

from dataclasses import replace

from tools.bench.cases import Case

_PING = Case(
    "kind_ping",
    "one-way latency to a busy reader of another process, 64 B",
    "ns",
    "ping",
    peer_role="pong",
    batch=16,
    kind="seqlock",
)

KIND_CASES = (
    Case("kind_pair", "write and read, one thread, 64 B", "ns", "pair", kind="seqlock"),
    _PING,
    replace(
        _PING,
        key="kind_ping_asleep",
        title="one-way latency to a reader of another process that sleeps, 64 B",
        role="ping_asleep",
        peer_role="pong_asleep",
        batch=10,
        seconds=0.15,
    ),
)
