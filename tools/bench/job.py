"""The job of a measured process."""

from dataclasses import dataclass
from pathlib import Path

from tools.bench.adapters import adapter
from tools.bench.adapters.base import System, Topic


@dataclass(frozen=True)
class Job:
    """One process's part of the measurement of one case and one system.

    Attributes
    ----------
    system, role : the adapter, and a name in `roles.ROLES`.
    name : the measurement's unique name; the topics' names begin with it.
    size, depth, batch, subscribers, lossless, in_place, fresh, frames, kind : see `cases.Case`.
    seconds : how long to measure in a slice; a quarter more for the warm-up.
    number : of the process, among those beside the first one.
    limit_s : the process kills itself when its preparation or a slice takes longer, so that nothing can hang.
    cpu : the only core it runs on.
    folder, tag : of the run, see `adapters.base.Topic`.
    """

    system: str
    role: str
    name: str
    size: int
    depth: int
    batch: int
    subscribers: int
    lossless: bool
    in_place: bool
    fresh: bool
    frames: bool
    kind: str
    seconds: float
    number: int
    limit_s: int
    cpu: int
    folder: str
    tag: str

    @property
    def message(self) -> bytes:
        """The bytes that are sent, always the same."""
        return (bytes(range(64)) * -(-self.size // 64))[: self.size]

    @property
    def words_path(self) -> Path:
        """The file of the control words, on a file system in memory."""
        return Path("/dev/shm") / f"{self.name}.words"

    def topic_name(self, suffix: str) -> str:
        """Return the name of one of the measurement's topics."""
        return f"{self.name}-{suffix}"

    def system_for(self, suffix: str) -> System:
        """Return the system's adapter for one of the measurement's topics."""
        kind = adapter(self.system)
        name = self.topic_name(suffix)
        few = self.size, self.depth, self.subscribers, self.lossless, self.kind
        return kind(Topic(name, *few, Path(self.folder), self.tag))
