"""Each verb of `msgq` has a help text, rows in the documents, and tests that use each of its options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

import click
import pytest

from msgq.cli.app import app
from tests.meta.command_lines import command_lines
from tests.support import ROOT

Path = tuple[str, ...]
RUNS_THE_COMMAND = re.compile(r'msgq\.cli|tests\.command|import command|"-m",\s*"msgq"')


def list_verbs(command: click.Command, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """Yield each verb with the words that call it. A group is not a verb."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if (inner := command.get_command(context, name)) is not None:
            yield from list_verbs(inner, (*path, name))


def find_unused_options(command: click.Command, lines: Iterable[Path]) -> list[str]:
    """Return the options and arguments of each verb that no command line gives."""
    given = set(chain.from_iterable(_given_parameters(command, line) for line in lines))
    return [
        f"{' '.join(path)} {_name(parameter)}"
        for path, verb in list_verbs(command)
        for parameter in verb.params
        if (path, _name(parameter)) not in given
    ]


def _name(parameter: click.Parameter) -> str:
    """Return the name of an argument, or the long name of an option: for a switch, the one that changes the default."""
    if isinstance(parameter, click.Argument):
        return parameter.human_readable_name
    return max(parameter.secondary_opts if parameter.default is True else parameter.opts, key=len)


def _given_parameters(command: click.Command, line: Path) -> Iterator[tuple[Path, str]]:
    """Yield the verb and the parameters that a command line gives, as click parses it; nothing if click refuses it."""
    words = list(line)
    while isinstance(command, click.Group) and words:
        inner = command.get_command(click.Context(command), words.pop(0))
        if inner is None:
            return
        command = inner
    path = line[: len(line) - len(words)]
    try:
        with click.Context(command) as context:
            values, _, order = command.make_parser(context).parse_args(words)
    except click.UsageError:
        return
    for parameter in order:
        if _is_given(parameter, values[parameter.name or ""]):
            yield path, _name(parameter)


def _is_given(parameter: click.Parameter, value: object) -> bool:
    if isinstance(parameter, click.Argument):
        return isinstance(value, str | tuple) and bool(value)
    return not parameter.secondary_opts or value is not (parameter.default is True)


def find_undocumented_verbs(command: click.Command, document: str, groups: bool) -> list[str]:
    """Return the verbs without a row in a table of a document. Without `groups`, one row is enough for a group."""
    paths = {path for path, _ in list_verbs(command)}
    names = {path[:1] for path in paths}
    found: set[Path] = set()
    for row in re.findall(r"^\| (`.*?) \|", document, re.MULTILINE):
        group: Path = ()
        for span in re.findall(r"`([^`]*)`", row):
            words = tuple(span.removeprefix("msgq ").split()[:2])
            if (*group, *words[:1]) in paths:
                words = (*group, *words[:1])
            elif words[:1] in names:
                group = words[:1]
            found |= {words[:1], words}
    wanted = [path if groups else path[:1] for path in paths]
    return sorted({" ".join(path) for path in wanted if path not in found})


@pytest.fixture(scope="module")
def lines() -> set[Path]:
    """The command lines in tests and examples. Those in tests/meta are data, and do not count."""
    paths = [path for folder in ("tests", "examples") for path in (ROOT / folder).rglob("*.py")]
    sources = [path.read_text() for path in paths if path.parent.name != "meta"]
    return set().union(*(command_lines(source) for source in sources if RUNS_THE_COMMAND.search(source)))


def test_each_cli_option_is_used_by_a_test(lines: set[Path]) -> None:
    assert find_unused_options(app, lines) == []


def test_each_cli_verb_and_option_has_help_text() -> None:
    options = ((path, one) for path, verb in list_verbs(app) for one in verb.params if isinstance(one, click.Option))
    without = [f"{' '.join(path)} {one.name}" for path, one in options if not one.help]
    assert [" ".join(path) for path, verb in list_verbs(app) if not verb.help] + without == []


def test_each_cli_verb_has_row_in_cli_guide() -> None:
    assert find_undocumented_verbs(app, (ROOT / "docs/guides/cli.md").read_text(), groups=True) == []


@click.group()
def toy() -> None:
    """Stand in for the command."""


@toy.command("run")
@click.argument("name")
@click.option("-f", "--fast", is_flag=True)
@click.option("--log/--no-log")
@click.option("--check/--no-check", default=True)
@click.option("--size", type=int)
def _run(**_: object) -> None:
    """Do nothing."""


@toy.group("box")
def _box() -> None:
    """Stand in for a group."""


@_box.command("open")
def _open() -> None:
    """Do nothing."""


ALL = ["run NAME", "run --fast", "run --log", "run --no-check", "run --size"]


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ('run("run", "x", "--fast")', {"run NAME", "run --fast"}),
        ('command.run("run", "-f", "--size", 3)', {"run --fast", "run --size"}),
        ('with command.start("run", "--log") as process:\n    pass', {"run --log"}),
        ('CliRunner().invoke(app, ["run", "x", "--size=3"])', {"run NAME", "run --size"}),
        ('Popen([sys.executable, "-m", "msgq", "run", str(path), "--log"])', {"run NAME", "run --log"}),
        ('MSGQ = [sys.executable, "-m", "msgq"]\nPopen([*MSGQ, "run", "--no-log"])', set()),  # the default
        ('run("run", "--no-check")', {"run --no-check"}),
        ('go = partial(run, "run")\ngo("--fast")', {"run --fast"}),
        ('def go(*words):\n    run("run", *words)\ndef test():\n    go("--log")', {"run --log"}),
        ('for words in (["--log"], ["x"]):\n    run("run", *words)', {"run --log", "run NAME"}),
        (
            '@mark.parametrize(("verb", "more"), [("run", ["-f"])])\ndef test(verb, more):\n    run(verb, *more)',
            {ALL[1]},
        ),
        ('@mark.parametrize("verb", ["run"])\ndef test(verb):\n    run(verb, "--fast")', {"run --fast"}),
        ('run("run", "--fast" if slow else "--log")', {"run NAME"}),  # the value is unknown
        ('run("run", "--size")', set()),  # click refuses it
        ('run("box", "open", "--fast")', set()),
        ('print("run", "--fast")', set()),
        ('"run --fast"', set()),
    ],
)
def test_options_missing_in_all_command_lines_are_reported(source: str, used: set[str]) -> None:
    lines = command_lines(f"from tests.command import run\nfrom tests import command\n{source}\n")
    assert find_unused_options(toy, lines) == [one for one in ALL if one not in used]


@pytest.mark.parametrize(
    ("document", "groups", "missing"),
    [
        ("| `msgq run` | runs |\n| `msgq box` | `open` |", False, []),
        ("| `run NAME`, `box open` | both |", True, []),
        ("| `box open`, `run` | both |", True, []),
        ("| `msgq box` | `run` |", False, ["run"]),
        ("| `run` | runs |\n| `box` | nothing |", True, ["box open"]),
        ("`run` and `box open`", True, ["box open", "run"]),
    ],
)
def test_cli_verbs_without_table_row_are_undocumented(document: str, groups: bool, missing: list[str]) -> None:
    assert find_undocumented_verbs(toy, document, groups) == missing
