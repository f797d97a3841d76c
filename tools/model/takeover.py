"""Start and close our publisher. Numbers are the steps of docs/internals/topic-protocol.md, "Starting a publisher"."""

from collections.abc import Mapping
from typing import Any

from . import addresses as at
from .machine import Machine
from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import cas, fence, is_alive, load, membarrier, pause, store, until
from .oracle import Position, Violation
from .publisher import Publisher, notify_sleepers
from .task import Steps, Task
from .walk import walk

LONGEST_SEND = 60  # steps: who has taken so many since it was replaced has noticed


class Starter:
    """Starts and closes `publisher`. `tasks`: the task of each uid, for questions about its liveness."""

    def __init__(self, publisher: Publisher, machine: Machine, tasks: Mapping[str, Task], patience: int) -> None:
        self.publisher = publisher
        self.topic = publisher.topic
        self.machine = machine
        self.tasks = tasks
        self.patience = patience  # maximum loads of a send in progress

    def start(self) -> Steps[bool]:
        """Under the lock. False: the former publisher lives and its send does not end."""
        machine = self.machine
        yield until(lambda: machine.lock_owner is None)
        machine.lock_owner = self.tasks[self.publisher.uid]
        former = yield from self.claim()
        done = yield from self.wait_for_sends(former)
        if done:
            yield from self.inherit(former)
            yield from self.wake_sleepers()
        else:
            yield cas(at.WRITE_UID, self.publisher.uid, former)
            self.topic.publisher_rows.discard(self.publisher.uid)
        yield fence(SEQ_CST)
        machine.lock_owner = None
        return done

    def claim(self) -> Steps[Any]:
        """Step 2: store the uid in write_uid. Return the previous uid."""
        rules, uid, rows = self.topic.rules, self.publisher.uid, self.topic.publisher_rows
        is_alone = not rows  # publishers take rows under the lock
        rows.add(uid)
        former = yield load(at.WRITE_UID, ACQUIRE)
        while True:
            names_us = self.topic.trusts(former) or not rules.claim_names_nobody
            claim = uid if names_us else f"claim {uid}"
            if not rules.claim_by_cas:
                yield store(at.WRITE_UID, claim, RELEASE)
                break
            current = yield cas(at.WRITE_UID, former, claim)
            if current == former:
                break
            former = current
        if rules.starter_membarrier and not (is_alone and self.topic.trusts(former)):
            yield membarrier()  # EDGE takeover: between the store of write_uid and the load of begun
        return former

    def wait_for_sends(self, former: Any) -> Steps[bool]:
        """Step 3: wait while another living msgq publisher is between begun and sent."""
        rules = self.topic.rules
        other_uids = [uid for uid in self.topic.own_uids if uid in self.tasks and uid != self.publisher.uid]
        if not rules.wait_for_all:
            other_uids = [uid for uid in other_uids if uid == former]
        begins = {uid: self.tasks[uid].taken for uid in other_uids}
        for _ in range(self.patience):
            busy = None
            for uid in other_uids if rules.wait_for_send else ():
                if busy is None and not (yield from self.is_done(uid)):
                    busy = uid
            if busy is None:
                return True
            self.check_progress(busy, begins[busy])
            yield pause()
        return False

    def is_done(self, uid: str) -> Steps[bool]:
        """Is no send of that publisher in progress?"""
        rules = self.topic.rules
        done = yield load(at.sent_sequence(uid), rules.done_load_sent)  # EDGE send-done: acquire
        if (yield load(at.begun_sequence(uid), rules.done_load_begun)) == done:  # EDGE send-done: acquire
            return True
        alive: bool = yield is_alive(self.tasks[uid])
        return not alive

    def check_progress(self, uid: str, begins: int) -> None:
        """Check that the wait is right: the publisher still sends, or its writes are not visible yet."""
        task, newest = self.tasks[uid], self.machine.newest
        over = task.finished or task.taken - begins > LONGEST_SEND
        if (
            over
            and not task.dead
            and not task.closed
            and newest(at.begun_sequence(uid)) != newest(at.sent_sequence(uid))
        ):
            raise Violation("progress", f"{self.publisher.uid} waits for {uid}, which went on and notices nothing more")

    def inherit(self, former: Any) -> Steps[None]:
        """(4): position, count, limit and checkpoint."""
        p, topic = self.publisher, self.topic
        p.position = p.head = p.granted = yield load(at.WRITE_POINTER, ACQUIRE)
        p.limit = yield load(at.LIMIT)
        begin, sequence = yield from self.last_checkpoint()
        counted = yield from self.count(former, begin, sequence)
        p.sequence = counted or 0
        if counted is None:
            p.era, p.granted = p.era + 1, topic.geometry.write_bound(p.position)
            p.broke_count = topic.trusts(former)
            topic.oracle.start_era(p.era)
        yield from p.announce()
        p.granted = p.position  # no bytes are granted yet
        yield store(at.begun_sequence(p.uid), p.sequence)
        yield store(at.sent_sequence(p.uid), p.sequence, RELEASE)
        if not topic.trusts(former):
            yield cas(at.WRITE_UID, f"claim {p.uid}", p.uid)

    def last_checkpoint(self) -> Steps[tuple[Position, int]]:
        """Load the last checkpoint, and set its sequence and era. No publisher writes it now."""
        p, two = self.publisher, self.topic.rules.two_checkpoints
        p.checkpoint_seq = yield load(
            at.CHECKPOINT_SEQ if two else at.CHECKPOINT_SEQ_BEGIN, ACQUIRE
        )  # EDGE checkpoint: acquire
        cell = p.checkpoint_seq % 2 if two else 0
        position = yield load(at.checkpoint(cell, "position"))
        sequence = yield load(at.checkpoint(cell, "sequence"))
        p.era = yield load(at.checkpoint(cell, "era"))
        return position, sequence

    def count(self, former: Any, begin: Position, sequence: int) -> Steps[int | None]:
        """The count to continue; None after a stock publisher, which counted nothing (or if there is none)."""
        p, rules = self.publisher, self.topic.rules
        if not self.topic.trusts(former):
            return None
        if not rules.count_by_walk and former in self.topic.own_uids:
            believed: int = yield load(at.sent_sequence(former), ACQUIRE)
            return believed
        if not rules.two_checkpoints and (yield load(at.CHECKPOINT_SEQ)) != p.checkpoint_seq:
            return None
        walked = yield from walk(self.topic, begin, p.position)  # `sent` of one that was killed may be one short
        return None if walked is None else sequence + walked

    def wake_sleepers(self) -> Steps[None]:
        """(6): a publisher that was killed between commit and wake leaves sleepers."""
        rules = self.topic.rules
        if rules.starter_wakes and (rules.starter_wakes_all or (yield load(at.EVENTCOUNT))[1]):
            yield from notify_sleepers(self.topic)

    def close(self) -> Steps[None]:
        """Change write_uid to 0, wake sleepers, and free the row."""
        yield cas(at.WRITE_UID, self.publisher.uid, 0)
        yield from notify_sleepers(self.topic)
        yield fence(SEQ_CST)
        self.topic.publisher_rows.discard(self.publisher.uid)
        self.tasks[self.publisher.uid].closed = True
