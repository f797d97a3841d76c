"""pyzmq over its two transports between processes."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench.adapters.base import Call, Polled, Publisher, Subscriber, System, Topic, poll_or_none, take_in_task


class ZeromqSystem(System):
    """A context of pyzmq. No file stays for the next open."""

    keeps_segment = False

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import zmq

        self.zmq = zmq
        self.context: Any = zmq.Context.instance()  # one thread for all topics of a process

    def version(self) -> str:
        return f"{self.zmq.pyzmq_version()} (libzmq {self.zmq.zmq_version()})"


class Zeromq(ZeromqSystem):
    """XPUB and SUB with unlimited queues where nothing may be lost; the credits keep them short."""

    in_flight = 8192
    readers = range(64)

    def publisher(self) -> Publisher:
        socket = self._publish()

        def await_subscribers(count: int) -> None:
            for _ in range(count):
                socket.recv()

        in_place = Call(socket.send, "message, copy=False")
        return Publisher(Call(socket.send, "message"), in_place=in_place, await_subscribers=await_subscribers)

    def subscriber(self) -> Subscriber:
        receive = self._subscribe().recv
        poll = poll_or_none(partial(receive, self.zmq.NOBLOCK), self.zmq.Again)

        def look() -> int:
            data = receive(copy=False).buffer
            return int(data[0] + data[-1])

        return Subscriber(poll=poll, block=Call(receive), stream=Call(receive), in_place=Call(look))

    @classmethod
    def poll(cls, systems: Sequence[Any]) -> Polled:
        poller = systems[0].zmq.Poller()
        for system in systems:
            poller.register(system._subscribe(), system.zmq.POLLIN)
        return Polled(Call(poller.poll, "timeout"), Call(None, form="ready[0].recv()"))

    def watch(self, take: Callable[[Any], None]) -> None:
        import zmq.asyncio

        self.context = zmq.asyncio.Context.shadow(self.context)
        self.task = take_in_task(self._subscribe().recv, take)

    def bind(self, socket: Any) -> None:
        """Make the socket reachable for subscribers of the topic."""
        raise NotImplementedError

    def address(self) -> str:
        """Return where subscribers connect."""
        raise NotImplementedError

    def _publish(self) -> Any:
        socket = self.context.socket(self.zmq.XPUB)
        socket.xpub_verbose = True  # reports each subscriber, so that they can be counted
        socket.set_hwm(0 if self.topic.lossless else 1000)
        socket.linger = 0
        self.bind(socket)
        return socket

    def _subscribe(self) -> Any:
        socket = self.context.socket(self.zmq.SUB)
        socket.set_hwm(0 if self.topic.lossless else 1000)
        socket.linger = 0
        socket.connect(self.address())
        socket.subscribe(b"")
        return socket


class ZeromqIpc(Zeromq):
    """Unix domain sockets in the run's folder."""

    name = "zmq-ipc"

    def bind(self, socket: Any) -> None:
        socket.bind(self.address())

    def address(self) -> str:
        return f"ipc://{self.topic.folder / self.topic.name}"


class ZeromqTcp(Zeromq):
    """TCP on the loopback. The kernel chooses the port, and a file passes the port to the other process."""

    name = "zmq-tcp"

    def bind(self, socket: Any) -> None:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        self._port_file().write_text(str(port))

    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._port_file().read_text()}"

    def _port_file(self) -> Path:
        return self.topic.folder / f"{self.topic.name}.port"
