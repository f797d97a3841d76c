"""Logs as Parquet: a file for each endpoint, with a column for each field."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from msgq.decoding.arrow_types import cast_table_columns, find_common_columns
from msgq.errors import RecordingError
from msgq.recording.export.decoded_tables import UndecodedReporter, decode_batches, merge_tables
from msgq.recording.mcap_io.recording_files import make_safe_file_name
from msgq.recording.reader.log_view import LogView

PARQUET_SUFFIX = ".parquet"
_UNDECODED_NAME = "_undecoded"  # which is the name of no endpoint
_ROW_GROUP_ROWS = 1 << 16  # of a row group
_ROW_GROUP_BYTES = 16 << 20
_WAITING_BYTES = 256 << 20  # of rows of all endpoints that wait to be enough
_OPEN_FILES_MAX = 200  # files at a time


def open_parquet_writer(where: Any, columns: pa.Schema, filesystem: Any = None) -> pq.ParquetWriter:
    """Return what writes rows of decoded messages to a new file."""
    texts = [field.name for field in columns if pa.types.is_string(field.type)]
    numbers = [name for name in ("epoch", "element_index") if name in columns.names]
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": texts + numbers}
    return pq.ParquetWriter(where, columns, filesystem=filesystem, **options)


def write_parquet(view: LogView, output: Path) -> int:
    """See LogReader.to_parquet. Files are named by `make_safe_file_name`."""
    is_file = output.suffix == PARQUET_SUFFIX
    counter = output.with_suffix(f".undecoded{PARQUET_SUFFIX}")
    with _working_directory(output, *([counter] if is_file else [])) as directory:
        tables = _ParquetDirectory(directory)
        count = _write_messages(tables, view, is_file)
        tables.finish()
        if not is_file:
            directory.rename(output)
        for path in directory.glob(f"*{PARQUET_SUFFIX}"):
            os.link(path, counter if path.stem == _UNDECODED_NAME else output)
    return count


@contextmanager
def _working_directory(output: Path, *outputs: Path) -> Iterator[Path]:
    """Give a directory beside the output, of which nothing is left. outputs : paths that must not exist either."""
    directory = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        for path in (output, *outputs):
            if path.exists():
                raise RecordingError(f"{path} exists; give another name, or remove it")
        directory.mkdir()
        yield directory
    except OSError as error:
        raise RecordingError(f"cannot write {output}: {error.strerror or error}", errno=error.errno) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _write_messages(tables: _ParquetDirectory, view: LogView, is_one: bool) -> int:
    """Write all messages; return how many. is_one : there may be only one endpoint."""
    count, counter, known = 0, UndecodedReporter(view), ""
    for endpoint, batch in decode_batches(view):
        if is_one and known not in ("", endpoint):
            text = "choose one (--endpoint), or give a directory: a name without .parquet"
            raise RecordingError(f"a Parquet file has one endpoint, and there are {known!r} and {endpoint!r}; {text}")
        known = endpoint
        tables.add(make_safe_file_name(endpoint), batch.rows)
        if batch.undecoded.num_rows:
            tables.add(_UNDECODED_NAME, batch.undecoded)
        counter.add(endpoint, batch.undecoded)
        count += batch.messages
    if is_one and not known:
        raise RecordingError("there are no messages, and nobody knows the columns of an empty file")
    counter.report("are in a file of their own")
    return count


class _ParquetFile:
    """The file of an endpoint on its way: pieces of it, as what its messages have changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = pa.schema([])
        self.waiting: list[pa.Table] = []
        self.pieces: list[Path] = []
        self.writer: pq.ParquetWriter | None = None

    @property
    def is_full(self) -> bool:
        """Whether what waits is enough for a row group."""
        return sum(rows.num_rows for rows in self.waiting) >= _ROW_GROUP_ROWS or self.size >= _ROW_GROUP_BYTES

    @property
    def size(self) -> int:
        """Bytes of what waits."""
        return sum(rows.nbytes for rows in self.waiting)

    def write(self) -> None:
        """Write what waits as a row group."""
        if not self.waiting:
            return
        rows = merge_tables(self.waiting)
        columns = find_common_columns(self.columns, rows.schema)
        if columns != self.columns:
            self.close()
        self.columns, self.waiting = columns, []
        if self.writer is None:
            self.pieces.append(self.path.with_suffix(f".{len(self.pieces)}"))
            self.writer = open_parquet_writer(self.pieces[-1], columns)
        self.writer.write_table(cast_table_columns(rows, columns))

    def close(self) -> None:
        """Let go of the file; the next rows begin another piece."""
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    def finish(self) -> None:
        """Make one file of the pieces."""
        self.write()
        self.close()
        if len(self.pieces) == 1:
            self.pieces[0].rename(self.path)
            return
        with open_parquet_writer(self.path, self.columns) as writer:
            for piece in self.pieces:
                with pq.ParquetFile(piece) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(cast_table_columns(file.read_row_group(group), self.columns))
                piece.unlink()


class _ParquetDirectory:
    """The files of a directory. What waits of all, and how many are open, is bounded."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tables: dict[str, _ParquetFile] = {}
        self._waiting = 0  # bytes

    def add(self, name: str, rows: pa.Table) -> None:
        """Add rows to the file of this name."""
        table = self._tables.setdefault(name, _ParquetFile(self._directory / f"{name}{PARQUET_SUFFIX}"))
        table.waiting.append(rows)
        self._waiting += rows.nbytes
        if table.is_full:
            self._write(table)
        while self._waiting > _WAITING_BYTES:
            self._write(max(self._tables.values(), key=lambda candidate: candidate.size))

    def _write(self, table: _ParquetFile) -> None:
        opened = [candidate for candidate in self._tables.values() if candidate.writer is not None]
        if len(opened) >= _OPEN_FILES_MAX:
            opened[0].close()
        self._waiting -= table.size
        table.write()

    def finish(self) -> None:
        """Complete all."""
        for table in self._tables.values():
            table.finish()
