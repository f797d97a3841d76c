"""Writes messages of a lake as a recording, which all readers and players of recordings accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema, schema_of
from msgq.common.storage.store_errors import translate_store_errors
from msgq.errors import InvalidValueError
from msgq.kinds import find_recorded_kind, keeps_values
from msgq.lake.external_sort import SORTED_RUN_SCHEMA, merge_sorted_runs, write_sorted_runs
from msgq.lake.lake_directory import LakeDirectory
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import BoundaryLoss, BoundaryLosses
from msgq.recording.mcap_io.log_writer import Writer

REQUIRED_COLUMNS = ("endpoint", "log_time", "data")
INTEGER_COLUMNS = ("epoch", "sequence", "publish_time", "schema_id", "origin_time", "lost_before", "lost_after")
TEXT_COLUMNS = ("encoding", "schema", *MessageSource._fields)
#: All columns of messages that a recording can contain.
EXPORT_COLUMNS = (*REQUIRED_COLUMNS, *INTEGER_COLUMNS, *TEXT_COLUMNS)
_CHANNEL_COLUMNS = (
    "endpoint",
    "epoch",
    "encoding",
    "schema",
    "schema_id",
    *MessageSource._fields,
)  # columns that describe a channel
_SEQUENCE_MODULUS = 1 << 32  # a sequence has 32 bits
_REPORTED_ROWS = 1000  # rows between two reports of the merged part
_EXPORT_ORDER_COLUMNS = ("log_time", "endpoint", "epoch", "sequence")
#: Writes all rows as sorted runs, from the columns of the order, a directory and a place in it; returns the runs.
RunsWriter = Callable[[Sequence[str], LakeDirectory, str], pa.Table]


def write_messages(
    batches: Iterable[pa.RecordBatch],
    path: Path,
    schemas: Mapping[int, Schema],
    report_part: Callable[[float], None] = lambda _: None,
) -> int:
    """Write messages as an MCAP file in the order of log_time, and return their number.

    This process writes sorted runs of 64 MiB next to `path`, and merges the runs. The memory does not grow with the
    number of messages.

    Args:
        batches: messages with the columns `EXPORT_COLUMNS`.
        path: path of the file, which must not exist.
        schemas: schemas with texts, by schema_id.
        report_part: gets the merged part of the messages, from 0 to 1, after all batches were read.

    Raises:
        InvalidValueError: a message has a negative time.
        RecordingError: the file exists, or cannot be written.
    """

    def write_runs(order: Sequence[str], directory: LakeDirectory, place: str) -> pa.Table:
        return pa.Table.from_batches(write_sorted_runs(batches, order, directory, place), SORTED_RUN_SCHEMA)

    return write_merged_runs(write_runs, EXPORT_COLUMNS, path, LakeDirectory(path.parent), schemas, report_part)


@translate_store_errors()
def write_merged_runs(
    write_runs: RunsWriter,
    columns: Sequence[str],
    path: Path,
    directory: LakeDirectory,
    schemas: Mapping[int, Schema],
    report_part: Callable[[float], None] = lambda _: None,
) -> int:
    """Write messages from sorted runs as an MCAP file, and return their number.

    `columns`: columns of the messages.
    `directory`: directory for the runs. The runs are removed at the end.
    `report_part`: gets the merged part of the messages, from 0 to 1.
    """
    place = f".export-{uuid4().hex}"
    order = [name for name in _EXPORT_ORDER_COLUMNS if name in columns]
    with Writer(path) as writer:
        channels = _ExportChannels(writer, schemas)
        try:
            runs = write_runs(order, directory, place)
            row_count = pc.sum(runs.column("row_count")).as_py()
            for number, row in enumerate(merge_sorted_runs(runs, order, directory, place)):
                _write_message(writer, channels, row)
                if number % _REPORTED_ROWS == 0:
                    report_part(number / row_count)
        finally:
            directory.remove_directory(place)
    return writer.messages


def _write_message(writer: Writer, channels: _ExportChannels, values: dict[str, Any]) -> None:
    time, published, sequence = values["log_time"], values.get("publish_time"), values.get("sequence") or 0
    published = time if published is None else published
    if min(time, published) < 0:
        text = f"message has log_time {time}, publish_time {published}; use nanoseconds since 1970, 0 or more"
        raise InvalidValueError(text, values["endpoint"])
    writer.write(
        channels.find_channel_number(values), values["data"], time, published, sequence, _get_row_origin_time(values)
    )
    if values.get("lost_after"):
        channels.write_loss_after(values)


def _get_row_kind(values: dict[str, Any]) -> str:
    return values.get("kind") or find_recorded_kind(values["endpoint"]).name


def _get_row_origin_time(values: dict[str, Any]) -> int:
    """Return the origin to store next to a message; 0 for topics whose payloads contain the origin."""
    return 0 if _get_row_kind(values) == TOPIC_SOURCE.kind else max(0, values.get("origin_time") or 0)


def _make_boundary_loss(values: dict[str, Any], name: str) -> BoundaryLoss | None:
    """Return losses next to a message without a gap in the sequences; None: no losses."""
    lost = values.get(name)
    return BoundaryLoss((values.get("sequence") or 0) % _SEQUENCE_MODULUS, lost) if lost and lost > 0 else None


class _ExportChannels:
    """Channels of a file: one for each endpoint, epoch, schema and source."""

    def __init__(self, writer: Writer, schemas: Mapping[int, Schema]) -> None:
        self._writer, self._schemas = writer, schemas
        self._channel_numbers: dict[tuple[Any, ...], int] = {}

    def find_channel_number(self, values: dict[str, Any]) -> int:
        """Return the channel number of a row."""
        key = tuple(values.get(name) for name in _CHANNEL_COLUMNS)
        if key not in self._channel_numbers:
            before = _make_boundary_loss(values, "lost_before")  # loss before the first message
            self._channel_numbers[key] = self._add_export_channel(values, BoundaryLosses(loss_before=before))
        return self._channel_numbers[key]

    def write_loss_after(self, values: dict[str, Any]) -> None:
        """Store the losses after a row in a channel without messages."""
        self._add_export_channel(values, BoundaryLosses(loss_after=_make_boundary_loss(values, "lost_after")))

    def _add_export_channel(self, values: dict[str, Any], boundary_losses: BoundaryLosses) -> int:
        source = MessageSource(_get_row_kind(values), *(values.get(name) or "" for name in MessageSource._fields[1:]))
        counting = metadata_keys.RECORDER_SEQUENCE if keeps_values(source.kind) else metadata_keys.PUBLISHER_SEQUENCE
        endpoint, epoch = values["endpoint"], values.get("epoch") or 0
        metadata = metadata_keys.build_channel_metadata(
            epoch, counting, source=source, boundary_losses=boundary_losses.build_metadata()
        )
        return self._writer.channel(endpoint, self._find_row_schema(values), metadata=metadata)

    def _find_row_schema(self, values: dict[str, Any]) -> Schema | None:
        """Return the schema with its text from the lake, or with the name and encoding in the row."""
        schema = self._schemas.get(values.get("schema_id") or 0)
        encoding = values.get("encoding")
        if schema is not None or not encoding:
            return schema
        return schema_of(values.get("schema") or values["endpoint"], encoding, b"")
