"""First section of the report: the anomalies, each with the command that replays the moment."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence
from typing import Any

from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_MS
from msgq.lake.report import anomalies, late_periods, short_dropouts
from msgq.lake.report.anomalies import Anomaly, Examination
from msgq.lake.report.page_parts import format_clock_time, format_duration, format_iso_time

_LISTED_ANOMALIES_MAX = 200
_KIND_TITLES = {
    "loss": "Loss",
    "dropout": "Dropout",
    "latency": "Latency",
    "restart": "Restart",
    "takeover": "Takeover",
    "requeue": "Requeue",
    "clock": "Clock",
}
_COLUMN_TITLES = ("Trouble", "Endpoint", "From (UTC)", "To (UTC)", "How bad", "Affected", "Replay")


def format_anomaly_section(found: Examination, replay_command: Sequence[str], span: tuple[int, int]) -> str:
    """Return the section as HTML.

    Args:
        replay_command: command that plays the recording or lake, without options; empty: no commands are shown.
        span: begin and end of all messages, ns.
    """
    listed = found.anomalies[:_LISTED_ANOMALIES_MAX]
    titles = _COLUMN_TITLES if replay_command else _COLUMN_TITLES[:-1]
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "".join(_format_anomaly_row(anomaly, replay_command, span, titles) for anomaly in listed)
    table = f'<table class="anomalies"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    others = len(found.anomalies) - len(listed)
    more = f"<p>{format_count_noun(others, 'finding')} with smaller shares are not listed.</p>" if others else ""
    body = table + more if listed else "<p><b>No anomalies.</b></p>"
    return f"<section><h2>Anomalies</h2>{body}{_format_examination(found)}</section>"


def _format_anomaly_row(
    anomaly: Anomaly, replay_command: Sequence[str], span: tuple[int, int], titles: Sequence[str]
) -> str:
    times = (format_clock_time(time, span) for time in (anomaly.from_time, anomaly.to_time))
    kind, affected = (
        _KIND_TITLES[anomaly.kind],
        f"{anomaly.share:.2%}" if anomaly.share < 0.01 else f"{anomaly.share:.1%}",
    )
    cells = [html.escape(text) for text in (kind, anomaly.endpoint, *times, describe_anomaly(anomaly), affected)]
    if replay_command:
        command = html.escape(make_replay_command(anomaly, replay_command))
        cells.append(
            f'<button type="button" class="copy">Copy</button> <code tabindex="0" title="{command}">{command}</code>'
        )
    return (
        "<tr>"
        + "".join(f'<td data-title="{title}">{cell}</td>' for title, cell in zip(titles, cells, strict=True))
        + "</tr>"
    )


def describe_anomaly(anomaly: Anomaly) -> str:
    """Return how bad an anomaly is, compared with the usual value of the endpoint."""
    ratio = f"{anomaly.value / max(1, anomaly.usual):,.0f}x"
    if anomaly.kind == "loss":
        lost, gaps = format_count_noun(anomaly.value, "message"), format_count_noun(anomaly.times, "gap")
        return f"{lost} lost in {gaps}, usually 0"
    if anomaly.kind == "requeue":
        return f"{format_count_noun(anomaly.value, 'message')} returned to the queue, usually 0"
    if anomaly.kind == "restart":
        return f"numbers began again after {format_duration(anomaly.value)}" + _format_times(anomaly.times)
    if anomaly.kind == "takeover":
        return f"{format_count_noun(anomaly.value, 'publisher')} replaced a living publisher, usually 0"
    if anomaly.kind == "clock":
        return f"published up to {format_duration(anomaly.value)} after the recording: the clocks differ"
    value, usual = format_duration(anomaly.value), format_duration(anomaly.usual)
    if anomaly.kind == "latency":
        return f"latency {value}, usually {usual}: {ratio}" + _format_times(anomaly.times)
    until = " until the end" if anomaly.is_at_end else ""
    return f"no message for {value}{until}, usually each {usual}: {ratio}" + _format_times(anomaly.times)


def describe_marks(anomalies: Sequence[Anomaly]) -> list[dict[str, Any]]:
    """Return the marks of anomalies on the axes of plots: kind, endpoint, from, to (times in UTC), text."""
    return [
        {
            "kind": anomaly.kind,
            "endpoint": anomaly.endpoint,
            "from": format_iso_time(anomaly.from_time // NS_PER_MS),
            "to": format_iso_time(anomaly.to_time // NS_PER_MS + 1),
            "text": describe_anomaly(anomaly),
        }
        for anomaly in anomalies
    ]


def _format_times(times: int) -> str:
    return f" (worst of {times:,})" if times > 1 else ""


def make_replay_command(anomaly: Anomaly, replay_command: Sequence[str]) -> str:
    """Return a shell command that plays the messages of an anomaly's endpoint and time."""
    start, end = anomaly.from_time // NS_PER_MS, anomaly.to_time // NS_PER_MS + 1
    options = ["--endpoint", anomaly.endpoint, "--start", format_iso_time(start), "--end", format_iso_time(end)]
    return shlex.join([*replay_command, *options])


def _format_examination(found: Examination) -> str:
    """Return a note on the examined endpoints and the limits."""
    cases = (
        "a message was lost or returned to a queue",
        "the numbers of the messages began again",
        "a publisher replaced a living publisher",
        "the publish time of a message is 1 ms or more after its recording",
        f"no message came for {anomalies.DROPOUT_PERIODS_MIN} usual intervals and 1 s "
        f"(0.2 s from {short_dropouts.FAST_RATE_MIN_HZ} messages/s)",
        f"over 1 s or more, {late_periods.LATE_MESSAGES_MIN} messages and an unusual share of at least "
        f"{late_periods.LATE_SHARE_MIN:.0%} took {late_periods.LATENCY_RATIO_MIN} times the endpoint's median latency "
        "and 1 ms more",
    )
    return (
        f'<p class="note">Examined: the latency of {found.latency:,}, the dropouts of {found.dropout:,} and the '
        f"losses of {found.loss:,} of {format_count_noun(found.endpoints, 'endpoint')}. The list is sorted by the "
        "affected share of the endpoint's messages, or of the time. An endpoint is listed in each of these cases:</p>"
        f'<ul class="note">{"".join(f"<li>{case}</li>" for case in cases)}</ul>'
    )
