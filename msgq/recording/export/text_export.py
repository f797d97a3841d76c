"""Decoded messages as text, one per line: JSON or CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from msgq.decoding.json_values import convert_to_json, format_json_text
from msgq.decoding.payload_decoder import Undecoded, convert_decoded_to_json
from msgq.recording.reader.message import Message

#: Columns of a message next to its payload.
EXPORT_FIELDS = ("endpoint", "epoch", "sequence", "log_time", "publish_time", "origin_time", "kind", "publisher", "key")


def make_json_row(message: Message, value: Any) -> dict[str, Any]:
    """Return the fields of a message as a dict.

    The key `value` has the decoded value. If decoding failed, `data` has the payload in base64, and `reason` the
    reason. An unknown origin is None.

    `value`: decoded value, from `LogReader.decoded`.
    """
    fields = {name: getattr(message, name) for name in EXPORT_FIELDS}
    fields["origin_time"] = message.origin_time or None
    json_payload = convert_decoded_to_json(value, message.data)
    if not isinstance(json_payload, Undecoded):
        return fields | {"value": json_payload}
    return (
        fields
        | {"data": convert_to_json(json_payload.data)}
        | ({"reason": json_payload.reason} if json_payload.reason else {})
    )


def write_jsonl(decoded: Iterable[tuple[Message, Any]], file: TextIO) -> int:
    """Write one JSON object per line (see `make_json_row`), and return the number of messages."""
    count = 0
    for message, value in decoded:
        file.write(f"{format_json_text(make_json_row(message, value))}\n")
        count += 1
    return count


def write_csv(decoded: Iterable[tuple[Message, Any]], file: TextIO) -> int:
    """Write a header and one row per message, and return the number of messages.

    The columns are FIELDS, `value` as JSON, or `data` in base64 and `reason`.
    """
    count = 0
    writer = csv.writer(file)
    writer.writerow((*EXPORT_FIELDS, "value", "data", "reason"))
    for message, value in decoded:
        row = make_json_row(message, value)
        text = format_json_text(row["value"]) if "value" in row else ""
        writer.writerow((*(row[name] for name in EXPORT_FIELDS), text, row.get("data"), row.get("reason")))
        count += 1
    return count


#: Functions by the name of their format.
EXPORT_WRITERS: dict[str, Callable[[Iterable[tuple[Message, Any]], TextIO], int]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
}
