"""A recording of a blob, as a recorder writes it."""

from __future__ import annotations

from pathlib import Path

from msgq.common.message_source import MessageSource
from msgq.recording import Writer
from msgq.recording.mcap_io import metadata_keys
from tests.blob_kind.names import KIND

MESSAGES = [b"first", b"second"]


def write_log(path: Path) -> Path:
    """Write `MESSAGES` of the blob "notes", and return the path."""
    with Writer(path) as writer:
        metadata = metadata_keys.build_channel_metadata(
            0, metadata_keys.RECORDER_SEQUENCE, source=MessageSource(KIND.name)
        )
        channel = writer.channel("blob/notes", None, metadata=metadata)
        for number, message in enumerate(MESSAGES):
            writer.write(channel, message, 1_000_000 * (number + 1), sequence=number)
    return path
