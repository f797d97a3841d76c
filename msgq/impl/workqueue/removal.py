"""What goes with a queue that is removed: its channel of events."""

from __future__ import annotations

import contextlib
import os

from msgq.common import shm_paths
from msgq.common.queue_events import events_channel
from msgq.errors import MsgqError
from msgq.impl.channel.core import open_channel_file


def remove_events(queue: str, in_prefix: str) -> None:
    """Remove a queue's channel of events, if there is one and it can be removed. Those that have it open go on."""
    name = events_channel(queue)
    with contextlib.suppress(MsgqError):
        if os.path.lexists(shm_paths.channel_path(name, in_prefix)):
            open_channel_file(name, in_prefix).unlink()
