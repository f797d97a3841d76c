"""Channels over shared memory: many publishers, many subscribers, views without copies."""

from msgq.impl.channel.core import (
    ChannelFile,
    Loan,
    Publisher,
    Sample,
    Subscriber,
    open_channel_file,
    open_publisher,
    open_subscriber,
)

__all__ = [
    "ChannelFile",
    "Loan",
    "Publisher",
    "Sample",
    "Subscriber",
    "open_channel_file",
    "open_publisher",
    "open_subscriber",
]
