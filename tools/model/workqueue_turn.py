"""Tickets and turns of the calls that wait in a work queue (msgq/impl/workqueue/handoff.h)."""

from .memory import SEQ_CST
from .ops import fence
from .task import Steps
from .workqueue_shared import TICKETS, WAITING, turn
from .workqueue_sleep import Sleeper

NO_TICKET = 1 << 62  # for calls that have not waited
OVERTAKEN_MAX = 2  # times that a call is overtaken before it takes the turn


class Waiter(Sleeper):
    """A thread of a handle that makes waiting calls."""

    ticket = first = NO_TICKET
    overtaken = 0
    overtaken_before = 0  # the count with which each call begins

    # ---- a call ----

    def begin_wait(self, kind: str) -> Steps[None]:
        """Draw a ticket, for all sleeps of the call."""
        yield from self.draw_ticket(kind)
        self.overtaken = self.overtaken_before
        self.first = self.shared.tickets[self.task] = self.ticket
        self.shared.began.setdefault((self.state.row, kind), []).append(self.first)

    def draw_ticket(self, kind: str) -> Steps[None]:
        """Draw a ticket that is larger than all before."""
        before: int = yield self.shared.change(TICKETS, lambda count: count + 1)
        self.ticket = before + 1
        self.state.waits[kind].append(self.ticket)
        self.shared.calls[self.ticket] = self.task

    def end_wait(self, kind: str) -> Steps[None]:
        """End the call, with or without a message."""
        ticket, self.ticket = self.ticket, NO_TICKET
        self.state.waits[kind].remove(ticket)
        self.shared.began[self.state.row, kind].remove(self.first)
        if self.state.asleep[kind]:
            yield from self.show_ticket(kind)
        if self.overtaken >= OVERTAKEN_MAX and self.rules.turn_ends:
            yield from self.end_turn(kind, ticket)

    def count_overtaken(self) -> None:
        """See `Sleeper`. Each other thread may overtake this one once more before it sees that the turn is taken; calls
        that wait for longer may be served before it."""
        self.overtaken += 1
        if not self.state.is_shared:
            self.shared.check_wakes(self.task.name, self.overtaken, OVERTAKEN_MAX + len(self.shared.names))

    # ---- turns ----

    def renew_ticket(self, kind: str) -> Steps[None]:
        """See `Sleeper`."""
        if self.overtaken and not self.rules.ticket_kept:
            self.state.waits[kind].remove(self.ticket)
            yield from self.draw_ticket(kind)

    def take_turn(self, kind: str) -> Steps[None]:
        """See `Sleeper`."""
        if self.overtaken < OVERTAKEN_MAX or not self.rules.turns:
            return
        while True:
            owner: int = yield self.shared.load_seq_cst(turn(kind))
            if owner and owner <= self.ticket:
                return
            kept = bool(owner) and not self.rules.turn_taken_over
            if kept or (yield self.shared.exchange(turn(kind), owner, self.ticket)) == owner:
                self.shared.turn_takers[kind].append((self.ticket, self.shared.kernel.clock))
                return

    def end_turn(self, kind: str, ticket: int, row: int = -1) -> Steps[None]:
        """Wake the calls that yielded, because they have consumed their wakes, and notify. `row`: the dead row that
        owes this."""
        yield from self.add_notify_debt(row)
        if (yield self.shared.exchange(turn(kind), ticket, 0)) == ticket:
            self.shared.turn_takers[kind].clear()
            yield fence(SEQ_CST)
            if self.rules.turn_end_wakes and (count := (yield from self.available(kind))):
                yield from self.wake(kind, count)
            if self.rules.turn_end_notifies and kind == WAITING:
                yield from self.notify_if_ready()
        yield from self.clear_notify_debt(row)

    def add_notify_debt(self, row: int = -1) -> Steps[None]:
        """See `Handle`."""
        raise NotImplementedError

    def clear_notify_debt(self, row: int = -1) -> Steps[None]:
        """See `Handle`."""
        raise NotImplementedError

    def notify_if_ready(self) -> Steps[None]:
        """See `Handle`."""
        raise NotImplementedError

    def must_yield(self, kind: str) -> Steps[bool]:
        """Must this call leave messages (slots) to the call with the turn?"""
        owner: int = yield self.shared.load_seq_cst(turn(kind))
        self.shared.check_turn(kind, self.task, owner, self.ticket)
        if not owner or owner == self.ticket or (owner > self.ticket and self.rules.larger_yield):
            return False
        if not self.rules.dead_turns_end or not self.shared.calls[owner].finished:
            return True
        if not (yield from self.available(kind)):
            return True
        yield from self.end_turn(kind, owner)  # its owner took nothing for too long
        return False
