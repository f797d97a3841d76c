"""The channel of a queue's events. Imported late, because few queues have events."""

from __future__ import annotations

from msgq.common.queue_events import QUEUE_EVENT_SCHEMA
from msgq.impl.channel.core import Publisher, open_channel_file

__all__ = ["QUEUE_EVENT_SCHEMA", "EventChannelPublisher", "open_channel_file"]


class EventChannelPublisher(Publisher):
    """A publisher that the handle closes, because the handle still publishes events at exit."""

    __slots__ = ()

    def _close_at_exit(self) -> None:
        """Do nothing, because the handle closes this publisher."""
