"""Channels on the fake backend: many publishers and subscribers inside the process, in virtual time.

The stubs of msgq/impl/channel (core.pyi) document the methods. Publishers wait for slots and subscribers wait for
messages as on topics. Only in a simulation do other nodes run during the wait.
"""

from __future__ import annotations

import errno
import os
from typing import cast

from msgq.common import file_permissions, settings
from msgq.common.stats.channel import ChannelStats
from msgq.errors import SegmentError
from msgq.impl.fake import channel_state
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.channel_publisher import Loan, Publisher
from msgq.impl.fake.channel_state import ChannelState
from msgq.impl.fake.channel_stats import read_channel_stats
from msgq.impl.fake.channel_subscriber import Sample, Subscriber

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

open_publisher, open_subscriber = Publisher, Subscriber


class ChannelFile(channel_state.ChannelFile):
    """A channel as seen by one object, with statistics."""

    def stats(self) -> ChannelStats:
        """Return the participants and the held views."""
        return read_channel_stats(self)


def open_channel_file(
    name: str,
    in_prefix: str,
    create: bool | None = False,
    mode: int | None = None,
    trust: object = None,
    writable: bool = False,
    creator: str = "",
) -> ChannelFile:
    """Open a channel, by default as an observer. `create`: True only creates, False only opens, None does either."""
    file_permissions.trusted_users(name)
    bus = current_bus()
    channel = bus.channels.get((in_prefix, name))
    if channel is None and create is False:
        raise SegmentError("channel not found", name, errno=errno.ENOENT)
    if channel is not None and create:
        raise SegmentError("channel exists; to open it, omit create=True", name, errno=errno.EEXIST)
    if channel is None:
        settings.resolve_file_mode(mode, name)
        channel = bus.channels[in_prefix, name] = ChannelState(bus, name, (creator, os.getpid()), bus.choose_route)
    return ChannelFile(cast("ChannelState", channel), in_prefix, writable)
