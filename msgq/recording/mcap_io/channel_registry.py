"""Schemas, channels and metadata of a file, collected record by record within a limit of memory."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode

from msgq.common.message_source import TOPIC_SOURCE, MessageSource, parse_metadata
from msgq.common.schema import Schema, message_encoding, schema_of
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import NO_BOUNDARY_LOSSES, BoundaryLosses, parse_boundary_losses
from msgq.recording.mcap_io.core import CHANNEL_CODE_UNKNOWN
from msgq.recording.mcap_io.record_structs import RecordStream

#: Maximum bytes of a file's schemas, channels and metadata together: they stay in memory, and may be compressed.
METADATA_BYTES_MAX = 32 << 20
#: Other descriptions of channels that a file already had: MCAP wants that there are none, files in a row have some.
CHANNEL_CHANGES_MAX = 1 << 16
CLOCK_RECORDS_MAX = 4096
_DECLARATION_OVERHEAD_BYTES = 256  # bytes of Python objects for each declaration
_RECORD_READERS: dict[Opcode, Callable[[ReadDataStream], Any]] = {
    Opcode.SCHEMA: records.Schema.read,
    Opcode.CHANNEL: records.Channel.read,
    Opcode.METADATA: records.Metadata.read,
    Opcode.HEADER: records.Header.read,
}


class SchemaRecord(NamedTuple):
    """Schema as stored in a file."""

    name: str
    encoding: str
    data: bytes


class ChannelRecord(NamedTuple):
    """Channel as stored in a file, without its id and topic. `metadata` keeps the order of the file."""

    message_encoding: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    schema: SchemaRecord | None = None


_EMPTY_CHANNEL_RECORD = ChannelRecord()


@dataclass(frozen=True, slots=True)
class RecordedChannel:
    """Common properties of messages. Each different `RecordedChannel` has its own code in scans."""

    endpoint: str
    run_id: str
    epoch: int
    has_publisher_sequence: bool  # a gap in the sequence is a loss
    schema: Schema | None
    is_tracked: bool = False  # messages had stamps, which their origins are from
    message_source: MessageSource = TOPIC_SOURCE
    channel_record: ChannelRecord = _EMPTY_CHANNEL_RECORD
    boundary_losses: BoundaryLosses = NO_BOUNDARY_LOSSES


class MetadataBudget:
    """Counts the bytes of a file's schemas, channels and metadata, and limits them to METADATA_BYTES_MAX."""

    def __init__(self) -> None:
        self._reserved_bytes: dict[tuple[int, bytes], int] = {}
        self._total_bytes = 0

    def reserve_record(self, key: tuple[int, bytes], size: int) -> bool:
        """Reserve bytes for a record that replaces an earlier record with this key.

        Return False if the limit is exceeded.
        """
        added = size + _DECLARATION_OVERHEAD_BYTES - self._reserved_bytes.get(key, 0)
        if self._total_bytes + added > METADATA_BYTES_MAX:
            return False
        self._reserved_bytes[key] = size + _DECLARATION_OVERHEAD_BYTES
        self._total_bytes += added
        return True

    def reserve_extra_record(self, size: int) -> bool:
        """Reserve bytes for a record that replaces no other record. Return False if the limit is exceeded."""
        if self._total_bytes + size + _DECLARATION_OVERHEAD_BYTES > METADATA_BYTES_MAX:
            return False
        self._total_bytes += size + _DECLARATION_OVERHEAD_BYTES
        return True


class ChannelRegistry:
    """Collects the schemas, channels and metadata of a file. One thread at a time.

    Attributes:
        header: header of the file.
        metadata: the newest Metadata record of each name.
        clock_records: all metadata records about the wall clock.
        channels: channels by id.
        schemas: schemas by id.
        schema_ids: schema id by channel id; 0: no schema.
        unknown_fields: fields that MCAP does not define, in the header, schemas and channels, by opcode and id.
        channel_codes: code of each channel id; see core.pyi. Larger ids have no code.
        channel_changes: number of times that a channel record replaced a different record of the same id.
        assign_code: callable that returns the code of a channel.
    """

    def __init__(self, assign_code: Callable[[RecordedChannel], int], problem: Callable[[int, str], None]) -> None:
        """Start empty. `problem` is called with the byte offset and the text of each problem."""
        self.header = records.Header(profile="", library="")
        self.metadata: dict[str, dict[str, str]] = {}
        self.clock_records: list[dict[str, str]] = []
        self._run_ids: set[str] = set()
        self.channels: dict[int, RecordedChannel] = {}
        self.channel_codes = array("i")  # 32 bits
        self.channel_changes = 0
        self.assign_code, self._report_problem = assign_code, problem
        self._metadata_budget = MetadataBudget()
        self.schemas: dict[int, records.Schema] = {}
        self.schema_ids: dict[int, int] = {}
        self.unknown_fields: dict[tuple[int, int], bytes] = {}
        self._channels_without_schema: dict[int, records.Channel] = {}  # channels without a known schema, by id
        self._channels_by_missing_schema: dict[
            int, set[int]
        ] = {}  # missing schemas by id, and the channels that wait for them
        self._learnt_records: dict[tuple[int, bytes], bytes] = {}

    def copy_registry(self, assign_code: Callable[[RecordedChannel], int], problem: Callable[[int, str], None]) -> Self:
        """Return an independent copy for another reader of the same file."""
        other = copy(self)
        other.assign_code, other._report_problem = assign_code, problem
        other.channels, other.channel_codes, other._learnt_records = dict(self.channels), self.channel_codes[:], {}
        other.schemas, other.schema_ids = dict(self.schemas), dict(self.schema_ids)
        other.unknown_fields = dict(self.unknown_fields)
        other._channels_without_schema = dict(self._channels_without_schema)
        other._channels_by_missing_schema = {
            number: set(channels) for number, channels in self._channels_by_missing_schema.items()
        }
        other._metadata_budget = MetadataBudget()
        return other

    def is_channel_known(self, number: int) -> bool:
        """Return True if the registry has the channel, and the channel's schema if it has one."""
        return number in self.channels and number not in self._channels_without_schema

    @property
    def has_unknown_declaration_fields(self) -> bool:
        """True if a schema or channel has fields that MCAP does not define."""
        return any(opcode != Opcode.HEADER for opcode, _ in self.unknown_fields)

    def copy_channel(self, source: ChannelRegistry, number: int) -> bool:
        """Copy a channel from another registry. Return False if that registry does not know the channel."""
        if not source.is_channel_known(number):
            return False
        self._channels_without_schema.pop(number, None)
        key = (int(Opcode.CHANNEL), number.to_bytes(2, "little"))
        self._learnt_records[key] = source._learnt_records[key]
        self.schemas = source.schemas | self.schemas
        self.unknown_fields = source.unknown_fields | self.unknown_fields
        self.channels[number], self.schema_ids[number] = source.channels[number], source.schema_ids[number]
        self.set_channel_code(number, self.assign_code(source.channels[number]))
        return True

    def drop_missing_schema(self, number: int, offset: int) -> bool:
        """Register a channel without its missing schema, and report the problem.

        Return True if the channel is known now.
        """
        record = self._channels_without_schema.pop(number, None)
        if record is not None:
            self._report_problem(offset, f"channel {number} has schema {record.schema_id}, which is missing")
            self._describe_channel(record, offset)
        return record is not None

    def is_channel_maybe_wanted(self, number: int) -> bool:
        """Return True if messages of a channel are wanted, or if the channel is unknown."""
        return number >= len(self.channel_codes) or self.channel_codes[number] >= CHANNEL_CODE_UNKNOWN

    def refresh_channel_codes(self) -> None:
        """Call `assign_code` again for all channels."""
        for number, channel in self.channels.items():
            self.set_channel_code(number, self.assign_code(channel))

    def set_channel_code(self, number: int, code: int) -> None:
        """Set the code of a channel's messages."""
        missing = number + 1 - len(self.channel_codes)
        self.channel_codes.extend([CHANNEL_CODE_UNKNOWN] * missing)
        self.channel_codes[number] = code

    def learn_record(self, opcode: int, content: bytes, offset: int) -> None:
        """Add a header, schema, channel or metadata record.

        An identical second record has no effect and takes little time.

        Args:
            opcode: opcode of the record.
            content: content of the record.
            offset: byte offset of the record in the file, for problem reports.
        """
        key = (opcode, content[:2])
        if self._learnt_records.get(key) == content or (
            opcode == Opcode.CHANNEL and self.channel_changes > CHANNEL_CHANGES_MAX
        ):
            return
        if not self._metadata_budget.reserve_record(_make_budget_key(opcode, content), len(content)):
            text = (
                f"this record was skipped: at most {METADATA_BYTES_MAX} bytes of schemas, "
                "channels and metadata are read"
            )
            self._report_problem(offset, text)
            return
        if opcode != Opcode.METADATA:
            self._learnt_records[key] = content
        stream = RecordStream(content)
        record = parse_record_or_report(_RECORD_READERS[Opcode(opcode)], stream, offset, self._report_problem)
        changes, former = self.channel_changes, self.schemas.get(getattr(record, "id", 0))
        self._store_record(record, offset)
        if opcode != Opcode.METADATA and record is not None:
            is_other = self.channel_changes > changes or (opcode == Opcode.SCHEMA and former not in (None, record))
            self._keep_unknown_fields((opcode, getattr(record, "id", 0)), content[stream.count :], is_other)

    def _keep_unknown_fields(self, key: tuple[int, int], tail: bytes, is_other: bool) -> None:
        """Keep the unknown fields of the first record that has some.

        `is_other`: the record replaces a different record.
        """
        if is_other:
            self.unknown_fields.pop(key, None)
        if tail:
            self.unknown_fields.setdefault(key, tail)

    def _store_record(self, record: Any, offset: int) -> None:
        if isinstance(record, records.Header):
            self.header = record
        elif isinstance(record, records.Metadata):
            self.metadata[record.name] = record.metadata
            self._add_clock_record(record.name, record.metadata, offset)
        elif isinstance(record, records.Schema):
            self.schemas[record.id] = record
            for number in self._channels_by_missing_schema.pop(record.id, ()):
                if (
                    number in self._channels_without_schema
                    and self._channels_without_schema[number].schema_id == record.id
                ):
                    self._describe_channel(self._channels_without_schema.pop(number), offset)
        elif isinstance(record, records.Channel) and record.schema_id and record.schema_id not in self.schemas:
            self._channels_without_schema[record.id] = record  # a summary may leave the schemas to the chunks
            self._channels_by_missing_schema.setdefault(record.schema_id, set()).add(record.id)
            self.set_channel_code(record.id, CHANNEL_CODE_UNKNOWN)
        elif isinstance(record, records.Channel):
            self._channels_without_schema.pop(record.id, None)
            self._describe_channel(record, offset)

    def _add_clock_record(self, name: str, metadata: dict[str, str], offset: int) -> None:
        """Keep the clock metadata of a recorder."""
        run = metadata.get("run", "")
        if name != metadata_keys.RECORDING_METADATA and (
            name != metadata_keys.CLOCK_METADATA or run not in self._run_ids
        ):
            return
        if len(self.clock_records) < CLOCK_RECORDS_MAX:
            self._run_ids.add(run)
            self.clock_records.append(
                {name: text for name, text in metadata.items() if name in metadata_keys.CLOCK_METADATA_KEYS}
            )
        else:
            self._report_problem(
                offset, f"the wall clock was set more than {CLOCK_RECORDS_MAX} times; later changes are ignored"
            )

    def _describe_channel(self, record: records.Channel, offset: int) -> None:
        epoch = record.metadata.get(metadata_keys.EPOCH_KEY, "")
        schema = self._find_schema_record(record.schema_id)
        channel = RecordedChannel(
            record.topic,
            self.metadata.get(metadata_keys.RECORDING_METADATA, {}).get("run", ""),
            int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 19 else 0,
            record.metadata.get(metadata_keys.SEQUENCE_KEY) == metadata_keys.PUBLISHER_SEQUENCE,
            _find_message_schema(record, schema),
            record.metadata.get(metadata_keys.TRACKED_KEY) == "1",
            parse_metadata(record.metadata),
            ChannelRecord(record.message_encoding, tuple(record.metadata.items()), schema),
            parse_boundary_losses(record.metadata),
        )
        before = self.channels.get(record.id)
        if before is not None and before != channel:
            self._report_problem(
                offset, f"channel {record.id} changes from {before.endpoint!r} to {channel.endpoint!r} here"
            )
            self.channel_changes += 1
        self.channels[record.id] = channel
        self.schema_ids[record.id] = record.schema_id
        self.set_channel_code(record.id, self.assign_code(channel))

    def _find_schema_record(self, number: int) -> SchemaRecord | None:
        record = self.schemas.get(number) if number else None
        return None if record is None else SchemaRecord(record.name, record.encoding, record.data)


def parse_record_or_report(
    read: Callable[[ReadDataStream], Any], stream: RecordStream, offset: int, problem: Callable[[int, str], None]
) -> Any:
    """Return a parsed record. If the bytes are invalid, report the problem and return None."""
    try:
        return read(stream)
    except (McapError, ValueError, struct.error, EOFError, MemoryError) as error:
        problem(offset, f"a record is invalid: {str(error) or type(error).__name__}")
        return None


def _make_budget_key(opcode: int, content: bytes) -> tuple[int, bytes]:
    """Return the key of a record: its id, or the name of a metadata record.

    A later record with the same key replaces it.
    """
    if opcode != Opcode.METADATA:
        return opcode, content[:2]
    return opcode, content[: 4 + int.from_bytes(content[:4], "little")]


def _find_message_schema(channel: records.Channel, record: SchemaRecord | None) -> Schema | None:
    """Return the schema of a channel's messages; None: unknown."""
    if record is None:
        return schema_of(channel.topic, channel.message_encoding, b"") if channel.message_encoding else None
    encoding = channel.message_encoding or message_encoding(record.encoding)
    return schema_of(record.name, encoding, record.data, record.encoding)
