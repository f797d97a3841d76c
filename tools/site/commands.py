"""The page of all verbs, as Markdown: a heading for each verb, its usage, its help text and its options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

_CODE = re.compile(r"(`+[^`]*`+)")
_SIGNS = re.compile(r"([\\*_\[\]#|])")


def iterate_contexts(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield the context of a command, and those of its subcommands in the order of their names."""
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for subcommand_name in sorted(command.list_commands(context)):
            subcommand = command.get_command(context, subcommand_name)
            assert subcommand is not None
            yield from iterate_contexts(subcommand, subcommand_name, context)


def describe_commands(app: click.Command, name: str) -> str:
    """Return the Markdown of a command and all its subcommands."""
    return "\n".join(line for context in iterate_contexts(app, name) for line in _describe_command(context))


def _describe_command(context: click.Context) -> Iterator[str]:
    path = context.command_path
    level = "#" * (2 + max(0, path.count(" ") - 1))
    yield f"{level} {path} {{ #{path.replace(' ', '-')} data-toc-label='{path.split(' ', 1)[-1]}' }}"
    yield from ("", "```text", context.get_usage().removeprefix("Usage: "), "```", "")
    yield from _format_paragraphs(context.command.help or "")
    yield from ("| Option | Description |", "| --- | --- |")
    for option in context.command.get_params(context):
        if isinstance(option, click.Option) and (row := option.get_help_record(context)):
            yield f"| `{row[0]}` | {_escape(row[1])} |"
    yield ""
    yield from _format_paragraphs(context.command.epilog or "")


def _format_paragraphs(text: str) -> Iterator[str]:
    """Yield the Markdown of a help text. A paragraph that click does not wrap is a block of code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from ("```text", paragraph[2:], "```")
        else:
            yield _escape(" ".join(paragraph.split()))
        yield ""


def _escape(text: str) -> str:
    """Return a text without signs of Markdown, except code."""
    return "".join(
        part if part.startswith("`") else _SIGNS.sub(r"\\\1", part.replace("&", "&amp;").replace("<", "&lt;"))
        for part in _CODE.split(text)
    )
