"""A log in one line, and as a table for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from msgq.common.formatting import format_count, format_rate
from msgq.common.storage.url_path import RecordingPath
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.recording.reader.message import EndpointInfo

_HTML_COLUMNS = ("endpoint", "kind", "messages", "messages/s", "lost", "schema")


def describe_log(paths: Sequence[RecordingPath], infos: Mapping[str, EndpointInfo] | None) -> str:
    """Return a line for a log. `infos` None: the totals are not known yet."""
    more = f" and {format_count_noun(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
    return f"<LogReader {str(paths[0])!r}{more}: {_describe_totals(infos)}>"


def _describe_totals(infos: Mapping[str, EndpointInfo] | None) -> str:
    if infos is None:
        return "not scanned yet"
    messages = sum(info.messages for info in infos.values())
    return (
        f"{format_count_noun(len(infos), 'endpoint')}, {format_count_noun(messages, 'message')}, {_span_s(infos):.3f} s"
    )


def _span_s(infos: Mapping[str, EndpointInfo]) -> float:
    """Return the seconds from the first message to the last."""
    times = [time for info in infos.values() for time in (info.first_time, info.last_time) if time is not None]
    return (max(times) - min(times)) / NS_PER_S if times else 0.0


def format_log_html(paths: Sequence[RecordingPath], infos: Mapping[str, EndpointInfo] | None) -> str:
    """Return a table of the endpoints, after the line of `describe_log`."""
    line = f"<p>{html.escape(describe_log(paths, infos)[1:-1])}</p>"
    if not infos:
        return line
    head = "".join(f"<th>{name}</th>" for name in _HTML_COLUMNS)
    rows = "".join(f"<tr>{_format_html_cells(info)}</tr>" for info in infos.values())
    return f"{line}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _format_html_cells(info: EndpointInfo) -> str:
    span_s = _span_s({info.endpoint: info})
    rate = (info.messages - 1) / span_s if span_s else None
    schema = f"{info.schema.name} ({info.schema.encoding})" if info.schema else ""
    counts = format_count(info.messages), format_rate(rate), format_count(info.lost)
    return "".join(f"<td>{html.escape(text)}</td>" for text in (info.endpoint, info.kind, *counts, schema))
