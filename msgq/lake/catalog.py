"""Catalog of a lake: its tables, their sizes, and the meaning of a row."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow.compute as pc

from msgq.common.texts import join_first_texts, suggest_name
from msgq.lake.delta_table import LakeTable, has_table, list_table_paths
from msgq.lake.lake_directory import LakeDirectory

_LISTED_NAMES_MAX = 30  # maximum names in an error
_SHOWN_ENDPOINTS_MAX = 3  # endpoints that are listed for a silver table
_INTERNAL_TABLES = ("ingested_files", "schemas", "silver_manifest")

_ROW_DESCRIPTIONS = {
    "messages": "a message",
    "ingested_files": "a file that was ingested",
    "read_errors": "an unreadable part of a file",
    "schemas": "the text of a schema",
    "decode_errors": "an undecodable message",
    "silver_manifest": "a decoded file of messages, and a table of silver",
    "gold/endpoints": "an endpoint of a run",
    "gold/publishers": "a publisher of a run, for endpoints that can have several",
    "gold/traffic_windows": "a window of an endpoint's epoch",
    "gold/sequence_gaps": "a gap in the numbers of an endpoint's messages",
    "gold/overwrites": "a gap in the write counts of a vector or board",
    "gold/throughput": "a window of an endpoint",
    "gold/dropouts": "a time without a message",
    "gold/latency": "the latency of an endpoint in a window",
    "gold/latency_summary": "the latency of an endpoint of a run",
    "gold/hops": "an edge between endpoints",
    "gold/stages": "a window of an endpoint in a stage",
    "gold/stage_summary": "an endpoint in a stage, per run",
    "gold/queue_deliveries": "a delivery of a message of a queue",
    "gold/queue_windows": "a window of a queue",
    "gold/queue_summary": "a queue of a run",
    "gold/frames": "a picture",
    "gold/checks": "a check of an endpoint",
}


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a lake after its last commit.

    Attributes:
        name: name in SQL; for a silver table, the name of its first endpoint; "": internal table.
        path: path of its directory, relative to the lake.
        row_count: number of rows of this version.
        file_count: number of files of this version.
        size_bytes: bytes of the files.
        version: number of earlier commits.
        description: meaning of a row.
    """

    name: str
    path: str
    row_count: int
    file_count: int
    size_bytes: int
    version: int
    description: str


def is_lake_directory(directory: LakeDirectory) -> bool:
    """Return True if a directory is a lake."""
    return has_table(directory, "messages")


def quote_sql_name(name: str) -> str:
    """Return a name in backticks for SQL."""
    return "`" + name.replace("`", "``") + "`"


def list_sql_names(missing: str, existing: Iterable[str], quote: Callable[[str], str] = quote_sql_name) -> str:
    """Return the existing tables as SQL accepts their names, and the most similar one, for an error.

    `missing`: name that a query contains. `quote`: returns a name with other characters than letters, digits and `_`
        as the engine needs it.
    """
    names = [name if re.fullmatch(r"\w+", name) else quote(name) for name in existing]
    return f"tables: {join_first_texts(names, _LISTED_NAMES_MAX)}{suggest_name(missing, names)}"


def find_unquoted_name(query: str, existing: Iterable[str], quote: Callable[[str], str] = quote_sql_name) -> str | None:
    """Return the table whose name needs quotes in SQL, and that a rejected query names without quotes.

    Of several tables, return the longest name, because the other names can be parts of it. None: no such table.
    """
    text = query.lower()
    needing_quotes = [name for name in existing if not re.fullmatch(r"\w+", name)]
    unquoted = [name for name in needing_quotes if name.lower() in text and quote(name).lower() not in text]
    return max(unquoted, key=len, default=None)


def list_tables(directory: LakeDirectory) -> list[TableInfo]:
    """Return the tables of a lake: messages, silver, gold, and internal tables."""
    endpoints = _group_endpoints_by_table(directory)
    tables = [info for place in list_table_paths(directory) if (info := _describe_table(directory, place, endpoints))]
    order = ("messages", "read_errors", "decode_errors", "silver", "gold", "aggregates")

    def rank_table_path(info: TableInfo) -> tuple[bool, int]:
        folder = info.path.partition("/")[0]
        return not info.name, order.index(folder) if folder in order else len(order)

    return sorted(tables, key=rank_table_path)


def _group_endpoints_by_table(directory: LakeDirectory) -> dict[str, list[str]]:
    """Return the endpoints with rows in each silver table."""
    manifest = LakeTable(directory, "silver_manifest").read_snapshot()
    endpoints: dict[str, set[str]] = defaultdict(set)
    if manifest is not None:
        rows = manifest.read_rows(["table_name", "endpoint"], pc.field("endpoint").is_valid())
        for row in rows.group_by(["table_name", "endpoint"]).aggregate([]).to_pylist():
            endpoints[row["table_name"]].add(row["endpoint"])
    return {table: sorted(names) for table, names in endpoints.items()}


def _describe_table(directory: LakeDirectory, place: str, endpoints: dict[str, list[str]]) -> TableInfo | None:
    snapshot = LakeTable(directory, place).read_snapshot()
    if snapshot is None:
        return None
    files = snapshot.files_by_path.values()
    rows, size = sum(file.row_count for file in files), sum(file.size_bytes for file in files)
    folder, directory_name = place.partition("/")[0], place.rpartition("/")[2]
    if folder == "silver":
        names = endpoints.get(directory_name, [])
        name, description = f"silver_{names[0]}" if names else "", f"a value of a message of {_join_first_names(names)}"
    elif folder == "aggregates":
        name, description = "", "partial aggregates of a bronze file, the input of gold"
    else:
        name = "" if directory_name.startswith("_") or place in _INTERNAL_TABLES else directory_name
        description = _ROW_DESCRIPTIONS.get(place, "")
    return TableInfo(name, place, rows, len(files), size, snapshot.version, description)


def _join_first_names(names: list[str]) -> str:
    hidden = len(names) - _SHOWN_ENDPOINTS_MAX
    return ", ".join(names[:_SHOWN_ENDPOINTS_MAX]) + (f" and {hidden} more" if hidden > 0 else "")
