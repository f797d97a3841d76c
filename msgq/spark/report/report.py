"""The report: one HTML page about a lake, which needs no network.

Everything is aggregated on Spark to what fits a picture: a number of windows, the endpoints that matter most, and the
sum of the others. What comes to the driver does not grow with the lake.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from msgq.spark import tables
from msgq.spark.report import plots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from msgq.spark.lake import Lake

_SHOWN = 40  # endpoints with a line of their own
_LISTED = 1000  # endpoints in the table
_QUEUES = 10  # with lines of their own, four each
_CHECKS = 200  # that failed
_WINDOWS = 240
_OTHERS = "(others)"


def write_report(lake: Lake, path: Path, runs: Sequence[str] = ()) -> dict[str, Any]:
    """Write the page; return its figures: runs, endpoints, messages, lost, checks, failed.

    Parameters
    ----------
    lake : with the tables of gold; see `Lake.refresh`.
    path : of the page; replaced if it is there.
    runs : only these; none: all.
    """
    gold = {name: _of_runs(lake.table(name), runs) for name in lake.names()}
    summary = _summary(gold)
    shown = _shown(gold["endpoints"])
    step = _step(gold["rates"])
    drawn = [
        ("Messages a second", plots.rates(_rates(gold["rates"], shown, step))),
        ("Losses", plots.losses(_losses(gold["gaps"], shown, step))),
        ("Latency over time", plots.latency(_latency(gold["latency"], step))),
        ("Latency of each endpoint", plots.distribution(_totals(gold["latency_totals"], shown))),
        ("Hops", plots.hops(_hops(gold["hops"]))),
    ]
    parts = [_head(summary), _checks(gold["checks"])]
    parts += [_section(title, _plot(figure)) for title, figure in drawn]
    parts += [_stages(gold), _queues(gold, step), _pictures(_of_runs(lake.messages(), runs), gold["frames"])]
    parts += [_publishers(gold), _table(gold["endpoints"])]
    path.write_text(_page("\n".join(parts)), encoding="utf-8")
    return summary


def _of_runs(table: DataFrame, runs: Sequence[str]) -> DataFrame:
    return table.where(table.run.isin(list(runs))) if runs else table


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def _summary(gold: dict[str, DataFrame]) -> dict[str, Any]:
    about = gold["endpoints"].agg(
        F.countDistinct("run").alias("runs"),
        F.countDistinct("endpoint").alias("endpoints"),
        F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"),
        F.coalesce(F.sum("lost"), F.lit(0)).alias("lost"),
        F.min("first_time").alias("begin"),
        F.max("last_time").alias("end"),
    )
    checked = gold["checks"].agg(F.count("*").alias("checks"), F.count_if(~F.col("passed")).alias("failed"))
    return _rows(about)[0] | _rows(checked)[0]


def _shown(endpoints: DataFrame) -> list[str]:
    """Return the endpoints with a line of their own: those that lost most, then those with most messages."""
    sums = endpoints.groupBy("endpoint").agg(F.sum("lost").alias("lost"), F.sum("messages").alias("messages"))
    rows = sums.orderBy(F.desc("lost"), F.desc("messages"), "endpoint").limit(_SHOWN).collect()
    return [row["endpoint"] for row in rows]


def _named(shown: Sequence[str]) -> Any:
    return F.when(F.col("endpoint").isin(list(shown)), F.col("endpoint")).otherwise(F.lit(_OTHERS))


def _step(rates: DataFrame) -> int:
    """Return how long a window of the page is: a whole number of seconds, ns."""
    span = rates.agg(F.max("time") - F.min("time")).collect()[0][0] or 0
    return max(1, -(-span // (_WINDOWS * tables.NS))) * tables.NS


def _rates(rates: DataFrame, shown: Sequence[str], step: int) -> list[dict[str, Any]]:
    found = rates.groupBy(_named(shown).alias("endpoint"), tables.window_start("time", step).alias("time")).agg(
        (F.sum("messages") * (tables.NS / step)).alias("rate")
    )
    return _rows(found.orderBy("endpoint", "time"))


def _losses(gaps: DataFrame, shown: Sequence[str], step: int) -> list[dict[str, Any]]:
    found = gaps.groupBy(_named(shown).alias("endpoint"), tables.window_start("to_time", step).alias("time")).agg(
        F.sum("lost").alias("lost")
    )
    return _rows(found.orderBy("endpoint", "time"))


def _latency(latency: DataFrame, step: int) -> list[dict[str, Any]]:
    """Return the percentiles of all endpoints together, by the merged sketches of their windows."""
    merged = latency.withColumns({"run": F.lit(""), "endpoint": F.lit(""), "time": tables.window_start("time", step)})
    return _rows(tables.latency_totals(merged, "time").drop("sketch").orderBy("time"))


def _totals(totals: DataFrame, shown: Sequence[str]) -> list[dict[str, Any]]:
    chosen = totals.where(F.col("endpoint").isin(list(shown))).withColumn("run", F.lit(""))
    return _rows(tables.latency_totals(chosen).drop("sketch").orderBy("endpoint"))


def _hops(hops: DataFrame) -> list[dict[str, Any]]:
    found = hops.groupBy("parent", "endpoint").agg(
        F.sum("messages").alias("messages"), F.max("p50").alias("p50"), F.max("p99").alias("p99")
    )
    return _rows(found.orderBy(F.desc("messages")).limit(_SHOWN))


def _stage_rows(totals: DataFrame) -> list[dict[str, Any]]:
    """Return the stages that worked longest, of all runs together."""
    merged = tables.stage_totals(totals.withColumn("run", F.lit("")))
    worked = F.desc(F.col("work_p50") * F.col("messages"))
    figures = [f"{name}_{title}" for name in ("wait", "work", "age") for title in ("p50", "p99", "max")]
    chosen = merged.select("stage", "endpoint", "messages", "malformed", *figures)
    return _rows(chosen.orderBy(worked, "stage", "endpoint").limit(_SHOWN))


def _queue_rows(work_windows: DataFrame) -> list[dict[str, Any]]:
    """Return the queues with most messages, of all runs together."""
    merged = tables.work_totals(work_windows.withColumn("run", F.lit("")))
    figures = [f"{name}_{title}" for name in ("waiting", "service") for title in ("p50", "p99", "max")]
    counts = ("sent", "taken", "acknowledged", "returned", "refused", "redelivered", "backlog")
    chosen = merged.select("queue", *counts, *figures)
    return _rows(chosen.orderBy(F.desc("sent"), "queue").limit(_SHOWN))


def _queue_steps(work_windows: DataFrame, queues: Sequence[str], step: int) -> list[dict[str, Any]]:
    """Return what happened to some queues in each window of the page."""
    mine = work_windows.where(F.col("queue").isin(list(queues))).withColumn("run", F.lit(""))
    merged = tables.work_totals(mine.withColumn("step", tables.window_start("time", step)), "step")
    figures = [f"{name}_{title}" for name in ("waiting", "service") for title in ("p50", "p99")]
    newest = merged.select("queue", "step", "backlog", *figures).orderBy(F.desc("step")).limit(len(queues) * _WINDOWS)
    return _rows(newest.orderBy("queue", "step"))


# ---- the page ----


def _page(body: str) -> str:
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    template = (files("msgq.spark.report") / "report.html").read_text(encoding="utf-8")
    return template.replace("{{plotly}}", script).replace("{{body}}", body)


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def _plot(figure: str | None) -> str:
    if figure is None:
        return "<p>There is nothing to show.</p>"
    data = figure.replace("</", "<\\/")
    return f'<div class="plot"><script type="application/json">{data}</script></div>'


def _stages(gold: dict[str, DataFrame]) -> str:
    """Return the section of stages; nothing where there are none: lakes may be from before there were any."""
    rows = _stage_rows(gold["stage_totals"]) if "stage_totals" in gold else []
    return _section("Stages", _plot(plots.stages(rows)), _html_table(rows)) if rows else ""


def _queues(gold: dict[str, DataFrame], step: int) -> str:
    """Return the section of work queues; nothing where there are none."""
    rows = _queue_rows(gold["work_windows"]) if "work_windows" in gold else []
    if not rows:
        return ""
    steps = _queue_steps(gold["work_windows"], [row["queue"] for row in rows[:_QUEUES]], step)
    return _section("Queues", _plot(plots.work(steps)), _plot(plots.backlogs(steps)), _html_table(rows))


def _publishers(gold: dict[str, DataFrame]) -> str:
    """Return the section of those who publish where others do, too; nothing where there are none."""
    columns = ("endpoint", "publisher", "messages", "rate", "bytes", "bytes_max", "p50", "p99", "max", "run")
    if "publishers" not in gold:
        return ""
    rows = _rows(gold["publishers"].orderBy(F.desc("messages"), "endpoint").select(*columns).limit(_LISTED))
    return _section("Publishers", _html_table(rows)) if rows else ""


def _head(summary: dict[str, Any]) -> str:
    begin = _time(summary["begin"])
    items = {
        "runs": summary["runs"],
        "endpoints": summary["endpoints"],
        "messages": summary["messages"],
        "lost": summary["lost"],
        "checks failed": f"{summary['failed']} of {summary['checks']}",
    }
    shown = "".join(f"<div><b>{_number(value)}</b><span>{name}</span></div>" for name, value in items.items())
    return f'<header><h1>msgq</h1><p>{begin} to {_time(summary["end"])}</p><div class="tiles">{shown}</div></header>'


def _checks(checks: DataFrame) -> str:
    sums = checks.groupBy("check").agg(F.count("*").alias("endpoints"), F.count_if(~F.col("passed")).alias("failed"))
    worst = checks.where(~F.col("passed")).orderBy(F.desc("value"), "endpoint").limit(_CHECKS)
    kinds = [{**row, "": "failed" if row["failed"] else "passed"} for row in _rows(sums.orderBy("check"))]
    failed = _rows(worst.select("check", "endpoint", "value", "limit", "run"))
    return f"<section><h2>Checks</h2>{_html_table(kinds)}{_html_table(failed)}</section>"


def _table(endpoints: DataFrame) -> str:
    figures = ("messages", "lost", "overwritten", "rate", "bytes", "bytes_max", "epochs", "publishers")
    columns = ("endpoint", "kind", *figures, "schema", "encoding", "run")
    there = [name for name in columns if name in endpoints.columns]  # a release without kinds made fewer
    rows = _rows(endpoints.orderBy(F.desc("lost"), F.desc("messages")).select(*there).limit(_LISTED))
    return _section("Endpoints", _html_table(rows))


def _pictures(messages: DataFrame, frames: DataFrame) -> str:
    if not frames.take(1):
        return ""
    rows = tables.thumbnails(messages, frames).orderBy("endpoint", "log_time").limit(_SHOWN).collect()
    pictures = [
        f'<figure><img alt="" src="data:image/jpeg;base64,{base64.b64encode(bytes(row["picture"])).decode()}">'
        f"<figcaption>{html.escape(row['endpoint'])}<br>{_time(row['log_time'])}</figcaption></figure>"
        for row in rows
    ]
    return f'<section><h2>Pictures</h2><div class="pictures">{"".join(pictures)}</div></section>'


def _html_table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_number(value)}</td>" for value in row.values()) + "</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))


def _time(time: int | None) -> str:
    if time is None:
        return "-"
    return f"{datetime.fromtimestamp(time // tables.NS, UTC):%Y-%m-%d %H:%M:%S} UTC"
