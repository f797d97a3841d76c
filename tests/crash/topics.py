"""Topics on which the driver is killed, and what the others make of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgq
from msgq.impl.ring.core import unlink_topic
from tests.crash.harness import Place, Play, Scene, Step, message, number_of
from tests.support import DEADLINE_MS, SHM

RING = 1024  # data bytes: small, so that a few messages make a lap


class Topic(Place):
    """An endpoint with a small ring."""

    kind, start = "topic", "msgq_"

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self._stack.callback(unlink_topic, endpoint)
        msgq.sub_sock(endpoint, segment_size=RING).close()  # makes the files
        self.side = SHM / f"msgqside_{endpoint}"

    def pub(self, tracked: bool | None = None) -> msgq.PubSocket:
        return self.enter(msgq.pub_sock(self.endpoint, tracked=tracked))

    def sub(self, **options: Any) -> msgq.SubSocket:
        socket = self.enter(msgq.SubSocket())
        socket.connect(msgq.context, self.endpoint, **options)
        socket.setTimeout(DEADLINE_MS)
        return socket

    def readers(self) -> dict[str, msgq.SubSocket]:
        """Return living subscribers of each kind that can be in place when somebody dies."""
        return {"with a slot": self.sub(), "passive": self.sub(passive=True)}

    def send_sizes(self, sizes: Iterable[int]) -> msgq.PubSocket:
        """Become the publisher, and send messages of these sizes, numbered from 0."""
        pub = self.pub()
        for number, size in enumerate(sizes):
            pub.send(message(number, size))
        return pub


def drain(sub: msgq.SubSocket) -> list[int]:
    """Return the numbers of all pending messages."""
    return [number_of(data) for data in sub.receive_many()]


def flood(pub: msgq.PubSocket, numbers: Iterable[int]) -> None:
    for number in numbers:
        pub.send(message(number))


@dataclass(frozen=True)
class TopicScene(Scene):
    """`sizes`: of the messages that are read when the victim comes. Its own messages go on with the next number."""

    sizes: tuple[int, ...] = (16,) * 6
    tracked: bool | None = None  # `tracked` of the next publisher


#: "announce" is a sleeper to wake.
PUBLISHERS = {
    "first start": TopicScene("arm claim", "mq_ring_publisher_claim_ring: exchanged &p->ring->write_uid"),
    "start with sleeper": TopicScene("join announce arm claim"),
    "restart": TopicScene("claim close arm claim"),
    "send": TopicScene(
        "claim send:16:6 join announce arm send:16:7", "mq_ring_publisher_publish: stored &p->ring->write_pointer"
    ),
    "send with grant extension": TopicScene(
        "claim send:16:6 arm send:104:7", "mq_ring_publisher_announce_limit: stored &side->write_limit"
    ),
    "send with wrap": TopicScene(
        "claim arm send:240:4", "mq_ring_publisher_extend_grant: stored mark", sizes=(240, 240, 240, 80)
    ),
    "batch": TopicScene("claim arm batch:16:6"),
    "batch with grant extension": TopicScene("claim arm batch:120:6"),
    "batch with wrap": TopicScene("claim arm batch:96:3", sizes=(240, 240, 240)),
    "rows": TopicScene("claim arm rows:16:6", "mq_ring_publisher_stage_sized: half copied to message + 8"),
    "rows with grant extension": TopicScene("claim arm rows:120:6"),
    "rows with wrap": TopicScene("claim arm rows:96:3", sizes=(240, 240, 240)),
    "close": TopicScene(
        "claim send:16:6 join announce arm close", "mq_ring_publisher_close: exchanged &p->ring->write_uid"
    ),
}

_TRACKED = {
    "tracked start": TopicScene("track arm claim", "mq_ring_side_decide_tracking: stored &side->tracked", sizes=()),
    "first tracked message": TopicScene(
        "track claim arm send:16:0", "mq_stamps_write: half copied to payload - sizeof *stamps", sizes=()
    ),
    "tracked message with wrap": TopicScene(
        "track claim " + "".join(f"send:208:{number} " for number in range(4)) + "ready arm send:208:4",
        "mq_ring_publisher_extend_grant: stored mark",
        sizes=(),
    ),
}
TRACKED = {
    f"{name}, {'tracked' if tracked else 'unset'} afterwards": TopicScene(**vars(scene) | {"tracked": tracked})
    for name, scene in _TRACKED.items()
    for tracked in (True, None)
}

SUBSCRIBERS = {
    "join": TopicScene("arm join", "mq_reader_slot_try_claim: exchanged &ring->read_uids[slot]"),
    "join again": TopicScene("join leave arm join"),
    "receive": TopicScene(
        "join ready arm receive:3", "mq_ring_subscriber_store_stats: stored &s->row->received", before=3
    ),
    "conflate": TopicScene("join:1 ready arm receive:3", before=3),
    "go to sleep": TopicScene("join arm announce", "mq_eventcount_prepare_wait: set word"),
    "leave": TopicScene("join arm leave", "mq_reader_slot_release: exchanged &ring->read_uids[slot]"),
}


class TopicPlay(Play):
    """Subscribers that were in place drain the ring, a new publisher goes on, and then laps them."""

    place: Topic
    scene: TopicScene
    former_lives = True

    @classmethod
    def make(cls, endpoint: str, scene: Any) -> Place:
        return Topic(endpoint)

    def prepare(self) -> None:
        self.subs = self.place.readers()
        self.pub = self.place.send_sizes(self.scene.sizes) if self.scene.sizes or self.scene.before else None
        self.got = {kind: drain(sub) for kind, sub in self.subs.items()}
        if self.pub and not self.former_lives:
            self.pub.close()

    def begin(self) -> None:
        if self.pub:
            flood(self.pub, range(len(self.scene.sizes), len(self.scene.sizes) + self.scene.before))
        for kind, sub in self.subs.items():
            self.got[kind] += drain(sub)

    def check(self, step: Step, lines: list[str]) -> None:
        for kind, sub in self.subs.items():
            self.got[kind] += drain(sub)
        whole = len(self.got["passive"])
        assert all(got == [*range(whole)] for got in self.got.values()), self.got
        if self.pub and self.scene in SUBSCRIBERS.values():
            assert whole == len(self.scene.sizes) + self.scene.before
            assert self.pub.all_readers_updated(), "the dead one has not"
        self.go_on_with(whole)

    def go_on_with(self, whole: int) -> None:
        pub = self.place.pub(tracked=self.scene.tracked)
        assert pub.stats().messages == whole, f"the new publisher counts {pub.stats().messages} messages, not {whole}"
        assert [drain(sub) for sub in self.subs.values()] == [[], []]
        assert pub.all_readers_updated(), "everybody has read everything"
        assert pub.tracked == bool(self.scene.tracked) or "track" in self.scene.operations
        subs = {**self.subs, "late": self.place.sub()}
        flood(pub, range(100, 110))
        for kind, sub in subs.items():
            assert drain(sub) == [*range(100, 110)], kind
            assert sub.lost == 0, kind
            assert sub.tracked == pub.tracked, kind
        assert pub.all_readers_updated()
        flood(pub, range(1000, 1300))  # several laps
        for kind, sub in subs.items():
            got = drain(sub)
            assert got == [*range(1300 - len(got), 1300)], kind
            assert sub.lost is not None, f"{kind}: lost is unknown"
            assert sub.stats().received + sub.lost == 310 + (0 if kind == "late" else whole), f"{kind}: {sub.stats()}"
        if pub.tracked:
            pub.send(message(7), origin_time=7)
            assert [sub.receive_tracked().origin_time for sub in subs.values()] == [7] * 3  # type: ignore[union-attr]


class TopicPlayAfterClose(TopicPlay):
    """The same, of a topic whose publisher has left before."""

    former_lives = False


@dataclass(frozen=True)
class OverwriteScene(Scene):
    """`succeeded`: a new publisher comes before the subscribers read."""

    succeeded: bool = False


OVERWRITERS = {
    f"overwrite, {'new' if succeeded else 'no'} publisher": OverwriteScene(
        "claim arm send:320:40", "mq_ring_publisher_extend_grant: stored mark", succeeded=succeeded
    )
    for succeeded in (True, False)
}


class OverwritePlay(Play):
    """The victim dies at each step of a large message that overwrites what subscribers have not read yet.

    The bytes stay, though the message was never published, and only the limit tells of them. A subscriber must not take
    them for its own next message.
    """

    place: Topic
    scene: OverwriteScene

    @classmethod
    def make(cls, endpoint: str, scene: Any) -> Place:
        return Topic(endpoint)

    def prepare(self) -> None:
        self.subs = self.place.readers()
        self.place.send_sizes([16] * 40).close()

    def check(self, step: Step, lines: list[str]) -> None:
        if self.scene.succeeded:
            self.place.pub()
        for kind, sub in self.subs.items():
            got = drain(sub)
            assert sub.lost is not None, f"{kind}: lost is unknown"
            assert got == [*range(sub.lost, sub.lost + len(got))], kind
            assert sub.lost + len(got) in (40, 41), kind
