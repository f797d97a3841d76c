"""An incarnation that uses one or several kinds in one process, and waits for whatever comes in one of the WAYS."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from typing import Any

import msgq
from tools.chaos.kinds.workload import WAIT, Lane, RunResult, WorkerContext, Workload
from tools.chaos.process import fork

#: Ways of an incarnation to wait for and to choose messages. An endpoint without a choice waits in the call.
WAYS = ("blocking", "poller", "conflating", "passive", "fileno", "asyncio", "slow", "lagging")
LAG = 0.1  # seconds that a lagging incarnation sleeps at most, when it has read all: it reads the oldest that there is
SUPERSEDED = 3  # exit code: another writer took over


class Worker:
    """Its kinds at once. One thread uses it. It is closed by `stop_producing`, then `close`; a kill needs neither."""

    def __init__(self, context: WorkerContext, lanes: list[Lane]) -> None:
        self.context, self._rng = context, context.rng
        self.workloads = [lane.kind(context, lane) for lane in lanes]
        self._readers = [
            (reader, workload) for workload in self.workloads if context.reads for reader in workload.readers()
        ]
        self._poller = msgq.Poller()
        for reader, _ in self._readers:
            self._poller.registerSocket(reader)
        self._loop = asyncio.new_event_loop() if context.way == "asyncio" else None

    def produce(self) -> None:
        """Make something of one of the kinds."""
        self._rng.choice(self.workloads).produce()

    @property
    def is_over(self) -> bool:
        """Whether other writers superseded this one everywhere."""
        return all(workload.is_over for workload in self.workloads)

    def listen(self, timeout: float) -> bool:
        """Wait for messages in the way of this incarnation, and receive some. Return True for any.

        A poller or descriptors wait for all readers, and no other reader is looked at. So a message that they do not
        report is missing in the history.
        """
        way = self.context.way
        if way == "poller":
            return self._take(self._poller.poll(int(timeout * 1000)))
        if way == "fileno":
            return self._take(select.select([reader for reader, _ in self._readers], [], [], timeout)[0])
        reader, workload = self._rng.choice(self._readers)
        if self._loop is not None:
            return self._loop.run_until_complete(_await_one(workload, reader, timeout))
        if way == "slow" and self._rng.random() < 0.02:
            time.sleep(self._rng.random() * 0.005)  # the point is to be late, nothing waits for this
        if way == "lagging" and not (took := workload.take(reader)):
            time.sleep(self._rng.random() * LAG)
            return took
        return workload.take(reader, timeout)

    def _take(self, ready: list[Any]) -> bool:
        """Receive from these readers. Not each report leads to a message, for others may take it first."""
        for reader, workload in self._readers:
            if any(reader is one for one in ready):
                workload.take(reader)
        return bool(ready)

    def drain(self) -> None:
        """Receive until nothing is there."""
        while self.listen(WAIT) if self.context.way in ("poller", "fileno") else self._take_all():
            pass

    def _take_all(self) -> bool:
        return sum(workload.take(reader) for reader, workload in self._readers) > 0  # from each of them

    def let_go(self) -> None:
        """Give back what is held of all endpoints."""
        for workload in self.workloads:
            workload.let_go()

    def fork(self, forks: int) -> int:
        """Let a forked child go on receiving as another incarnation; return its process id."""
        self.let_go()
        context, words = self.context.fork(), [list(workload.words) for workload in self.workloads]
        return fork(context.folder / str(context.incarnation), self._continue_in_fork, context, words, forks)

    def _continue_in_fork(self, context: WorkerContext, words: list[list[int]], forks: int) -> int:
        self.context, self._rng = context, context.rng
        for workload, before in zip(self.workloads, words, strict=True):
            workload.continue_in_fork(context, before)
        return _live_and_fork(self, forks)

    def stop_producing(self) -> None:
        """Make nothing any more."""
        for workload in self.workloads:
            workload.stop_producing()

    def close(self) -> None:
        """Leave."""
        for workload in self.workloads:
            workload.close()


async def _await_one(workload: Workload, reader: Any, timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            await workload.atake(reader)
    except TimeoutError:
        return False
    return True


def work(context: WorkerContext, lanes: list[Lane], forks: int = 0) -> int:
    """Live: make and take at a pace of this incarnation's own, until the incarnation or the run is over."""
    rng = context.rng
    steps = -1 if context.is_permanent else rng.choice((5, 30, 1000, 10**9))
    worker = Worker(context, lanes)
    context.history[context.incarnation].joined = 1
    if forks:
        return _live_and_fork(worker, forks)
    _live(worker, steps, 0.0 if context.is_permanent else rng.choice((0, 0.0005, 0.005)))
    return SUPERSEDED if worker.is_over else 0


def _live_and_fork(worker: Worker, forks: int) -> int:
    """Live as a permanent reader that forks after a while; the child forks, too, so many times."""
    for _ in range(worker.context.rng.randrange(20) if forks else 0):
        worker.listen(WAIT)
    child = worker.fork(forks - 1) if forks else 0
    _live(worker, -1, 0.0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0


def _live(worker: Worker, steps: int, pause: float) -> None:
    """Make and take until so many steps, or all, are done; permanent readers stay until nothing comes any more."""
    context, rng = worker.context, worker.context.rng
    history, record = context.history, context.history[context.incarnation]
    while steps and history.ending == 0 and not worker.is_over:
        steps -= 1
        record.steps += 1
        if context.writes and history.begun:
            worker.produce()
            if pause and rng.random() < 0.2:
                time.sleep(pause * rng.random())
        if context.reads:
            timeout = rng.choice((0, 0, 0.001, WAIT)) if context.writes else WAIT
            took = worker.listen(timeout)
            record.taken += took
            if timeout == WAIT and not took:  # together, all readers may hold every buffer, so that no frame can follow
                worker.let_go()
    worker.stop_producing()
    record.quiet = 1
    if context.reads and context.is_permanent:
        while history.ending < 2:
            worker.listen(WAIT)
        worker.drain()
    worker.close()


def work_in_threads(contexts: list[WorkerContext], lanes: list[Lane]) -> int:
    """Be several incarnations in one process, in a thread each."""
    failed = list[BaseException]()

    def live(context: WorkerContext) -> None:
        try:
            work(context, lanes)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=live, args=(context,), daemon=True) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not failed:
            thread.join(WAIT)
    for error in failed:
        raise error
    return 0


def check_at_end(context: WorkerContext, lane: Lane) -> int:
    """Join when all have gone; see `Workload.check_at_end`."""
    lane.kind.check_at_end(context, lane)
    return 0


def check(run_results: list[RunResult]) -> list[str]:
    """Return the errors in the history of all lanes."""
    return [error for result in run_results for error in result.lane.kind.check(result)]
