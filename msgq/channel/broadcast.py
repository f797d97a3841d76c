"""What a node has of a broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from msgq.impl.channel import Publisher, Subscriber


class Broadcast(NamedTuple):
    """Publisher and subscriber of a node in a broadcast.

    Attributes:
        publisher: handle of the node for sending.
        subscriber: handle of the node for receiving. It receives the node's own messages only with ``own=True``.
    """

    publisher: Publisher
    subscriber: Subscriber

    def close(self) -> None:
        """Close the publisher and the subscriber."""
        self.publisher.close()
        self.subscriber.close()
