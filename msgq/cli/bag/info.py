"""`msgq bag info`: shows the totals of a log."""

from dataclasses import asdict, fields
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, NAME_RANK, RATE_RANK, TableColumn, print_table
from msgq.cli.common.render import echo, echo_json
from msgq.common.formatting import format_bytes, format_count
from msgq.common.storage.url_path import RecordingPath
from msgq.recording import EndpointInfo, LogReader
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.reader.totals import EndpointTotals

SUMMARY, FULL_SCAN = "summary", "full scan"


_InfoColumn = TableColumn[dict[str, Any]]
_INFO_COLUMNS = (
    _InfoColumn("endpoint", lambda info: info["endpoint"], NAME_RANK, text_width=24),
    _InfoColumn("kind", lambda info: info["kind"], text_width=7),
    _InfoColumn("schema", lambda info: _format_schema(info), text_width=12),
    _InfoColumn("publishers", lambda info: info["publishers"] or "-", text_width=12),
    _InfoColumn("messages", lambda info: format_count(info["messages"]), RATE_RANK),
    _InfoColumn("bytes", lambda info: format_bytes(info["bytes"])),
    _InfoColumn("rate", lambda info: _format_rate(info), RATE_RANK),
    _InfoColumn("lost", lambda info: format_count(info["lost"]), LOST_RANK),
    _InfoColumn("epochs", lambda info: format_count(info["epochs"])),
)


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@arguments.add_selection_options
@arguments.clock_option
@click.option("--scan", is_flag=True, help="Read all messages, and report damage.  [default: read only the summaries]")
@arguments.chunk_limit_option
@options.json_option
def command(logs: tuple[RecordingPath, ...], scan: bool, as_json: bool, **chosen: Any) -> None:
    """Show endpoints, counts, times and losses of recordings.

    The summary of each recording of msgq contains the totals of all endpoints. In files of other programs, some
    totals are missing and shown as "-". To compute the missing totals, give --scan. The command reads all messages if
    a file has no summary, or if you select a part of the log.

    With --json, the command prints one object for the log, then one object for each endpoint. The field "source" is
    "summary", or "full scan" if the command read all messages.
    """
    log = arguments.open_log(logs, **chosen)
    scanned = scan or (not log.has_statistics and log.counts is None)
    infos = _list_endpoint_infos(log, scanned)
    about = _summarize_log(log, infos, scanned)
    if as_json:
        echo_json(about)
        for info in infos:
            echo_json(info | {"schema": info["schema"] and asdict(info["schema"])})
    else:
        for name, value in about.items():
            echo(f"{name.replace('_', ' '):<12} {_format_value(name, value)}")
        print_table(_INFO_COLUMNS, infos)
    arguments.print_log_problems(log)
    arguments.require_endpoints_found(log, **chosen)


def _list_endpoint_infos(log: LogReader, scanned: bool) -> list[dict[str, Any]]:
    """Return the totals of each endpoint, as in `EndpointInfo`; None for values that require a scan."""
    names = [field.name for field in fields(EndpointInfo)]
    if scanned or log.has_statistics:
        return [{name: getattr(info, name) for name in names} for info in log.summarize(scanned).values()]
    channels = {channel.endpoint: channel for channel in log.channels}
    unknown = dict.fromkeys(names)
    by_name = {
        name: unknown
        | {
            "endpoint": name,
            "messages": count,
            "schema": channels[name].schema,
            "kind": channels[name].message_source.kind,
        }
        for name, count in (log.counts or {}).items()
    }
    for name, info in (
        EndpointTotals(log.log_view).build_endpoint_infos().items()
    ):  # endpoints whose messages were all lost
        by_name.setdefault(name, {field: getattr(info, field) for field in names})
    return [by_name[name] for name in sorted(by_name)]


def _summarize_log(log: LogReader, infos: list[dict[str, Any]], scanned: bool) -> dict[str, Any]:
    start, end = _find_time_range(log, infos)
    runs = {file.metadata.get(metadata_keys.RECORDING_METADATA, {}).get("run") for file in log.files}
    return {
        "files": len(log.files),
        "size": sum(file.size_bytes for file in log.files),
        "complete": all(file.is_complete for file in log.files),
        "runs": sorted(run for run in runs if run),
        "messages": sum(info["messages"] for info in infos),
        "start": start,
        "end": end,
        "duration": None if start is None or end is None else end - start,
        "clock_offset": [
            offset for offset, _ in groupby(offset for file in log.files for offset in file.wall_clock_offsets_ns)
        ],
        "problems": len(log.problems),
        "source": FULL_SCAN if scanned else SUMMARY,
    }


def _find_time_range(log: LogReader, infos: list[dict[str, Any]]) -> tuple[int | None, int | None]:
    """Return the times of the first and the last message; None: no message. Totals with times need no read."""
    filled = [info for info in infos if info["messages"]]
    if any(info["first_time"] is None for info in filled):
        return log.start_time, log.end_time
    return (
        min((info["first_time"] for info in filled), default=None),
        max((info["last_time"] for info in filled), default=None),
    )


def _format_value(name: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if name in ("start", "end"):
        return datetime.fromtimestamp(value / 1e9, UTC).isoformat(timespec="milliseconds")
    if name == "duration":
        return f"{value / 1e9:,.3f} s"
    if name == "clock_offset":
        seconds = (f"{round(offset / 1e9, 3) or 0:.3f} s" for offset in value)
        return ", then ".join(text for text, _ in groupby(seconds)) + " ahead of the host's clock"
    if name == "size":
        return format_bytes(value)
    if name == "source":
        return f"{value}; to read all messages and find damage, give --scan" if value == SUMMARY else str(value)
    if name == "complete":
        return "yes" if value else "no; to repair the log for other readers, run `msgq bag recover`"
    return ", ".join(value) if isinstance(value, list) else format_count(value)


def _format_rate(info: dict[str, Any]) -> str:
    seconds = (info["last_time"] - info["first_time"]) / 1e9 if info["first_time"] is not None else 0
    return f"{(info['messages'] - 1) / seconds:,.1f}/s" if seconds else "-"


def _format_schema(info: dict[str, Any]) -> str:
    return f"{info['schema'].name} ({info['schema'].encoding})" if info["schema"] else "-"
