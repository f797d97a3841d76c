"""Help texts begin with a noun or a verb, each summary fits on its line, and numbers are numbers."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from msgq.cli.app import app
from msgq.cli.common.groups import LazyCommandGroup
from tests.cases import each_case

TERMINAL_COLUMNS = 80
HELP_COLUMNS = 78  # columns of a help text: click leaves two of 80 free
MARGIN_COLUMNS = 6  # columns before, between and after the name and the summary of a command


def list_commands(
    command: click.Command, path: str = "msgq", columns: int = HELP_COLUMNS
) -> Iterator[tuple[str, tuple[click.Command, int]]]:
    """Yield each command and group with its path and the columns that its group leaves for the summary."""
    yield path, (command, columns)
    if isinstance(command, click.Group):
        context = click.Context(command)
        names = command.list_commands(context)
        inner_columns = HELP_COLUMNS - MARGIN_COLUMNS - max(map(len, names))
        for name in names:
            inner = command.get_command(context, name)
            assert inner is not None
            yield from list_commands(inner, f"{path} {name}", inner_columns)


COMMANDS = dict(list_commands(app))


@each_case("path", COMMANDS)
def test_help_texts_begin_with_noun_or_verb(path: str) -> None:
    command, _ = COMMANDS[path]
    texts = [command.help or "", *(one.help or "" for one in command.params if isinstance(one, click.Option))]
    assert [text for text in texts if re.match(r"(Of|What|But|Who|Whether|That)\b|\.\.\.", text)] == []


def test_options_with_number_ranges_refuse_nan() -> None:
    ranges = [
        one for command, _ in COMMANDS.values() for one in command.params if isinstance(one.type, click.FloatRange)
    ]
    assert ranges
    for option in ranges:
        with pytest.raises(click.BadParameter, match="'nan' is not a number"):
            option.type.convert("nan", option, None)


@each_case("path", COMMANDS)
def test_verb_summaries_fit_on_one_line(path: str) -> None:
    command, columns = COMMANDS[path]
    assert not command.get_short_help_str(limit=columns).endswith("...")


@pytest.mark.parametrize("path", [path for path, (command, _) in COMMANDS.items() if isinstance(command, click.Group)])
def test_texts_of_group_are_summaries_of_its_verbs(path: str) -> None:
    """A group lists its verbs without their import, so its texts are copies."""
    group, _ = COMMANDS[path]
    assert isinstance(group, LazyCommandGroup)
    summaries = {name: COMMANDS[f"{path} {name}"][0].get_short_help_str(HELP_COLUMNS) for name in group.short_helps}
    assert group.short_helps == summaries


@each_case("path", COMMANDS)
def test_option_helps_end_with_full_stop_or_default(path: str) -> None:
    command, _ = COMMANDS[path]
    texts = [one.help or "" for one in command.params if isinstance(one, click.Option)]
    assert [text for text in texts if not text.endswith((".", "]"))] == []


@each_case("path", COMMANDS)
def test_option_value_names_are_nouns_instead_of_types(path: str) -> None:
    """Not by click's name of a type, as FLOAT RANGE."""
    command, _ = COMMANDS[path]
    context = click.Context(command)
    values = {one.name: one.make_metavar(context) for one in command.params if isinstance(one, click.Option)}
    assert {name: value for name, value in values.items() if re.search(r"RANGE|TEXT|INTEGER|FLOAT", value)} == {}


@each_case("path", COMMANDS)
def test_commands_have_names_of_their_verbs(path: str) -> None:
    assert COMMANDS[path][0].name in (path.split()[-1], "app")


@each_case("path", COMMANDS)
def test_help_lines_fit_on_narrow_terminal(path: str) -> None:
    context = click.Context(COMMANDS[path][0], info_name=path, terminal_width=TERMINAL_COLUMNS)
    assert [line for line in context.get_help().splitlines() if len(line) > TERMINAL_COLUMNS] == []


@pytest.mark.parametrize("path", ["play", "record", "bag filter", "lake report", "check"])
def test_help_has_example_that_command_accepts(path: str) -> None:
    command, _ = COMMANDS[f"msgq {path}"]
    examples = re.findall(r"(?m)^Example: .*\n  (msgq .*)$", inspect.cleandoc(command.help or ""))
    assert examples
    for example in examples:
        words = shlex.split(example)[1 + len(path.split()) :]
        context = command.make_context(path, words, resilient_parsing=True)
        assert context.args == []
