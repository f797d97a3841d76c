"""The job of a measured process."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.bench.adapters import adapter
from tools.bench.adapters.base import System, Topic
from tools.bench.cases import Case


@dataclass(frozen=True)
class Job:
    """One process's part of the measurement of one case and one system.

    Attributes:
        case: the row. Its `depth` is not 0.
        system: name of the adapter.
        role: name of the work.
        name: unique name of the measurement. The names of its topics begin with it.
        number: of the process, among those beside the first one.
        cpu: core of the process; None: all cores.
        folder: folder of the run, see `adapters.base.Topic`.
        tag: tag of the run, see `adapters.base.Topic`.
        checkout: project that the process measures; None: this one.
    """

    case: Case
    system: str
    role: str
    name: str
    number: int
    cpu: int | None
    folder: Path
    tag: str
    checkout: Path | None

    @property
    def message(self) -> bytes:
        """The bytes that are sent, always the same."""
        return (bytes(range(64)) * -(-self.case.size // 64))[: self.case.size]

    @property
    def words_path(self) -> Path:
        """The file of the control words, on a file system in memory."""
        return Path("/dev/shm") / f"{self.name}.words"

    def system_for(self, suffix: str) -> System:
        """Return the system's adapter for one of the measurement's topics."""
        return _open_system(self, suffix)


@cache
def _open_system(job: Job, suffix: str) -> System:
    case = job.case
    few = case.size, case.depth, case.subscribers, case.lossless, case.kind
    return adapter(job.system)(Topic(f"{job.name}-{suffix}", *few, job.folder, job.tag))
