"""What a recording looks like on disk: the names, and where MCAP leaves a choice, the choice."""

from __future__ import annotations

from pathlib import Path

from msgq.schema import Schema

PROFILE = "msgq"
SUFFIX = ".mcap"
RECORDING = "msgq.recording"  # Metadata, at the start of each segment
LOSSES = "msgq.losses"  # Metadata, at the end of each segment: endpoint -> messages lost so far
EPOCH = "epoch"  # metadata of a channel
SEQUENCE = "sequence"  # metadata of a channel: PUBLISHED or RECEIVED
TRACKED = "tracked"  # metadata of a channel: "1", the messages had their times as stamps
PUBLISHED = "published"
RECEIVED = "received"

#: The same encoding has another name for schemas than for messages.
_SCHEMA_ENCODINGS = {"json": "jsonschema", "cdr": "ros2msg"}
_MESSAGE_ENCODINGS = {schema: message for message, schema in _SCHEMA_ENCODINGS.items()}


def segment_path(directory: Path, index: int) -> Path:
    """Return where a segment of a recording is; they sort by name."""
    return directory / f"{index:06d}{SUFFIX}"


def segments(path: Path) -> list[Path]:
    """Return the files of a recording, in order: `path` itself, unless it is a directory."""
    return sorted(file for file in path.glob(f"*{SUFFIX}") if not file.is_dir()) if path.is_dir() else [path]


def schema_encoding(message_encoding: str) -> str:
    """Return what MCAP calls the schema of such messages."""
    return _SCHEMA_ENCODINGS.get(message_encoding, message_encoding)


def message_encoding(schema_encoding: str) -> str:
    """Return what MCAP calls the messages of such a schema."""
    return _MESSAGE_ENCODINGS.get(schema_encoding, schema_encoding)


def has_schema_record(schema: Schema | None) -> bool:
    """Return whether the schema says more than the message encoding does."""
    return schema is not None and bool(schema.data or schema.encoding not in ("", "json", "cbor", "msgpack"))
