"""The library of this project."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from tools.bench.adapters.base import (
    SERVICE_RATES,
    Call,
    Exchange,
    Polled,
    Publisher,
    Subscriber,
    System,
    Topic,
    read_lines,
    take_in_task,
    unlink,
)


class Ours(System):
    """`msgq` of this checkout, or the installed one."""

    name = "msgq"
    package = "msgq-bus"
    in_flight = 8192
    readers = range(64)

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import msgq

        self.msgq = msgq
        self.kept: list[Any] = []
        self.prefix = topic.name if topic.kind == "prefix" else None  # None: the prefix of the environment
        # Beside the messages there is room for the write in progress: two messages, or 64 KiB if that is more.
        self.segment = max(1 << 20, topic.depth * (topic.size + 16) + max(1 << 16, 2 * (topic.size + 16)) & ~7)

    def publisher(self) -> Publisher:
        pub = self._publish()
        return Publisher(Call(pub.send, "message"), many=Call(pub.send_many, "message"))

    def subscriber(self) -> Subscriber:
        sub = self._subscribe()
        room = bytearray(self.topic.size)
        return Subscriber(
            poll=Call(sub.receive, "True"),
            block=Call(sub.receive),
            in_place=Call(lambda: sub.receive_into(room, True)),
            array=sub.receive_array,
            lost=lambda: sub.lost,
        )

    def exchange(self, message: bytes) -> Exchange:
        pub, sub = self._publish(), self._subscribe()
        sub.rcvtimeo = 0  # ends the loop
        many = Call(pub.send_many, "message")
        receive, each = Call(sub, form="CALL.receive(True)"), Call(sub, form="CALL")
        return Exchange(Call(pub, form="CALL.send(message)"), receive, many, lambda count: [message] * count, each)

    @classmethod
    def poll(cls, systems: Sequence[Any]) -> Polled:
        if systems[0].topic.kind == "services":
            return cls._update(systems)
        poller = systems[0].msgq.Poller()
        for system in systems:
            poller.registerSocket(system._subscribe())
        systems[0].kept.append(poller)
        return Polled(Call(poller.poll, "timeout"), Call(None, form="ready.receive(True)"))

    @classmethod
    def _update(cls, systems: Sequence[Any]) -> Polled:
        """Poll with a SubMaster, as programs with many services do."""
        names = [system.topic.name for system in systems]
        rates = (SERVICE_RATES[int(name.rpartition("-")[2]) % len(SERVICE_RATES)] for name in names)
        master = systems[0].msgq.SubMaster(dict(zip(names, rates, strict=True)))
        updated = master.updated

        def wait(timeout: int) -> list[str]:
            master.update(timeout)
            return [name for name in names if updated[name]]

        return Polled(Call(wait, "timeout"), Call(master, form="CALL[ready]"))

    def watch(self, take: Callable[[Any], None]) -> None:
        self.kept.append(take_in_task(self._subscribe().arecv, take))

    def frame_publisher(self) -> Publisher:
        from visionipc import FrameFormat, VisionIpcServer

        server = VisionIpcServer(self.topic.name)
        server.create_buffers(0, self.topic.depth, self.topic.size, 1, FrameFormat.RAW)
        server.start_listener()
        self.kept.append(server)
        frame = server.frame

        def publish() -> None:
            with frame(0):
                pass

        return Publisher(Call(server.send, "0, message"), in_place=Call(publish), wake=Call(publish))

    def frame_subscriber(self) -> Subscriber:
        from visionipc import VisionIpcClient

        client = VisionIpcClient(self.topic.name, 0, False)
        client.connect(True)
        self.kept.append(client)
        receive, look = client.recv, read_lines(partial(client.recv, 0), attrgetter("array"))
        return Subscriber(Call(receive, "0"), Call(receive, "-1"), in_place=look, lost=lambda: client.lost)

    @classmethod
    def sweep(cls, names: list[str]) -> None:
        with contextlib.suppress(ImportError):
            from visionipc.wire import socket_path

            for name in names:
                unlink(socket_path(name))

    def remove(self) -> None:
        for start in ("msgq_", "msgqside_"):  # a file of the topic, or the folder of its prefix
            unlink(f"/dev/shm/{start}{self.topic.name}")

    def _publish(self) -> Any:
        return self.msgq.pub_sock(self.topic.name, self.segment, prefix=self.prefix)

    def _subscribe(self) -> Any:
        return self.msgq.sub_sock(self.topic.name, prefix=self.prefix)
