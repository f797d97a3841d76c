"""What is measured, as values, a file a kind: frozen records without behaviour. Public names are in `msgq.stats`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Participant:
    """A process that takes part in a topic.

    Attributes
    ----------
    pid, thread_id : process and thread that connected, in their PID namespace.
    start_time : of the process, clock ticks since boot.
    name : the process's name, at most 15 bytes.
    alive : None if unknown: it is in another PID namespace, and the file system has no locks.
    """

    pid: int
    thread_id: int
    start_time: int
    name: str
    alive: bool | None

    def __str__(self) -> str:
        """Return name and pid, and whether it is dead or nobody can tell."""
        return f"{self.name} {self.pid}{ {True: '', False: ' (dead)', None: ' (unknown)'}[self.alive] }"
