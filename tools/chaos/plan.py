"""What a run consists of: the endpoints, the processes that use them, and what disturbs these processes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tools.chaos.kinds.channels import Channels
from tools.chaos.kinds.frames import Frames
from tools.chaos.kinds.queues import Queues
from tools.chaos.kinds.records import Records
from tools.chaos.kinds.topics import Patient, Rows, Topics
from tools.chaos.kinds.worker import WAYS
from tools.chaos.kinds.workload import Lane, Workload

LANE_NAME = "lane"
ALL_KINDS = [
    Lane(Topics, "ring-all", 1 << 16),
    Lane(Channels, "lanes", 64),
    Lane(Frames, "camera", 1 << 14),
    Lane(Records, "state", 64),
    Lane(Queues, "jobs", 64),
]
RINGS = [Lane(Topics, f"ring-{size}", size) for size in (4096, 1 << 16, 1 << 20)]
#: Files of ALL_KINDS that stay when nobody has them open.
PERSISTENT_FILES = ("queue/jobs", "records/state", "records/state-board", "records/state-turns")
#: Shares of the interventions.
KILLS, STOPS, TAKEOVERS = {"kill": 1.0}, {"stop": 1.0}, {"supersede": 1.0, "start": 1.0}
MIXED = {"kill": 0.5, "stop": 0.3, "supersede": 0.1, "start": 0.1}


@dataclass(frozen=True, eq=False)
class Crew:
    """Processes of one kind in a run.

    Attributes:
        count: processes that run at the same time.
        is_permanent: each process is there from the start to the end, and has its way from WAYS, one after the other.
            Others live for a random time, and are replaced.
        threads: incarnations in one process, in a thread each.
        forks: each process forks a child that goes on, too, and forks again, so many times.
    """

    name: str
    lanes: list[Lane]
    count: int
    reads: bool = True
    writes: bool = True
    is_permanent: bool = False
    threads: int = 1
    forks: int = 0


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        interventions: their shares: "kill", "stop", "supersede" (stop a writer and start another one), "start" (start a
            writer beside others). Empty: nobody is disturbed.
        pause: seconds between two interventions, on average.
    """

    crews: list[Crew]
    interventions: dict[str, float] = field(default_factory=dict)
    pause: float = 0.04

    @property
    def lanes(self) -> list[Lane]:
        """All endpoints, each one once."""
        return list(dict.fromkeys(lane for crew in self.crews for lane in crew.lanes))


def soak_plan() -> Plan:
    """Return the plan of the soak: topics of three sizes by themselves, and processes that use all kinds at once."""
    crews = [
        crew
        for lane in RINGS
        for crew in (
            Crew("publishers", [lane], 1, reads=False),
            Crew("subscribers", [lane], len(WAYS), writes=False, is_permanent=True),
            Crew("guests", [lane], 4, writes=False),
        )
    ]
    crews += [Crew("all kinds", ALL_KINDS, 2, is_permanent=True), Crew("all kinds", ALL_KINDS, 3)]
    return Plan(crews, MIXED)


def plan_of(kind: type[Workload], size: int, disturbance: str, copies: int = 2) -> Plan:
    """Return the plan of a kind by itself with one of DISTURBANCES: writers, and a reader in each way."""
    writers = Crew("writers", [lane := Lane(kind, LANE_NAME, size, copies)], WRITERS[kind], reads=False)
    readers = Crew("readers", [lane], len(WAYS), writes=False, is_permanent=True)
    guests = Crew("guests", [lane], 3, writes=False)
    return {
        "laps": Plan([replace(writers, is_permanent=True), readers]),
        "guests": Plan([writers, readers, guests]),
        "crowd": Plan([writers, replace(readers, count=3 * len(WAYS))]),
        "kills": Plan([writers, readers, guests], KILLS, 0.1),
        "stops": Plan([writers, readers, guests], STOPS),
        "takeovers": Plan([writers, readers], TAKEOVERS),
        "forks": Plan([writers, replace(readers, forks=2)]),
        "threads": Plan([replace(writers, threads=2), replace(readers, count=2, threads=len(WAYS))]),
    }[disturbance]


WRITERS: dict[type[Workload], int] = {Topics: 1, Rows: 1, Patient: 1, Channels: 3, Frames: 1, Records: 3, Queues: 3}
