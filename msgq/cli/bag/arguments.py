"""Common arguments of the `msgq bag` commands: selections of messages and times."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.selections import print_matches
from msgq.common.selection import SelectedEndpoints, parse_patterns
from msgq.common.storage.url_path import RecordingPath
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.errors import MsgqError
from msgq.monitor.endpoint_selection import find_similar_names
from msgq.recording import LogReader
from msgq.recording.reader.log_view import CLOCK_CHOICES, HOST_CLOCK

if TYPE_CHECKING:
    from msgq.cli.common.progress import ProgressLine
    from msgq.decoding.schemas import Schemas

logs_argument = click.argument("logs", nargs=-1, required=True, type=options.RECORDING)
output_option = options.required_output_option("FILE", "File to write. The file must not exist.")
compression_option = click.option(
    "--compression",
    type=click.Choice(["zstd", "lz4", "none"]),
    help="Compression of all chunks.  [default: unchanged for chunks that are copied whole, else zstd]",
)
chunk_limit_option = click.option(
    "--max-chunk-bytes",
    type=options.BYTE_COUNT,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Skip chunks with an uncompressed size above SIZE. `bag recover` and `bag reindex` refuse such files.",
)
clock_option = click.option(
    "--clock",
    type=click.Choice(CLOCK_CHOICES),
    default=HOST_CLOCK,
    show_default=True,
    help="Clock for all times of the command. The host clock is the clock of the recording host, and never steps.",
)
_SECONDS_MAX = 1e10  # more seconds than 64 bits of nanoseconds hold
_TIME_FORMATS = "seconds after the start of the log, or a time such as 2026-05-01T12:00:00+02:00 (default zone: UTC)"


def _parse_time(_context: click.Context, parameter: click.Parameter, value: str | None) -> float | datetime | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        pass
    else:
        if abs(seconds) <= _SECONDS_MAX:  # False for NaN, too
            return seconds
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a time; give {_TIME_FORMATS}", param=parameter) from None


#: Adds the options that choose messages.
add_selection_options = options.combine_options(
    click.option(
        "--endpoint",
        "names",
        multiple=True,
        metavar="NAME|PATTERN",
        help="Select this endpoint, or endpoints whose whole names match PATTERN. Repeatable.",
    ),
    click.option(
        "-e",
        "--regex",
        "expressions",
        multiple=True,
        metavar="REGEX",
        callback=options.compile_regexes,
        help="Select endpoints whose names contain a match for REGEX. Repeatable.",
    ),
    options.exclude_option,
    click.option(
        "--start", metavar="TIME", callback=_parse_time, help=f"Select messages at or after TIME. Give {_TIME_FORMATS}."
    ),
    click.option(
        "--end", metavar="TIME", callback=_parse_time, help="Select messages before TIME, in the format of --start."
    ),
)


def open_log(
    paths: Sequence[RecordingPath],
    names: Sequence[str] = (),
    expressions: Sequence[re.Pattern[str]] = (),
    exclude: Sequence[re.Pattern[str]] = (),
    start: float | datetime | None = None,
    end: float | datetime | None = None,
    *,
    max_chunk_bytes: int,
    clock: str = HOST_CLOCK,
    schemas: Schemas | None = None,
) -> LogReader:
    """Return the log with the selected endpoints and time range."""
    begin = 0
    if isinstance(start, float) or isinstance(end, float):
        begin = LogReader(*paths, max_chunk_bytes=max_chunk_bytes, clock=clock).start_time or 0
    start_ns, end_ns = convert_range_to_log_ns(start, end, begin)
    selectors = (*parse_patterns(names), *expressions)
    log = LogReader(
        *paths,
        endpoints=SelectedEndpoints(selectors or None, exclude),
        start=start_ns,
        end=end_ns,
        max_chunk_bytes=max_chunk_bytes,
        clock=clock,
        schemas=schemas,
    )
    if patterns := [pattern for pattern in selectors if not isinstance(pattern, str)]:
        selection = SelectedEndpoints(patterns)
        print_matches(sorted({channel.endpoint for channel in log.channels if channel.endpoint in selection}))
    return log


def convert_range_to_log_ns(
    start: float | datetime | None, end: float | datetime | None, begin: int
) -> tuple[int | None, int | None]:
    """Return --start and --end in ns since the epoch; None: no bound. `begin`: start of the log.

    Raises:
        click.UsageError: the range is empty.
    """
    start_ns, end_ns = _convert_to_log_ns(start, begin), _convert_to_log_ns(end, begin)
    if start_ns is not None and end_ns is not None and start_ns >= end_ns:
        cure = "give a later --end" if start_ns == end_ns else "swap the two times"
        raise click.UsageError(f"--end is not after --start, so the range is empty; {cure}")
    return start_ns, end_ns


def _convert_to_log_ns(time: float | datetime | None, begin: int) -> int | None:
    if time is None:
        return None
    if isinstance(time, float):
        return begin + round(time * NS_PER_S)
    whole = time.replace(microsecond=0)
    if whole.tzinfo is None:
        whole = datetime.fromisoformat(f"{whole.isoformat()}+00:00")
    return int(whole.timestamp()) * NS_PER_S + time.microsecond * 1000


@contextmanager
def require_endpoints_after(
    *opened: LogReader, names: Sequence[str] = (), expressions: Sequence[re.Pattern[str]] = (), **_: object
) -> Iterator[None]:
    """Call `require_endpoints_found` after a block that reads logs.

    The call also happens if the block ends with an exit code, or with an error because no endpoint was selected.
    """
    try:
        yield
    except (click.exceptions.Exit, MsgqError) as error:
        if isinstance(error, click.exceptions.Exit) or not any(log.channels for log in opened):
            require_endpoints_found(*opened, names=names, expressions=expressions)
        raise
    require_endpoints_found(*opened, names=names, expressions=expressions)


@contextmanager
def show_read_progress(*opened: LogReader) -> Iterator[ProgressLine]:
    """Show the progress of reading on a terminal."""
    from msgq.cli.common.progress import BYTES, ProgressLine  # imported late: rich's progress takes several ms

    size = sum(block.stored_bytes for log in opened for _, block in log.log_view.iter_wanted_blocks())
    with ProgressLine("read", BYTES, size) as line:
        for file in (file for log in opened for file in log.files):
            file.on_bytes_read = line.advance
        yield line


def print_log_problems(log: LogReader) -> None:
    """Print skipped data on the standard error."""
    for problem in log.problems:
        echo(f"skipped: {problem}", err=True)


def require_endpoints_found(
    *opened: LogReader, names: Sequence[str] = (), expressions: Sequence[re.Pattern[str]] = (), **_: object
) -> None:
    """Raise an error for names, patterns and regular expressions that selected no endpoint of the read logs.

    Raises:
        click.ClickException: a name, pattern or expression selected no endpoint.
    """
    existing = {channel.endpoint for log in opened for channel in log.channels}
    if missing := find_unmatched_texts(existing, names, expressions):
        files = (file for log in opened for file in log.files)
        every = {channel.endpoint for file in files for channel in file.registry.channels.values()}
        similar = find_similar_names(missing, every)
        hint = f"did you mean {', '.join(similar)}?" if similar else "to list all, run `msgq bag info`"
        raise click.ClickException(f"no endpoint of the recording matches {', '.join(missing)}; {hint}")


def find_unmatched_texts(
    existing: Collection[str], names: Sequence[str], expressions: Sequence[re.Pattern[str]]
) -> list[str]:
    """Return the names, patterns and regular expressions that select no existing endpoint."""
    choices = [
        *zip(names, parse_patterns(names), strict=True),
        *((expression.pattern, expression) for expression in expressions),
    ]
    return [text for text, choice in choices if not any(name in SelectedEndpoints(choice) for name in existing)]


def print_written_log(output: Path, count: int, as_json: bool) -> None:
    """Print the path and the number of messages of a written log."""
    fields = {"path": str(output), "messages": count}
    echo_json(fields) if as_json else echo(f"{output}: {format_count_noun(count, 'message')}")
