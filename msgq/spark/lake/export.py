"""Writes rows as a recording, which all readers and players of recordings accept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema, schema_of
from msgq.errors import InvalidValueError
from msgq.kinds import find_recorded_kind, keeps_values
from msgq.lake.external_sort import SORTED_RUN_SCHEMA, merge_sorted_runs, write_sorted_runs
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.schema_texts import read_schemas
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import BoundaryLoss, BoundaryLosses
from msgq.recording.mcap_io.log_writer import Writer
from msgq.spark.source.arrow_batches import convert_to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INTEGER_TYPES = ("bigint", "int", "smallint", "tinyint")
_REQUIRED_COLUMNS = {"endpoint": ("string",), "log_time": _INTEGER_TYPES, "data": ("binary", "string")}
_OPTIONAL_COLUMNS = {
    "epoch": _INTEGER_TYPES,
    "sequence": _INTEGER_TYPES,
    "publish_time": _INTEGER_TYPES,
    "encoding": ("string",),
    "schema": ("string",),
    "schema_id": _INTEGER_TYPES,
    "origin_time": _INTEGER_TYPES,
    "lost_before": _INTEGER_TYPES,
    "lost_after": _INTEGER_TYPES,
    **dict.fromkeys(MessageSource._fields, ("string",)),
}
_CHANNEL_COLUMNS = (
    "endpoint",
    "epoch",
    "encoding",
    "schema",
    "schema_id",
    *MessageSource._fields,
)  # of which a channel is
_SEQUENCE_MODULUS = 1 << 32  # a sequence has 32 bits
_EXPORT_ORDER_COLUMNS = ("log_time", "endpoint", "epoch", "sequence")


def write_log(rows: DataFrame, path: Path, lake: str | None = None) -> int:
    """Write rows as an MCAP file in the order of log_time, and return their number.

    Workers write the rows in sorted runs of 64 MiB, and this process merges the runs. The rows are never in memory
    together.

    Parameters
    ----------
    rows : columns endpoint, log_time, data; optional: epoch, sequence, publish_time, origin_time, encoding, schema
        (name), schema_id, kind, publisher, key, options, lost_before and lost_after. Rows with NULL in one of the first
        three are omitted. Without a kind, the name of the endpoint determines the kind.
    path : path of the file, which must not exist.
    lake : directory of the lake, which contains the texts of the schemas and temporarily the runs. None: schemas have
        only names and encodings, and the runs are next to `path`, where workers must be able to write.

    Raises
    ------
    InvalidValueError : a column is missing, or has a type or a value that messages cannot have.
    RecordingError : the file exists, or cannot be written.
    """
    chosen, runs = _select_message_columns(rows), LakeDirectory(lake or path.parent)
    place = f".export-{uuid4().hex}"
    order = [name for name in _EXPORT_ORDER_COLUMNS if name in chosen.columns]
    with Writer(path) as writer:
        channels = _ExportChannels(writer, {} if lake is None else read_schemas(runs))
        try:
            sorted_runs = chosen.mapInArrow(
                partial(_write_export_runs, order, runs.uri, place), convert_to_spark_schema(SORTED_RUN_SCHEMA)
            ).toArrow()
            for row in merge_sorted_runs(sorted_runs, order, runs, place):
                _write_message(writer, channels, row)
        finally:
            runs.remove_directory(place)
    return writer.messages


def _write_export_runs(
    order: Sequence[str], uri: str, place: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return write_sorted_runs(batches, order, LakeDirectory(uri), place)


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


def _select_message_columns(rows: DataFrame) -> DataFrame:
    """Return the columns that messages need. Raises InvalidValueError for missing columns or wrong types."""
    types = dict(rows.dtypes)
    if missing := [name for name in _REQUIRED_COLUMNS if name not in types]:
        text = f"column {missing[0]!r} is missing; needed are {', '.join(_REQUIRED_COLUMNS)}"
        raise InvalidValueError(f"{text}, as in SELECT * FROM messages")
    known = {name: fit for name, fit in (_REQUIRED_COLUMNS | _OPTIONAL_COLUMNS).items() if name in types}
    for name, fit in known.items():
        if types[name] not in fit:
            raise InvalidValueError(f"column {name!r} has type {types[name]}; expected {' or '.join(fit)}")
    chosen = rows.select(*known).dropna(subset=list(_REQUIRED_COLUMNS))
    return chosen.withColumn("data", chosen["data"].cast("binary"))


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

    def __init__(self, writer: Writer, texts: dict[int, Schema]) -> None:
        self._writer, self._texts = writer, texts
        self._channel_numbers: dict[tuple[Any, ...], int] = {}

    def find_channel_number(self, values: dict[str, Any]) -> int:
        """Return the channel number of a row."""
        key = tuple(values.get(name) for name in _CHANNEL_COLUMNS)
        if key not in self._channel_numbers:
            before = _make_boundary_loss(values, "lost_before")  # of the first message
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
        schema = self._texts.get(values.get("schema_id") or 0)
        encoding = values.get("encoding")
        if schema is not None or not encoding:
            return schema
        return schema_of(values.get("schema") or values["endpoint"], encoding, b"")
