"""Logs as Parquet: a file for each endpoint, with a column for each field."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.new_names import give_new_name
from msgq.decoding.arrow_types import cast_table_columns, find_common_columns
from msgq.errors import RecordingError
from msgq.recording.export.decoded_tables import (
    UndecodedReporter,
    decode_joined_batches,
    decode_message_batches,
    merge_arrow_tables,
)
from msgq.recording.mcap_io.recording_files import make_safe_file_name
from msgq.recording.reader.log_view import LogView

PARQUET_SUFFIX = ".parquet"
_UNDECODED_FILE_NAME = "_undecoded"  # not a valid name of an endpoint
_ROW_GROUP_ROWS = 1 << 16
_ROW_GROUP_BYTES = 16 << 20
_BUFFERED_BYTES_MAX = 192 << 20  # bytes of waiting rows of all endpoints


def open_parquet_writer(where: Any, columns: pa.Schema, filesystem: Any = None) -> pq.ParquetWriter:
    """Return a writer for rows of decoded messages to a new file."""
    texts = [field.name for field in columns if pa.types.is_string(field.type)]
    numbers = [name for name in ("epoch", "element_index") if name in columns.names]
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": texts + numbers}
    return pq.ParquetWriter(where, columns, filesystem=filesystem, **options)


def write_parquet(view: LogView, output: Path) -> int:
    """See LogReader.to_parquet. Files are named by `make_safe_file_name`."""
    is_file = output.suffix == PARQUET_SUFFIX
    counter = output.with_suffix(f".undecoded{PARQUET_SUFFIX}")
    with _make_working_directory(output, *([counter] if is_file else [])) as directory:
        tables = _ParquetDirectory(directory)
        count = _write_decoded_messages(tables, view, is_file)
        tables.finish_files()
        if not is_file:
            directory.rename(output)
        for path in list(directory.glob(f"*{PARQUET_SUFFIX}")):
            give_new_name(path, counter if path.stem == _UNDECODED_FILE_NAME else output)
    return count


@contextmanager
def _make_working_directory(output: Path, *outputs: Path) -> Iterator[Path]:
    """Yield a temporary directory next to the output, and remove it afterwards. None of the `outputs` may exist."""
    directory = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        for path in (output, *outputs):
            if path.exists():
                raise RecordingError(f"output '{path}' exists; use another name, or remove it")
        directory.mkdir()
        yield directory
    except OSError as error:
        raise_handler_error(error)
        raise RecordingError(
            f"output '{output}' cannot be written: {error.strerror or error}", errno=error.errno
        ) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _write_decoded_messages(tables: _ParquetDirectory, view: LogView, is_one: bool) -> int:
    """Write all messages, and return their number. `is_one`: only one endpoint is allowed."""
    count, counter, last = 0, UndecodedReporter(view), ""
    for endpoint, batch in (decode_message_batches if is_one else decode_joined_batches)(view):
        if is_one and last not in ("", endpoint):
            text = "select one (--endpoint), or name a directory (a name without .parquet)"
            raise RecordingError(
                f"the recording has several endpoints ({last!r} and {endpoint!r}), but a Parquet file has one; {text}"
            )
        last = endpoint
        tables.add_rows(make_safe_file_name(endpoint), batch.rows)
        if batch.undecoded.num_rows:
            tables.add_rows(_UNDECODED_FILE_NAME, batch.undecoded)
        counter.count_undecoded(endpoint, batch.undecoded)
        count += batch.messages
    if is_one and not last:
        raise RecordingError("the recording has no messages, so the columns of the Parquet file are unknown")
    counter.report_undecoded("written to a separate file")
    return count


class _AppendedFile(io.RawIOBase):
    """File that is open only during `flush`, because a process may open fewer files than a recording has endpoints."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size_bytes = 0
        self._unwritten_parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        """Keep the bytes until `flush`."""
        part = bytes(content)
        self._unwritten_parts.append(part)
        self._size_bytes += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size_bytes

    def flush(self) -> None:
        """Append the bytes to the file."""
        if self._unwritten_parts:
            with self._path.open("ab") as file:
                file.writelines(self._unwritten_parts)
        self._unwritten_parts.clear()


class _ParquetFile:
    """File of one endpoint during writing. A new piece begins if the columns change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.common_columns = pa.schema([])
        self.buffered_tables: list[pa.Table] = []
        self.buffered_rows = self.buffered_bytes = 0
        self.piece_paths: list[Path] = []
        self._parquet_writer: pq.ParquetWriter | None = None

    @property
    def has_full_row_group(self) -> bool:
        """True if the buffered rows are enough for a row group."""
        return self.buffered_rows >= _ROW_GROUP_ROWS or self.buffered_bytes >= _ROW_GROUP_BYTES

    def buffer_rows(self, rows: pa.Table) -> None:
        """Add rows to the next row group."""
        self.buffered_tables.append(rows)
        self.buffered_rows += rows.num_rows
        self.buffered_bytes += rows.nbytes

    def write_row_group(self) -> None:
        """Write the buffered rows as a row group."""
        if not self.buffered_tables:
            return
        rows = merge_arrow_tables(self.buffered_tables)
        columns = find_common_columns(self.common_columns, rows.schema)
        if columns != self.common_columns:
            self._close_writer()
        self.common_columns, self.buffered_tables, self.buffered_rows, self.buffered_bytes = columns, [], 0, 0
        if self._parquet_writer is None:
            self.piece_paths.append(self.path.with_suffix(f".{len(self.piece_paths)}"))
            self._piece_file = _AppendedFile(self.piece_paths[-1])
            self._parquet_writer = open_parquet_writer(self._piece_file, columns)
        self._parquet_writer.write_table(cast_table_columns(rows, columns))
        self._piece_file.flush()

    def _close_writer(self) -> None:
        """Close the current piece. The next rows begin another piece."""
        if self._parquet_writer is not None:
            self._parquet_writer.close()
            self._piece_file.flush()
        self._parquet_writer = None

    def merge_pieces(self) -> None:
        """Combine the pieces to one file."""
        self.write_row_group()
        self._close_writer()
        if len(self.piece_paths) == 1:
            self.piece_paths[0].rename(self.path)
            return
        with open_parquet_writer(self.path, self.common_columns) as writer:
            for piece in self.piece_paths:
                with pq.ParquetFile(piece) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(cast_table_columns(file.read_row_group(group), self.common_columns))
                piece.unlink()


class _ParquetDirectory:
    """Files of a directory. Buffered bytes are limited."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parquet_files: dict[str, _ParquetFile] = {}
        self._buffered_bytes = 0  # bytes

    def add_rows(self, name: str, rows: pa.Table) -> None:
        """Add rows to the file of this name."""
        table = self._parquet_files.setdefault(name, _ParquetFile(self._directory / f"{name}{PARQUET_SUFFIX}"))
        before = table.buffered_bytes
        table.buffer_rows(rows)
        self._buffered_bytes += table.buffered_bytes - before
        if table.has_full_row_group:
            self._write_row_group(table)
        while self._buffered_bytes > _BUFFERED_BYTES_MAX:
            self._write_row_group(max(self._parquet_files.values(), key=lambda candidate: candidate.buffered_bytes))

    def _write_row_group(self, table: _ParquetFile) -> None:
        self._buffered_bytes -= table.buffered_bytes
        table.write_row_group()

    def finish_files(self) -> None:
        """Complete all files."""
        for table in self._parquet_files.values():
            table.merge_pieces()
