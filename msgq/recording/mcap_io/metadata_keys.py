"""Names of the metadata that msgq writes into MCAP files, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema

MSGQ_PROFILE = "msgq"
RECORDING_METADATA = "msgq.recording"  # Metadata, at the start of each segment
CLOCK_METADATA = "msgq.clock"  # Metadata, after the wall clock was set: the new offset, and since when
#: Keys of RECORDING and CLOCK about the clocks.
CLOCK_METADATA_KEYS = ("run", "since_ns", "clock_offset_ns", "wall_offset_ns")
LOSSES_METADATA = "msgq.losses"  # Metadata, at the end of each segment: endpoint -> messages lost until then
MERGED_METADATA = (
    "msgq.merged"  # Metadata, of a file with messages of several recordings: what RECORDING and CLOCK were of each
)
STATISTICS_METADATA = "msgq.figures"  # Metadata, at the end of each segment: channel id -> its statistics as JSON
STATISTICS_OFFSET_KEY = "at"  # key in STATISTICS_METADATA: offset of the record in its file; copies are elsewhere
EPOCH_KEY = "epoch"  # metadata of a channel
SEQUENCE_KEY = "sequence"  # metadata of a channel: PUBLISHED or RECEIVED
TRACKED_KEY = "tracked"  # metadata of a channel: "1", the messages had their times as stamps
# metadata of a channel: number of lost messages that are no gap (decimal or UNKNOWN), and the message next to them
FIRST_SEQUENCE_KEY, LOST_BEFORE_KEY = "first_sequence", "lost_before"
LAST_SEQUENCE_KEY, LOST_AFTER_KEY = "last_sequence", "lost_after"
UNRECORDED_KEY = "unrecorded"  # metadata of a channel: messages lost of an endpoint without any recorded message
UNKNOWN_LOSSES = "unknown"
PUBLISHER_SEQUENCE = "published"
RECORDER_SEQUENCE = "received"


def build_channel_metadata(
    epoch: int,
    counting: str,
    tracked: bool = False,
    source: MessageSource = TOPIC_SOURCE,
    boundary_losses: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the metadata of a channel that msgq writes; see EPOCH, SEQUENCE, TRACKED.

    `boundary_losses`: losses without a gap in the sequences, from `BoundaryLosses.build_metadata`.
    """
    metadata = {EPOCH_KEY: str(epoch), SEQUENCE_KEY: counting}
    return metadata | ({TRACKED_KEY: "1"} if tracked else {}) | source.metadata() | dict(boundary_losses or {})


def needs_schema_record(schema: Schema | None) -> TypeGuard[Schema]:
    """Return True if a schema contains more than the message encoding."""
    return schema is not None and bool(schema.data or schema.encoding not in ("", "json", "cbor", "msgpack"))
