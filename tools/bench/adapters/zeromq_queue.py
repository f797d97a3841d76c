"""pyzmq's PUSH and PULL over Unix domain sockets: each message goes to one receiver."""

from functools import partial
from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, WorkQueue, poll_or_none
from tools.bench.adapters.zeromq import ZeromqSystem


class ZeromqQueue(ZeromqSystem):
    """The sender binds, and the receiver connects. The queue of each side has `depth` slots.

    Several senders and several receivers would need a broker.
    """

    name = "zmq-ipc"
    lossless = True

    def queue(self, *, sends: bool = True, receives: bool = True) -> WorkQueue:
        push, pull = (self._publish() if sends else None), (self._subscribe() if receives else None)
        return WorkQueue(
            Call(getattr(push, "send", None), "message"), Call(getattr(pull, "recv", None)), b"", shared=False
        )

    def publisher(self) -> Publisher:
        return Publisher(Call(self._publish().send, "message"))

    def subscriber(self) -> Subscriber:
        receive = self._subscribe().recv
        return Subscriber(poll_or_none(partial(receive, self.zmq.NOBLOCK), self.zmq.Again), Call(receive))

    def _publish(self) -> Any:
        socket = self._socket(self.zmq.PUSH)
        socket.bind(self._address())
        return socket

    def _subscribe(self) -> Any:
        socket = self._socket(self.zmq.PULL)
        socket.connect(self._address())
        return socket

    def _socket(self, kind: int) -> Any:
        socket = self.context.socket(kind)
        socket.set_hwm(self.topic.depth)
        socket.linger = 0
        return socket

    def _address(self) -> str:
        return f"ipc://{self.topic.folder / self.topic.name}"
