"""The library's work queues: each message for one consumer."""

from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Topic, WorkQueue


class Queue(System):
    """`msgq.MessageQueue` of this checkout, or the installed one."""

    name = "queue"
    package = "msgq-bus"
    lossless = True

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        from msgq.workqueue import MessageQueue

        self.kind = MessageQueue

    def queue(self, *, sends: bool = True, receives: bool = True) -> WorkQueue:
        queue = self._open(read=receives, write=sends)

        def send_ranked(rank: int) -> Call:
            return Call(queue.send, f"message, {rank}")

        return WorkQueue(Call(queue.send, "message"), Call(queue.receive), (b"", 0), send_ranked, Call(queue.take))

    def publisher(self) -> Publisher:
        return Publisher(Call(self._open(read=False).send, "message"))

    def subscriber(self) -> Subscriber:
        receive = self._open(write=False).receive
        return Subscriber(poll=Call(receive, "0"), block=Call(receive))

    def open_both(self) -> Any:
        return self._open(read=False), self._open(write=False)

    def remove(self) -> None:
        self.kind.unlink_name(self.topic.name)

    def _open(self, **direction: Any) -> Any:
        depth, size = self.topic.depth, self.topic.size
        return self.kind(self.topic.name, max_messages=depth, max_message_size=size, **direction)
