"""Writes the tables and pictures of the documentation from the file of a run: ``python -m tools.bench.page FILE``.

The text between ``<!-- bench:NAME -->`` and ``<!-- /bench -->`` in a page is replaced by the block of that name. All
other text of the pages is written by hand.
"""

import argparse
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tools.bench import report
from tools.bench.adapters import COLUMNS, FLOOR, OURS
from tools.bench.digest import format_summary, list_slower
from tools.bench.machine import PROJECT
from tools.bench.plot import draw_latencies, draw_rounds
from tools.bench.result import Result
from tools.bench.summary import Row, summarize, summarize_table

PAGES = ("docs/benchmarks.md", "README.md", "docs/choosing.md")
FOLDER = "docs/benchmarks"
RESULT = f"{FOLDER}/result.json"
# Row of each figure in README.md.
HIGHLIGHTS = {
    "`send`, no subscriber": "send_0",
    "`send` and `receive` in one thread": "pair",
    "latency to a busy process": "ping",
    "latency to a sleeping process": "ping_asleep",
    "messages per second, sent one by one, no message lost": "stream_64",
}
_MARKED = re.compile(r"(<!-- bench:(\S+) -->).*?(<!-- /bench -->)", re.DOTALL)


def write_pages(path: Path, root: Path) -> None:
    """Write the blocks and pictures of a result into the documentation below a folder, and copy the result to it."""
    result = Result.read(path)
    pages = {root / name: fill_page((root / name).read_text(encoding="utf-8"), result) for name in select_pages(result)}
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for picture in folder.glob("*.svg"):
        picture.unlink()
    pictures = {folder / name: picture for name, picture in draw_pictures(result).items()}
    for file, text in (pages | pictures).items():
        file.write_text(text, encoding="utf-8")
    if path.resolve() != (root / RESULT).resolve():
        shutil.copyfile(path, root / RESULT)


def select_pages(result: Result) -> tuple[str, ...]:
    """Return the pages that show the result. Rough figures appear only on the page that calls them provisional."""
    return PAGES[:1] if result.quick else PAGES


def fill_page(text: str, result: Result) -> str:
    """Return a page with the blocks of a result.

    Raises:
        ValueError: the page names a block that the result does not have.
    """
    rows = {row.case.key: row for row in summarize(result)}
    blocks: dict[str, Callable[[], str]] = {
        "machine": partial(_describe_run, result),
        "limits": partial(report.format_limits, result),
        "slower": partial(list_slower, result),
        "summary": partial(format_summary, result),
        "highlights": partial(_list_highlights, result, rows),
        **{name: partial(_describe_table, result, name) for name in result.tables},
    }

    def fill(match: re.Match[str]) -> str:
        start, name, end = match.groups()
        if name in rows:
            return f"{start}{report.format_figure_of(result, rows[name], OURS)}{end}"
        if name not in blocks:
            raise ValueError(f"block {name!r} not found: the result has no table or row of this name")
        return f"{start}\n\n{blocks[name]()}\n\n{end}"

    return _MARKED.sub(fill, text)


def draw_pictures(result: Result) -> dict[str, str]:
    """Return the pictures by the names of their files."""
    pictures = {}
    for table in result.tables:
        rows = summarize_table(result, table)
        systems = report.find_systems(result, table, rows)
        timed, other = _split_rows(rows)
        if timed:
            pictures[f"{table}-latencies.svg"] = draw_latencies(timed, systems, f"{table}: times of single calls")
        if other:
            pictures[f"{table}-rounds.svg"] = draw_rounds(other, systems, f"{table}: range of the rounds")
    return pictures


def _split_rows(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows whose calls were timed one by one, and the other rows with figures."""
    timed = [row for row in rows if row.curves]
    return timed, [row for row in rows if row.rounds and not row.curves]


def _describe_table(result: Result, table: str) -> str:
    """Return the pictures, the figures, the percentiles, the costs, and the reasons of missing figures."""
    rows = summarize_table(result, table)
    timed, other = _split_rows(rows)
    parts = []
    for kind, shown, text in (("latencies", timed, "Percentile curves"), ("rounds", other, "Ranges and medians")):
        if shown:
            parts.append(f"![{text} of {_describe_rows(shown)}](benchmarks/{table}-{kind}.svg)")
    parts += [report.format_rows(result, rows, report.find_systems(result, table, rows)), report.format_tails(rows)]
    parts.append(report.format_costs(rows))
    gaps = [f"- {gap}" for gap in report.list_gaps(result, table)]
    if gaps:
        parts.append("\n".join(["Systems without a value, rows and reasons:", "", *gaps]))
    return "\n\n".join(part for part in parts if part)


def _describe_rows(rows: Sequence[Row]) -> str:
    """Return the alternative text of a picture."""
    systems = [name for name in COLUMNS if any(name in row.medians for row in rows)]
    titles = ", ".join(row.case.key for row in rows)
    return f"{', '.join(systems)} in the rows {titles}. The next table has the values."


def _list_highlights(result: Result, rows: dict[str, Row]) -> str:
    lines = []
    for work, key in HIGHLIGHTS.items():
        row = rows[key]
        own, floor = (report.format_figure_of(result, row, system) for system in (OURS, FLOOR))
        lines.append([work, own, floor, report.format_best_peer(result, row)])
    return report.format_table(["64-byte messages", OURS, FLOOR, "best peer"], lines)


def _describe_run(result: Result) -> str:
    """Return the facts about the run, and say whether its figures are rough."""
    rough = ["- These values are provisional: the run was a short one (`--quick`)."] if result.quick else []
    facts = [report.format_facts(result), f"- rounds: {report.format_disturbed(result)}"]
    return "\n".join([*rough, *facts, *(f"- {line}" for line in report.list_absent(result))])


def main() -> None:
    """Write the pages of this project."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.page", description="Write the pages from a result.")
    parser.add_argument("result", type=Path, metavar="FILE", help="file that `python -m tools.bench --json FILE` wrote")
    try:
        write_pages(parser.parse_args().result, PROJECT)
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
