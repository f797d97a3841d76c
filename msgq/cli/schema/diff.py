"""`msgq schema diff`: compares the schemas of recordings, of endpoints, or of a recording and the bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from msgq.cli.common import comparisons, options
from msgq.cli.common.render import echo, echo_json
from msgq.common.optional import require_extra
from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.kinds import validate_endpoint
from msgq.monitor.endpoint_selection import NoMatchError, find_similar_names, no_match_error
from msgq.stats import endpoint as read_endpoint
from msgq.stats import endpoint_inodes
from msgq.stats import endpoints as list_endpoints

if TYPE_CHECKING:
    from msgq.decoding.schema_diff import SchemaDifference

SchemasByEndpoint = dict[str, Schema | None]


@click.command(epilog=comparisons.COMPARISON_EXIT_CODES)
@click.argument("before", metavar="LOG|NAME", shell_complete=options.complete_endpoint)
@click.argument("after", metavar="[LOG|NAME]", required=False, shell_complete=options.complete_endpoint)
@options.json_option
@options.prefix_option
def command(before: str, after: str | None, as_json: bool, prefix: str | None) -> None:
    """Compare the schemas of recordings or endpoints.

    Each argument is a recording (an existing file or directory) or the name of an endpoint. With one recording, the
    command compares the recording with the endpoints of this machine. Two recordings are compared by the names of
    their endpoints. A recording and an endpoint are compared by the name of the endpoint. Two endpoints may have
    different names.

    The command prints fields that were added or removed, and fields whose type has changed. Endpoints that exist only
    on one side are named on stderr, and are no difference. With --json, the command prints one object for each
    difference.
    """
    require_extra("msgq schema diff", "arrow", "mcap", "pyarrow")
    pairs = _pair_schemas(before, after, prefix)
    count = sum(_show_differences(name, *pair, as_json) for name, pair in pairs.items())
    if not count and not as_json:
        echo(f"no differences in {format_count_noun(len(pairs), 'schema')}")
    if count:
        click.get_current_context().exit(1)


def _pair_schemas(before: str, after: str | None, prefix: str | None) -> dict[str, tuple[Schema | None, Schema | None]]:
    """Return the schemas to compare, by the name for the output."""
    if after is None:
        if not Path(before).exists():
            raise click.UsageError(f"{before!r} is not a recording; give a recording, or a second endpoint")
        return _pair_by_endpoint(_read_log_schemas(before), _read_bus_schemas(prefix), before, "the bus")
    sides = [_read_log_schemas(text) if Path(text).exists() else None for text in (before, after)]
    old, new = sides
    if old is not None and new is not None:
        return _pair_by_endpoint(old, new, before, after)
    first = _read_endpoint_schema(before, prefix) if old is None else _find_log_schema(old, after, before)
    second = _read_endpoint_schema(after, prefix) if new is None else _find_log_schema(new, before, after)
    names = [text for text, schemas in ((before, old), (after, new)) if schemas is None]
    return {", ".join(dict.fromkeys(names)): (first, second)}


def _pair_by_endpoint(
    before: SchemasByEndpoint, after: SchemasByEndpoint, before_name: str, after_name: str
) -> dict[str, tuple[Schema | None, Schema | None]]:
    for one, other, name in ((before, after, before_name), (after, before, after_name)):
        if missing := sorted(one.keys() - other.keys()):
            echo(f"msgq: not compared: only in {name}: {join_first_texts(missing, 10)}", err=True)
    common = sorted(before.keys() & after.keys())
    if not common:
        raise click.ClickException(f"{before_name} and {after_name} have no endpoint in common")
    return {name: (before[name], after[name]) for name in common}


def _read_log_schemas(path: str) -> SchemasByEndpoint:
    """Return the newest schema of each endpoint of a recording."""
    from msgq.recording import LogReader

    channels = sorted(LogReader(path).channels, key=lambda channel: channel.epoch)
    return {channel.endpoint: channel.schema for channel in channels}


def _read_bus_schemas(prefix: str | None) -> SchemasByEndpoint:
    return {stats.endpoint: stats.schema for stats in list_endpoints(prefix)}


def _read_endpoint_schema(name: str, prefix: str | None) -> Schema | None:
    existing = endpoint_inodes(prefix)
    if validate_endpoint(name) not in existing:
        raise no_match_error([name], existing)
    return read_endpoint(name, prefix).schema


def _find_log_schema(schemas: SchemasByEndpoint, name: str, path: str) -> Schema | None:
    if name not in schemas:
        similar = find_similar_names([name], schemas)
        hint = f"did you mean {', '.join(similar)}?" if similar else f"run `msgq bag info {path}`"
        raise NoMatchError(f"no endpoint of {path} matches {name}; {hint}")
    return schemas[name]


def _show_differences(name: str, before: Schema | None, after: Schema | None, as_json: bool) -> int:
    """Print the differences of two schemas, and return their number."""
    from msgq.decoding.schema_diff import compare_schemas

    differences: Sequence[SchemaDifference] = compare_schemas(before, after)
    for difference in differences:
        if as_json:
            echo_json({"endpoint": name, **asdict(difference)})
        else:
            echo(f"{name}: {difference}")
    return len(differences)
