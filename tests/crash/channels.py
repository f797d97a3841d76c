"""Channels on which the driver is killed or stopped, and what the others make of it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgq.channel import Channel
from msgq.errors import EndpointClosedError
from tests.crash.harness import Place, Play, Scene, Step, message, number_of, numbers_said
from tests.support import SHM

CAPACITY = 16  # small, so that a few messages make a lap
BURST = 4
LAPS = 10
VICTIM, FORMER, OTHER, LATER = 0, 1000, 2000, 3000  # first numbers of the messages of each publisher


class ChannelPlace(Place):
    """A channel with a few messages to a lap."""

    kind, start = "channel", "msgqchan_"

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.channel = self.enter(Channel(endpoint, capacity=CAPACITY, create=True))
        self._stack.callback(self.channel.unlink)
        self.watcher = self.enter(Channel(endpoint, passive=True))

    def publisher(self, **options: Any) -> Any:
        return self.enter(self.channel.publisher(**options))

    def join(self) -> None:
        self.publisher()

    def reader(self, kind: str) -> Reader:
        """Return a subscriber: "copy", "view" or "passive"."""
        reader = Reader((self.watcher if kind == "passive" else self.channel).subscriber(), kind)
        self._stack.callback(reader.close)
        return reader

    def pools(self) -> list[Path]:
        return sorted(SHM.glob(f"msgqpool_{self.endpoint}:*"))

    def pins(self) -> list[int]:
        """Return who holds each slot of each pool."""
        found = []
        for data in (path.read_bytes() for path in self.pools()):
            slots = range(int.from_bytes(data[24:32], "little"))
            found += [int.from_bytes(data[192 + 64 * slot : 200 + 64 * slot], "little") for slot in slots]
        return found


class Reader:
    """A subscriber that keeps account of all that it got."""

    def __init__(self, subscriber: Any, kind: str) -> None:
        self.subscriber, self.kind = subscriber, kind
        self.begun = subscriber.position
        self.numbers: list[int] = []
        self._last: dict[int, int] = defaultdict(lambda: -1)
        self._position = -1
        assert self._next() is None  # a viewer takes its row now

    def close(self) -> None:
        with contextlib.suppress(EndpointClosedError):
            self.subscriber.close()

    def _next(self) -> bytes | None:
        if self.kind != "view":
            data: bytes | None = self.subscriber.receive(0)
            return data
        view = self.subscriber.receive_view(0)
        if view is None:
            return None
        with view:
            return bytes(view)

    def drain(self) -> list[int]:
        """Return the numbers of what is there: whole, each publisher's in order, and no position twice."""
        new = []
        while (data := self._next()) is not None:
            number = number_of(data)
            assert number > self._last[number // 1000], f"{self.kind}: {number} after {self._last[number // 1000]}"
            assert self.subscriber.last.position > self._position
            self._last[number // 1000], self._position = number, self.subscriber.last.position
            new.append(number)
        self.numbers += new
        return new

    def check(self, messages: int) -> None:
        """Everything that was published since it joined was received or lost; it has been drained."""
        sub, start = self.subscriber, CAPACITY if self.begun == 0 else self.begun
        assert sub.position == messages + CAPACITY, f"{self.kind}: at {sub.position}, of {messages} messages"
        assert sub.received + sub.lost == sub.position - start, f"{self.kind}: {sub.received} + {sub.lost}"
        assert sub.received == len(self.numbers)


def flood(publisher: Any, numbers: Iterable[int]) -> None:
    for number in numbers:
        publisher.send(message(number))


def all_slots_are_to_be_had(publisher: Any) -> None:
    """Each slot of the publisher can be lent: none is lost. What is in the order is retracted for that."""
    with contextlib.ExitStack() as stack:
        for _ in range(publisher.slots):
            stack.callback(publisher.loan(1).discard)


@dataclass(frozen=True)
class ChannelScene(Scene):
    """`sent`: how many messages of the victim's are published before "arm", and `sends` after it. Their numbers go up.

    `retracts`: its last messages take the places of its first.
    """

    sent: int = 0
    sends: int = 0
    retracts: bool = False


#: "announce" is a sleeper to wake.
PUBLISHERS = {
    "join": ChannelScene("ready arm join:10:64 send:16:0", "call: after link", sends=1),
    "join with sleeper": ChannelScene("listen announce ready arm join:10:64", "call: after wake"),
    "join after death of other process": ChannelScene(
        "join:10:64 send:16:0 close ready arm join:10:64 send:16:1", sent=1, sends=1
    ),
    "send": ChannelScene(
        "join:10:64 send:16:0 listen announce ready arm send:16:1 send:16:2",
        "mq_index_ring_publish_entry: exchanged order->tail",
        sent=1,
        sends=2,
    ),
    "send as many messages as slots": ChannelScene(
        "join:2:64 send:16:0 send:16:1 ready arm send:16:2 send:16:3",
        "mq_index_ring_retract_entry: exchanged mq_index_ring_entry_at(order, position)",
        sent=2,
        sends=2,
        retracts=True,
    ),
    "grow": ChannelScene(
        "join:10:64 send:16:0 ready arm send:120:1",
        "mqc_publisher_grow_pool: stored &former->c.row->superseded",
        sent=1,
        sends=1,
    ),
    "close": ChannelScene("join:10:64 send:16:0 ready arm close", sent=1),
    "close without message": ChannelScene("join:10:64 ready arm close", "call: after unlink"),
}
TOO_MANY_DEATHS = {
    "join after too many deaths": ChannelScene(
        " ".join(f"join:2:64 send:16:{number} close" for number in range(9))
        + " join:2:64 send:16:9 ready arm close join:10:64",
        "mq_channel_retract_row_entries: exchanged &order->entries[i]",
        sent=10,
    ),
}
SUBSCRIBERS = {
    "listener": ChannelScene("ready arm listen leave", before=3),
    "copy": ChannelScene("listen ready arm receive:2 tell receive:1 leave", before=3),
    "viewer": ChannelScene("listen ready arm view hold:3 release leave", before=3),
    "view": ChannelScene(
        "listen view ready arm hold:2 release tell leave",
        "mq_pool_pin_set: set &slots->pool_header->pins[slot].holders",
        before=3,
    ),
}


class ChannelPlay(Play):
    """Subscribers of all kinds drain the channel, others publish, and then lap them; one more joins."""

    place: ChannelPlace
    scene: ChannelScene

    @classmethod
    def make(cls, endpoint: str, scene: Any) -> Place:
        return ChannelPlace(endpoint)

    def prepare(self) -> None:
        self.other = self.place.publisher()
        self.readers = [self.place.reader(kind) for kind in ("copy", "view", "passive")]
        with self.place.channel.publisher() as former:  # its message is still there
            former.send(message(FORMER))
        self.drain()
        self.others = [FORMER]

    def begin(self) -> None:
        self.publish(self.scene.before)

    def publish(self, count: int) -> None:
        """Send messages of the other one."""
        start = OTHER + len(self.others)
        self.others += range(start, start + count)
        flood(self.other, range(start, start + count))

    def drain(self) -> None:
        """Let each reader take what is there."""
        for reader in self.readers:
            reader.drain()

    def go_on(self, step: Step) -> None:
        """Let ten capacities pass, which each reader gets as they come."""
        for _ in range(LAPS * CAPACITY // BURST):
            self.publish(BURST)
            self.drain()
            assert all(reader.numbers[-BURST:] == self.others[-BURST:] for reader in self.readers)
        if not step.locked:
            with self.place.channel.publisher() as newcomer, self.place.channel.subscriber() as late:
                newcomer.send(message(LATER))
                view = late.receive_view(0)
                assert view is not None
                assert late.last is not None
                assert view.position == late.last.position
                view.release()
            self.drain()
            self.others.append(LATER)

    def check(self, step: Step, lines: list[str]) -> None:
        self.drain()
        most = self.scene.sent + self.scene.sends
        for reader in self.readers:
            own, lost = [number for number in reader.numbers if number < FORMER], reader.subscriber.lost  # retracted
            assert [number for number in reader.numbers if number >= FORMER] == self.others, reader.kind
            assert own == [*range(lost, lost + len(own))] or (self.stood and self.scene.retracts), (
                f"{reader.kind}: {own}"
            )
            assert (self.scene.sent if step.at and not self.stood else most) <= len(own) + lost <= most, reader.kind
        assert len({tuple(reader.numbers) for reader in self.readers}) == 1
        said = [numbers_said(lines, what) for what in ("received", "missed", "passed")]
        assert all(received + lost == passed for received, lost, passed in zip(*said, strict=True)), said
        self.life_goes_on()
        assert not any(self.place.pins()), "a bit of the dead"

    def life_goes_on(self) -> None:
        """Let others pass ten capacities: all are received by those who keep up, then exactly counted.

        Afterwards no file is there but those of the other publisher and of one that joins.
        """
        for _ in range(LAPS * CAPACITY // BURST):
            lost = [reader.subscriber.lost for reader in self.readers]
            self.publish(BURST)
            self.drain()
            for reader, before in zip(self.readers, lost, strict=True):
                assert reader.numbers[-BURST:] == self.others[-BURST:], reader.kind
                assert reader.subscriber.lost == before, reader.kind
                reader.check(self.place.channel.messages)
        late, newcomer = self.place.reader("view"), self.place.publisher()
        flood(newcomer, range(LATER + 1, LATER + 1 + LAPS * CAPACITY))
        for reader in [*self.readers, late]:
            last = reader.drain()
            end = LATER + 1 + LAPS * CAPACITY
            assert last == [*range(end - len(last), end)], reader.kind
            reader.check(self.place.channel.messages)
        self.place.publisher().close()  # one join
        assert len(self.place.pools()) <= 3, "files of the dead"  # its own may stay: the row is free
        all_slots_are_to_be_had(self.other)
        all_slots_are_to_be_had(newcomer)


STOPPED = {
    name: scene
    for name, scene in (PUBLISHERS | SUBSCRIBERS).items()
    if name in ("join", "send", "send as many messages as slots", "grow", "close", "copy", "view", "viewer")
}
HEIRS = {
    "row of dead viewer": Scene(
        "listen ready arm view",
        "mq_pool_pin_clear: cleared &slots->pool_header->pins[slot].holders",
        former="history:4:0 listen view hold:4",
    )
}


class HeirPlay(Play):
    """A viewer died with all slots in its hands, and its successor at a step of taking over; another one comes.

    A bit that is handed on with slots that nobody holds keeps them from the publisher for ever.
    """

    place: ChannelPlace

    @classmethod
    def make(cls, endpoint: str, scene: Any) -> Place:
        return ChannelPlace(endpoint)

    def prepare(self) -> None:
        self.other = self.place.publisher(slots=4)
        flood(self.other, range(4))

    def begin(self) -> None:
        assert self.place.pins() == [1] * 4

    def check(self, step: Step, lines: list[str]) -> None:
        with self.place.channel.subscriber() as viewer, contextlib.ExitStack() as stack:
            assert viewer.receive_view(0) is None
            assert not any(self.place.pins()), "a bit that nobody has"
            flood(self.other, range(4, 8))
            for view in [viewer.receive_view(0) for _ in range(4)]:
                assert view is not None
                stack.callback(view.release)
            assert self.place.pins() == [1] * 4
        all_slots_are_to_be_had(self.other)
