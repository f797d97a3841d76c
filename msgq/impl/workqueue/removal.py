"""Removal of a queue's events channel together with the queue."""

from __future__ import annotations

from msgq.common import shm_paths
from msgq.common.naming import events_channel
from msgq.errors import MsgqError
from msgq.impl.base.files import read_file_status


def remove_events(queue: str, in_prefix: str) -> None:
    """Remove a queue's events channel, if it exists and can be removed. Open subscribers continue."""
    import contextlib  # late: few processes remove a queue

    name = events_channel(queue)
    with contextlib.suppress(MsgqError):
        if read_file_status(shm_paths.channel_path(name, in_prefix)) is not None:
            from msgq.impl.channel.core import open_channel_file  # imported late: few queues have events

            open_channel_file(name, in_prefix).unlink()
