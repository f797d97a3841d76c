"""The tables that there are: which systems are measured in which cases, and whom ours is set beside."""

from dataclasses import dataclass

from tools.bench.adapters import CHANNEL, FLOOR, ON_REQUEST, OURS, PEERS
from tools.bench.cases import CASES, Case
from tools.bench.channel_cases import CHANNEL_CASES


@dataclass(frozen=True)
class Suite:
    """One table.

    Attributes
    ----------
    ours : the system whose figures have targets.
    cases : its rows. peers : its other columns, beside ours and the floor. on_request : peers that must be asked for.
    beside : what ours is divided by, in columns of their own: systems, or ``peer``, the best one.
    """

    ours: str
    cases: tuple[Case, ...]
    peers: tuple[str, ...]
    on_request: tuple[str, ...]
    beside: tuple[str, ...]


SUITES = {
    "sockets": Suite(OURS, CASES, PEERS, ON_REQUEST, (FLOOR, "peer")),
    "channels": Suite(CHANNEL, CHANNEL_CASES, ("kickmsg", "iceoryx2"), (), (FLOOR, "kickmsg", "iceoryx2")),
}
