"""What describes the messages of a file: schemas, channels and metadata, learnt record by record from whatever a file
says, and how much of that a file may have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode

from msgq.common.message_source import TOPIC, MessageSource, parse_metadata
from msgq.common.schema import Schema, message_encoding, schema_of
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import NO_BOUNDARY_LOSSES, BoundaryLosses, parse_boundary_losses
from msgq.recording.mcap_io.core import CODE_UNKNOWN
from msgq.recording.mcap_io.record_structs import RecordStream

#: Of a file's schemas, channels and metadata together: they are kept, and compressed bytes can be any number of bytes.
METADATA_BYTES_MAX = 32 << 20
#: Other descriptions of channels that a file already had: MCAP wants that there are none, files in a row have some.
CHANGES_MAX = 1 << 16
CLOCK_NOTES_MAX = 4096
_OVERHEAD_BYTES = 256  # of Python, for each
_RECORD_READERS: dict[Opcode, Callable[[ReadDataStream], Any]] = {
    Opcode.SCHEMA: records.Schema.read,
    Opcode.CHANNEL: records.Channel.read,
    Opcode.METADATA: records.Metadata.read,
    Opcode.HEADER: records.Header.read,
}


class SchemaRecord(NamedTuple):
    """A schema as a file has it."""

    name: str
    encoding: str
    data: bytes


class ChannelRecord(NamedTuple):
    """A channel as a file has it, without its id and its topic. metadata : in the file's order."""

    message_encoding: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    schema: SchemaRecord | None = None


_EMPTY_RECORD = ChannelRecord()


@dataclass(frozen=True, slots=True)
class Channel:
    """What tells messages with one numbering from others: codes of messages stand for these."""

    endpoint: str
    run: str
    epoch: int
    counted: bool  # a gap in the sequence is a loss
    schema: Schema | None
    tracked: bool = False  # messages had stamps, which their origins are from
    source: MessageSource = TOPIC
    record: ChannelRecord = _EMPTY_RECORD
    boundary_losses: BoundaryLosses = NO_BOUNDARY_LOSSES


class MetadataBudget:
    """Counts what a file's descriptions take."""

    def __init__(self) -> None:
        self._reserved_bytes: dict[tuple[int, bytes], int] = {}
        self._bytes = 0

    def reserve(self, key: tuple[int, bytes], size: int) -> bool:
        """Return whether there is room for a description, instead of an earlier one with this key."""
        added = size + _OVERHEAD_BYTES - self._reserved_bytes.get(key, 0)
        if self._bytes + added > METADATA_BYTES_MAX:
            return False
        self._reserved_bytes[key] = size + _OVERHEAD_BYTES
        self._bytes += added
        return True

    def reserve_more(self, size: int) -> bool:
        """Return whether there is room for one more description, which replaces none."""
        if self._bytes + size + _OVERHEAD_BYTES > METADATA_BYTES_MAX:
            return False
        self._bytes += size + _OVERHEAD_BYTES
        return True


class ChannelRegistry:
    """What was learnt so far. One thread at a time.

    Attributes
    ----------
    header : of the file.
    metadata : the newest Metadata record of each name.
    clock_notes : all that say what the wall clock was.
    channels : by id.
    schemas : by id.
    schema_ids : of each channel, by its id; 0: it has none.
    tails : unknown fields of the header, of schemas and of channels, by opcode and id.
    codes : of each channel id below its length; see core.pyi.
    changes : how often a channel was described as another one than before.
    assign_code : gives a channel its code.
    """

    def __init__(self, assign_code: Callable[[Channel], int], problem: Callable[[int, str], None]) -> None:
        """Begin with nothing. problem : is told of each problem, with its place in the file."""
        self.header = records.Header(profile="", library="")
        self.metadata: dict[str, dict[str, str]] = {}
        self.clock_notes: list[dict[str, str]] = []
        self._runs: set[str] = set()
        self.channels: dict[int, Channel] = {}
        self.codes = np.empty(0, np.int32)
        self.changes = 0
        self.assign_code, self._problem = assign_code, problem
        self._budget = MetadataBudget()
        self.schemas: dict[int, records.Schema] = {}
        self.schema_ids: dict[int, int] = {}
        self.tails: dict[tuple[int, int], bytes] = {}
        self._waiting: dict[int, records.Channel] = {}  # by id: those whose schemas were not there yet
        self._awaited: dict[int, set[int]] = {}  # by id: schemas, and the channels that wait for them
        self._known: dict[tuple[int, bytes], bytes] = {}

    def copy(self, assign_code: Callable[[Channel], int], problem: Callable[[int, str], None]) -> Self:
        """Return the same for somebody who reads on elsewhere, and who takes no part in what this one learns."""
        other = copy(self)
        other.assign_code, other._problem = assign_code, problem
        other.channels, other.codes, other._known = dict(self.channels), self.codes.copy(), {}
        other.schemas, other.schema_ids = dict(self.schemas), dict(self.schema_ids)
        other.tails = dict(self.tails)
        other._waiting = dict(self._waiting)
        other._awaited = {number: set(channels) for number, channels in self._awaited.items()}
        other._budget = MetadataBudget()
        return other

    def is_known(self, number: int) -> bool:
        """Return whether a channel is described, with its schema if it has one."""
        return number in self.channels and number not in self._waiting

    def copy_channel(self, source: ChannelRegistry, number: int) -> bool:
        """Take a channel that others know; return whether they do."""
        if not source.is_known(number):
            return False
        self._waiting.pop(number, None)
        key = (int(Opcode.CHANNEL), number.to_bytes(2, "little"))
        self._known[key] = source._known[key]
        self.schemas = source.schemas | self.schemas
        self.tails = source.tails | self.tails
        self.channels[number], self.schema_ids[number] = source.channels[number], source.schema_ids[number]
        self.set_code(number, self.assign_code(source.channels[number]))
        return True

    def drop_missing_schema(self, number: int, offset: int) -> bool:
        """Do without the schema that a channel waits for, and tell of it; return whether the channel is known now."""
        record = self._waiting.pop(number, None)
        if record is not None:
            self._problem(offset, f"channel {number} has schema {record.schema_id}, which is not there")
            self._describe_channel(record, offset)
        return record is not None

    def may_be_wanted(self, number: int) -> bool:
        """Return whether messages of a channel are wanted, or nobody can know."""
        return number >= len(self.codes) or bool(self.codes[number] >= CODE_UNKNOWN)

    def refresh_codes(self) -> None:
        """Ask for the codes of all channels again."""
        for number, channel in self.channels.items():
            self.set_code(number, self.assign_code(channel))

    def set_code(self, number: int, code: int) -> None:
        """Give the messages of a channel a code."""
        if number >= len(self.codes):
            self.codes = np.concatenate((self.codes, np.full(number + 1 - len(self.codes), CODE_UNKNOWN, np.int32)))
        self.codes[number] = code

    def learn_record(self, opcode: int, content: bytes, offset: int) -> None:
        """Learn from a header, a schema, a channel or metadata; a repetition costs nothing.

        Parameters
        ----------
        opcode, content : of the record.
        offset : where in the file, for what is said of it.
        """
        key = (opcode, content[:2])
        if self._known.get(key) == content or (opcode == Opcode.CHANNEL and self.changes > CHANGES_MAX):
            return
        if not self._budget.reserve(_make_budget_key(opcode, content), len(content)):
            text = f"{METADATA_BYTES_MAX} bytes of schemas, channels and metadata are all that is kept; not this one"
            self._problem(offset, text)
            return
        if opcode != Opcode.METADATA:
            self._known[key] = content
        stream = RecordStream(content)
        record = parse_or_report(_RECORD_READERS[Opcode(opcode)], stream, offset, self._problem)
        changes, former = self.changes, self.schemas.get(getattr(record, "id", 0))
        self._store_metadata(record, offset)
        if opcode != Opcode.METADATA and record is not None:
            is_other = self.changes > changes or (opcode == Opcode.SCHEMA and former not in (None, record))
            self._keep_unknown_fields((opcode, getattr(record, "id", 0)), content[stream.count :], is_other)

    def _keep_unknown_fields(self, key: tuple[int, int], tail: bytes, is_other: bool) -> None:
        """Keep unknown fields, of the first description that has some. is_other : it replaces one with other fields."""
        if is_other:
            self.tails.pop(key, None)
        if tail:
            self.tails.setdefault(key, tail)

    def _store_metadata(self, record: Any, offset: int) -> None:
        if isinstance(record, records.Header):
            self.header = record
        elif isinstance(record, records.Metadata):
            self.metadata[record.name] = record.metadata
            self._add_clock_note(record.name, record.metadata, offset)
        elif isinstance(record, records.Schema):
            self.schemas[record.id] = record
            for number in self._awaited.pop(record.id, ()):
                if number in self._waiting and self._waiting[number].schema_id == record.id:
                    self._describe_channel(self._waiting.pop(number), offset)
        elif isinstance(record, records.Channel) and record.schema_id and record.schema_id not in self.schemas:
            self._waiting[record.id] = record  # a summary may leave the schemas to the chunks
            self._awaited.setdefault(record.schema_id, set()).add(record.id)
            self.set_code(record.id, CODE_UNKNOWN)
        elif isinstance(record, records.Channel):
            self._waiting.pop(record.id, None)
            self._describe_channel(record, offset)

    def _add_clock_note(self, name: str, metadata: dict[str, str], offset: int) -> None:
        """Keep what a recorder noted of the clocks; in a file that is of several runs, nothing is."""
        run = metadata.get("run", "")
        if name != metadata_keys.RECORDING and (name != metadata_keys.CLOCK or run not in self._runs):
            return
        if len(self.clock_notes) < CLOCK_NOTES_MAX:
            self._runs.add(run)
            self.clock_notes.append(
                {name: text for name, text in metadata.items() if name in metadata_keys.CLOCK_NAMES}
            )
        else:
            self._problem(offset, f"the wall clock was set {CLOCK_NOTES_MAX} times, more than that is not kept")

    def _describe_channel(self, record: records.Channel, offset: int) -> None:
        epoch = record.metadata.get(metadata_keys.EPOCH, "")
        schema = self._find_schema_record(record.schema_id)
        channel = Channel(
            record.topic,
            self.metadata.get(metadata_keys.RECORDING, {}).get("run", ""),
            int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 19 else 0,
            record.metadata.get(metadata_keys.SEQUENCE) == metadata_keys.PUBLISHED,
            _find_message_schema(record, schema),
            record.metadata.get(metadata_keys.TRACKED) == "1",
            parse_metadata(record.metadata),
            ChannelRecord(record.message_encoding, tuple(record.metadata.items()), schema),
            parse_boundary_losses(record.metadata),
        )
        before = self.channels.get(record.id)
        if before is not None and before != channel:
            self._problem(offset, f"channel {record.id} was {before.endpoint!r} and is {channel.endpoint!r} from here")
            self.changes += 1
        self.channels[record.id] = channel
        self.schema_ids[record.id] = record.schema_id
        self.set_code(record.id, self.assign_code(channel))

    def _find_schema_record(self, number: int) -> SchemaRecord | None:
        record = self.schemas.get(number) if number else None
        return None if record is None else SchemaRecord(record.name, record.encoding, record.data)


def parse_or_report(
    read: Callable[[ReadDataStream], Any], stream: RecordStream, offset: int, problem: Callable[[int, str], None]
) -> Any:
    """Return a record of the library's, or None, and tell of the problem, when its bytes make no sense."""
    try:
        return read(stream)
    except (McapError, ValueError, struct.error, EOFError, MemoryError) as error:
        problem(offset, f"a record that makes no sense: {str(error) or type(error).__name__}")
        return None


def _make_budget_key(opcode: int, content: bytes) -> tuple[int, bytes]:
    """Return what a later description has in common with one that it replaces: the id, or the name of metadata."""
    if opcode != Opcode.METADATA:
        return opcode, content[:2]
    return opcode, content[: 4 + int.from_bytes(content[:4], "little")]


def _find_message_schema(channel: records.Channel, record: SchemaRecord | None) -> Schema | None:
    """Return what messages of a channel mean; None: nothing says it."""
    if record is None:
        return schema_of(channel.topic, channel.message_encoding, b"") if channel.message_encoding else None
    encoding = channel.message_encoding or message_encoding(record.encoding)
    return schema_of(record.name, encoding, record.data, record.encoding)
