"""Assigns channel and schema ids in a file that is made from other files. Free ids stay unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from mcap.opcode import Opcode

from msgq.errors import RecordingError
from msgq.recording.mcap_io import metadata_keys, record_structs
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.core import CHANNEL_ID_COUNT, ScanColumns
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.record_structs import ExtensibleSchema
from msgq.recording.mcap_io.segment_writer import EncodedChannel

_SCHEMA_ID_COUNT = 1 << 16
_MetadataPairs = tuple[tuple[str, str], ...]


class _ChannelIdentity(NamedTuple):
    """Properties of a channel. Channels with equal properties become one channel of the new file."""

    topic: str
    message_encoding: str
    metadata: _MetadataPairs
    schema_id: int
    unknown_fields: bytes


class _SchemaFields(NamedTuple):
    """Fields of a schema. `unknown_fields` are fields that MCAP does not define yet."""

    name: str
    encoding: str
    data: bytes
    unknown_fields: bytes


@dataclass(slots=True)
class FileMapping:
    """New ids of a file's channels and schemas.

    Attributes:
        new_channel_ids: new id by old channel id and code.
        channel_ids_by_code: new channel id by code.
        new_schema_ids: new id by old schema id.
        is_unchanged: True if all ids of the file keep their meaning in the new file, and no schema or channel has
            unknown fields, which the new file stores outside of chunks only.
        registry_state: state of the file's registry at the last update.
    """

    log_number: int
    new_channel_ids: dict[tuple[int, int], int] = field(default_factory=dict)
    channel_ids_by_code: np.ndarray[Any, np.dtype[np.uint16]] = field(default_factory=lambda: np.zeros(0, np.uint16))
    new_schema_ids: dict[int, int] = field(default_factory=dict)
    is_unchanged: bool = True
    registry_state: tuple[int, int, int] = (0, 0, 0)


class ChannelMapping:
    """Channels of a new file, collected from other files.

    Different logs, and different runs within a log, have different epochs in the new file. An epoch that is already
    used gets another number.

    Attributes:
        encoded_channels: channels and their schemas, by id.
    """

    def __init__(self, continued: Collection[int] = ()) -> None:
        """Start empty. `continued`: numbers of logs whose beginning, with its losses, is in another file."""
        self._continued_logs = continued
        self.encoded_channels: dict[int, EncodedChannel] = {}
        self._file_mappings: dict[McapFile, FileMapping] = {}
        self._new_schemas: dict[int, ExtensibleSchema] = {}
        self._channel_identities: dict[int, _ChannelIdentity | None] = {}  # None: an id that is kept free
        self._channels_by_identity: dict[_ChannelIdentity, tuple[int, FileMapping]] = {}
        self._new_epochs: dict[str, dict[tuple[int, str, int], int]] = {}

    def map_file(self, log: int, file: McapFile) -> FileMapping:
        """Return the new ids of a file's known channels. `log`: number of its log.

        Raises:
            RecordingError: all 65536 ids are used.
        """
        registry = file.registry
        learnt = (len(registry.channels), len(registry.schemas), registry.channel_changes)
        file_mapping = self._file_mappings.setdefault(file, FileMapping(log))
        if file_mapping.registry_state == learnt:
            return file_mapping
        file_mapping.registry_state = learnt
        file_mapping.is_unchanged &= registry.channel_changes == 0 and not registry.has_unknown_declaration_fields
        for number, schema in registry.schemas.items():
            schema_fields = _SchemaFields(
                schema.name, schema.encoding, schema.data, registry.unknown_fields.get((Opcode.SCHEMA, number), b"")
            )
            self._add_schema(file_mapping, number, schema_fields)
        for number, channel in registry.channels.items():
            code = int(registry.channel_codes[number])
            if code < 0:  # others' chunks may describe it all the same
                is_ours = registry.header.profile == metadata_keys.MSGQ_PROFILE
                file_mapping.is_unchanged &= is_ours and self._channel_identities.setdefault(number, None) is None
            elif (number, code) not in file_mapping.new_channel_ids:
                tail = registry.unknown_fields.get((Opcode.CHANNEL, number), b"")
                self._add_channel(file_mapping, number, code, channel, registry.schema_ids[number], tail)
        file_mapping.channel_ids_by_code = np.zeros(
            1 + max((code for _, code in file_mapping.new_channel_ids), default=0), np.uint16
        )
        for (_, code), new in reversed(file_mapping.new_channel_ids.items()):
            file_mapping.channel_ids_by_code[code] = new
        return file_mapping

    def _add_schema(self, mapping: FileMapping, number: int, fields: _SchemaFields) -> None:
        now = mapping.new_schema_ids.get(number)
        if not number or (now is not None and _read_schema_fields(self._new_schemas[now]) == fields):
            return  # MCAP has no schema 0
        before = self._new_schemas.get(number)
        if before is None or _read_schema_fields(before) == fields:
            new = number
        else:
            equal = (
                schema_id for schema_id, other in self._new_schemas.items() if _read_schema_fields(other) == fields
            )
            new = next(equal, None) or _find_free_id(self._new_schemas, _SCHEMA_ID_COUNT, "schemas")
        mapping.new_schema_ids[number] = new
        mapping.is_unchanged &= new == number
        self._new_schemas[new] = ExtensibleSchema(
            id=new, name=fields.name, encoding=fields.encoding, data=fields.data, unknown_fields=fields.unknown_fields
        )

    def _add_channel(
        self, mapping: FileMapping, number: int, code: int, channel: RecordedChannel, schema_id: int, tail: bytes
    ) -> None:
        new_schema = mapping.new_schema_ids[schema_id] if channel.channel_record.schema is not None else 0
        old_metadata = channel.channel_record.metadata
        if mapping.log_number in self._continued_logs:
            old_metadata = tuple(pair for pair in old_metadata if pair[0] != metadata_keys.UNRECORDED_KEY)
        metadata = self._build_metadata(mapping, channel, old_metadata)
        key = _ChannelIdentity(channel.endpoint, channel.channel_record.message_encoding, metadata, new_schema, tail)
        new = self._assign_channel_id(mapping, number, key)
        self._channel_identities[new] = key
        self._channels_by_identity.setdefault(key, (new, mapping))
        mapping.new_channel_ids[number, code] = new
        mapping.is_unchanged &= (number, schema_id, old_metadata) == (new, new_schema, metadata)
        if new not in self.encoded_channels:
            record = record_structs.ExtensibleChannel(
                new, key.topic, key.message_encoding, dict(metadata), new_schema, tail
            )
            self.encoded_channels[new] = EncodedChannel(record, self._new_schemas[new_schema] if new_schema else None)

    def _assign_channel_id(self, mapping: FileMapping, number: int, key: _ChannelIdentity) -> int:
        """Return the new id of a channel: its own id, the id of an equal channel of another file, or a free id."""
        if self._channel_identities.get(number) == key:
            return number
        equal, owner_mapping = self._channels_by_identity.get(key, (None, mapping))
        if equal is not None and owner_mapping is not mapping:
            return equal
        if number not in self._channel_identities:
            return number
        return equal if equal is not None else _find_free_id(self._channel_identities, CHANNEL_ID_COUNT, "channels")

    def _build_metadata(self, mapping: FileMapping, channel: RecordedChannel, pairs: _MetadataPairs) -> _MetadataPairs:
        """Return a channel's metadata with its epoch in the new file."""
        metadata = dict(pairs)
        if metadata.get(metadata_keys.EPOCH_KEY) != str(channel.epoch):
            return pairs
        epochs = self._new_epochs.setdefault(channel.endpoint, {})
        owner = (mapping.log_number, channel.run_id, channel.epoch)
        if owner not in epochs:
            used = epochs.values()
            epochs[owner] = max(used) + 1 if channel.epoch in used else channel.epoch
        return tuple((metadata | {metadata_keys.EPOCH_KEY: str(epochs[owner])}).items())

    def map_rows(self, log: int, file: McapFile, content: bytes, columns: ScanColumns) -> np.ndarray[Any, Any]:
        """Return the new channel id of each scanned message. `content`: the scanned bytes."""
        mapping = self.map_file(log, file)
        codes = {code for _, code in mapping.new_channel_ids}
        if len(codes) == len(mapping.new_channel_ids) or file.registry.channel_changes:
            return mapping.channel_ids_by_code[columns.channel_code[: columns.row_count]]
        return _map_by_channel_id(mapping, content, columns)

    def map_codes_to_channel_ids(self, log: int) -> dict[int, int]:
        """Return the new channel id of each code of a log that has exactly one."""
        new_ids: dict[int, set[int]] = {}
        for mapping in self._file_mappings.values():
            for (_, code), new in mapping.new_channel_ids.items() if mapping.log_number == log else ():
                new_ids.setdefault(code, set()).add(new)
        return {code: new.pop() for code, new in new_ids.items() if len(new) == 1}

    def iter_unused_schemas(self) -> Iterator[ExtensibleSchema]:
        """Yield the schemas that no channel uses."""
        for file, mapping in self._file_mappings.items():
            for number in mapping.new_schema_ids.keys() - set(file.registry.schema_ids.values()):
                yield self._new_schemas[mapping.new_schema_ids[number]]


def _map_by_channel_id(mapping: FileMapping, content: bytes, columns: ScanColumns) -> np.ndarray[Any, Any]:
    """Return the new id of each message by its old channel id, if several channels share a code."""
    table = np.zeros(CHANNEL_ID_COUNT, np.uint16)
    for (number, _), new in mapping.new_channel_ids.items():
        table[number] = new
    data = np.frombuffer(content, np.uint8)
    at = columns.offset[: columns.row_count] - 22  # a message begins with its channel
    numbers: np.ndarray[Any, Any] = table[data[at].astype(np.uint16) | data[at + 1].astype(np.uint16) << 8]
    return numbers


def _read_schema_fields(schema: ExtensibleSchema) -> _SchemaFields:
    return _SchemaFields(schema.name, schema.encoding, schema.data, schema.unknown_fields)


def _find_free_id(used: dict[int, Any], end: int, label: str) -> int:
    following = max(used) + 1
    if following < end:
        return following
    for number in range(1, end):
        if number not in used:
            return number
    raise RecordingError(f"the result has more than {end - 1} {label}, the maximum of one file; select fewer endpoints")
