"""A channel: several publishers, and in each life a subscriber that copies and one that keeps views."""

from __future__ import annotations

import zlib
from typing import Any

import msgq
from msgq.channel import Channel
from msgq.errors import PoolExhaustedError
from msgq.impl.channel.publisher import Publisher
from msgq.impl.channel.subscriber import Sample, Subscriber
from tests.stress.channels import HEAD, message, read
from tools.chaos.books import CHANNELS, Account, Books, Word
from tools.chaos.kinds.part import Figures, Outcome, Part, Place, within
from tools.chaos.kinds.topics import complete

NAME = "lanes"
CAPACITY = 64
VIEWS = 4  # that a life keeps
BATCH = 20
SIZES = (0, 10, 200, 200, 4000, 20_000)  # bytes of messages, of which some make pools grow


class Lane(Account):
    """What a life has written of the channel.

    Attributes
    ----------
    made, sent : messages that it began to publish, and those whose publishing had returned. Of life 0 `made` is the
        number of all messages at the end.
    """

    __slots__ = ()

    made = Word(0)
    sent = Word(1)


class Side(Account):
    """What a subscriber has written of what it got."""

    __slots__ = ()

    received = Word(0)
    lost = Word(1)


SIDES = {"copying": 2, "viewing": 4}  # the words of a life that each subscriber has


class Reader:
    """A subscriber, and the check of what it gets: whole, in order, and every position received or lost."""

    def __init__(self, kind: str, subscriber: Subscriber, words: memoryview, books: Books) -> None:
        self.kind, self.subscriber, self._books = kind, subscriber, books
        self._side, self._start = Side(words), subscriber.position or CAPACITY
        self._position = -1
        self._last: dict[int, tuple[int, int]] = {}  # life -> its last message here, and what was lost until then

    def check(self, data: Any, position: int, publisher: str) -> None:
        """Check a message that was just taken."""
        life, index = read(data)
        received, lost = self.subscriber.received, self.subscriber.lost
        assert publisher == f"life {life}", f"a message of life {life} says that it is of {publisher}"
        assert index < Lane(self._books.words(life, CHANNELS)).made, f"life {life} has not made message {index}"
        assert position > self._position, f"position {position} came after {self._position}"
        known = position + 1 - self._start
        assert received + lost == known, f"{self.kind}: {received} received, {lost} lost, of {known} positions"
        before, lost_before = self._last.get(life, (index - 1, lost))
        assert index > before, f"{self.kind}: message {index} of life {life} came after {before}"
        missing = index - before - 1
        assert missing <= lost - lost_before, f"{self.kind}: {missing} of life {life} are missing, and not lost"
        self._position, self._last[life] = position, (index, lost)
        self._side.received, self._side.lost = received, lost


class Channels(Part):
    """The channel of the lives of all kinds."""

    section = CHANNELS

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._lane = Lane(self.words)
        self._channel = Channel(NAME, node=f"life {place.life}")
        self._copying, self._viewing = (
            Reader(kind, self._channel.subscriber(max_views=VIEWS), self.words[first : first + 2], place.books)
            for kind, first in SIDES.items()
        )
        self._views: list[tuple[Sample, int]] = []
        self._pub: Publisher | None = self._channel.publisher(slot_bytes=self.rng.choice((64, 4096)))

    def readers(self) -> list[Any]:
        return [self._copying.subscriber, self._viewing.subscriber]

    def act(self) -> None:
        if self._pub is None:
            return
        way, size = self.rng.random(), self.rng.choice(SIZES)
        try:
            if way < 0.6:
                self._made(1)
                self._pub.send(self._next(0, size))
                self._lane.sent += 1
            elif way < 0.8:
                count = self.rng.randrange(1, 40)
                self._made(count)
                self._lane.sent += self._pub.send_many([self._next(i, 100) for i in range(count)])
            else:
                self._lend(self._pub, size)
        except PoolExhaustedError:
            self._lane.made = self._lane.sent = self._pub.sent

    def _made(self, count: int) -> None:
        self._lane.made = self._lane.sent + count

    def _next(self, ahead: int, size: int) -> bytes:
        return message(self.place.life, self._lane.sent + ahead, size)

    def _lend(self, publisher: Publisher, size: int) -> None:
        """Publish one of two loans, and give the other one back."""
        with publisher.loan(HEAD + size) as loan:
            publisher.loan(10).discard()
            data = self._next(0, size)
            with memoryview(loan) as view:
                view[:] = data
            self._made(1)
        self._lane.sent += 1

    def take(self, reader: Any) -> None:
        if reader is self._viewing.subscriber:
            self._take_views()
            return
        for _ in range(BATCH):
            data, last = reader.receive(0), reader.last
            if data is None:
                break
            self._copying.check(data, last.position, last.publisher.name)

    def _take_views(self) -> None:
        """Keep some views for a while; their bytes are the same at the end."""
        for _ in range(self.rng.randrange(1, BATCH)):
            if len(self._views) == VIEWS:
                self._release()
            if (view := self._viewing.subscriber.receive_view(0)) is None:
                break
            self._viewing.check(view, view.position, view.publisher.name)
            self._views.append((view, zlib.crc32(view)))

    def _release(self) -> None:
        view, checksum = self._views.pop(self.rng.randrange(len(self._views)))
        assert zlib.crc32(view) == checksum, f"somebody wrote into the view of position {view.position}"
        view.release()

    def quiet(self) -> None:
        if self._pub is not None:
            lane, sent = self._lane, self._pub.sent
            assert sent == lane.sent == lane.made, f"{lane.sent} sent, {lane.made} made, {sent} counted"
            self._pub.close()
            self._pub = None

    def close(self) -> None:
        while self._views:
            self._release()
        for reader in (self._copying, self._viewing):
            reader.subscriber.close()
        self._channel.close()

    @staticmethod
    def make() -> None:
        Channel(NAME, capacity=CAPACITY).close()

    @staticmethod
    def audit(place: Place) -> None:
        channel = Channel(NAME, node="auditor")
        Lane(place.books.words(0, CHANNELS)).made = channel.messages
        with channel.subscriber() as subscriber, channel.publisher() as publisher:
            publisher.send(b"again")
            assert subscriber.receive(0) == b"again", "a channel that everybody left cannot be used"
        channel.close()
        found = msgq.stats.channel(NAME)
        assert not [one for one in found.participants if one[1].alive is not False], found.participants
        assert not found.orphans, found.orphans
        assert not [one for one in found.viewers if one.views and one.participant.alive], found.viewers

    @staticmethod
    def balance(outcome: Outcome) -> list[str]:
        total = Lane(outcome.books.words(0, CHANNELS)).made
        lanes = [Lane(outcome.books.words(past.life, CHANNELS)) for past in outcome.pasts]
        made, sent = sum(lane.made for lane in lanes), sum(lane.sent for lane in lanes)
        wrong = within(f"messages of channel/{NAME}", sent, total, made)
        for life in (past.life for past in outcome.pasts if past.stayed):
            for kind, side in _sides(outcome.books, life):
                wrong += complete(f"{kind} {life} of channel/{NAME}", side.received, side.lost, total)
        for past in outcome.pasts:
            lane = Lane(outcome.books.words(past.life, CHANNELS))
            if not past.killed and lane.made != lane.sent:
                wrong.append(f"life {past.life} has sent {lane.sent} of {lane.made} messages, and was not killed")
        return wrong

    @staticmethod
    def figures(outcome: Outcome) -> list[Figures]:
        total, lines = Lane(outcome.books.words(0, CHANNELS)).made, []
        for wanted in SIDES:
            sides = [
                side for past in outcome.pasts for kind, side in _sides(outcome.books, past.life) if kind == wanted
            ]
            counts = sum(side.received for side in sides), sum(side.lost for side in sides)
            lines.append(Figures(f"channel, {wanted}", total, *counts))
        return lines


def _sides(books: Books, life: int) -> list[tuple[str, Side]]:
    words = books.words(life, CHANNELS)
    return [(kind, Side(words[first : first + 2])) for kind, first in SIDES.items()]
