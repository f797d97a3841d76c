"""Options and texts that several verbs share."""

import re
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from msgq.naming import endpoint_name

EXIT_CODES = "Exit codes: 0 all went well; 1 something failed, said in one line; 2 wrong usage."


def _checked(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A prefix becomes the name of a directory: it must not lead out of /dev/shm."""
    return endpoint_name(value, "prefix") if value else value


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of a table.")
prefix = click.option(
    "--prefix", metavar="NAME", callback=_checked, help="The prefix to look under.  [default: $OPENPILOT_PREFIX]"
)


def regexes(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile what the user gave as regular expressions."""
    try:
        return tuple(re.compile(value) for value in values)
    except re.error as error:
        raise click.BadParameter(f"{error.pattern!r} is no regular expression: {error}") from None


def complete_endpoint(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the endpoints that are there and begin so, for the shell."""
    from msgq.stats import topics

    found = topics(context.params.get("prefix"))
    return [CompletionItem(topic.endpoint) for topic in found if topic.endpoint.startswith(incomplete)]


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


class _Bytes(click.ParamType[int]):
    """A number of bytes, perhaps with a unit: 1000, 64kB, 1MiB, 2GB."""

    name = "bytes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmg]i?)?b?", str(value).lower())
        if match is None:
            self.fail(f"{value!r} is no size; give bytes, or a number with kB, MB, GB, KiB, MiB, GiB", param, ctx)
        return int(float(match[1]) * _UNITS[match[2] or ""])


BYTES = _Bytes()
