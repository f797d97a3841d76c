"""Logs: one or several recordings, read as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.common.dtypes import struct_dtype
from msgq.common.selection import EndpointPattern, SelectedEndpoints
from msgq.decoding.payload_decoder import PayloadDecoder
from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError, MissingLibraryError, RecordingError
from msgq.recording.mcap_io import recording_files
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.core import TIME_MAX, ScanColumns
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX
from msgq.recording.reader.attachments import Attachment, Header, Metadata, iter_attachments, iter_metadata
from msgq.recording.reader.column_batches import MessageBatch, read_batches_by_log_time
from msgq.recording.reader.log_view import HOST_CLOCK, LogView
from msgq.recording.reader.message import EndpointInfo, Message
from msgq.recording.reader.message_builder import build_messages
from msgq.recording.reader.time_order import BlockMergeBuffer, BlockMessages
from msgq.recording.reader.totals import EndpointTotals, find_stored_statistics, read_message_counts

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from msgq.recording.export.decoded_tables import DecodedBatch

_BATCH_ROWS = 16384
_MESSAGE_BATCH_ROWS = 1024  # messages that are made at once: their memory stays in the cache
_OVERLAPPING_BLOCKS_MAX = 4  # largest chunks whose messages may wait at the same time


class LogReader:
    """Reads MCAP files, ours and anybody's, whole and truncated ones. One thread at a time.

    Nothing in a file makes it fail once it is open: what is damaged is skipped, and listed in `problems`.

    Attributes
    ----------
    files : the files, in the order given.
    problems : what was skipped so far: the first 1000, and where more was.
    log_view : the files, and what of them is wanted; for those who read chunk by chunk.
    """

    def __init__(
        self,
        *paths: str | PathLike[str],
        endpoints: Iterable[EndpointPattern] | None = None,
        exclude: Iterable[EndpointPattern] | None = None,
        start: int | None = None,
        end: int | None = None,
        span: tuple[int, int] | None = None,
        max_chunk_bytes: int = CHUNK_BYTES_MAX,
        clock: str = HOST_CLOCK,
        schemas: Schemas | None = None,
    ) -> None:
        """Open files, and find out where their messages are.

        Parameters
        ----------
        paths : files, and directories of segments; one log, in this order.
        endpoints : only these: names, or compiled expressions, as `SelectedEndpoints` has them.
        exclude : not these.
        start, end : only messages with start <= log_time < end, ns since the epoch.
        span : of each file only what is between these two offsets, which are the beginnings or ends of records.
        max_chunk_bytes : of a chunk before compression, a message outside of chunks, or a summary. What is larger is
            skipped, as a `Problem`, as a few bytes can be compressed ones of any number: give more for recordings of
            larger messages. So is what overlaps with so many other chunks in time that the four-fold would have to be
            held at once, to give messages in their order.
        clock : by which all times are, those of messages and those that are asked for. "host": as in the files, by the
            clock of the host that recorded, which never steps. "wall": what the wall clock showed there, which somebody
            may have set meanwhile; then it goes back or jumps. A file that does not say what it showed stays as it is.
        schemas : for endpoints of which the files say nothing.

        Raises
        ------
        RecordingError : a file cannot be opened or is no MCAP file, or a directory has none.
        """
        if not paths:
            raise InvalidValueError("no recording was named; pass a file or a directory")
        selection = SelectedEndpoints(endpoints, exclude or ())
        options: Any = {"clock": clock, "schemas": schemas}
        self._set_log_view(LogView(_list_log_files(paths), selection, start, end, span, max_chunk_bytes, **options))

    def _set_log_view(self, view: LogView) -> None:
        self.log_view, self.files, self.problems = view, view.files, view.problems

    @property
    def channels(self) -> Sequence[RecordedChannel]:
        """What was found so far of what messages have in common; the column "channel" of batches counts in here."""
        return self.log_view.channels

    @property
    def missing_endpoints(self) -> list[str]:
        """The names of endpoints that were asked for, and of which nothing was found so far."""
        return self.log_view.find_missing_endpoints()

    @property
    def size(self) -> int:
        """Bytes of all that may have to be read, before compression, as the files say."""
        return sum(block.uncompressed_bytes for _, block in self.log_view.iter_wanted_blocks())

    def split(self, size: int) -> list[LogReader]:
        """Return readers of pieces of this log, in its order, each of at least one chunk.

        They can be pickled, and read in other processes. Each has its own `problems`, none of which is known yet.

        Parameters
        ----------
        size : of a piece, in bytes before compression.
        """
        return [self._copy_with_view(piece) for piece in self.log_view.split_by_size(size)]

    def between(self, start: int | None = None, end: int | None = None) -> LogReader:
        """Return this log within a narrower time; it costs nothing. One thread at a time for both.

        Parameters
        ----------
        start, end : only messages with start <= log_time < end, ns since the epoch; None leaves it as it is.
        """
        return self._copy_with_view(self.log_view.select_time_range(start, end))

    def full_history(self, *kinds: str) -> LogReader:
        """Return all that the files have of the endpoints of these kinds, of those that were chosen, whenever it was.

        It is for kinds that have a state, which what came before left. It opens the files anew.
        """
        return self._copy_with_view(self.log_view.select_full_history(*kinds))

    def _copy_with_view(self, view: LogView) -> LogReader:
        """Return a reader of some of this log."""
        reader = copy(self)
        for known in ("endpoints", "start_time", "end_time"):
            reader.__dict__.pop(known, None)  # they are of the whole
        reader._set_log_view(view)
        return reader

    # Beside the messages

    @property
    def headers(self) -> list[Header]:
        """What each file says first, in their order."""
        return [Header(file.header.profile, file.header.library) for file in self.files]

    @property
    def metadata(self) -> list[Metadata]:
        """All metadata of the files, in their order, those that msgq writes included."""
        return list(iter_metadata(self.log_view))

    @property
    def attachments(self) -> list[Attachment]:
        """The attachments of the files, in their order, of the log's time."""
        return list(iter_attachments(self.log_view))

    # Message by message

    def __iter__(self) -> Iterator[Message]:
        """Give the messages in the order of log_time, those of one time in the order of the files."""
        return chain.from_iterable(self._iter_message_lists())

    def _iter_message_lists(self) -> Iterator[Iterable[Message]]:
        """Give the messages, many at a time."""
        columns = ScanColumns(_BATCH_ROWS)
        blocks = sorted(self.log_view.iter_wanted_blocks(), key=lambda pair: pair[1].start_time)
        buffer = BlockMergeBuffer(_OVERLAPPING_BLOCKS_MAX * self.log_view.max_chunk_bytes)
        for number, (file, block) in enumerate(blocks):
            yield buffer.pop_before_time(block.start_time)
            rows = self._read_block_messages(file, block, columns)
            following = blocks[number + 1][1].start_time if number + 1 < len(blocks) else TIME_MAX
            if rows is None:
                continue
            if not buffer and rows.last_time <= following:
                yield from self._build_messages(rows)
            elif not buffer.add_block(number, chain.from_iterable(self._build_messages(rows)), rows.memory_bytes):
                limit = (
                    f"{buffer.max_memory_bytes} bytes overlap in time, four times max_chunk_bytes (--max-chunk-bytes)"
                )
                self.log_view.report_problem(
                    Problem(str(file.path), block.offset, f"a chunk was skipped: more than {limit}")
                )
        yield buffer.pop_before_time(TIME_MAX + 1)

    def _read_block_messages(self, file: McapFile, block: DataBlock, columns: ScanColumns) -> BlockMessages | None:
        """Return the messages of a block in the order of log_time; None: there are none."""
        scans = self.log_view.scan_block(file, block, columns)
        parts = [BlockMessages.copy_columns(content, columns) for content in scans if columns.row_count]
        return BlockMessages.merge_scans(parts) if parts else None

    def _build_messages(self, rows: BlockMessages) -> Iterator[list[Message]]:
        """Make messages, not all at once: a chunk may have millions."""
        channels = [(c.endpoint, c.epoch, c.schema, c.message_source) for c in self.log_view.channels]
        for begin in range(0, rows.row_count, _MESSAGE_BATCH_ROWS):
            yield build_messages(rows, begin, min(begin + _MESSAGE_BATCH_ROWS, rows.row_count), channels)

    def decoded(self) -> Iterator[tuple[Message, Any]]:
        """Give the messages as iteration does, each with its value by the schema of its endpoint.

        A payload without a known encoding is its own value; what cannot be decoded gives an `Undecoded`.
        """
        payload_decoder = PayloadDecoder()
        for message in self:
            yield message, payload_decoder.decode_payload(message.schema, message.data)

    # Many at once

    def batches(self, columns: Sequence[str] | None = None, rows: int = 65536) -> Iterator[pyarrow.RecordBatch]:
        """Give the messages as Arrow batches, in the order of the files. Needs pyarrow.

        Parameters
        ----------
        columns : some of "endpoint" (dictionary), "epoch", "sequence", "log_time", "publish_time" (int64), "data"
            (binary), in the order wanted; None is all of these. Beyond them "origin_time" (int64, 0 where it is not
            known), "kind", "publisher", "key" (dictionaries; "" where there is none), "channel" (int32, index in
            `channels`), "byte_offset" (int64, where in the file the chunk is), "lost_before" and "lost_after" (int64;
            losses next to the message that no gap in the sequences shows, null: none).
        rows : at most so many a batch; large payloads make smaller ones.
        """
        with _explain_missing_package():
            from msgq.recording.reader.arrow_batches import read_arrow_batches
        return read_arrow_batches(self.log_view, columns, rows)

    def iter_batches(self) -> Iterator[MessageBatch]:
        """Give the messages in the order of log_time, those of one time in the order of the files, as columns."""
        return read_batches_by_log_time(self.log_view)

    def decoded_batches(self, endpoint: str, rows: int = 65536) -> Iterator[DecodedBatch]:
        """Give the messages of an endpoint as tables with a column for each field, in the order of the files.

        Columns are those that messages have: where their schema changes, or says little, as with JSON, tables may have
        others than those before. Needs pyarrow, and what decodes the encoding.

        Parameters
        ----------
        rows : at most so many messages a batch; large payloads make smaller ones.
        """
        with _explain_missing_package():
            from msgq.recording.export.decoded_tables import decode_message_batches
        return (batch for _, batch in decode_message_batches(self.log_view.select_endpoint(endpoint), rows))

    def to_arrow(self, endpoint: str) -> pyarrow.Table:
        """Return the messages of an endpoint as one table with a column for each field, in the order of the files.

        Its columns are those of `DecodedBatch`, and where messages differ all that any of them has: of the type that
        holds all values, as text where there is none. Messages that cannot be decoded are left out, and listed as one
        problem; `decoded_batches` has them. Needs pyarrow, and what decodes the encoding.

        Raises
        ------
        RecordingError : there are no messages of it.
        """
        with _explain_missing_package():
            from msgq.recording.export.decoded_tables import read_endpoint_table
        return read_endpoint_table(self.log_view, endpoint)

    def to_pandas(self, endpoint: str) -> pandas.DataFrame:
        """Return the same for pandas, with a column for each field of structs: `pose.position.x`. Needs pandas, too."""
        rows = self.to_arrow(endpoint)
        with _explain_missing_package("pandas"):
            from msgq.recording.export.to_pandas import build_pandas_frame
        return build_pandas_frame(rows)

    def to_polars(self, endpoint: str) -> polars.DataFrame:
        """Return the same for Polars, with structs as they are. Needs polars, too."""
        rows = self.to_arrow(endpoint)
        with _explain_missing_package("polars"):
            import polars
        return polars.DataFrame(rows)

    def to_parquet(self, output: str | PathLike[str]) -> int:
        """Write the messages of all endpoints that were chosen, decoded, as Parquet; return how many. Needs pyarrow.

        Parameters
        ----------
        output : a new file, if its name ends in ".parquet", of the only endpoint that there is; messages that cannot
            be decoded are then beside it, in one that ends in ".undecoded.parquet". Else a new directory with a file
            for each endpoint, and "_undecoded.parquet".

        Raises
        ------
        RecordingError : it exists, or cannot be written; a file is wanted, and there is not one endpoint.
        """
        with _explain_missing_package():
            from msgq.recording.export.parquet import write_parquet
        return write_parquet(self.log_view, Path(output))

    def to_numpy(self, endpoint: str) -> np.ndarray[Any, Any]:
        """Return the messages of an endpoint with a "struct" schema as one array, in the order of the files.

        Raises
        ------
        RecordingError : there is no such endpoint, it has another or several schemas, or a message does not fit.
        """
        only = self.log_view.select_endpoint(endpoint)
        columns, ends = ScanColumns(_BATCH_ROWS), np.empty(_BATCH_ROWS, np.int32)
        pieces, sizes = [np.empty(0, np.uint8)], {0}
        for content in only.scan_all_files(columns):
            piece = np.empty(columns.count_payload_bytes(0), np.uint8)
            columns.copy_payloads(content, 0, piece, 0, ends)
            pieces.append(piece)
            sizes.update(np.unique(columns.length[: columns.row_count]).tolist())
        dtype = _find_common_dtype(
            endpoint, [channel for channel in only.channels if not channel.boundary_losses.unrecorded_messages]
        )
        if wrong := [size for size in sizes if size % dtype.itemsize]:
            text = (
                f"a message has {wrong[0]} bytes, which is not a multiple of {dtype.itemsize}, the size of one element"
            )
            raise RecordingError(text, endpoint)
        return np.concatenate(pieces).view(dtype)

    # About the whole

    @cached_property
    def endpoints(self) -> dict[str, EndpointInfo]:
        """Totals by endpoint name, from the statistics of files, or from a scan; see `has_statistics`."""
        return self.summarize()

    def summarize(self, scan: bool = False) -> dict[str, EndpointInfo]:
        """Return the totals by endpoint name. scan : read all messages, which also finds damage."""
        totals = EndpointTotals(self.log_view)
        for file in self.files:
            totals.add_file(file, scan)
        return totals.build_endpoint_infos()

    @property
    def has_statistics(self) -> bool:
        """Whether the files say all of `endpoints`, as ours do where no time is chosen; then nothing is read for it,
        and no damage found.
        """
        return all(find_stored_statistics(self.log_view, file) is not None for file in self.files)

    @property
    def counts(self) -> dict[str, int] | None:
        """How many messages there are of each endpoint, as the files say; None: one does not, or a time is chosen."""
        return read_message_counts(self.log_view)

    @property
    def messages(self) -> int:
        """How many there are; see `endpoints`."""
        return sum(info.messages for info in self.endpoints.values())

    @cached_property
    def start_time(self) -> int | None:
        """log_time of the first message, ns since the epoch; None when there is none. Reads little."""
        first = next(iter(self), None)
        return None if first is None else first.log_time

    @cached_property
    def end_time(self) -> int | None:
        """log_time of the last message, ns since the epoch; None when there is none. Reads little."""
        columns = ScanColumns(_BATCH_ROWS)
        last = -1
        for file, block in sorted(self.log_view.iter_wanted_blocks(), key=lambda pair: pair[1].end_time, reverse=True):
            if block.end_time < last:
                break
            for _ in self.log_view.scan_block(file, block, columns):
                last = max(last, int(columns.log_time[: columns.row_count].max(initial=-1)))
        return None if last < 0 else last


@contextmanager
def _explain_missing_package(package: str = "msgq-bus[arrow]") -> Iterator[None]:
    """Say what is to be installed where an import fails."""
    try:
        yield
    except ModuleNotFoundError as missing:
        text = f"this call needs {missing.name}, which is not installed: pip install '{package}'"
        raise MissingLibraryError(text) from missing


def _find_common_dtype(endpoint: str, channels: Sequence[RecordedChannel]) -> np.dtype[Any]:
    """Return the dtype that all channels of an endpoint have."""
    schemas = {channel.schema for channel in channels}
    if len(schemas) != 1:
        state = "several schemas" if schemas else "no messages"
        raise RecordingError(f"the recording has {state} of this endpoint", endpoint)
    schema = schemas.pop()
    if schema is None or schema.encoding != "struct":
        encoding = "no schema" if schema is None else f"the encoding {schema.encoding!r}"
        raise RecordingError(f"the endpoint has {encoding}; arrays need the encoding 'struct'. Use decoded()", endpoint)
    try:
        return struct_dtype(schema)
    except ValueError as error:
        raise RecordingError(str(error), endpoint) from None


def _list_log_files(paths: Sequence[str | PathLike[str]]) -> list[Path]:
    files = []
    for path in map(Path, paths):
        segments = recording_files.find_segment_files(path)
        if not segments:
            raise RecordingError(f"directory '{path}' contains no {recording_files.MCAP_SUFFIX} file")
        files += segments
    return files
