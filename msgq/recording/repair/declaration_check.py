"""Whether each channel of a file is described before its messages, and each schema before its channels."""

from __future__ import annotations

import struct
from typing import NamedTuple

from mcap.opcode import Opcode

from msgq.recording.mcap_io.channel_registry import Room
from msgq.recording.mcap_io.record_structs import HEAD
from msgq.recording.repair.chunk_parser import parsed
from msgq.recording.repair.data_section import Part

_IDS = struct.Struct(
    "<HH"
)  # of a channel: its own, its schema's; how it begins, and how a schema does with one of them
Key = tuple[int, int]  # opcode and id


def key_of(record: bytes) -> Key:
    """Return what a schema or a channel is known by."""
    return record[0], int.from_bytes(record[HEAD.size : HEAD.size + 2], "little")


def schema_of(channel: bytes) -> Key | None:
    """Return the schema of a channel, if it has one."""
    number = _IDS.unpack_from(channel, HEAD.size)[1]
    return (Opcode.SCHEMA, number) if number else None


def is_same(one: bytes, other: bytes) -> bool:
    """Return whether two schemas or channels differ at most in fields that MCAP does not define."""
    return one == other or bool(parsed(one) == parsed(other))


class Missing(NamedTuple):
    """What should have been described. user : the channel that has the schema; None: messages are there."""

    key: Key
    user: int | None


class Described:
    """What was described so far, part by part.

    Attributes
    ----------
    ids : of all schemas and channels.
    newest : of each id, as long as there is room.
    changed : of the last part: schemas and channels that were something else before.
    fresh : of the last part: schemas and channels as nothing before it had them.
    """

    def __init__(self) -> None:
        self.ids: set[Key] = set()
        self.newest: dict[Key, bytes] = {}
        self.changed: list[Key] = []
        self.fresh: list[bytes] = []
        self._room = Room()

    def take(self, part: Part) -> list[Missing]:
        """Learn from a part; return what it uses, and nothing before it describes."""
        self.changed, self.fresh = [], []
        if part.data and part.opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            return self._describe(part.data)
        if part.inside is None:
            return []
        missing: list[Missing] = []
        first = part.inside.first_uses()
        open_uses = {number: row for number, row in first.items() if (Opcode.CHANNEL, number) not in self.ids}
        for row, record in part.inside.described:
            missing += self._describe(record)
            opcode, number = key_of(record)
            if opcode == Opcode.CHANNEL and open_uses.get(number, -1) >= row:
                del open_uses[number]
        return missing + [Missing((Opcode.CHANNEL, number), None) for number in open_uses]

    def _describe(self, record: bytes) -> list[Missing]:
        """Learn from a schema or a channel; return the schema that a channel has, if nothing describes it."""
        key = key_of(record)
        before = self.newest.get(key)
        if before == record:
            return []
        if before is not None and not is_same(before, record):
            self.changed.append(key)
        self.ids.add(key)
        self.fresh.append(record)
        if self._room.takes((key[0], record[HEAD.size : HEAD.size + 2]), len(record)):
            self.newest[key] = record
        schema = schema_of(record) if key[0] == Opcode.CHANNEL else None
        return [Missing(schema, key[1])] if schema is not None and schema not in self.ids else []
