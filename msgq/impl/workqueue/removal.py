"""Removal of a queue's events channel together with the queue."""

from __future__ import annotations

import contextlib
import os

from msgq.common import shm_paths
from msgq.common.naming import BUS_PREFIX_START, events_channel
from msgq.errors import MsgqError


def remove_events(queue: str, in_prefix: str) -> None:
    """Remove a queue's events channel, if it exists and can be removed. Open subscribers continue."""
    name = events_channel(queue)
    with contextlib.suppress(MsgqError):
        if in_prefix.startswith(BUS_PREFIX_START) or os.path.lexists(shm_paths.channel_path(name, in_prefix)):
            from msgq.impl.channel.core import open_channel_file  # imported late: few queues have events

            open_channel_file(name, in_prefix).unlink()
