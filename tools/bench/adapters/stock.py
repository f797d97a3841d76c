"""A built stock msgq Python package, when MSGQ_BENCH_STOCK names the folder to import it from."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from tools.bench.adapters.base import Call, Polled, Publisher, Subscriber, System, Topic, unlink


class Stock(System):
    """The original: it has no close(), so objects are dropped instead."""

    name = "stock"

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        folder = os.environ.get("MSGQ_BENCH_STOCK")
        if not folder:
            raise ImportError("MSGQ_BENCH_STOCK is not set")
        for name in [name for name in sys.modules if name == "msgq" or name.startswith("msgq.")]:
            del sys.modules[name]  # this project's modules, which the runner imported
        sys.path.insert(0, folder)
        import msgq

        if not os.path.realpath(msgq.__file__).startswith(os.path.realpath(folder) + os.sep):
            raise ImportError(f"no msgq package in {folder}")
        self.msgq = msgq
        # Three messages must fit, and a third of the ring is never safe to read.
        self.segment = max(1 << 20, 2 * topic.depth * (topic.size + 16) & ~7)

    def publisher(self) -> Publisher:
        pub = self._publish()
        return Publisher(Call(pub.send, "message"))

    def subscriber(self) -> Subscriber:
        sub = self._subscribe()
        return Subscriber(poll=Call(sub.receive, "True"), block=Call(sub.receive))

    @classmethod
    def poll(cls, systems: Sequence[Any]) -> Polled:
        poller = systems[0].msgq.Poller()
        for system in systems:
            poller.registerSocket(system._subscribe())
        return Polled(Call(poller.poll, "timeout"), Call(None, form="ready.receive(True)"))

    def close_both(self, both: Any) -> None:
        """Nothing: the objects are closed when the caller drops them."""

    def remove(self) -> None:
        unlink(f"/dev/shm/msgq_{self.topic.name}")

    def _publish(self) -> Any:
        return self.msgq.pub_sock(self.topic.name, self.segment)

    def _subscribe(self) -> Any:
        return self.msgq.sub_sock(self.topic.name, segment_size=self.segment)
