"""Files to read: written by the library `mcap`, and by hand where that would not do it."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import zstandard
from mcap import records
from mcap.data_stream import RecordBuilder
from mcap.reader import make_reader
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, IndexType, Writer

from msgq.common.schema import Schema

MCAP_MAGIC = b"\x89MCAP0\r\n"


def encode_parts(*parts: Any) -> bytes:
    builder = RecordBuilder()
    for part in parts:
        part.write(builder)
    return bytes(builder.end())


def channel(number: int, topic: str, epoch: int = 1, schema_id: int = 0, encoding: str = "") -> records.Channel:
    metadata = {"epoch": str(epoch), "sequence": "published"}
    return records.Channel(id=number, topic=topic, message_encoding=encoding, metadata=metadata, schema_id=schema_id)


def struct_schema(dtype: np.dtype[Any], name: str = "Point") -> Schema:
    """Return the schema of a NumPy dtype."""
    return Schema(name, "struct", json.dumps(np.lib.format.dtype_to_descr(dtype)).encode())


def message(number: int, sequence: int, log_time: int, data: bytes = b"data") -> records.Message:
    return records.Message(number, log_time, data, log_time, sequence)


def build_chunk_record(
    *parts: Any, compression: str = "zstd", crc: int | None = None, size: int | None = None
) -> bytes:
    """Return a chunk record with these records (or bytes) in it."""
    data = b"".join(part if isinstance(part, bytes) else encode_parts(part) for part in parts)
    times = [part.log_time for part in parts if isinstance(part, records.Message)] or [0]
    compress = {"zstd": zstandard.ZstdCompressor().compress, "lz4": lz4.frame.compress, "": bytes}[compression]
    crc = zlib.crc32(data) if crc is None else crc
    size = len(data) if size is None else size
    return encode_parts(records.Chunk(compression, compress(data), max(times), min(times), crc, size))


def read_chunk_indexes(path: Path) -> list[records.Chunk]:
    """Return the chunks of a file, as the library `mcap` reads them."""
    with path.open("rb") as file:
        return [record for record in StreamReader(file, emit_chunks=True).records if isinstance(record, records.Chunk)]


def build_recording_head(run: str = "ab" * 16) -> bytes:
    """Return how a file of ours begins."""
    return MCAP_MAGIC + encode_parts(records.Header("msgq", "test"), records.Metadata("msgq.recording", {"run": run}))


def write_unclosed_file(path: Path, *parts: Any) -> Path:
    """Write a file of ours that nobody closed."""
    path.write_bytes(
        build_recording_head() + b"".join(part if isinstance(part, bytes) else encode_parts(part) for part in parts)
    )
    return path


def write_foreign(path: Path, count: int = 300, order: int = 1, **options: Any) -> Path:
    """Write a file with the library: messages 0, 1, ... of three topics, at 1000 + 10 * i."""
    chosen: dict[str, Any] = {"chunk_size": 512, "compression": CompressionType.ZSTD} | options
    with path.open("wb") as file:
        writer = Writer(file, **chosen)
        writer.start("", "another")
        schema = writer.register_schema("Number", "jsonschema", b"{}")
        topics = [writer.register_channel(f"topic{i}", "json", schema) for i in range(3)]
        for i in list(range(count))[::order]:
            writer.add_message(topics[i % 3], 1000 + 10 * i, b'{"n": %d}' % i, 1000 + 10 * i - 5, i // 3)
        writer.add_metadata("note", {"by": "test"})
        writer.finish()
    return path


FOREIGN: dict[str, dict[str, Any]] = {
    "zstd": {},
    "lz4": {"compression": CompressionType.LZ4},
    "uncompressed": {"compression": CompressionType.NONE},
    "unchunked": {"use_chunking": False},
    "no index": {"index_types": IndexType.NONE},
    "schemas in chunks only": {"repeat_schemas": False},
    "no summary": {
        "index_types": IndexType.NONE,
        "repeat_channels": False,
        "repeat_schemas": False,
        "use_statistics": False,
        "use_summary_offsets": False,
    },
    "one chunk": {"chunk_size": 1 << 20},
    "backwards": {"order": -1},
}


def by_library(path: Path) -> list[tuple[str, bytes, int]]:
    """Return what the library's own reader finds, with all checks."""
    with path.open("rb") as file:
        triples = make_reader(file, validate_crcs=True).iter_messages()
        return [(topic.topic, sent.data, sent.log_time) for _, topic, sent in triples]


def write_log(path: Path, *messages: tuple[Any, ...], schemas: dict[str, Any] | None = None) -> Path:
    """Write a log of (endpoint, ns, data), or (endpoint, log_time, data, publish_time); schemas by endpoint."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4096)
        writer.start("msgq", "test")
        channels: dict[str, int] = {}
        for endpoint, log_time, data, *published in messages:
            if endpoint not in channels:
                schema = (schemas or {}).get(endpoint)
                number = writer.register_schema(schema.name, schema.encoding, schema.data) if schema else 0
                channels[endpoint] = writer.register_channel(endpoint, schema.encoding if schema else "", number)
            writer.add_message(channels[endpoint], log_time, data, published[0] if published else log_time)
        writer.finish()
    return path
