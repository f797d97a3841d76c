"""The checks of built pages find what a reader would see as broken."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from msgq.cli.app import app
from tools.site.built_pages import COMMAND_PAGE, BuiltPage, find_page_faults, find_site_faults
from tools.site.commands import describe_commands, iterate_contexts

PATHS = [context.command_path for context in iterate_contexts(app, "msgq")]


def find_faults(article: str, lists_commands: bool = False) -> list[str]:
    return [*find_page_faults(BuiltPage(f"<article>{article}</article>"), lists_commands)]


def test_page_without_faults_has_none() -> None:
    assert find_faults("<h2 id=a>A</h2><p>text<br><h2 id=b>B</h2>") == []


def test_page_with_sentinel_is_found() -> None:
    assert find_faults("<code>Sentinel.UNSET</code>") == ["shows a default as `Sentinel`"]


def test_row_without_description_is_found() -> None:
    head = "<tr><th>Name</th><th>Type</th><th>Description</th></tr>"
    rows = "<tr><td>a</td><td>int</td><td>text</td></tr><tr><td>b</td><td>name of a thing</td><td> </td></tr>"
    assert find_faults(f"<table>{head}{rows}</table>") == ["no description of b"]


def test_row_of_other_table_needs_no_description() -> None:
    assert find_faults("<table><tr><th>row</th><th>value</th></tr><tr><td>a</td><td></td></tr></table>") == []


def test_script_with_sentinel_is_ignored() -> None:
    assert find_faults("<script>Sentinel</script>") == []


def test_two_headings_with_one_id_are_found() -> None:
    assert find_faults("<h2 id=a>A</h2><h3 id=a>B</h3>") == ["2 headings have the id a"]


def test_page_of_verbs_with_all_verbs_has_no_faults() -> None:
    assert find_faults("".join(f"<h2 id='{path}'>{path}<a>¶</a></h2>" for path in PATHS), lists_commands=True) == []


def test_page_of_verbs_with_wrong_heading_is_found() -> None:
    headings = "".join(f"<h2>{path}</h2>" for path in ["msgq command", *PATHS[1:]])
    assert find_faults(headings, lists_commands=True) == [
        "the heading 'msgq command' is no verb",
        "the verb 'msgq' has no heading",
    ]


@pytest.mark.parametrize("name", [COMMAND_PAGE, "other/index.html"])
def test_faults_of_site_name_their_page(name: str, tmp_path: Path) -> None:
    page = tmp_path / name
    page.parent.mkdir(parents=True)
    page.write_text("<article><h1>Sentinel</h1></article>")
    faults = find_site_faults(tmp_path)
    assert faults[0] == f"{name}: shows a default as `Sentinel`"
    assert len(faults) == (1 + len(PATHS) if name == COMMAND_PAGE else 1)


def test_command_is_described_with_its_own_name_options_and_examples() -> None:
    @click.command(epilog="The *end*.")
    @click.argument("file")
    @click.option("--kind", type=click.Choice(["a", "b"]), help="A <kind> of [file].")
    def command(file: str, kind: str) -> None:
        """Copy a `file_name`.

        \b
        Example:
          msgq copy x
        """

    group = click.Group("msgq", {"copy": command})
    text = describe_commands(group, "msgq").partition("## msgq copy")[2]
    assert text.splitlines() == [
        " { #msgq-copy data-toc-label='copy' }",
        "",
        "```text",
        "msgq copy [OPTIONS] FILE",
        "```",
        "",
        "Copy a `file_name`.",
        "",
        "```text",
        "Example:",
        "  msgq copy x",
        "```",
        "",
        "| Option | Description |",
        "| --- | --- |",
        r"| `--kind [a|b]` | A &lt;kind> of \[file\]. |",
        "| `--help` | Show this message and exit. |",
        "",
        r"The \*end\*.",
    ]
