"""The command prints through render.py and console.py of msgq/cli/common, which escape what a terminal would obey."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.meta.sources import ROOT

CLI = ROOT / "msgq" / "cli"
OUTPUT_MODULES = {CLI / "common" / "render.py", CLI / "common" / "console.py"}
VERBS = sorted({*CLI.rglob("*.py")} - OUTPUT_MODULES)
#: Other ways for a text to get out: functions by their names, and classes of rich that take text without escapes.
OTHER_WAYS = {
    "print",
    "click.echo",
    "click.secho",
    "click.echo_via_pager",
    "click.prompt",
    "click.confirm",
    "os.write",
    "Text",
    "Text.from_markup",
    "Console",
    "Markdown",
    "Syntax",
    "Control",
    "rich.print",
}
STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")


def other_ways(source: str) -> Iterator[str]:
    """Give the calls that print, or could, without render.py and console.py of msgq.cli.common."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in OTHER_WAYS or (called.startswith(STREAMS) and called.endswith(("write", "writelines"))):
                yield f"line {node.lineno}: {called}"
            if any(keyword.arg == "markup" for keyword in node.keywords):
                yield f"line {node.lineno}: markup"
        elif isinstance(node, ast.ImportFrom) and node.module == "rich.markup":
            yield f"line {node.lineno}: rich.markup, which our console does not know"


@each_case("path", VERBS)
def test_cli_verbs_print_only_through_render_module(path: Path) -> None:
    assert not list(other_ways(path.read_text())), (
        "use echo, echo_json or echo_bytes of msgq.cli.common.render, or msgq.cli.common.console"
    )


@pytest.mark.parametrize(
    "source",
    [
        "print('a')",
        "click.echo(a)",
        "sys.stdout.write(a)",
        "sys.stdout.buffer.write(a)",
        "x.add_row(Text(name))",
        "Console().print(a)",
        "console().print(a, markup=True)",
        "from rich.markup import escape",
    ],
)
def test_print_calls_outside_render_module_are_detected(source: str) -> None:
    assert list(other_ways(source))
