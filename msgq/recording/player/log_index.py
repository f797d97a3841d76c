"""Endpoints of a log according to its indexes, so that a player starts without reading the whole log."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema
from msgq.errors import RecordingError
from msgq.recording.log_reader import LogReader
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.message_indexes import MessageIndex, iterate_message_indexes
from msgq.recording.mcap_io.record_structs import MESSAGE_HEAD_BYTES
from msgq.recording.reader.totals import read_stored_statistics
from msgq.topic.playback import DEFAULT_RING_BYTES, compute_ring_bytes

_BATCH_ROWS = 16384
_INDEX_BYTES_MAX = 32 << 20  # maximum bytes of message indexes to read
_CHUNK_INDEX_BYTES_MIN = 16 << 10  # smaller indexes are not worth the time of a read


class IndexedEndpoint(NamedTuple):
    """An endpoint of a log.

    Attributes:
        endpoint: as in `EndpointInfo`.
        kind: as in `EndpointInfo`.
        schema: as in `EndpointInfo`.
        options: as in `EndpointInfo`.
        is_tracked: as in `EndpointInfo`.
        largest_payload_bytes: upper limit of payload bytes, from the indexes.
        changes_schema: True if the messages have several schemas.
    """

    endpoint: str
    kind: str
    schema: Schema | None
    options: dict[str, Any]
    is_tracked: bool
    largest_payload_bytes: int
    changes_schema: bool = False


class _LargeChunk(NamedTuple):
    """A chunk, and its channels whose largest message must be measured."""

    uncompressed_bytes: int
    mcap_file: McapFile
    data_block: DataBlock
    channel_ids: Set[int]


class LogIndex:
    """Endpoints of a log. One thread at a time.

    Attributes:
        endpoints: endpoints by name, sorted.
    """

    def __init__(self, log: LogReader) -> None:
        """Read the indexes of the log.

        Blocks without an index, and blocks at the limits of the time range, are scanned.
        """
        self._log_view, self._scan_columns = log.log_view, ScanColumns(_BATCH_ROWS)
        self._largest_payloads: dict[int, int] = {}  # bytes by code
        large: list[_LargeChunk] = []
        for file in log.files:
            large += self._index_file(file)
        self._measure_large_chunks(large)
        endpoints: dict[str, IndexedEndpoint] = {}
        for code in sorted(self._largest_payloads):
            channel = log.channels[code]
            endpoints[channel.endpoint] = _add_channel_to_endpoint(
                endpoints.get(channel.endpoint), channel, self._largest_payloads[code]
            )
        self.endpoints = dict(sorted(endpoints.items()))

    def _index_file(self, file: McapFile) -> list[_LargeChunk]:
        """Add a file. Return the chunks whose messages may be large."""
        view, largest_payloads = self._log_view, _read_largest_payloads(file)
        old_channels, present, large, sizes = set(largest_payloads), set[int](), [], [0]
        wanted_blocks = [
            block for block in file.blocks if file.may_have_messages(block, view.start_time, view.end_time)
        ]
        for block in wanted_blocks:
            channels = self._find_block_channels(file, block)
            if channels is None:
                self._scan_block(file, block, self._largest_payloads)
                continue
            present |= channels
            sizes.append(min(block.uncompressed_bytes, view.max_chunk_bytes))
            if compute_ring_bytes(sizes[-1]) > DEFAULT_RING_BYTES and not channels <= old_channels:
                large.append(_LargeChunk(sizes[-1], file, block, channels - old_channels))
        enough = max((size for size in sizes if compute_ring_bytes(size) <= DEFAULT_RING_BYTES), default=0)
        for number in present:
            self._raise_largest_payload(file, number, min(largest_payloads.get(number, enough), max(sizes)))
        return large

    def _find_block_channels(self, file: McapFile, block: DataBlock) -> Set[int] | None:
        """Return the channel ids of a block; None: the block must be scanned."""
        described = file.registry.channels.keys()
        if (
            file.has_compressed_payloads
            or block.start_time < self._log_view.start_time
            or block.end_time >= self._log_view.end_time
        ):
            return None
        if block.channel_ids is None and file.statistics is not None and described:
            return {number for number, count in file.statistics.channel_message_counts.items() if count} & described
        return block.channel_ids if block.channel_ids and block.channel_ids <= described else None

    def _raise_largest_payload(self, file: McapFile, number: int, size: int) -> None:
        code = int(file.registry.channel_codes[number])
        if code >= 0:
            self._largest_payloads[code] = max(self._largest_payloads.get(code, 0), size)

    def _scan_block(self, file: McapFile, block: DataBlock, largest: dict[int, int]) -> None:
        """Read each message of a block."""
        columns = self._scan_columns
        for _ in self._log_view.scan_block(file, block, columns):
            sizes = np.full(len(self._log_view.channels), -1, np.int64)
            np.maximum.at(sizes, columns.channel_code[: columns.row_count], columns.length[: columns.row_count])
            for code in np.flatnonzero(sizes >= 0).tolist():
                largest[code] = max(largest.get(code, 0), int(sizes[code]))

    def _measure_large_chunks(self, large: list[_LargeChunk]) -> None:
        """Measure the messages of large chunks, largest chunks first.

        If there are too many large chunks, the size of a smaller chunk serves as the limit for its messages.
        """
        room = _INDEX_BYTES_MAX
        for size, file, block, numbers in sorted(large, key=lambda chunk: -chunk.uncompressed_bytes):
            sizes: dict[int, int] = {}
            if room > 0:
                sizes, used = _measure_by_index(file, block, room)
                room -= max(used, _CHUNK_INDEX_BYTES_MIN)
            for number in numbers:
                self._raise_largest_payload(file, number, sizes.get(number, size - MESSAGE_HEAD_BYTES))

    def measure_largest_payload(self, endpoint: str) -> int:
        """Return the bytes of the largest payload of an endpoint. The call reads the whole endpoint."""
        largest: dict[int, int] = {}
        for file, block in self._log_view.iter_wanted_blocks():
            numbers = file.registry.channels.keys() if block.channel_ids is None else block.channel_ids
            if not numbers or any(may_match_endpoints(file, number, {endpoint}) for number in numbers):
                self._scan_block(file, block, largest)
        channels = self._log_view.channels
        return max((size for code, size in largest.items() if channels[code].endpoint == endpoint), default=0)


def may_match_endpoints(file: McapFile, number: int, endpoints: Set[str]) -> bool:
    """Return True if a channel may belong to one of the endpoints."""
    channel = file.registry.channels.get(number)
    return channel is None or channel.endpoint in endpoints


def _add_channel_to_endpoint(before: IndexedEndpoint | None, channel: RecordedChannel, largest: int) -> IndexedEndpoint:
    """Return the endpoint with one more of its channels."""
    kind, options = channel.message_source.kind, channel.message_source.parse_options()
    if before is None:
        return IndexedEndpoint(channel.endpoint, kind, channel.schema, options, channel.is_tracked, largest)
    described = channel.schema or before.schema, options or before.options, before.is_tracked or channel.is_tracked
    changes_schema = before.changes_schema or channel.schema != before.schema
    largest = max(before.largest_payload_bytes, largest)
    return IndexedEndpoint(channel.endpoint, kind, *described, largest, changes_schema)


def _read_largest_payloads(file: McapFile) -> dict[int, int]:
    """Return the largest payload bytes by channel id, from the statistics of the file; empty: no statistics."""
    return {number: figure["largest"] for number, figure in (read_stored_statistics(file) or {}).items()}


def _measure_by_index(file: McapFile, block: DataBlock, room: int) -> tuple[dict[int, int], int]:
    """Return the largest payload bytes by channel id, from a chunk's message indexes, and the bytes of these indexes.

    No payload is returned if the indexes are invalid, or exceed `room` bytes.
    """
    begin = end = block.offset + block.stored_bytes
    indexes: list[MessageIndex] = []
    try:
        with file.file_source.open_bytes() as source:
            for index in iterate_message_indexes(source, begin, begin + room, block.uncompressed_bytes):
                indexes.append(index)
                end = index.end_offset
    except (RecordingError, OSError, ValueError) as error:
        raise_handler_error(error)
        return {}, end - begin
    return _compute_largest_payloads(indexes, block.uncompressed_bytes), end - begin


def _compute_largest_payloads(indexes: Sequence[MessageIndex], chunk_bytes: int) -> dict[int, int]:
    """Return the largest payload bytes by channel id; empty if there are no messages, or if they overlap."""
    if not any(len(index.entries) for index in indexes):
        return {}
    offsets = np.concatenate([index.entries["offset"] for index in indexes]).astype(np.int64)
    numbers = np.repeat([index.channel_id for index in indexes], [len(index.entries) for index in indexes])
    order = np.argsort(offsets)
    sizes = np.diff(offsets[order], append=chunk_bytes) - MESSAGE_HEAD_BYTES
    if sizes.min() < 0:
        return {}
    largest = np.zeros(1 << 16, np.int64)
    np.maximum.at(largest, numbers[order], sizes)
    return {index.channel_id: int(largest[index.channel_id]) for index in indexes}
