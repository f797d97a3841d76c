"""Channels: names, and files in /dev/shm (`shm_paths.locate_channel_files`)."""

from __future__ import annotations

from msgq.common import naming, shm_paths
from msgq.kinds import Kind

KIND = Kind(
    name="channel",
    package="msgq.channel",
    validate_name=naming.validate_channel_name,
    name_prefix=naming.CHANNEL_NAME_PREFIX,
    plural_name="channels",
    locate_files=shm_paths.locate_channel_files,
)
