"""kickmsg: shared memory with a pool of slots and a queue of slots for each subscriber."""

from typing import Any

from tools.bench.adapters.base import WAIT_S, Call, Publisher, Subscriber, System, Topic, read_ends, read_lines

LONG_S = 3600.0


class Kickmsg(System):
    """Regions are used directly, without its registry: the cheapest way it offers.

    Its pool hands out the slot that was freed last, so fewer messages in flight stay in the caches.
    """

    name = "kickmsg"
    package = "kickmsg"
    in_flight = 1024
    writers = range(64)
    readers = range(64)

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import kickmsg

        self.kickmsg = kickmsg
        self.shm_name = f"/{topic.name}"
        self.config = kickmsg.Config()
        self.config.max_subscribers = max(16, topic.subscribers)
        self.config.sub_ring_capacity = max(4, 1 << (topic.depth - 1).bit_length())
        small = topic.size <= 4096
        # Its rule: twice what all subscribers together may keep. Large messages have one subscriber at most here.
        self.config.pool_size = max(256 if small else 8, 2 * self.config.sub_ring_capacity * max(1, topic.subscribers))
        self.config.max_payload_size = topic.size
        self.regions: list[Any] = []

    def publisher(self) -> Publisher:
        pub = self.kickmsg.Publisher(self._region())
        allocate: Any = pub.allocate

        def publish(message: bytes) -> None:
            slot = allocate()
            memoryview(slot)[:] = message
            slot.publish(len(message))

        return Publisher(Call(pub.send, "message"), in_place=Call(publish, "message"))

    def subscriber(self) -> Subscriber:
        sub = self.kickmsg.Subscriber(self._region())
        return Subscriber(
            poll=Call(sub.try_receive),
            block=Call(sub.receive, f"{LONG_S}"),
            wait=Call(sub.receive, f"{WAIT_S}"),
            in_place=read_ends(sub.try_receive_view),
            lost=lambda: sub.lost,
        )

    def frame_publisher(self) -> Publisher:
        pub, size = self.kickmsg.Publisher(self._region()), self.topic.size
        allocate: Any = pub.allocate

        def publish() -> None:
            allocate().publish(size)

        return Publisher(Call(pub.send, "message"), in_place=Call(publish), wake=Call(publish))

    def frame_subscriber(self) -> Subscriber:
        import numpy as np

        sub = self.kickmsg.Subscriber(self._region())
        take_view, block = sub.try_receive_view, Call(sub.receive_view, f"{LONG_S}")
        return Subscriber(Call(take_view), block, in_place=read_lines(take_view, np.asarray), lost=lambda: sub.lost)

    def open_both(self) -> Any:
        kickmsg = self.kickmsg
        created = kickmsg.SharedRegion.create_or_open(self.shm_name, kickmsg.ChannelType.PubSub, self.config)
        pub = kickmsg.Publisher(created)
        opened = kickmsg.SharedRegion.open(self.shm_name)
        return pub, kickmsg.Subscriber(opened), created, opened

    def close_both(self, both: Any) -> None:
        """Nothing: the objects are closed when the caller drops them."""

    def remove(self) -> None:
        self.kickmsg.unlink_shm(self.shm_name)

    def _region(self) -> Any:
        kind = self.kickmsg.ChannelType.PubSub
        self.regions.append(self.kickmsg.SharedRegion.create_or_open(self.shm_name, kind, self.config))
        return self.regions[-1]
