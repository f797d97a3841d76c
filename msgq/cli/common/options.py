"""Common options and texts of the subcommands."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from msgq.common.naming import validate_endpoint_name
from msgq.common.selection import compile_expression
from msgq.common.storage.url_path import make_path
from msgq.errors import InvalidValueError
from msgq.kinds import kind_of
from msgq.kinds.snapshots import endpoint_inodes

EXIT_CODES = "Exit codes: 0 success; 1 failure (message on stderr); 2 wrong usage."
STOP_KEYS = "Ctrl-C or SIGTERM stops the command."
EXIT_CODES_ENDLESS = (
    f"{STOP_KEYS} Exit codes: 0 success, also after Ctrl-C; 1 failure (message on stderr); 2 wrong usage."
)
EXIT_CODES_RUNNING = f"{EXIT_CODES_ENDLESS.removesuffix('.')}; 3 no message within --timeout."
TIMEOUT_EXIT_CODE = 3
_IMPORT_PATHS_KEY = f"{__name__}.import_paths"  # key in a context's `meta`

_CommandType = TypeVar("_CommandType", bound=Callable[..., Any])


class NumberRange(click.FloatRange):
    """A range of numbers without NaN, which passes the comparisons of click's range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Fail if it is outside of the range, or NaN."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def _validate_prefix(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Check a prefix. The prefix becomes the name of a directory, and must not lead out of /dev/shm."""
    return validate_endpoint_name(value, "prefix") if value else value


def _lower_names(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(str.lower, names))


allow_host_option = click.option(
    "--allow-host",
    "host_names",
    multiple=True,
    metavar="NAME",
    callback=_lower_names,
    help="Also accept requests for this host name, for example of a proxy. Repeatable.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per line, instead of text.")
prefix_option = click.option(
    "--prefix",
    metavar="NAME",
    callback=_validate_prefix,
    help="Prefix (namespace) of the endpoints.  [default: $OPENPILOT_PREFIX]",
)


def combine_options(*group: Callable[[_CommandType], _CommandType]) -> Callable[[_CommandType], _CommandType]:
    """Return a decorator that adds several options, in the order of the help page."""

    def add_options(command: _CommandType) -> _CommandType:
        for option in reversed(group):  # the last decorator is the first option of the help page
            command = option(command)
        return command

    return add_options


class RecordingParameter(click.Path):
    """A recording: a path, or the URL of a file or directory in a store."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return a `RecordingPath`."""
        try:
            return make_path(value)
        except InvalidValueError as error:
            self.fail(str(error), parameter, context)


RECORDING = RecordingParameter()


def required_output_option(metavar: str, text: str) -> Callable[[_CommandType], _CommandType]:
    """Return the option for the path of the output, which must be given."""
    kind = click.Path(path_type=Path)
    return click.option("-o", "--output", required=True, type=kind, metavar=metavar, help=text)


def compile_regexes(
    _context: click.Context, _parameter: click.Parameter, values: Sequence[str]
) -> tuple[re.Pattern[str], ...]:
    """Compile the user's regular expressions, to be searched for in names."""
    try:
        return tuple(map(compile_expression, values))
    except InvalidValueError as error:
        raise click.BadParameter(str(error)) from None


exclude_option = click.option(
    "-x",
    "--exclude",
    multiple=True,
    metavar="REGEX",
    callback=compile_regexes,
    help="Exclude endpoints whose names contain a match for REGEX. Repeatable.",
)


def _read_schemas(context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> Any:
    """Return the schemas in the files that the user named, as `Schemas` or None."""
    from msgq.decoding.schemas import Schemas  # few verbs decode

    try:
        return Schemas.of_texts(values, context.meta[_IMPORT_PATHS_KEY]) if values else None
    except InvalidValueError as error:
        raise click.BadParameter(str(error)) from None


def _store_import_paths(context: click.Context, _parameter: click.Parameter, values: Sequence[Path]) -> None:
    context.meta[_IMPORT_PATHS_KEY] = values


#: Adds the options that name schemas.
add_schema_options = combine_options(
    click.option(
        "--schema",
        "schemas",
        multiple=True,
        callback=_read_schemas,
        metavar="[ENDPOINT=]ENCODING:FILE:NAME",
        help="Schema for endpoints without a declared schema, e.g. capnproto:log.capnp:Event. Repeatable.",
    ),
    click.option(
        "-I",
        "--import-path",
        multiple=True,
        is_eager=True,  # parsed before --schema, at any position
        expose_value=False,
        callback=_store_import_paths,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Directory of files that a schema (--schema) imports. Repeatable.",
    ),
)


def complete_endpoint(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the existing endpoints of all kinds that begin with `incomplete`, for shell completion."""
    return _make_completion_items(endpoint_inodes(context.params.get("prefix")), incomplete)


def complete_bridged_endpoint(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the endpoints for a bridge that begin with `incomplete`, for shell completion."""
    every = endpoint_inodes(context.params.get("prefix"))
    return _make_completion_items((name for name in every if kind_of(name).has_part("bridge")), incomplete)


def complete_stage(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the stages, or with --tree the topics, that begin with `incomplete`, for shell completion."""
    from msgq.common import timing  # imported late, like msgq.stats: only completion needs both
    from msgq.stats import topic_inodes

    topics = topic_inodes(context.params.get("prefix"))
    if context.params.get("tree"):
        return _make_completion_items(
            (name for name in topics if not name.startswith(timing.TIMING_TOPIC_PREFIX)), incomplete
        )
    return _make_completion_items(
        sorted({parsed[0] for parsed in map(timing.parse_timing_topic, topics) if parsed}), incomplete
    )


def _make_completion_items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    # a shell cannot be given others, and would obey them
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


endpoint_argument = click.argument("endpoint", shell_complete=complete_endpoint)
endpoints_argument = click.argument(
    "endpoints", nargs=-1, metavar="[NAME|PATTERN]...", shell_complete=complete_endpoint
)
required_endpoints_argument = click.argument(
    "endpoints", nargs=-1, required=True, metavar="NAME|PATTERN...", shell_complete=complete_endpoint
)
auxiliary_option = click.option(
    "-a", "--all", "everything", is_flag=True, help="Include timing topics, and channels of queue events."
)
count_option = click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Stop after COUNT messages or lines.  [default: no limit]",
)
duration_option = click.option(
    "--duration",
    type=NumberRange(min=0),
    metavar="SECONDS",
    help="Stop after SECONDS.  [default: no limit]",
)
once_option = click.option("--once", is_flag=True, help="Same as -n 1.")
timeout_option = click.option(
    "--timeout",
    type=NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after SECONDS without a message.  [default: no limit]",
)


def measured_duration_option(
    default: float, text: str = "Duration of the measurement of rates, in seconds.", least: float = 0.01
) -> Callable[[_CommandType], _CommandType]:
    """Return the option for the duration of a measurement that prints one result."""
    kind = NumberRange(least, 86400.0)
    return click.option("--duration", type=kind, default=default, show_default=True, metavar="SECONDS", help=text)


def interval_option(
    default: float, text: str = "Time between two lines, in seconds."
) -> Callable[[_CommandType], _CommandType]:
    """Return the option for the time between two results."""
    kind = NumberRange(0.01, 86400.0)
    return click.option("--interval", type=kind, default=default, show_default=True, metavar="SECONDS", help=text)


_BYTE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


class _ByteCountType(click.ParamType[int]):
    """A number of bytes with an optional unit: 1000, 64kB, 1MiB, 2GB."""

    name = "bytes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmg]i?)?b?", str(value).lower())
        if match is None:
            self.fail(f"{value!r} is not a size; give bytes, or a number with kB, MB, GB, KiB, MiB or GiB", param, ctx)
        return int(float(match[1]) * _BYTE_UNITS[match[2] or ""])


BYTE_COUNT = _ByteCountType()
