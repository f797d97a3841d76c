"""Channels: names, and files in /dev/shm (`naming.channel_files`)."""

from __future__ import annotations

from msgq.common import naming
from msgq.kinds import Kind

KIND = Kind(
    name="channel",
    package="msgq.channel",
    validate=naming.channel_name,
    name_prefix=naming.CHANNEL_NAME_PREFIX,
    plural="channels",
    heading="chan",
    files=naming.channel_files,
    crosses_bridges=True,
)
