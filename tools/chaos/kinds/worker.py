"""An incarnation that uses all five kinds at once in one process, with one poller for whatever comes."""

from __future__ import annotations

from typing import Any

import msgq
from tools.chaos.kinds.channels import Channels
from tools.chaos.kinds.frames import Frames
from tools.chaos.kinds.queues import Queues
from tools.chaos.kinds.records import Records
from tools.chaos.kinds.topics import Topics
from tools.chaos.kinds.workload import Counts, RunResult, WorkerContext, Workload

KINDS: tuple[type[Workload], ...] = (Topics, Channels, Frames, Records, Queues)
WAIT_MS = 20  # maximum wait of an incarnation before it checks for the end of the run


class Worker:
    """All kinds at once. One thread uses it. It is closed by `quiet`, then `close`; a kill needs neither."""

    def __init__(self, context: WorkerContext) -> None:
        self._rng, self._poller = context.rng, msgq.Poller()
        self.workloads = [kind(context) for kind in KINDS]
        self._workload_of: dict[int, Workload] = {}
        for workload in self.workloads:
            for reader in workload.readers():
                self._poller.registerSocket(reader)
                self._workload_of[id(reader)] = workload

    def produce(self) -> None:
        """Make something of one of the kinds."""
        self._rng.choice(self.workloads).produce()

    def listen(self, timeout_ms: float) -> bool:
        """Wait for messages of all kinds, and receive from the readers that the poller reports. Return True for any.

        No reader is polled otherwise, so a message that the poller does not report is missing in the history.
        """
        ready: list[Any] = self._poller.poll(timeout_ms)
        for reader in ready:
            self._workload_of[id(reader)].take(reader)
        return bool(ready)

    def stop_producing(self) -> None:
        """Make nothing any more."""
        for workload in self.workloads:
            workload.stop_producing()

    def close(self) -> None:
        """Leave."""
        for workload in self.workloads:
            workload.close()


def work(context: WorkerContext) -> int:
    """Live: make and take at a pace of this incarnation's own, until the incarnation or the run is over."""
    record, history, rng = context.history[context.incarnation], context.history, context.rng
    steps = -1 if context.is_permanent else rng.choice((30, 1000, 10**9))
    worker = Worker(context)
    record.joined = 1
    while steps and history.ending == 0:
        steps -= 1
        if history.begun:
            worker.produce()
        worker.listen(rng.choice((0, 0, 1, WAIT_MS)))
    worker.stop_producing()
    record.quiet = 1
    while context.is_permanent and history.ending < 2:
        worker.listen(WAIT_MS)
    while context.is_permanent and worker.listen(WAIT_MS):
        pass
    worker.close()
    return 0


def check_at_end(context: WorkerContext) -> int:
    """Join every kind when all have gone; see `Part.audit`."""
    for kind in KINDS:
        kind.check_at_end(context)
    return 0


def create_files() -> None:
    """Make the files of all kinds."""
    for kind in KINDS:
        kind.create_files()


def check(run_result: RunResult) -> list[str]:
    """Return the errors in the history of all kinds."""
    return [error_file for kind in KINDS for error_file in kind.check(run_result)]


def counts(run_result: RunResult) -> list[Counts]:
    """Return the lines of the table."""
    return [line for kind in KINDS for line in kind.counts(run_result)]
