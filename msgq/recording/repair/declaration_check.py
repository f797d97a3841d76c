"""Checks that each schema precedes its channels, and each channel its messages.

A declaration is a schema record or a channel record.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from mcap.opcode import Opcode

from msgq.recording.mcap_io.channel_registry import MetadataBudget
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT
from msgq.recording.repair.chunk_parser import parse_record
from msgq.recording.repair.data_section import SectionRecord

_IDS_STRUCT = struct.Struct("<HH")  # a channel's id, its schema's id; a schema begins with its id only
DeclarationKey = tuple[int, int]  # opcode and id


def make_declaration_key(record: bytes) -> DeclarationKey:
    """Return the key of a schema or channel record: its opcode and id."""
    return record[0], int.from_bytes(record[RECORD_HEAD_STRUCT.size : RECORD_HEAD_STRUCT.size + 2], "little")


def find_schema_key(channel: bytes) -> DeclarationKey | None:
    """Return the key of a channel's schema; None: the channel has no schema."""
    number = _IDS_STRUCT.unpack_from(channel, RECORD_HEAD_STRUCT.size)[1]
    return (Opcode.SCHEMA, number) if number else None


def is_same_declaration(record: bytes, other: bytes) -> bool:
    """Return True if two schema or channel records are equal, except for fields that MCAP does not define."""
    return record == other or bool(parse_record(record) == parse_record(other))


class MissingDeclaration(NamedTuple):
    """A missing schema or channel.

    `user`: the channel that uses the missing schema; None: messages use a missing channel.
    """

    declaration_key: DeclarationKey
    using_channel_id: int | None


class DeclarationChecker:
    """Checks the declarations of a file, record by record.

    Attributes:
        declared_keys: keys of all schemas and channels up to now.
        newest_declarations: newest record of each key, within a memory limit.
        redeclared_keys: keys in the last record whose content differs from an earlier declaration.
        new_declarations: declarations in the last record that differ from all earlier ones.
    """

    def __init__(self) -> None:
        self.declared_keys: set[DeclarationKey] = set()
        self.newest_declarations: dict[DeclarationKey, bytes] = {}
        self.redeclared_keys: list[DeclarationKey] = []
        self.new_declarations: list[bytes] = []
        self._metadata_budget = MetadataBudget()

    def check_section_record(self, part: SectionRecord) -> list[MissingDeclaration]:
        """Add a record of the data section. Return the missing declarations that the record uses."""
        self.redeclared_keys, self.new_declarations = [], []
        if part.record_bytes and part.opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            return self._learn_declaration(part.record_bytes)
        if part.chunk_contents is None:
            return []
        missing: list[MissingDeclaration] = []
        first = part.chunk_contents.count_messages_before_first_use()
        open_uses = {number: row for number, row in first.items() if (Opcode.CHANNEL, number) not in self.declared_keys}
        for row, record in part.chunk_contents.declarations:
            missing += self._learn_declaration(record)
            opcode, number = make_declaration_key(record)
            if opcode == Opcode.CHANNEL and open_uses.get(number, -1) >= row:
                del open_uses[number]
        return missing + [MissingDeclaration((Opcode.CHANNEL, number), None) for number in open_uses]

    def _learn_declaration(self, record: bytes) -> list[MissingDeclaration]:
        """Add a schema or channel record. Return the channel's schema if it is missing."""
        key = make_declaration_key(record)
        before = self.newest_declarations.get(key)
        if before == record:
            return []
        if before is not None and not is_same_declaration(before, record):
            self.redeclared_keys.append(key)
        self.declared_keys.add(key)
        self.new_declarations.append(record)
        if self._metadata_budget.reserve_record(
            (key[0], record[RECORD_HEAD_STRUCT.size : RECORD_HEAD_STRUCT.size + 2]), len(record)
        ):
            self.newest_declarations[key] = record
        schema = find_schema_key(record) if key[0] == Opcode.CHANNEL else None
        return [MissingDeclaration(schema, key[1])] if schema is not None and schema not in self.declared_keys else []
