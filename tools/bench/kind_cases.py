"""The rows of the table of kinds: the same work with each kind of endpoint, in turns on the same two cores."""

from dataclasses import replace

from tools.bench.cases import Case

_PING = Case(
    "kind_ping",
    "delivery to a busy process, 64 B, one way",
    "ns",
    "ping",
    peer_role="pong",
    batch=16,
    kind="seqlock",
)

KIND_CASES = (
    Case("kind_pair", "write and read in one thread, 64 B", "ns", "pair", kind="seqlock"),
    _PING,
    replace(
        _PING,
        key="kind_ping_asleep",
        title="delivery to a process asleep for 2 ms, 64 B, one way",
        role="ping_asleep",
        peer_role="pong_asleep",
        batch=10,
        seconds=0.15,
    ),
)
