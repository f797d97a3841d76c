"""Random programs of two processes that ask to be notified of one queue, with what must come of each step.

Whether a request is granted, and whom a message is told, follows from the steps before; so the program knows it.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, NamedTuple

from tests.contract.posix_children import Queues
from tests.support import Child, hear, say, wait_until

ROOM = 3
ACTORS = ("main", "child")


class Step(NamedTuple):
    """Who does what; what comes of it, and who is told of which request then ("" for nobody)."""

    actor: str
    operation: str
    slot: int
    number: int
    outcome: str
    told: str
    request: int


def program(rng: random.Random) -> list[Step]:
    """Return steps that make sense, the queue being empty before them."""
    steps: list[Step] = []
    opened: dict[str, set[int]] = {actor: set() for actor in ACTORS}
    messages, asked, request = 0, "", 0
    for number in range(rng.randrange(10, 50)):
        actor, slot = rng.choice(ACTORS), rng.randrange(3)
        operation = rng.choice(["send"] * 5 + ["receive"] * 5 + ["ask"] * 4 + ["cancel", "close"])
        if slot not in opened[actor]:
            operation = "open"
        outcome, told, which = "done", "", request
        if operation == "open":
            opened[actor].add(slot)
        elif operation == "send" and messages < ROOM:
            told, asked = (asked, "") if not messages else ("", asked)
            messages += 1
        elif operation == "receive" and messages:
            messages -= 1
        elif operation == "ask" and asked in ("", actor):
            asked, request = actor, number
        elif operation in ("cancel", "close"):
            asked = "" if asked == actor else asked
            opened[actor] -= {slot} if operation == "close" else set()
        else:
            outcome = "BusyError"
        steps.append(Step(actor, operation, slot, number, outcome, told, which))
    return steps


class Listener:
    """One process's handles of the queue, and what it was told."""

    def __init__(self, module: str, name: str) -> None:
        self.queues = Queues(module, name)
        self.handles: dict[int, Any] = {}
        self.heard: list[int] = []

    def do(self, operation: str, slot: int, number: int) -> str:
        handle: Any = self.handles.get(slot)
        try:
            if operation == "open":
                self.handles[slot] = self.queues.open(max_messages=ROOM)
            elif operation == "send":
                handle.send(str(number), 0)
            elif operation == "receive":
                handle.receive(0)
            elif operation == "ask":
                handle.request_notification((self.heard.append, number))
            elif operation == "cancel":
                handle.request_notification(None)
            else:
                self.handles.pop(slot).close()
        except self.queues.posix.BusyError as error:
            return type(error).__name__
        return "done"

    def expect(self, heard: list[int]) -> list[int]:
        """Return what was heard, when it is as much as that."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(self.heard) >= len(heard))
        return self.heard


def far_listener(module: str, name: str) -> None:
    """In a child: do what the parent says."""
    listener = Listener(module, name)
    while (said := hear()) is not None:
        say(listener.expect(said[0]) if len(said) == 1 else listener.do(*said))
    listener.queues.end()


def run(module: str, name: str, steps: list[Step]) -> None:
    """Do a program, and assert what comes of it."""
    listener = Listener(module, name)
    heard: dict[str, list[int]] = {actor: [] for actor in ACTORS}
    with Child(far_listener, module, name) as child:

        def there(*said: Any) -> Any:
            child.say(said)
            return child.hear()

        try:
            for step in steps:
                what = step.operation, step.slot, step.number
                outcome = listener.do(*what) if step.actor == "main" else there(*what)
                assert outcome == step.outcome, step
                if step.told:
                    heard[step.told].append(step.request)
                    now = heard[step.told]
                    assert (listener.expect(now) if step.told == "main" else there(now)) == now, step
            assert [listener.expect([]), there([])] == [heard["main"], heard["child"]]
        finally:
            listener.queues.end()
            child.say(None)
