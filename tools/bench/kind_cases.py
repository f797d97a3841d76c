"""The rows of the table of kinds: the same work with each kind of endpoint, in turns on the same two cores."""

from tools.bench.cases import ASLEEP, BUSY, Case, ping, ping_asleep

KIND_CASES = (
    Case("kind_pair", "write and read in one thread, 64 B", "ns", "pair", kind="seqlock"),
    ping("kind_ping", BUSY, kind="seqlock"),
    ping_asleep("kind_ping_asleep", ASLEEP, kind="seqlock"),
)
