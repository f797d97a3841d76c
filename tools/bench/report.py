"""The result as tables of Markdown, for the terminal and for the page."""

from collections.abc import Iterator, Sequence

from tools.bench import numbers
from tools.bench.adapters import COLUMNS, FLOOR, KINDS, OURS
from tools.bench.cases import LIMITS, Case, Target
from tools.bench.result import Result
from tools.bench.run import DISTURBED
from tools.bench.summary import TAILS, Row, summarize_table
from tools.bench.tables import TABLES

NOTHING = "-"


def format_tables(result: Result) -> str:
    """Return all tables, the limits of the machine, and the facts about the run."""
    parts = []
    for name in result.tables:
        rows = summarize_table(result, name)
        systems = find_systems(result, name, rows)
        parts += [
            f"## {name}",
            format_rows(result, rows, systems, judged=True),
            format_tails(rows),
            format_costs(rows),
            _format_cores(rows, systems),
        ]
    parts += [format_limits(result), format_facts(result), _format_remarks(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def find_systems(result: Result, table: str, rows: Sequence[Row]) -> list[str]:
    """Return the systems with a figure in the table, and the absent systems. msgq and the floor are first."""
    absent = set(result.absent) & set(TABLES[table].adapters)
    return [name for name in COLUMNS if name in absent or any(name in row.medians for row in rows)]


def format_rows(result: Result, rows: Sequence[Row], systems: Sequence[str], *, judged: bool = False) -> str:
    """Return the figures and ratios. `judged`: with the distance of the cores and the targets."""
    has_ratios = OURS in systems
    head = ["row", "work", *systems, *([f"{OURS} / {FLOOR}", f"{OURS} / best peer"] if has_ratios else [])]
    lines = []
    for row in rows:
        values = [format_figure_of(result, row, system) for system in systems]
        ratios = [format_ratio(row, name) for name in (FLOOR, "peer")] if has_ratios else []
        verdict = _judge(row) if judged else []
        lines.append([f"`{row.case.key}`", row.case.title, *values, *ratios, *verdict])
    return format_table([*head, *(["cores apart", "target", "met"] if judged else [])], lines)


def format_figure_of(result: Result, row: Row, system: str) -> str:
    """Return a system's figure; ``~`` marks a figure of disturbed slices only."""
    if system in row.medians:
        return format_figure(row.case, row.medians[system]) + (" ~" if system in row.disturbed else "")
    return "failed" if (row.case.key, system) in result.failed else NOTHING


def format_best_peer(result: Result, row: Row) -> str:
    """Return the figure and the name of the best peer."""
    return f"{format_figure_of(result, row, row.best_peer)} ({row.best_peer})" if row.best_peer else NOTHING


def format_figure(case: Case, value: float) -> str:
    """Return a figure with its unit."""
    if case.unit in ("rate", "cpu_rate"):
        return numbers.rate(value)
    if case.unit == "bytes":
        return f"{value / (1 << 20):.0f} MiB"
    if case.unit == "percent":
        return f"{value:.0f} %"
    if case.unit == "wakeups":
        return f"{value:.1f}/s"
    return numbers.time_ns(value) + (" CPU" if case.unit == "cpu" else "")


def format_ratio(row: Row, name: str) -> str:
    """Return the figure of msgq divided by the figure of a system, or of the best peer with its name (``peer``)."""
    quotient = row.beside(name)
    if quotient is None:
        return NOTHING
    text = numbers.ratio(quotient)
    return f"{text} ({row.best_peer})" if name == "peer" else text


def format_tails(rows: Sequence[Row]) -> str:
    """Return the percentiles of calls that were timed one by one; "" if the rows have no such calls."""
    timed = [row for row in rows if row.curves]
    if not timed:
        return ""
    systems = [name for name in COLUMNS if any(name in row.curves for row in timed)]
    lines = [
        [f"`{row.case.key}`", row.case.title, *(_tail(row, system) for system in systems), _tail_ratios(row)]
        for row in timed
    ]
    return format_table(["row", ", ".join(("one by one: p50", *list(TAILS)[1:])), *systems, f"{OURS} / {FLOOR}"], lines)


def format_costs(rows: Sequence[Row]) -> str:
    """Return the context switches and the memory of buses; "" if the rows have none."""
    buses = [row for row in rows if row.costs]
    if not buses:
        return ""
    systems = [name for name in COLUMNS if any(name in row.costs for row in buses)]
    lines = [[f"`{row.case.key}`", *(_cost(row, system) for system in systems)] for row in buses]
    head = "context switches for each delivery, private and shared MiB of a process"
    return format_table(["row: " + head, *systems], lines)


def format_limits(result: Result) -> str:
    """Return the limits of the machine."""
    if not result.limits:
        return ""
    lines = []
    for key, title in LIMITS.items():
        values = [limits[key] for limits in result.limits]
        three = numbers.median(values), min(values), max(values)
        lines.append([title, *(_limit(key, value) for value in three)])
    return format_table(["limit of the machine", "median", "least", "most"], lines)


def format_facts(result: Result) -> str:
    """Return a list of the machine, the build, the versions and the command."""
    found = {OURS if name in KINDS else name: version for name, version in result.versions.items() if version}
    versions = ", ".join(f"{name} {version}".strip() for name, version in found.items())
    return "\n".join(f"- {name}: {text}" for name, text in {**result.machine, "versions": versions}.items())


def list_gaps(result: Result, name: str) -> Iterator[str]:
    """Yield the reasons of missing figures in a table."""
    keys = [case.key for case in result.tables[name]]
    reasons: dict[tuple[str, str], list[str]] = {}
    for word, missing in (("", result.unsupported), ("failed: ", result.failed)):
        for (key, system), reason in missing.items():
            if key in keys and system != FLOOR:
                reasons.setdefault((system, word + _last_line(reason)), []).append(key)
    for (system, reason), rows in reasons.items():
        yield f"{system}, {', '.join(rows)}: {reason}"


def list_absent(result: Result) -> Iterator[str]:
    """Yield the reasons of systems without any measurement."""
    for name, reason in result.absent.items():
        yield f"{name} is absent: {_last_line(reason)}"


def format_disturbed(result: Result) -> str:
    """Return a sentence with the number of disturbed slices."""
    waits = [waited for sample in result.samples for waited in sample["waited"]]
    return (
        f"{sum(waited > DISTURBED for waited in waits):,} of {len(waits):,} slices were disturbed: a process waited for"
        f" its core for more than {DISTURBED:.0%} of the time. They are left out."
        " A ~ marks a value of disturbed slices only."
    )


def format_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    body = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in body)


def _format_cores(rows: Sequence[Row], systems: Sequence[str]) -> str:
    lines = []
    for row in rows:
        used = [f"{row.cores[system]:.2f}" if system in row.cores else NOTHING for system in systems]
        lines.append([row.case.title, *used])
    return format_table(["CPU time of all processes in a second", *systems], lines)


def _judge(row: Row) -> list[str]:
    met = {True: "yes", False: "no", None: NOTHING}[row.met]
    return [_apart(row), ", ".join(map(_target, row.case.targets, row.reached)) or NOTHING, met]


def _apart(row: Row) -> str:
    if row.apart is None:
        return NOTHING
    middle, least, most = row.apart
    return f"{middle:.0f} ns ({least:.0f} to {most:.0f})"


def _tail(row: Row, system: str) -> str:
    times = row.curves.get(system)
    if times is None:
        return NOTHING
    return " / ".join(numbers.time_ns(times[share]) if share in times else NOTHING for share in TAILS.values())


def _cost(row: Row, system: str) -> str:
    costs = row.costs.get(system)
    if costs is None:
        return NOTHING
    private, shared = (f"{costs[name] / (1 << 20):.1f}" for name in ("private", "shared"))
    return f"{costs['switches']:.2f} / {private} / {shared}"


def _tail_ratios(row: Row) -> str:
    ratios = [row.tail_ratio(FLOOR, share) for share in TAILS.values()]
    if not {OURS, FLOOR} <= set(row.curves):
        return NOTHING
    return " / ".join(NOTHING if ratio is None else numbers.ratio(ratio) for ratio in ratios)


def _target(target: Target, reached: float | None) -> str:
    """Return the text of a target, and the reached value if no other column shows it."""
    if reached is None or target.reference in (FLOOR, "peer", "absolute"):
        return target.text
    return f"{target.text}: {numbers.ratio(reached)}"


def _limit(key: str, value: float) -> str:
    return f"{value:.1f} GB/s" if key.endswith("GBps") else numbers.time_ns(value)


def _format_remarks(result: Result) -> str:
    lines = [
        format_disturbed(result),
        *_list_losses(result),
        *(gap for name in result.tables for gap in list_gaps(result, name)),
    ]
    return "\n".join(f"- {line}" for line in [*lines, *list_absent(result)])


def _list_losses(result: Result) -> Iterator[str]:
    for sample in result.samples:
        if "lost" in sample:
            yield f"{sample['system']}, {sample['case']}: {sample['lost']:,} messages were lost"


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1]
