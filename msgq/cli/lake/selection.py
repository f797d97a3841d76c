"""Messages for `msgq lake export` and `msgq lake replay`: the rows of a query, or selected endpoints and times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from msgq.cli.bag.arguments import add_selection_options, convert_range_to_log_ns, find_unmatched_texts
from msgq.cli.common.progress import BYTES, ProgressLine
from msgq.cli.common.render import echo
from msgq.cli.lake import arguments
from msgq.common.selection import SelectedEndpoints, parse_patterns
from msgq.common.texts import join_first_texts, suggest_name
from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from msgq.lake.bronze.bronze_reader import BronzeReader

__all__ = ["add_selection_options", "optional_query_argument", "require_one_selection", "write_log"]

_LISTED_ENDPOINTS_MAX = 30
_READING_PART = 0.5  # share of an export's time: a quarter for small messages, two thirds for large messages
optional_query_argument = click.argument("query", metavar="[SQL]", required=False)


def require_one_selection(query: str | None, chosen: dict[str, Any]) -> None:
    """Check that a query has no selection options next to it. Raises click.UsageError."""
    if query is not None and any(value not in (None, ()) for value in chosen.values()):
        raise click.UsageError(
            "SQL and the options --endpoint, --regex, --exclude, --start and --end exclude each other; "
            "write the conditions into the SQL"
        )


def write_log(
    lake: str, query: str | None, chosen: dict[str, Any], path: Path, version: int | None, master: str | None
) -> int:
    """Write the messages of a query or of the selection options as an MCAP file, and return their number.

    Only a query starts Spark.
    """
    if query is None:
        return _write_selected_messages(lake, path, version, **chosen)
    from msgq.spark.lake import export

    opened = arguments.open_lake(lake, master, version=version)
    answer = opened.sql(query)
    with arguments.show_task_progress(opened.spark, "export"):
        return export.write_log(answer, path, opened.uri)


def _write_selected_messages(
    lake: str,
    path: Path,
    version: int | None,
    names: Sequence[str],
    expressions: Sequence[re.Pattern[str]],
    exclude: Sequence[re.Pattern[str]],
    start: float | datetime | None,
    end: float | datetime | None,
) -> int:
    from msgq.lake.bronze.bronze_reader import BronzeReader
    from msgq.lake.log_export import EXPORT_COLUMNS, write_messages
    from msgq.lake.message_filter import MessageFilter
    from msgq.lake.schema_texts import read_schemas

    directory = arguments.open_lake_directory(lake)
    reader = BronzeReader(directory, version)
    begin = (reader.find_start_time() or 0) if isinstance(start, float) or isinstance(end, float) else 0
    endpoints = _find_endpoints(reader, names, expressions, exclude)
    message_filter = MessageFilter(endpoints, *convert_range_to_log_ns(start, end, begin))
    files = reader.select_files(message_filter)
    size = sum(file.size_bytes for file in files)
    with ProgressLine("export", BYTES, size) as line:
        batches = reader.read_batches(
            files, message_filter, EXPORT_COLUMNS, lambda finished: line.set_finished(_READING_PART * finished)
        )
        count = write_messages(
            batches,
            path,
            read_schemas(directory),
            lambda part: line.set_finished(size * (_READING_PART + (1 - _READING_PART) * part)),
        )
    if not count and (first := reader.find_start_time()) is not None:
        time = datetime.fromtimestamp(first / NS_PER_S, UTC).isoformat(timespec="milliseconds")
        echo(f"no message has the selected endpoints and times; the lake begins at {time}", err=True)
    return count


def _find_endpoints(
    reader: BronzeReader,
    names: Sequence[str],
    expressions: Sequence[re.Pattern[str]],
    exclude: Sequence[re.Pattern[str]],
) -> frozenset[str] | None:
    """Return the selected endpoints; None: all. Raises InvalidValueError for a name or pattern without an endpoint."""
    if not (names or expressions or exclude):
        return None
    existing = reader.list_endpoints()
    if missing := find_unmatched_texts(existing, names, expressions):
        listed_endpoints = join_first_texts(existing, _LISTED_ENDPOINTS_MAX) + suggest_name(missing[0], existing)
        raise InvalidValueError(f"no endpoint of the lake matches {', '.join(missing)}; endpoints: {listed_endpoints}")
    selected = SelectedEndpoints((*parse_patterns(names), *expressions) or None, exclude)
    return frozenset(name for name in existing if name in selected)
