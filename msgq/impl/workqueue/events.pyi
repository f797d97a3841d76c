"""What a handle does to messages of a queue with events, published on the queue's channel of events (queues.md).

Made between the compiled modules only. `prepare` may wait, and run signal handlers, so handles call it before they
change anything; publishing neither waits nor raises.
"""

from typing_extensions import disjoint_base

@disjoint_base
class EventBuffer:
    """Room for so many events, until they are published. Those that it has no room for are counted as lost."""

    def __new__(cls, room: int) -> EventBuffer: ...

@disjoint_base
class EventPublisher:
    """The publisher of one handle, opened when there is something to publish first."""
