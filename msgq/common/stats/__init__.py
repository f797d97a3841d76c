"""Statistics as values: frozen dataclasses, one file for each kind. `msgq.stats` exports the names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Participant:
    """A process that takes part in an endpoint.

    Attributes:
        pid: process that connected, numbered in its PID namespace.
        thread_id: thread that connected, numbered in its PID namespace.
        start_time: start of the process, in clock ticks since boot.
        name: name of the process, at most 15 bytes.
        alive: True if the process lives. None: unknown, because the process is in another PID namespace, and the file
            system has no locks.
    """

    pid: int
    thread_id: int
    start_time: int
    name: str
    alive: bool | None

    def __str__(self) -> str:
        """Return name and pid, with "(dead)" or "(unknown)" unless the process is alive."""
        return f"{self.name} {self.pid}{ {True: '', False: ' (dead)', None: ' (unknown)'}[self.alive] }"
