"""The same random program on channels of both backends: everything that can be seen of it is the same."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from msgq.common.schema import Schema
from msgq.errors import LostMessagesError, MsgqError
from tests.contract.conftest import Channels, channels_of

SEEDS = pytest.mark.seeds(2, 6, 50)
SIZES = [0, 1, 3, 8, 8, 8, 30, 64]
SCHEMAS = [Schema("one", "text"), Schema("two", "text")]
SUBSCRIBED = ("lost", "received", "resets", "position", "views_held", "closed", "passive")
DIAGNOSED = ("node", "slots", "slot_bytes", "sent", "bytes", "refused", "evicted", "messages", "left", "superseded")
PUBLISHED = ("sent", "bytes", "refused", "evicted", "slots", "slot_bytes", "closed")


class Program:
    """Publishers, subscribers, loans and views that come and go, on one backend."""

    def __init__(self, channels: Channels) -> None:
        self.channels = channels
        self.open: list[Any] = [channels.open()]
        self.pubs: list[Any] = []
        self.subs: list[Any] = []
        self.loans: list[Any] = []
        self.views: list[Any] = []
        self.number = 0

    def do(self, rng: random.Random, steps: list[str]) -> Any:
        """Do something, and return all that can be seen of it."""
        step = rng.choice(steps)
        state = rng.getstate()
        try:
            result: Any = getattr(self, f"_{step}")(rng)
        except (MsgqError, BufferError) as error:
            result = (
                type(error).__name__,
                getattr(error, "lost", None) if isinstance(error, LostMessagesError) else None,
            )
        rng.setstate(state)  # an error in the middle must not leave the two apart
        rng.random()
        return step, result, self.seen()

    def seen(self) -> Any:
        """Return the counters of everybody."""
        pubs = [[getattr(pub, name) for name in PUBLISHED] for pub in self.pubs]
        subs = [[getattr(sub, name) for name in SUBSCRIBED] for sub in self.subs]
        return pubs, subs, [bytes(view) for view in self.views], diagnosis(self.open[-1])

    def message(self, rng: random.Random) -> bytes:
        self.number += 1
        size = rng.choice(SIZES)
        return self.number.to_bytes(8, "little").ljust(size, b".")[:size]

    # ---- coming and going ----

    def _reopen(self, rng: random.Random) -> Any:
        said: dict[str, Any] = {
            "capacity": rng.choice([None, None, None, 4, 16]),
            "publishers": rng.choice([None] * 5 + [3]),
            "subscribers": rng.choice([None] * 5 + [4]),
            "create": rng.choice([None, None, False, True]),
            "schema": rng.choice([None, *SCHEMAS]),
            "strict_schema": rng.random() < 0.3,
        }
        self.open.append(self.channels.open(**said))
        return self.open[-1].schema_matches, self.open[-1].stamps

    def _unlink(self, rng: random.Random) -> None:
        channel = rng.choice(self.open)
        if rng.random() < 0.3:
            channel.unlink()

    def _publisher(self, rng: random.Random) -> None:
        slots, slot_bytes = rng.choice([None, 1, 2, 3, 5, 40]), rng.choice([None, 1, 8, 64])
        most = rng.choice([1 << 30, 1 << 30, 700])
        self.pubs.append(rng.choice(self.open).publisher(slots=slots, slot_bytes=slot_bytes, max_bytes=most))

    def _subscriber(self, rng: random.Random) -> None:
        channel = rng.choice(self.open)
        if rng.random() < 0.1:
            channel = self.channels.open(passive=True)
        options: dict[str, Any] = {
            "history": rng.choice([0, 0, 3, 1000]),
            "max_views": rng.choice([0, 1, 3, 8]),
            "conflate": rng.random() < 0.2,
            "on_lapped": rng.choice(["oldest", "newest"]),
            "on_lost": rng.choice(["count", "count", "raise"]),
            "own": rng.random() < 0.8,
        }
        self.subs.append(channel.subscriber(**options))

    def _leave(self, rng: random.Random) -> None:
        for side in (self.pubs, self.subs):
            if len(side) > rng.randrange(1, 5):
                side.pop(rng.randrange(len(side))).close()

    # ---- publishing ----

    def _send(self, rng: random.Random) -> Any:
        if self.pubs:
            return rng.choice(self.pubs).send(self.message(rng), origin_time=rng.randrange(9))
        return None

    def _burst(self, rng: random.Random) -> None:
        if self.pubs:
            rng.choice(self.pubs).send_many([self.message(rng) for _ in range(rng.randrange(40))])

    def _loan(self, rng: random.Random) -> Any:
        if not self.pubs:
            return None
        message = self.message(rng)
        loan = rng.choice(self.pubs).loan(len(message))
        memoryview(loan)[:] = message
        self.loans.append(loan)
        return len(loan)

    def _return(self, rng: random.Random) -> Any:
        if not self.loans:
            return None
        loan = self.loans.pop(rng.randrange(len(self.loans)))
        if rng.random() < 0.3:
            return loan.discard()
        return loan.publish(rng.choice([None, None, 0, 5])), loan.position

    # ---- receiving ----

    def _with(self, rng: random.Random, call: Callable[[Any], Any]) -> Any:
        if not self.subs:
            return None
        sub = rng.choice(self.subs)
        result = call(sub)
        return result, sub.last and (sub.last.position, sub.last.origin_time, sub.last.publisher)

    def _receive(self, rng: random.Random) -> Any:
        return self._with(rng, lambda sub: sub.receive(0))

    def _receive_into(self, rng: random.Random) -> Any:
        buffer = bytearray(rng.choice([0, 8, 100]))
        return self._with(rng, lambda sub: (sub.receive_into(buffer, 0), bytes(buffer)))

    def _receive_many(self, rng: random.Random) -> Any:
        most = rng.choice([None, 0, 1, 5])
        return self._with(rng, lambda sub: sub.receive_many(most))

    def _receive_array(self, rng: random.Random) -> Any:
        most = rng.choice([None, 0, 2, 50])
        return self._with(rng, lambda sub: sub.receive_array("<u8", most).tolist())

    def _poll(self, rng: random.Random) -> Any:
        def polled(sub: Any) -> Any:
            poller = self.channels.Poller()
            poller.registerSocket(sub)
            return len(poller.poll(0)), sub.receive(0)

        return self._with(rng, polled)

    def _view(self, rng: random.Random) -> Any:
        def view(sub: Any) -> Any:
            sample = sub.receive_view(0)
            if sample is None:
                return None
            self.views.append(sample)
            return bytes(sample), sample.position, sample.origin_time, sample.publisher, len(sample)

        return self._with(rng, view)

    def _release(self, rng: random.Random) -> None:
        if self.views:
            self.views.pop(rng.randrange(len(self.views))).release()

    def close(self) -> None:
        for loan in self.loans:
            loan.discard()
        for view in self.views:
            view.release()
        for side in (*self.pubs, *self.subs):
            side.close()


def diagnosis(channel: Any) -> Any:
    """Return what others see of it, but for processes and files."""
    stats = channel.diagnose()
    publishers = [[getattr(one, name) for name in DIAGNOSED] for one in stats.publishers]
    subscribers = [
        [getattr(one, name) for name in ("node", "lag", "received", "lost", "views_held")] for one in stats.subscribers
    ]
    viewers = [(one.node, one.views, one.outdated) for one in stats.viewers]
    geometry = stats.capacity, stats.max_publishers, stats.max_subscribers, stats.stamps, stats.schema, stats.messages
    return geometry, publishers, subscribers, viewers


MANY = ["send"] * 8 + ["receive"] * 4 + ["burst", "receive_many", "receive_array", "receive_into", "poll"]
COMING = ["publisher", "subscriber", "leave", "reopen"]
VIEWS = ["view"] * 3 + ["release"] * 2 + ["loan", "return"]
KINDS = {
    "plain": MANY + COMING,
    "views": MANY + COMING + VIEWS * 2,
    "crowded": MANY + COMING * 5 + VIEWS,
    "removed": MANY + COMING * 2 + VIEWS + ["unlink"] * 2,
}


@contextmanager
def program(name: str, token: str) -> Iterator[Program]:
    with contextlib.closing(channels_of(name, token)) as chosen:  # type: ignore[type-var]  # a generator
        running = Program(next(chosen))
        try:
            yield running
        finally:
            running.close()


@pytest.mark.parametrize("kind", KINDS)
@SEEDS
def test_random_channel_program_has_equal_results_on_msgq_and_fake(token: str, seed: int, kind: str) -> None:
    transcripts = []
    for name in ("msgq", "fake"):
        rng = random.Random(f"{kind} {seed}")
        with program(name, token) as running:
            transcripts.append([running.do(rng, KINDS[kind]) for _ in range(600)])
    for step, (real, fake) in enumerate(zip(*transcripts, strict=True)):
        assert fake == real, f"step {step}"
    assert running.open[0].messages >= 0
