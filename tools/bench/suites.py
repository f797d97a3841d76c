"""The tables that there are: which systems are measured in which cases, and whom ours is set beside."""

from dataclasses import dataclass

from tools.bench.adapters import BOARDS, CHANNEL, FLOOR, ON_REQUEST, OURS, PEERS, QUEUE, QUEUE_PEERS, RECORDS
from tools.bench.cases import CASES, Case
from tools.bench.channel_cases import CHANNEL_CASES
from tools.bench.kind_cases import KIND_CASES
from tools.bench.queue_cases import QUEUE_CASES
from tools.bench.record_cases import RECORD_CASES


@dataclass(frozen=True)
class Suite:
    """One table.

    Attributes
    ----------
    ours : the system whose figures have targets.
    cases : its rows. peers : its other columns, beside ours and the floor. on_request : peers that must be asked for.
    beside : what ours is divided by, in columns of their own: systems, or ``peer``, the best one.
    raised : the kernel's limits are raised for the run, where it may.
    """

    own_system: str
    cases: tuple[Case, ...]
    peers: tuple[str, ...]
    on_request: tuple[str, ...]
    beside: tuple[str, ...]
    raised: bool = False


SUITES = {
    "sockets": Suite(OURS, CASES, PEERS, ON_REQUEST, (FLOOR, "peer")),
    "channels": Suite(CHANNEL, CHANNEL_CASES, ("kickmsg", "iceoryx2"), (), (FLOOR, "kickmsg", "iceoryx2")),
    "queues": Suite(QUEUE, QUEUE_CASES, QUEUE_PEERS, (), (FLOOR, "posix_ipc"), raised=True),
    "records": Suite(RECORDS, RECORD_CASES, BOARDS, (), (FLOOR, *BOARDS)),
    "kinds": Suite(OURS, KIND_CASES, (CHANNEL, RECORDS, QUEUE), (), (FLOOR,)),
}
