"""`msgq bag info`: what is in a log."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.render import console, echo, echo_json, in_bytes, in_units
from msgq.recording import EndpointInfo, LogReader
from msgq.recording.format import conventions


@click.command(epilog=options.EXIT_CODES)
@arguments.logs
@arguments.selection
@options.as_json
def command(logs: tuple[Path, ...], as_json: bool, **chosen: Any) -> None:
    """Show what is in LOGS, which are one log together.

    With --json: an object about the log, then one about each endpoint.
    """
    log = arguments.open_log(logs, **chosen)
    infos = list(log.endpoints.values())
    about = _about(log, infos)
    if as_json:
        echo_json(about)
        for info in infos:
            echo_json(info)
    else:
        for name, value in about.items():
            echo(f"{name:<9} {_shown(name, value)}")
        console().print(_table(infos))
    arguments.tell_problems(log)


def _about(log: LogReader, infos: list[EndpointInfo]) -> dict[str, Any]:
    runs = {file.metadata.get(conventions.RECORDING, {}).get("run") for file in log.files}
    return {
        "files": len(log.files),
        "size": sum(file.size for file in log.files),
        "complete": all(file.complete for file in log.files),
        "runs": sorted(run for run in runs if run),
        "messages": sum(info.messages for info in infos),
        "start": min((info.first_time for info in infos), default=None),
        "end": max((info.last_time for info in infos), default=None),
        "problems": len(log.problems),
    }


def _shown(name: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if name in ("start", "end"):
        return datetime.fromtimestamp(value / 1e9, UTC).isoformat(timespec="milliseconds")
    if name == "size":
        return in_bytes(value)
    if name == "complete":
        return "yes" if value else "no; `msgq bag recover` makes it whole for other readers"
    return ", ".join(value) if isinstance(value, list) else in_units(value)


def _table(infos: list[EndpointInfo]) -> Table:
    table = Table("endpoint", "kind", "schema", "publishers")
    for column in ("messages", "bytes", "rate", "lost", "epochs"):
        table.add_column(column, justify="right")
    for info in infos:
        seconds = (info.last_time - info.first_time) / 1e9
        schema = f"{info.schema.name} ({info.schema.encoding})" if info.schema else "-"
        rate = f"{(info.messages - 1) / seconds:,.1f} Hz" if seconds else "-"
        table.add_row(
            info.endpoint,
            info.kind,
            schema,
            ", ".join(info.publishers) or "-",
            in_units(info.messages),
            in_bytes(info.bytes),
            rate,
            in_units(info.lost),
            in_units(info.epochs),
        )
    return table
