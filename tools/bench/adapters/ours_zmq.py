"""The library's ZMQ backend, to be measured beside pyzmq itself: ``--peers zmq-ipc,msgq-zmq``."""

from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Topic

PATIENCE_SECONDS = 10.0


class OursZmq(System):
    """Behind our sockets what zmq-ipc has: the same transport, and unlimited queues where nothing may be lost."""

    name = "msgq-zmq"
    package = "msgq-bus"
    in_flight = 8192
    keeps_segment = False

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import os

        from msgq.impl import backend

        os.environ["MSGQ_ZMQ_TRANSPORT"] = "ipc"
        os.environ["MSGQ_ZMQ_HWM"] = "0" if topic.lossless else "1000"
        self.zmq = backend.load_backend("zmq")
        self.context = self.zmq.Context()

    def publisher(self) -> Publisher:
        pub = self._open("PubSocket")

        def await_subscribers(count: int) -> None:
            pub.wait_for_readers(PATIENCE_SECONDS, n=count)

        return Publisher(Call(pub.send, "message"), await_subscribers=await_subscribers)

    def subscriber(self) -> Subscriber:
        sub = self._open("SubSocket")
        return Subscriber(poll=Call(sub.receive, "True"), block=Call(sub.receive), stream=Call(sub.receive))

    def open_both(self) -> Any:
        return self._open("PubSocket"), self._open("SubSocket")

    def _open(self, kind: str) -> Any:
        socket = getattr(self.zmq, kind)()
        socket.connect(self.context, self.topic.name)
        return socket
