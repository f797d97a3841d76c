"""The head of a Delta log: a version of a table without the list of its files.

delta-rs always loads the list of all files, so its cost grows with the table. A writer that only adds files does not
need the list. It stores the head of a version, and later reads only the log entries that follow. The new entry is
written with the number after the newest entry, and only if nobody has written an entry of this number.

A head is only in use for tables of protocol version 1 or 2, because later versions demand more of a writer, and only
where `LakeDirectory.create_file` is possible.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgq.lake.data_file import DataFile, make_add_action
from msgq.lake.table_snapshot import TRANSACTION_APPLICATION_ID, TableSnapshot

_READER_VERSION_MAX, _WRITER_VERSION_MAX = 1, 2
_FOLLOWING_ENTRIES_MAX = 100  # to load the table costs less than to read more log entries

_LogAction = dict[str, Any]
#: Returns the content of the log entry of a version; None: there is no such entry.
EntryReader = Callable[[int], bytes | None]


@dataclass(frozen=True, slots=True)
class TableHead:
    """A version of a table.

    Attributes:
        version: as in `TableSnapshot`.
        table_id: as in `TableSnapshot`.
        commit_number: as in `TableSnapshot`.
        entry_digest: SHA-256 of the version's log entry. It differs if the table was deleted and created again.
        column_names: columns of the table, including partition columns.
    """

    version: int
    table_id: str
    commit_number: int
    entry_digest: str
    column_names: list[str]


class HeadAdvance(NamedTuple):
    """The newest version of a table, and the files that were added since an earlier version and still exist."""

    head: TableHead
    added_paths: set[str]


def parse_actions(entry: bytes) -> list[_LogAction]:
    """Return the actions of a log entry. Raises ValueError if the entry is damaged."""
    return [json.loads(line) for line in entry.splitlines() if line]


def list_paths(actions: Iterable[_LogAction], kind: str) -> set[str]:
    """Return the paths of the actions of a kind: "add" or "remove"."""
    return {unquote(action[kind]["path"]) for action in actions if kind in action}


def make_head(snapshot: TableSnapshot, read_entry: EntryReader) -> TableHead | None:
    """Return the head of a snapshot; None: the table needs delta-rs, or the log entry was removed."""
    protocol, entry = snapshot.delta_table.protocol(), read_entry(snapshot.version)
    is_simple = (
        protocol.min_reader_version <= _READER_VERSION_MAX and protocol.min_writer_version <= _WRITER_VERSION_MAX
    )
    if not is_simple or entry is None:
        return None
    return TableHead(
        snapshot.version, snapshot.table_id, snapshot.commit_number, _digest_entry(entry), snapshot.columns.names
    )


def restore_head(stored: Any) -> TableHead | None:
    """Return the head that `store_head` made; None: something else was stored."""
    with suppress(TypeError):
        return TableHead(**stored)
    return None


def store_head(head: TableHead) -> dict[str, Any]:
    """Return a head as values for JSON."""
    return asdict(head)


def advance_head(
    head: TableHead, read_entry: EntryReader, read_checkpoint_version: Callable[[], int]
) -> HeadAdvance | None:
    """Return the newest version after a head; None: the log entries do not tell, so the table must be loaded.

    `read_checkpoint_version`: returns the version of the newest checkpoint. Cleanups remove only entries before a
        checkpoint. Therefore an entry after the checkpoint is missing only if nobody has written it.
    """
    entry = read_entry(head.version)
    if entry is None or _digest_entry(entry) != head.entry_digest:
        return None
    added: set[str] = set()
    for version in range(head.version + 1, head.version + _FOLLOWING_ENTRIES_MAX + 2):
        entry = read_entry(version)
        if entry is None:
            return HeadAdvance(head, added) if read_checkpoint_version() <= head.version else None
        try:
            actions = parse_actions(entry)
        except ValueError:
            return None
        if not actions or any("metaData" in action or "protocol" in action for action in actions):
            return None  # after a power failure, the newest entry can be empty
        added = (added - list_paths(actions, "remove")) | list_paths(actions, "add")
        number = _find_commit_number(actions, head.commit_number)
        head = replace(head, version=version, commit_number=number, entry_digest=_digest_entry(entry))
    return None


def make_append_entry(head: TableHead, files: Iterable[DataFile], partitions: Sequence[str]) -> bytes:
    """Return the log entry of a commit that adds new files to a version."""
    now = time.time_ns() // 1_000_000
    parameters = {"mode": "Append", "partitionBy": json.dumps(partitions)}
    information = {"timestamp": now, "operation": "WRITE", "operationParameters": parameters, "engineInfo": "msgq"}
    number = head.commit_number + 1
    transaction = {"appId": TRANSACTION_APPLICATION_ID, "version": number, "lastUpdated": now}
    actions: list[_LogAction] = [{"commitInfo": information}, {"txn": transaction}]
    for file in files:
        action = make_add_action(file)
        values = {"path": action.path, "partitionValues": action.partition_values, "size": action.size}
        values |= {"modificationTime": action.modification_time, "dataChange": True, "stats": action.stats}
        actions.append({"add": values})
    return "\n".join(json.dumps(action, ensure_ascii=False) for action in actions).encode()


def _digest_entry(entry: bytes) -> str:
    return sha256(entry).hexdigest()


def _find_commit_number(actions: Iterable[_LogAction], otherwise: int) -> int:
    numbers = [
        action["txn"]["version"]
        for action in actions
        if "txn" in action and action["txn"]["appId"] == TRANSACTION_APPLICATION_ID
    ]
    return numbers[-1] if numbers else otherwise
