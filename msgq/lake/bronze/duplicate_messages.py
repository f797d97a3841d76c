"""Duplicate messages: keys of rows without payloads, and bronze files without duplicate rows."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.lake_directory import LakeDirectory

#: Columns that identify a message. A sequence has 32 bits and wraps; the time tells its turns apart.
MESSAGE_KEY = ("run", "endpoint", "epoch", "sequence", "log_time")
#: Columns of bronze files that are compared. `identity` tells messages with one `MESSAGE_KEY` apart where files
#: number nothing (epoch 0), by their bytes and publish_time; `row_number` counts within a file.
MESSAGE_KEYS_SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "endpoint": pa.string(),
        "epoch": pa.int64(),
        "sequence": pa.int64(),
        "log_time": pa.int64(),
        "identity": pa.binary(),
        "is_committed": pa.bool_(),
        "file_number": pa.int64(),
        "row_number": pa.int64(),
    }
)
_IDENTITY_BYTES = 16


def read_message_keys(lake: LakeDirectory, path: str, bronze_file: int, is_committed: bool) -> Iterator[pa.RecordBatch]:
    """Yield the compared columns of a bronze file: `MESSAGE_KEYS_SCHEMA`.

    Payloads are read only for messages of files without sequences.

    `bronze_file`, `is_committed`: values of `file_number` and `is_committed`.
    """
    with pq.ParquetFile(open_messages_table(lake).resolve_file_path(path), filesystem=lake.files) as file:
        row = 0
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, list(MESSAGE_KEY))
            identity = pa.nulls(rows.num_rows, pa.binary())
            if (np.asarray(rows.column("epoch"), np.int64) == 0).any():
                identity = _hash_message_identities(file.read_row_group(group, ["epoch", "publish_time", "data"]))
            rows = rows.append_column("identity", identity)
            rows = rows.append_column("is_committed", pa.repeat(pa.scalar(is_committed), rows.num_rows))
            rows = rows.append_column("file_number", pa.repeat(pa.scalar(bronze_file), rows.num_rows))
            rows = rows.append_column("row_number", pa.array(np.arange(row, row + rows.num_rows)))
            row += rows.num_rows
            yield from rows.select(MESSAGE_KEYS_SCHEMA.names).cast(MESSAGE_KEYS_SCHEMA).to_batches()


def _hash_message_identities(rows: pa.Table) -> pa.Array:
    digests = []
    columns = (rows.column(name).to_pylist() for name in ("epoch", "publish_time"))
    for epoch, published, data in zip(*columns, rows.column("data"), strict=True):
        identity = None if epoch else blake2b(repr(published).encode(), digest_size=_IDENTITY_BYTES)
        if identity is not None:
            identity.update(data.as_buffer())
        digests.append(identity and identity.digest())
    return pa.array(digests, pa.binary())


def read_rows_except(lake: LakeDirectory, path: str, rows: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a bronze file without some rows. `rows`: numbers of these rows."""
    with pq.ParquetFile(open_messages_table(lake).resolve_file_path(path), filesystem=lake.files) as file:
        left_out = np.zeros(file.metadata.num_rows, np.bool_)
        left_out[rows] = True
        row = 0
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            kept = ~left_out[row : row + count]
            row += count
            if kept.any():
                yield from file.read_row_group(group).filter(pa.array(kept)).to_batches()
