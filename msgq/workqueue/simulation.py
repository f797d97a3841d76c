"""Work queues in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import Any

from msgq.common.message_source import MessageSource
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState
from msgq.impl.fake.workqueue import MessageQueue, QueueState
from msgq.impl.workqueue.core import HeldSend
from msgq.kinds.playback import PlaybackMessage
from msgq.kinds.simulation import KindSimulation, SentMessage
from msgq.workqueue.names import KIND
from msgq.workqueue.playback import encode_sent_event


def _follow_queue(name: str, function: Callable[[bytes], object]) -> Generator[MessageQueue, Any, None]:
    """Call a function with each message of a queue, in competition with other consumers."""
    queue = MessageQueue(name)
    while True:
        received = yield queue
        function(received.data)


def _describe_sent(
    time_ns: int, node: str, queue: EndpointState[Any], bus_message: BusMessage
) -> Iterator[SentMessage]:
    if isinstance(queue, QueueState):
        send: HeldSend = bus_message
        sizes = {"max_messages": send.queue.max_messages, "max_message_size": send.queue.max_message_size}
        source = MessageSource(KIND.name, node, options=json.dumps(sizes))
        yield SentMessage(time_ns, node, queue.endpoint, send.data, source, send.queue.schema, send.priority)


class _QueueSimulation(KindSimulation):
    def encode_playback(self, message: PlaybackMessage) -> PlaybackMessage:
        return message._replace(data=encode_sent_event(message.data, 0, 0, message.time_ns))


SIMULATION = _QueueSimulation(
    _describe_sent, follow_endpoint=_follow_queue, fault_kinds=("delay", "reorder", "restart")
)
