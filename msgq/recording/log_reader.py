"""Logs: one or several recordings, read as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgq.common.selection import EndpointChoice, EndpointPattern, SelectedEndpoints, select_endpoints
from msgq.common.storage.url_path import RecordingPath, UrlPath, make_path
from msgq.errors import InvalidTypeError, InvalidValueError, MissingLibraryError, RecordingError
from msgq.impl.base.foreign_names import add_advice
from msgq.recording.mcap_io import recording_files
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX
from msgq.recording.reader.attachments import Attachment, Header, Metadata, iter_attachments, iter_metadata
from msgq.recording.reader.log_times import LogTime, parse_time_range
from msgq.recording.reader.log_view import HOST_CLOCK, LogView, unknown_endpoint_error
from msgq.recording.reader.message import EndpointInfo, Message
from msgq.recording.reader.totals import EndpointTotals, find_stored_statistics, read_message_counts

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import polars
    import pyarrow

    from msgq.decoding.schemas import Schemas
    from msgq.recording.export.decoded_tables import DecodedBatch
    from msgq.recording.mcap_io.mcap_file import McapFile
    from msgq.recording.mcap_io.problem import Problem
    from msgq.recording.reader.column_batches import MessageBatch

_BATCH_ROWS = 16384


@add_advice
class LogReader:
    """Reads MCAP files of msgq and of other programs, complete or truncated. One thread at a time.

    After a file is opened, damaged data raises no error: the reader skips the data and adds an entry to `problems`.

    Attributes:
        files: the files in the given order.
        problems: skipped data: the first 1000 entries. If there is more, a last entry has the position of the next one.
        log_view: files and selection, for readers of single chunks.
    """

    def __init__(
        self,
        *paths: str | PathLike[str] | UrlPath,
        endpoints: EndpointChoice | None = None,
        exclude: EndpointPattern | Iterable[EndpointPattern] | None = None,
        start: LogTime | None = None,
        end: LogTime | None = None,
        span: tuple[int, int] | None = None,
        max_chunk_bytes: int = CHUNK_BYTES_MAX,
        clock: str = HOST_CLOCK,
        schemas: Schemas | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Open the files, and read the positions of their messages.

        Args:
            paths: files, and directories of segments, as paths or URLs (s3://, gs://, abfss://, hdfs://). Together they
                form one log, in this order. From a store, only the needed parts are read.
            endpoints: endpoints to read: a name or compiled regular expression, or a list of them; None: all. A name or
                expression that selects nothing in complete files is a `MsgqWarning`; see also `missing_endpoints`.
            exclude: endpoints to skip, in the same form; None or an empty list: none.
            start: read only messages with start <= log_time. Give ns since the epoch, an ISO 8601 text such as
                "2026-05-01T12:00", a datetime or a datetime64. A time without a UTC offset is in UTC.
            end: read only messages with log_time < end, given as `start`.
            span: read only the part between these two byte offsets of each file. Each offset is the beginning or the
                end of a record.
            max_chunk_bytes: maximum bytes of a chunk before compression, of a message outside of chunks, or of a
                summary. Larger data is skipped as a `Problem`, because few compressed bytes can expand to any size.
                Increase the limit for recordings with larger messages. Chunks are also skipped if their times overlap
                with so many chunks that sorting needs more than four times this number.
            clock: clock of all times, of messages and arguments. "host": the clock of the recording host, as in the
                files. This clock never jumps. "wall": the wall clock of the recording host. A change of the wall clock
                during the recording makes these times jump. A file without wall-clock times keeps its own times.
            schemas: schemas for endpoints without a schema in the files.
            storage_options: credentials and settings for URLs, by the names of environment variables such as
                AWS_ACCESS_KEY_ID; None: from the environment.

        Raises:
            RecordingError: a file cannot be opened or is not an MCAP file, or a directory contains none.
            StorageError: a store cannot be read, or, also later, an object was replaced while it was read.
            InvalidValueError: no path, an empty list of endpoints, an unknown clock, an invalid time, or `start` is
                later than `end`.
        """
        if not paths:
            raise InvalidValueError("no recording was named; pass a file or a directory")
        selection = select_endpoints(endpoints, exclude)
        options: Any = {"clock": clock, "schemas": schemas}
        limits = *parse_time_range(start, end), span
        self._set_log_view(
            LogView(_list_log_files(paths, storage_options), selection, *limits, max_chunk_bytes, **options)
        )
        if not isinstance(endpoints, SelectedEndpoints):
            self.log_view.warn_of_unmatched()

    def _set_log_view(self, view: LogView) -> None:
        self.log_view: LogView = view
        self.files: list[McapFile] = view.files
        self.problems: list[Problem] = view.problems

    @property
    def channels(self) -> Sequence[RecordedChannel]:
        """Channels found up to now. The column "channel" of batches is an index into this list."""
        return self.log_view.channels

    @property
    def missing_endpoints(self) -> list[str]:
        """Names of requested endpoints that have not been found up to now."""
        return self.log_view.find_missing_endpoints()

    @property
    def size(self) -> int:
        """Maximum bytes to read, before compression, according to the files."""
        return sum(block.uncompressed_bytes for _, block in self.log_view.iter_wanted_blocks())

    def split(self, size: int) -> list[LogReader]:
        """Return readers for parts of this log, in order. Each part has at least one chunk.

        Other processes can read the parts, because readers can be pickled. Each reader has its own `problems`, empty at
        first.

        Args:
            size: bytes of a part, before compression.
        """
        return [self._copy_with_view(piece) for piece in self.log_view.split_by_size(size)]

    def between(self, start: LogTime | None = None, end: LogTime | None = None) -> LogReader:
        """Return a reader for a narrower time range, without reading. One thread at a time may use the two readers.

        Args:
            start: read only messages with start <= log_time, as in the constructor. None keeps the limit.
            end: read only messages with log_time < end, as in the constructor. None keeps the limit.

        Raises:
            InvalidValueError: a time is invalid, or `start` is later than `end`.
        """
        return self._copy_with_view(self.log_view.select_time_range(*parse_time_range(start, end)))

    def __getitem__(self, endpoint: str) -> LogReader:
        """Return a reader for the messages of one endpoint: ``log["imu"]``.

        Raises:
            UnknownEndpointError: the selection has no messages of the endpoint.
        """
        if not isinstance(endpoint, str):
            text = f"index is of type {type(endpoint).__name__}; give the name of an endpoint"
            raise InvalidTypeError(f"{text}, or iterate over the messages")
        if endpoint not in self:
            raise unknown_endpoint_error(self.log_view, endpoint)
        return self._copy_with_view(self.log_view.select_endpoint(endpoint))

    def __contains__(self, endpoint: object) -> bool:
        """Return True if the selection has an endpoint of this name."""
        return endpoint in self.endpoints

    def full_history(self, *kinds: str) -> LogReader:
        """Return a reader for all messages of the selected endpoints of these kinds, without a time range.

        Use it for kinds with a state, because earlier messages determine the state. The call opens the files again.
        """
        return self._copy_with_view(self.log_view.select_full_history(*kinds))

    def _copy_with_view(self, view: LogView) -> LogReader:
        """Return a reader for a part of this log."""
        reader = copy(self)
        for attribute in ("endpoints", "start_time", "end_time"):
            reader.__dict__.pop(attribute, None)  # they are of the whole
        reader._set_log_view(view)
        return reader

    def __len__(self) -> int:
        """Return the number of messages; see `endpoints`."""
        return self.messages

    def __bool__(self) -> bool:
        """Return True if the log has a message. Reads little."""
        return self.start_time is not None

    def __repr__(self) -> str:
        from msgq.recording.reader.log_display import describe_log

        return describe_log([file.path for file in self.files], self._find_known_totals())

    def _repr_html_(self) -> str:
        from msgq.recording.reader.log_display import format_log_html

        return format_log_html([file.path for file in self.files], self._find_known_totals())

    def _find_known_totals(self) -> dict[str, EndpointInfo] | None:
        """Return the totals if they are known without a scan."""
        return self.endpoints if "endpoints" in self.__dict__ or self.has_statistics else None

    # Beside the messages

    @property
    def headers(self) -> list[Header]:
        """Header of each file, in order."""
        return [Header(file.header.profile, file.header.library) for file in self.files]

    @property
    def metadata(self) -> list[Metadata]:
        """All metadata of the files, in order, including the metadata of msgq."""
        return list(iter_metadata(self.log_view))

    @property
    def attachments(self) -> list[Attachment]:
        """Attachments of the files within the selected time range, in order."""
        return list(iter_attachments(self.log_view))

    # Message by message

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages in the order of log_time.

        At equal times, the message of the chunk that begins first comes first, and then that of the first file.
        """
        from msgq.recording.reader.message_lists import read_message_lists  # imported late, like NumPy

        return chain.from_iterable(read_message_lists(self.log_view))

    def decoded(self) -> Iterator[tuple[Message, Any]]:
        """Iterate like the reader, over pairs of a message and its decoded value.

        The schema of the endpoint decodes the value. Without a known encoding, the value is the payload. If decoding
        fails, the value is an `Undecoded`.
        """
        from msgq.decoding.payload_decoder import PayloadDecoder  # imported late: it loads all decoders

        payload_decoder = PayloadDecoder()
        for message in self:
            yield message, payload_decoder.decode_payload(message.schema, message.data)

    # Many at once

    def batches(self, columns: str | Iterable[str] | None = None, rows: int = 65536) -> Iterator[pyarrow.RecordBatch]:
        """Iterate over Arrow batches of messages, in the order of the files. Needs pyarrow.

        Args:
            columns: a column, or columns in the wanted order; None: the first six. Columns: "endpoint" (dictionary),
                "epoch", "sequence", "log_time", "publish_time" (int64), "data" (binary), "origin_time" (int64, 0:
                unknown), "kind", "publisher", "key" (dictionaries, "": none), "channel" (int32, index in `channels`),
                "byte_offset" (int64, offset of the chunk in the file), "lost_before" and "lost_after" (int64, losses
                next to the message without a gap in the sequences, null: none).
            rows: maximum messages per batch. Large payloads make smaller batches.
        """
        with _explain_missing_package():
            from msgq.recording.reader.arrow_batches import read_arrow_batches
        return read_arrow_batches(self.log_view, columns, rows)

    def iter_batches(self) -> Iterator[MessageBatch]:
        """Iterate over batches of columns in the order of log_time.

        At equal times, the message of the chunk that begins first comes first, and then that of the first file.
        """
        from msgq.recording.reader.column_batches import read_batches_by_log_time

        return read_batches_by_log_time(self.log_view)

    def decoded_batches(self, endpoint: str, rows: int = 65536) -> Iterator[DecodedBatch]:
        """Iterate over tables of an endpoint's decoded messages, in the order of the files.

        Each field has a column. The columns follow from the messages. If the schema changes, or lacks types as for
        JSON, the columns may differ between tables. Needs pyarrow and the decoder of the encoding.

        Args:
            endpoint: name of the endpoint.
            rows: maximum messages per batch. Large payloads make smaller batches.
        """
        with _explain_missing_package():
            from msgq.recording.export.decoded_tables import decode_message_batches
        return (batch for _, batch in decode_message_batches(self.log_view.select_endpoint(endpoint), rows))

    def to_arrow(self, endpoint: str) -> pyarrow.Table:
        """Return the decoded messages of an endpoint as one table, in the order of the files.

        Each field has a column. The table has the columns of all its `DecodedBatch` tables. If the types of a column
        differ, the table uses a type for all values, or else text. Messages that cannot be decoded are omitted, and
        listed as one problem. `decoded_batches` includes them. Needs pyarrow and the decoder of the encoding.

        Raises:
            RecordingError: the log has no messages of the endpoint.
        """
        with _explain_missing_package():
            from msgq.recording.export.decoded_tables import read_endpoint_table
        return read_endpoint_table(self.log_view, endpoint)

    def to_pandas(self, endpoint: str, datetimes: bool = False) -> pandas.DataFrame:
        """Return the table of `to_arrow` for pandas, with a column for each field of a struct. Needs pandas.

        Args:
            endpoint: name of the endpoint.
            datetimes: True: the columns "log_time", "publish_time" and "origin_time" have the type datetime64[ns], in
                UTC, and unknown times are NaT. False: ns since the epoch.
        """
        rows = self.to_arrow(endpoint)
        with _explain_missing_package("pandas"):
            from msgq.recording.export.to_pandas import build_pandas_frame
        return build_pandas_frame(rows, datetimes)

    def to_polars(self, endpoint: str) -> polars.DataFrame:
        """Return the table of `to_arrow` for Polars, with struct columns. Needs polars."""
        rows = self.to_arrow(endpoint)
        with _explain_missing_package("polars"):
            import polars
        return polars.DataFrame(rows)

    def to_parquet(self, output: str | PathLike[str]) -> int:
        """Write the decoded messages of all selected endpoints as Parquet, and return their number. Needs pyarrow.

        Args:
            output: a new file with a name that ends in ".parquet", for a single endpoint; or a new directory with one
                file for each endpoint. Messages that cannot be decoded go to a file that ends in ".undecoded.parquet",
                or to "_undecoded.parquet" in the directory.

        Raises:
            RecordingError: the output exists or cannot be written, or the output is a file and the log has not exactly
                one endpoint.
        """
        with _explain_missing_package():
            from msgq.recording.export.parquet import write_parquet
        return write_parquet(self.log_view, Path(output))

    def times(self, endpoint: str) -> np.ndarray[Any, np.dtype[np.datetime64]]:
        """Return the log_time of an endpoint's messages as datetime64[ns] in UTC, in the order of `to_numpy`."""
        import numpy as np  # imported late: the summary of a file needs no array

        columns = ScanColumns(_BATCH_ROWS)
        only = self.log_view.select_endpoint(endpoint)
        pieces = [columns.log_time[: columns.row_count].copy() for _ in only.scan_all_files(columns)]
        if not any(map(len, pieces)):
            raise unknown_endpoint_error(self.log_view, endpoint)
        return np.concatenate(pieces).astype(np.int64).view("datetime64[ns]")

    def to_numpy(self, endpoint: str) -> np.ndarray[Any, Any]:
        """Return the messages of an endpoint with a "struct" schema as one array, in the order of the files.

        Raises:
            RecordingError: the endpoint does not exist, has another schema or several, or a message does not fit.
        """
        import numpy as np

        only = self.log_view.select_endpoint(endpoint)
        columns, ends = ScanColumns(_BATCH_ROWS), np.empty(_BATCH_ROWS, np.int32)
        pieces, sizes = [np.empty(0, np.uint8)], {0}
        for content in only.scan_all_files(columns):
            piece = np.empty(columns.count_payload_bytes(0), np.uint8)
            columns.copy_payloads(content, 0, piece, 0, ends)
            pieces.append(piece)
            sizes.update(np.unique(columns.length[: columns.row_count]).tolist())
        channels = [channel for channel in only.channels if not channel.boundary_losses.unrecorded_messages]
        if not channels:
            raise unknown_endpoint_error(self.log_view, endpoint)
        dtype = _find_common_dtype(endpoint, channels)
        if wrong := [size for size in sizes if size % dtype.itemsize]:
            text = (
                f"a message has {wrong[0]} bytes, which is not a multiple of {dtype.itemsize}, the size of one element"
            )
            raise RecordingError(text, endpoint)
        return np.concatenate(pieces).view(dtype)

    # About the whole

    @cached_property
    def endpoints(self) -> dict[str, EndpointInfo]:
        """Totals by endpoint name, from the statistics of the files, or from a scan; see `has_statistics`."""
        return self.summarize()

    def summarize(self, scan: bool = False) -> dict[str, EndpointInfo]:
        """Return the totals by endpoint name. `scan=True` reads all messages, and also finds damage."""
        totals = EndpointTotals(self.log_view)
        for file in self.files:
            totals.add_file(file, scan)
        return totals.build_endpoint_infos()

    @property
    def has_statistics(self) -> bool:
        """True if the files contain all of `endpoints`, like files of msgq without a selected time range.

        In this case, `endpoints` reads no messages and finds no damage.
        """
        return all(find_stored_statistics(self.log_view, file) is not None for file in self.files)

    @property
    def counts(self) -> dict[str, int] | None:
        """Number of messages by endpoint, from the statistics of the files.

        None: a file has no statistics, or a time range is selected.
        """
        return read_message_counts(self.log_view)

    @property
    def messages(self) -> int:
        """Number of messages; see `endpoints`."""
        return sum(info.messages for info in self.endpoints.values())

    @cached_property
    def start_time(self) -> int | None:
        """Time (log_time) of the first message, in ns since the epoch; None: no message. Reads little."""
        first = next(iter(self), None)
        return None if first is None else first.log_time

    @cached_property
    def end_time(self) -> int | None:
        """Time (log_time) of the last message, in ns since the epoch; None: no message. Reads little."""
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
    """If an import fails, name the package to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        text = f"this call needs {missing.name}, which is not installed: pip install '{package}'"
        raise MissingLibraryError(text) from missing


def _find_common_dtype(endpoint: str, channels: Sequence[RecordedChannel]) -> np.dtype[Any]:
    """Return the common dtype of all channels of an endpoint."""
    schemas = {channel.schema for channel in channels}
    if len(schemas) != 1:
        raise RecordingError("the recording has several schemas of this endpoint", endpoint)
    schema = schemas.pop()
    if schema is None or schema.encoding != "struct":
        encoding = "no schema" if schema is None else f"the encoding {schema.encoding!r}"
        raise RecordingError(f"the endpoint has {encoding}; arrays need the encoding 'struct'. Use decoded()", endpoint)
    from msgq.common.dtypes import struct_dtype

    try:
        return struct_dtype(schema)
    except ValueError as error:
        raise RecordingError(str(error), endpoint) from None


def _list_log_files(
    paths: Sequence[str | PathLike[str] | UrlPath], storage_options: Mapping[str, str] | None
) -> list[RecordingPath]:
    files = []
    for path in (make_path(text, storage_options) for text in paths):
        segments = recording_files.find_segment_files(path)
        if not segments:
            raise RecordingError(f"directory '{path}' contains no {recording_files.MCAP_SUFFIX} file")
        files += segments
    return files
