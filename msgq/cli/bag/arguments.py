"""What the commands of `msgq bag` have in common: which messages, and when."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.endpoint_selection import choices
from msgq.cli.common.render import echo, echo_json, progress
from msgq.common.formatting import in_units
from msgq.common.selection import Selection
from msgq.common.units import NS_PER_S
from msgq.errors import MsgqError
from msgq.recording import LogReader, Schemas
from msgq.recording.reader.log_view import CLOCKS, HOST

logs = click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
output = click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to write; it must not exist."
)
compression = click.option(
    "--compression",
    type=click.Choice(["zstd", "lz4", "none"]),
    help="Of all chunks.  [default: as they are where they are copied whole, else zstd]",
)
max_chunk_bytes = click.option(
    "--max-chunk-bytes",
    type=options.BYTES,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Of a chunk of a log, before compression: larger ones are skipped.",
)
clock = click.option(
    "--clock",
    type=click.Choice(CLOCKS),
    default=HOST,
    show_default=True,
    help="Times are the host's clock's, which never steps, or those that the wall clock showed; see clock.md.",
)
_TIME = "seconds from the log's beginning, or a time as 2026-05-01T12:00:00+02:00 (UTC without a zone)"


def _time(_context: click.Context, parameter: click.Parameter, value: str | None) -> float | datetime | None:
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r}; give {_TIME}", param=parameter) from None


def selection(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose messages."""
    for option in (
        click.option(
            "--endpoint",
            "names",
            multiple=True,
            metavar="NAME|PATTERN",
            help="Only this endpoint, or those whose whole names match; repeatable.",
        ),
        click.option(
            "-e",
            "--regex",
            "expressions",
            multiple=True,
            metavar="REGEX",
            callback=options.regexes,
            help="Only endpoints in whose names this is found; repeatable.",
        ),
        click.option(
            "-x",
            "--exclude",
            multiple=True,
            metavar="REGEX",
            callback=options.regexes,
            help="Not endpoints in whose names this is found; repeatable.",
        ),
        click.option("--start", metavar="TIME", callback=_time, help=f"From here on: {_TIME}."),
        click.option("--end", metavar="TIME", callback=_time, help="Until before this."),
        max_chunk_bytes,
    ):
        function = option(function)
    return function


def open_log(
    paths: Sequence[Path],
    names: Sequence[str] = (),
    expressions: Sequence[re.Pattern[str]] = (),
    exclude: Sequence[re.Pattern[str]] = (),
    start: float | datetime | None = None,
    end: float | datetime | None = None,
    *,
    max_chunk_bytes: int,
    clock: str = HOST,
    schemas: Schemas | None = None,
) -> LogReader:
    """Return the log, with what was chosen."""
    begin = 0
    if isinstance(start, float) or isinstance(end, float):
        begin = LogReader(*paths, max_chunk_bytes=max_chunk_bytes, clock=clock).start_time or 0
    wanted = (*choices(names), *expressions)
    return LogReader(
        *paths,
        endpoints=wanted or None,
        exclude=exclude,
        start=_ns(start, begin),
        end=_ns(end, begin),
        max_chunk_bytes=max_chunk_bytes,
        clock=clock,
        schemas=schemas,
    )


def _ns(time: float | datetime | None, begin: int) -> int | None:
    if time is None:
        return None
    if isinstance(time, float):
        return begin + round(time * NS_PER_S)
    whole = time.replace(microsecond=0)
    if whole.tzinfo is None:
        whole = datetime.fromisoformat(f"{whole.isoformat()}+00:00")
    return int(whole.timestamp()) * NS_PER_S + time.microsecond * 1000


@contextmanager
def requiring_found(
    *opened: LogReader, names: Sequence[str] = (), expressions: Sequence[re.Pattern[str]] = (), **_: object
) -> Iterator[None]:
    """Do `require_found` after a block that reads logs.

    Also if the block ends with an exit code of its own, or with an error because nothing was selected.
    """
    try:
        yield
    except (click.exceptions.Exit, MsgqError) as error:
        if isinstance(error, click.exceptions.Exit) or not any(log.channels for log in opened):
            require_found(*opened, names=names, expressions=expressions)
        raise
    require_found(*opened, names=names, expressions=expressions)


@contextmanager
def showing_progress(*opened: LogReader) -> Iterator[None]:
    """Show on a terminal how much of logs was read."""
    with progress(sum(block.length for log in opened for _, block in log.view.blocks())) as advance:
        for file in (file for log in opened for file in log.files):
            file.on_read = advance
        yield


def tell_problems(log: LogReader) -> None:
    """Print on the standard error what was skipped."""
    for problem in log.problems:
        echo(f"skipped: {problem}", err=True)


def require_found(
    *opened: LogReader, names: Sequence[str] = (), expressions: Sequence[re.Pattern[str]] = (), **_: object
) -> None:
    """Refuse names, patterns and regular expressions that selected no endpoint of logs that were read.

    Raises
    ------
    click.ClickException : some selected nothing.
    """
    existing = {channel.endpoint for log in opened for channel in log.channels}
    wanted = [
        *zip(names, choices(names), strict=True),
        *((expression.pattern, expression) for expression in expressions),
    ]
    missing = [text for text, choice in wanted if not any(name in Selection(choice) for name in existing)]
    if missing:
        text = f"no endpoint of the recording matches {', '.join(missing)}; `msgq bag info` shows what there is"
        raise click.ClickException(text)


def tell_written(output: Path, count: int, as_json: bool) -> None:
    """Say what was written."""
    said = {"path": str(output), "messages": count}
    echo_json(said) if as_json else echo(f"{output}: {in_units(count)} messages")
