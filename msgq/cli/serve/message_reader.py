"""Passive reading of the messages of several endpoints, with the compiled code of the recorder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from msgq.common.schema import Schema
from msgq.errors import MsgqError, SegmentError
from msgq.impl.sources import EndpointSource
from msgq.kinds.opening import open_source
from msgq.recording.mcap_io.core import CHUNK_ENTRY_FIELDS, MESSAGE_RECORD_HEADER_BYTES, ChunkBuffer
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT
from msgq.recording.recorder.core import Capture
from msgq.recording.recorder.endpoints import find_publish_offset

_BATCH_BYTES = 1 << 18  # converting the messages of a batch takes less than 0.1 s
_MESSAGE_BYTES_MAX = 64 << 20
_CHANNEL_IDS_MAX = 60000  # a capture has 65535 ids, and never reuses an id
_PUBLISH_AGE_MAX_NS = 10**9  # older publish times and future publish times come from wrong clocks
_ENTRY_DTYPE = np.dtype(CHUNK_ENTRY_FIELDS)
_TIME_BYTES = 8  # size of the publish time, the last field before the payload

_logger = logging.getLogger(__name__)


class ReadMessage(NamedTuple):
    """A message.

    Attributes:
        time_ns: publish time if known, else time of receipt, in ns of the host's clock.
        schema: schema of the payload; None: no schema, or unknown.
    """

    endpoint: str
    time_ns: int
    payload: bytes
    schema: Schema | None


class _ReadSource(NamedTuple):
    """A source, its number in the capture, and the schema of its next message."""

    number: int
    source: EndpointSource
    schema: Schema | None


class MessageReader:
    """Reads the messages of a changing selection of endpoints. No publisher notices the reader. One thread at a time.

    Attributes:
        lost_by_endpoint: number of messages that were overwritten before they were read, by endpoint; None: unknown.
    """

    def __init__(self, prefix: str | None) -> None:
        """Start without endpoints. `prefix`: prefix of the endpoints; None: the current prefix."""
        self._prefix = prefix
        self.lost_by_endpoint: dict[str, int | None] = {}
        self._restart_capture()

    def _restart_capture(self) -> None:
        self._capture = Capture()
        self._sources: dict[str, _ReadSource] = {}  # sources by endpoint
        self._endpoints_by_number: dict[int, str] = {}
        self._channels: dict[int, tuple[str, Schema | None]] = {}  # endpoint and schema of the messages
        self._chunk = ChunkBuffer(_BATCH_BYTES, _BATCH_BYTES)

    def select_endpoints(self, inodes: Mapping[str, int]) -> None:
        """Read these endpoints from now on. `inodes`: inodes of their files, by endpoint."""
        unwanted = [name for name, read in self._sources.items() if inodes.get(name) != read.source.inode]
        for endpoint in unwanted:
            self._remove_source(endpoint)
        if unwanted and len(self._channels) > _CHANNEL_IDS_MAX:
            self._restart_capture()
        for endpoint in inodes.keys() - self._sources.keys():
            self._add_source(endpoint, is_recreated=endpoint in unwanted)

    def _add_source(self, endpoint: str, is_recreated: bool) -> None:
        """Read an endpoint from its newest position. A recreated endpoint is read from its first message."""
        try:
            source = open_source(endpoint, self._prefix, whole=is_recreated)
            schema = source.read_message_schema()
        except (MsgqError, OSError, MemoryError) as error:  # the next call tries again
            _logger.info("%s is not readable: %s", endpoint, error)
            return
        number = self._capture.add_source(source, find_publish_offset(schema))
        self._sources[endpoint], self._endpoints_by_number[number] = _ReadSource(number, source, schema), endpoint
        self.lost_by_endpoint[endpoint] = source.lost
        largest = min(source.max_message_bytes, _MESSAGE_BYTES_MAX)
        if self._chunk.capacity_bytes < _BATCH_BYTES + largest:
            self._chunk = ChunkBuffer(_BATCH_BYTES, largest)

    def _remove_source(self, endpoint: str) -> None:
        number = self._sources.pop(endpoint).number
        self._capture.remove_source(number)
        del self._endpoints_by_number[number]
        self.lost_by_endpoint.pop(endpoint, None)

    def list_endpoints_with_new_schema(self) -> list[str]:
        """Return the endpoints whose next messages have another schema. These messages wait until `accept_schema`."""
        return [self._endpoints_by_number[number] for number in self._capture.list_sources_with_new_schema()]

    def accept_schema(self, endpoint: str) -> None:
        """Continue with an endpoint whose schema changed. The next messages have the new schema."""
        number, source, _ = self._sources[endpoint]
        schema = source.read_message_schema()
        self._sources[endpoint] = _ReadSource(number, source, schema)
        self._capture.begin_new_channels(number)
        self._capture.accept_schema(number, find_publish_offset(schema))

    def list_schemas(self) -> dict[tuple[str, int], Schema | None]:
        """Return the schemas of the next messages, by endpoint and inode of the endpoint's file."""
        return {(name, read.source.inode): read.schema for name, read in self._sources.items()}

    def take_messages(self, seconds: float) -> list[ReadMessage]:
        """Return new messages, at most about 256 KiB or one larger message. Waits up to `seconds`."""
        self._chunk.clear_messages()
        try:
            is_full = self._capture.capture_messages(self._chunk, seconds)
        except SegmentError as error:
            _logger.info("%s", error)
        else:
            if is_full and not len(self._chunk):
                self._chunk = ChunkBuffer(_BATCH_BYTES, self._capture.needed_bytes)
        for channel, number, *_ in self._capture.list_channels(len(self._channels) + 1):
            endpoint = self._endpoints_by_number[number]
            self._channels[channel] = endpoint, self._sources[endpoint].schema
        for endpoint, (number, source, _) in self._sources.items():
            lost = source.lost
            self.lost_by_endpoint[endpoint] = (
                None if lost is None else lost + self._capture.count_skipped_messages(number)
            )
        entries = np.frombuffer(self._chunk.message_entries, _ENTRY_DTYPE).tolist()
        return [self._read_message(channel, log_time, offset) for log_time, offset, channel, *_ in entries]

    def _read_message(self, channel: int, log_time: int, offset: int) -> ReadMessage:
        records, begin = self._chunk.record_bytes, offset + MESSAGE_RECORD_HEADER_BYTES
        _, content_bytes = RECORD_HEAD_STRUCT.unpack_from(records, offset)
        payload = bytes(records[begin : offset + RECORD_HEAD_STRUCT.size + content_bytes])
        publish_time = int.from_bytes(records[begin - _TIME_BYTES : begin], "little")
        is_plausible = 0 <= log_time - publish_time <= _PUBLISH_AGE_MAX_NS
        endpoint, schema = self._channels[channel]
        return ReadMessage(endpoint, publish_time if is_plausible else log_time, payload, schema)
