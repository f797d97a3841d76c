"""The channel of a queue's events on a bus; see msgq/impl/workqueue/event_channel.py."""

from __future__ import annotations

import contextlib

from msgq.common.naming import events_channel
from msgq.common.queue_events import QUEUE_EVENT_SCHEMA
from msgq.common.shm_paths import strip_bus
from msgq.errors import MsgqError
from msgq.impl.fake import channel
from msgq.impl.fake.channel import Publisher as EventChannelPublisher

__all__ = ["QUEUE_EVENT_SCHEMA", "EventChannelPublisher", "open_channel_file", "remove_events"]


def open_channel_file(
    name: str, in_prefix: str, create: bool | None, mode: int, trust: object, writable: bool, creator: str
) -> channel.ChannelFile:
    """Open the channel. Its messages are events, which faults do not affect."""
    file = channel.open_channel_file(name, strip_bus(in_prefix), create, mode, trust, writable, creator)
    file.channel.reports_queue_events = True
    return file


def remove_events(queue: str, prefix: str) -> None:
    """Remove a queue's events channel if it exists."""
    with contextlib.suppress(MsgqError):
        channel.open_channel_file(events_channel(queue), prefix, writable=True).unlink()
