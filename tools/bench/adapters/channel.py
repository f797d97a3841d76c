"""The library's channels: many publishers, many subscribers."""

from functools import partial
from typing import Any

from tools.bench.adapters.base import WAIT_S, Call, Publisher, Subscriber, System, Topic, read_ends


class Channel(System):
    """`msgq.Channel` of this checkout, or the installed one."""

    name = "channel"
    package = "msgq-bus"
    in_flight = 1024
    writers = range(64)

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        from msgq.channel import Channel as Kind

        self.kind = Kind
        self.capacity = max(2, 1 << (topic.depth - 1).bit_length())
        self.kept: list[Any] = []

    def publisher(self) -> Publisher:
        pub = self._publish()
        loan, size, wait_for_room, send = pub.loan, self.topic.size, pub.wait_for_room, pub.send

        def publish(message: bytes) -> None:
            lent = loan(size)
            lent[:] = message
            lent.publish()

        def send_into_room(message: bytes) -> None:
            wait_for_room()
            send(message)

        return Publisher(
            Call(send, "message"), patient=Call(send_into_room, "message"), in_place=Call(publish, "message")
        )

    def subscriber(self) -> Subscriber:
        sub = self._subscribe()
        return Subscriber(
            poll=Call(sub.receive, "0"),
            block=Call(sub.receive),
            wait=Call(sub.receive, f"{WAIT_S}"),
            in_place=read_ends(partial(sub.receive_view, 0)),
            lost=lambda: sub.lost,
        )

    def remove(self) -> None:
        self._open().unlink()

    def _open(self) -> Any:
        return self.kind(self.topic.name, capacity=self.capacity)

    def _publish(self) -> Any:
        return self._open().publisher(slot_bytes=self.topic.size)

    def _subscribe(self) -> Any:
        return self._open().subscriber()
