"""The library's channels: many publishers, many subscribers."""

# The methods are described in base.py.
# ruff: noqa: D102

from typing import Any

from tools.bench.adapters.base import WAIT_S, Call, Publisher, Subscriber, System, Topic


class Channel(System):
    """`msgq.Channel` of this checkout, or the installed one."""

    name = "channel"
    in_flight = 1024
    writers = range(64)

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        from msgq.channel import Channel as Kind

        self.kind = Kind
        self.capacity = max(2, 1 << (topic.depth - 1).bit_length())
        self.kept: list[Any] = []

    def version(self) -> str:
        from importlib.metadata import version

        return version("msgq-bus")

    def publisher(self) -> Publisher:
        pub = self._publish()
        loan, size = pub.loan, self.topic.size

        def publish(message: bytes) -> None:
            lent = loan(size)
            lent[:] = message
            lent.publish()

        return Publisher(Call(pub.send, "message"), in_place=Call(publish, "message"))

    def subscriber(self) -> Subscriber:
        sub = self._subscribe()
        take_view = sub.receive_view

        def look() -> int | None:
            view = take_view(0)
            if view is None:
                return None
            data = memoryview(view)
            return data[0] + data[-1]

        return Subscriber(
            poll=Call(sub.receive, "0"),
            block=Call(sub.receive),
            wait=Call(sub.receive, f"{WAIT_S}"),
            in_place=Call(look),
            lost=lambda: sub.lost,
        )

    def open_both(self) -> Any:
        return self._publish(), self._subscribe()

    def remove(self) -> None:
        self._open().unlink()

    def _open(self) -> Any:
        return self.kind(self.topic.name, capacity=self.capacity)

    def _publish(self) -> Any:
        return self._open().publisher(slot_bytes=self.topic.size)

    def _subscribe(self) -> Any:
        return self._open().subscriber()
