"""Output of messages of `msgq echo`: text, JSON, CSV or raw bytes."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from msgq.cli.common.message_fields import MessageFields, list_field_paths
from msgq.cli.common.payload import decode_payload, decode_text, format_decoded_value, format_hex_bytes, truncate_value
from msgq.cli.common.render import echo, echo_bytes, echo_json, is_terminal_output
from msgq.decoding.json_values import format_json_text
from msgq.decoding.payload_decoder import Undecoded
from msgq.decoding.schemas import Schemas
from msgq.impl.base import clock
from msgq.kinds.source import SourceItem

_TERMINAL_TRUNCATION = 128  # characters of a text, elements of a list
ItemPrinter = Callable[[str, SourceItem], None]

truncate_option = click.option(
    "--truncate",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Print only the first COUNT characters of a text, and the first COUNT elements of a list.  "
    f"[default: {_TERMINAL_TRUNCATION} on a terminal, else no limit]",
)


def choose_truncation(truncate: int | None) -> int | None:
    """Return the largest number of characters and elements to print; None: no limit.

    `truncate`: value of `truncate_option`.
    """
    return truncate or (_TERMINAL_TRUNCATION if is_terminal_output() else None)


def print_raw_payload(_name: str, item: SourceItem) -> None:
    """Print the bytes of a payload."""
    if item.data is not None:
        echo_bytes(item.data)


def make_text_printer(fields: MessageFields, as_hex: bool, has_names: bool, most: int | None) -> ItemPrinter:
    """Return a function that prints an item as one line.

    Args:
        as_hex: True: payloads in hexadecimal.
        has_names: True: each line begins with the name of the endpoint.
        most: largest number of characters of each text, and of elements of each list; None: no limit.
    """

    def print_item(name: str, item: SourceItem) -> None:
        parts = [name] if has_names else []
        if fields.paths:
            parts.append(_format_fields(_read_item_fields(fields, name, item), most))
            echo(": ".join(parts))
            return
        parts += [item.text] if item.text else []
        if item.data is not None:
            value = None if as_hex else decode_payload(item.schema, item.data)
            parts.append(format_hex_bytes(item.data, most) if as_hex else format_decoded_value(value, most))
        echo(": ".join(parts))

    return print_item


def make_json_printer(fields: MessageFields, as_hex: bool) -> ItemPrinter:
    """Return a function that prints an item as an object."""
    return lambda name, item: echo_json(_make_json_fields(fields, as_hex, name, item))


def make_csv_printer(fields: MessageFields) -> ItemPrinter:
    """Return a function that prints an item as a row. The first item also prints the header."""
    columns: list[str] = []
    reported: set[str] = set()

    def print_item(name: str, item: SourceItem) -> None:
        line = _make_json_fields(fields, False, name, item)
        row = (
            {"endpoint": name, "time_ns": line["time_ns"]} | line["fields"]
            if fields.paths
            else dict(list_field_paths(line))
        )
        if not columns:
            columns.extend(row)
            echo(_format_csv_row(columns))
        for column in row.keys() - columns - reported:
            reported.add(column)
            echo(f"msgq: {name}: {column!r} left out, because the first message had no such column", err=True)
        echo(_format_csv_row([_format_csv_cell(row.get(column)) for column in columns]))

    return print_item


def apply_user_schemas(show: ItemPrinter, schemas: Schemas) -> ItemPrinter:
    """Return a printer that uses the user's schemas."""
    return lambda name, item: show(name, replace(item, schema=schemas.of(name, item.schema)))


def _read_item_fields(fields: MessageFields, name: str, item: SourceItem) -> dict[str, Any]:
    if item.data is None:
        return dict.fromkeys(fields.paths)
    return fields.read_fields(name, decode_payload(item.schema, item.data))


def _format_fields(values: dict[str, Any], most: int | None) -> str:
    """Return one field alone, or several fields as an object. A single text has no quotes."""
    value: Any = truncate_value(values if len(values) > 1 else next(iter(values.values())), most)
    return value if isinstance(value, str) else "-" if value is None else format_json_text(value, ensure_ascii=False)


def _make_json_fields(fields: MessageFields, as_hex: bool, name: str, item: SourceItem) -> dict[str, Any]:
    line = {"endpoint": name, "time_ns": clock.time_ns(), **item.json_fields}
    if fields.paths:
        return line | {"fields": _read_item_fields(fields, name, item)}
    if item.data is None:
        return line
    value = Undecoded(item.data, "") if as_hex else decode_payload(item.schema, item.data)
    line["size"] = len(item.data)
    if not isinstance(value, Undecoded):
        assert item.schema is not None
        return line | {"schema": item.schema.name, "value": value}
    text = None if as_hex or value.reason else decode_text(item.data)
    line |= {"hex": item.data.hex()} | ({} if text is None else {"text": text})
    return line | ({"reason": value.reason} if value.reason else {})


def _format_csv_cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else format_json_text(value)


def _format_csv_row(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
