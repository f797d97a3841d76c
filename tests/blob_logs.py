"""A recording of a blob, as a recorder writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgq_blobs.names import KIND

from msgq.common.message_source import MessageSource
from msgq.kinds import Kind
from msgq.recording import Writer
from msgq.recording.mcap_io import metadata_keys

MESSAGES = [b"first", b"second"]


def write_log(path: Path, kind: Kind = KIND, messages: Sequence[bytes] = MESSAGES) -> Path:
    """Write messages of the endpoint "notes" of a kind, and return the path."""
    with Writer(path) as writer:
        metadata = metadata_keys.build_channel_metadata(
            0, metadata_keys.RECORDER_SEQUENCE, source=MessageSource(kind.name)
        )
        channel = writer.channel(kind.endpoint("notes"), None, metadata=metadata)
        for number, message in enumerate(messages):
            writer.write(channel, message, 1_000_000 * (number + 1), sequence=number)
    return path
