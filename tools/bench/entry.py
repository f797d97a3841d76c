"""One system in one case: its fresh processes, and the slices they measure."""

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.bench import control, members
from tools.bench.adapters import FLOOR, adapter
from tools.bench.adapters.base import Unsupported
from tools.bench.cases import Case
from tools.bench.job import Job
from tools.bench.machine import cores, spare_cores
from tools.bench.process import Failed, Process
from tools.bench.works import is_work
from tools.bench.workspace import Workspace

# Helper threads that a system starts when a sleep gets long have been started by then: that happens once.
SETTLE_S = 4.5  # seconds; actions once at the beginning of a sleep are not periodic
TOPICS = ("data", "ping", "pong")


class Entry:
    """The processes of a case, the publisher's side first: two, or more where subscribers are apart.

    They are prepared in steps, so that the entries of a case can start side by side: construct, `prepare`,
    `await_ready`, and then any number of `measure`.
    """

    def __init__(self, space: Workspace, case: Case, system: str, checkout: Path | None = None) -> None:
        """Start the publisher's side.

        Raises:
            Unsupported: the system cannot have that many subscribers.
        """
        kind = adapter(system)
        if case.subscribers not in kind.readers:
            most = kind.readers.stop - 1
            allowed = f"{kind.readers.start} to {most}" if most > kind.readers.start else f"exactly {most}"
            raise Unsupported(f"number of subscribers: {allowed}")
        self._space, self._system, self._checkout = space, system, checkout
        self._case = replace(case, depth=case.depth or kind.in_flight)
        if case.program and system == FLOOR:  # both sides are in the program
            self._case = replace(self._case, role="program", peer_role="")
        self._name = space.new_name()
        self._stack = ExitStack()
        self._cores = cores()
        has_all_cores = self._case.role in ("program", "c_bus") or is_work(self._case.role)
        job = self._job(self._case.role, None if has_all_cores else self._cores[0])
        self._words = control.create(job.words_path)
        self._main = self._stack.enter_context(Process(job))
        self._peers: list[Process] = []

    def prepare(self) -> None:
        """Wait for the publisher's side, and start the subscriber's side. For the errors, see `Process.await_ready`."""
        self._main.await_ready()
        case, (first, second) = self._case, self._cores
        roles = [case.peer_role] * (case.subscribers if case.apart else 1) if case.peer_role else []
        places = [(role, second if number % 2 == 0 else first) for number, role in enumerate(roles)]
        places += [(role, second if number % 2 == 0 else first) for number, role in enumerate(case.crew)]
        if case.loaded:
            places += [("load", first), ("load", second)]
        places += self._watchers()
        for number, (role, cpu) in enumerate(places):
            self._peers.append(self._stack.enter_context(Process(self._job(role, cpu, number))))

    def await_ready(self) -> None:
        """Wait for the subscriber's side. For the errors, see `Process.await_ready`."""
        for peer in self._peers:
            peer.await_ready()

    def measure(self) -> dict[str, Any]:
        """Measure one slice.

        Returns:
            ``value`` in the case's unit, ``waited``, the largest share of the time that a process had to wait for its
            core, ``cores``, the CPU time of all in a second, and what the roles add.

        Raises:
            Failed: a process died, or had to be ended, or lost messages.
        """
        for place in range(len(self._words)):
            self._words[place] = 0
        # Subscribers that only have to be there are never started; they leave when they are closed.
        peers = self._peers if self._case.peer_role != "hold" else []
        for peer in peers:
            peer.start()
        watched = _watch(peers[0].pid, self._case.seconds) if self._case.unit == "wakeups" else {}
        self._main.start()
        result = {**self._main.result(), **watched}
        return self._join(result, [peer.result() for peer in peers])

    def _join(self, result: dict[str, Any], peers: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of the publisher's side with what its peers add."""
        if lost := sum(peer.get("lost") or 0 for peer in peers):
            raise Failed(f"{lost} messages were lost")
        if "deliveries" in result:
            return self._join_bus([result, *peers])
        measured = peers[: len(peers) - self._case.watchers]
        result["waited"] = max(each["waited"] for each in (result, *measured))
        result["cores"] += sum(peer["cores"] for peer in peers)
        if "sent" in result and self._case.apart:
            received = sum(peer.get("received", 0) for peer in peers) / self._case.subscribers
            share = self._case.unit == "percent"
            result["value"] = 100 * received / result["sent"] if share else 1e9 * received / result["took_ns"]
        for peer in measured:
            if "samples" in peer:
                result |= {name: peer[name] for name in ("value", "samples")}
            result["value"] += peer.get("rate", 0.0)
        if self._case.loaded or len(self._case.crew) > 1 or is_work(self._case.role):
            result["waited"] = 0.0  # the measurement includes the wait for a core, or does not depend on it
        return result

    def _join_bus(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what all processes together spent, which includes their waits for a core."""
        if not any(part["deliveries"] for part in parts):
            raise Failed("no message was received")
        joined = members.join(parts, self._case.subscribers)
        return {**joined, "waited": 0.0, "cores": sum(part["cores"] for part in parts)}

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, and remove what they left."""
        self._stack.__exit__(kind, error, trace)
        self._words.release()
        self._space.sweep(self._system, [f"{self._name}-{topic}" for topic in TOPICS], self._name)

    def _watchers(self) -> list[tuple[str, int]]:
        """Return who watches: on cores where nothing else is measured, or now and then beside the second side."""
        spare = spare_cores()
        alone = spare or not self._case.peer_role
        places = spare or self._cores[1:]
        return [("watch" if alone else "glance", places[n % len(places)]) for n in range(self._case.watchers)]

    def _job(self, role: str, cpu: int | None, number: int = 0) -> Job:
        space, case, system = self._space, self._case, self._system
        return Job(case, system, role, self._name, number, cpu, space.folder, space.tag, self._checkout)


def _watch(pid: int, seconds: float) -> dict[str, float]:
    """Count how often the threads of a process ran because they woke up, while it has nothing to do."""
    time.sleep(SETTLE_S)
    before, start = _switches(pid), time.perf_counter()
    time.sleep(seconds)
    return {"value": (_switches(pid) - before) / (time.perf_counter() - start)}


def _switches(pid: int) -> int:
    """Return the voluntary context switches of all threads: each ends one sleep and begins another."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total
