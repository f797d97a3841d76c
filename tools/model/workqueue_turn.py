"""Whose turn it is among the calls that wait in a work queue (msgq/impl/workqueue/turn.h)."""

from .memory import SEQ_CST
from .ops import fence
from .task import Steps
from .workqueue_sleep import Sleeper
from .workqueue_store import TICKETS, turn

NO_TICKET = 1 << 62  # of calls that have not waited
VAIN = 2  # wakes without result, before a call takes a turn


class Waiter(Sleeper):
    """A thread of a handle, in calls that wait."""

    ticket = first = NO_TICKET
    vain = 0
    vain_before = 0  # with which each call begins: others were faster so often

    # ---- a call ----

    def begin_wait(self, kind: str) -> Steps[None]:
        """Draw a ticket, for all sleeps of the call."""
        yield from self.draw_ticket(kind)
        self.vain = self.vain_before
        self.first = self.store.tickets[self.task] = self.ticket
        self.store.began.setdefault((self.us.row, kind), []).append(self.first)

    def draw_ticket(self, kind: str) -> Steps[None]:
        """One larger than all before."""
        before: int = yield self.store.change(TICKETS, lambda count: count + 1)
        self.ticket = before + 1
        self.us.waits[kind].append(self.ticket)
        self.store.calls[self.ticket] = self.task

    def end_wait(self, kind: str) -> Steps[None]:
        """The call is over, whatever it has."""
        ticket, self.ticket = self.ticket, NO_TICKET
        self.us.waits[kind].remove(ticket)
        self.store.began[self.us.row, kind].remove(self.first)
        if self.us.asleep[kind]:
            yield from self.show_ticket(kind)
        if self.vain >= VAIN and self.rules.turn_ends:
            yield from self.end_turn(kind, ticket)

    def lose(self) -> None:
        """See `Sleeper`. Each other thread may overtake this one once more before it sees that the turn is taken; calls
        that wait for longer may be served before it."""
        self.vain += 1
        if not self.us.is_shared:
            self.store.check_wakes(self.task.name, self.vain, VAIN + len(self.store.names))

    # ---- turns ----

    def renew_ticket(self, kind: str) -> Steps[None]:
        """See `Sleeper`."""
        if self.vain and not self.rules.ticket_kept:
            self.us.waits[kind].remove(self.ticket)
            yield from self.draw_ticket(kind)

    def insist(self, kind: str) -> Steps[None]:
        """See `Sleeper`."""
        if self.vain < VAIN or not self.rules.turns:
            return
        while True:
            owner: int = yield self.store.look(turn(kind))
            if owner and owner <= self.ticket:
                return
            kept = bool(owner) and not self.rules.turn_taken_over
            if kept or (yield self.store.exchange(turn(kind), owner, self.ticket)) == owner:
                self.store.insisting[kind].append((self.ticket, self.store.host.clock))
                return

    def end_turn(self, kind: str, ticket: int) -> Steps[None]:
        """Wake those who yielded: their wakes are used up."""
        if (yield self.store.exchange(turn(kind), ticket, 0)) != ticket:
            return
        self.store.insisting[kind].clear()
        if not self.rules.turn_end_wakes:
            return
        yield fence(SEQ_CST)
        if count := (yield from self.available(kind)):
            yield from self.wake(kind, count)

    def must_yield(self, kind: str) -> Steps[bool]:
        """Is what is there for a call that has waited for longer?"""
        owner: int = yield self.store.look(turn(kind))
        self.store.check_turn(kind, self.task, owner, self.ticket)
        if not owner or owner == self.ticket or (owner > self.ticket and self.rules.larger_yield):
            return False
        if not self.rules.dead_turns_end or not self.store.calls[owner].finished:
            return True
        if not (yield from self.available(kind)):
            return True
        yield from self.end_turn(kind, owner)  # it left this there for too long
        return False
