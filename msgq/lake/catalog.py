"""Which tables a lake has: how large each is, and what a row of it is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pyarrow.compute as pc

from msgq.lake.delta_table import Table, has_table, table_places
from msgq.lake.directory import Directory

_NAMED = 3  # endpoints of a table of silver
_OWN = ("ingested_files", "schemas", "silver_manifest")

_ROWS = {
    "messages": "a message",
    "ingested_files": "a file that was ingested",
    "read_errors": "a place of a file that could not be read",
    "schemas": "the text of a schema",
    "decode_errors": "a message that could not be decoded",
    "silver_manifest": "what is decoded: a part of messages, and a table of silver",
    "gold/endpoints": "an endpoint of a run",
    "gold/publishers": "a publisher of an endpoint that may have several, of a run",
    "gold/traffic_windows": "a window of an endpoint's epoch",
    "gold/sequence_gaps": "a place where messages are missing",
    "gold/overwrites": "a place where values of state were overwritten before they were recorded",
    "gold/throughput": "a window of an endpoint",
    "gold/dropouts": "a time without a message",
    "gold/latency": "the latency of an endpoint in a window",
    "gold/latency_summary": "the latency of an endpoint of a run",
    "gold/hops": "an edge between endpoints",
    "gold/stages": "a window of an endpoint that a stage handles",
    "gold/stage_summary": "an endpoint that a stage handles, of a run",
    "gold/queue_deliveries": "a delivery of a message of a queue",
    "gold/queue_windows": "a window of a queue",
    "gold/queue_summary": "a queue of a run",
    "gold/frames": "a picture",
    "gold/checks": "what was checked of an endpoint",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of a lake, as its last commit left it.

    Attributes
    ----------
    table : its name in SQL; of silver the first endpoint's; "": it serves the lake itself.
    place : of its directory, below the lake's.
    rows, files, bytes : of that version; bytes on the disk.
    version : how many commits there were before.
    row : what a row is.
    """

    table: str
    place: str
    rows: int
    files: int
    bytes: int
    version: int
    row: str


def is_lake(directory: Directory) -> bool:
    """Return whether a directory is a lake."""
    return has_table(directory, "messages")


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it: in backticks."""
    return "`" + name.replace("`", "``") + "`"


def catalogue(directory: Directory) -> list[Entry]:
    """Return the tables of a lake: messages, what is decoded, gold, and behind them those of the lake itself."""
    endpoints = _endpoints(directory)
    found = [entry for place in table_places(directory) if (entry := _entry(directory, place, endpoints))]
    order = ("messages", "read_errors", "decode_errors", "silver", "gold", "aggregates")

    def rank(entry: Entry) -> tuple[bool, int]:
        folder = entry.place.partition("/")[0]
        return not entry.table, order.index(folder) if folder in order else len(order)

    return sorted(found, key=rank)


def _endpoints(directory: Directory) -> dict[str, list[str]]:
    """Return the endpoints that have rows in each table of silver."""
    ledger = Table(directory, "silver_manifest").snapshot()
    found: dict[str, set[str]] = defaultdict(set)
    if ledger is not None:
        rows = ledger.read(["table_name", "endpoint"], pc.field("endpoint").is_valid())
        for row in rows.group_by(["table_name", "endpoint"]).aggregate([]).to_pylist():
            found[row["table_name"]].add(row["endpoint"])
    return {table: sorted(names) for table, names in found.items()}


def _entry(directory: Directory, place: str, endpoints: dict[str, list[str]]) -> Entry | None:
    snapshot = Table(directory, place).snapshot()
    if snapshot is None:
        return None
    files = snapshot.files.values()
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    folder, name = place.partition("/")[0], place.rpartition("/")[2]
    if folder == "silver":
        names = endpoints.get(name, [])
        table, row = f"silver_{names[0]}" if names else "", f"a value of a message of {_some(names)}"
    elif folder == "aggregates":
        table, row = "", "of parts of messages, what gold is made of"
    else:
        table = "" if name.startswith("_") or place in _OWN else name
        row = _ROWS.get(place, "")
    return Entry(table, place, rows, len(files), size, snapshot.version, row)


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
