"""The results as people and as programs read them."""

import json
from collections.abc import Sequence
from typing import Any

from tools.bench import machine, numbers
from tools.bench.adapters import FLOOR, SYSTEMS
from tools.bench.cases import LIMITS, Case, Target
from tools.bench.floor import build
from tools.bench.process import PROJECT
from tools.bench.run import DISTURBED, Record
from tools.bench.summary import TAILS, Row, rows

NOTHING = "-"


def markdown(record: Record) -> str:
    """Return the tables, the machine's limits and facts, and what a reader must know about the run."""
    parts = [_cases(record), _tails(record), _cores(record), _limits(record), _facts(record), _remarks(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(record: Record) -> str:
    """Return everything, with all samples. Times are in nanoseconds, rates in messages a second."""
    return json.dumps(
        {
            "machine": _machine(),
            "versions": record.versions,
            "absent": record.absent,
            "limits": record.limits,
            "rows": [_row_dict(row) for row in rows(record)],
            "samples": record.samples,
            "unsupported": [_reason(*item) for item in record.unsupported.items()],
            "failed": [_reason(*item) for item in record.failed.items()],
        },
        indent=1,
    )


def _cases(record: Record) -> str:
    systems = [name for name in SYSTEMS if name in record.versions or name in record.absent]
    beside = ["ours / best peer" if name == "peer" else f"ours / {name}" for name in record.suite.beside]
    head = ["work", *systems, *beside, "cores apart", "target", "met"]
    return _table(head, [_cells(row, record, systems) for row in rows(record)])


def _cores(record: Record) -> str:
    systems = [name for name in SYSTEMS if name in record.versions]
    lines = []
    for row in rows(record):
        used = [f"{row.cores[system]:.2f}" if system in row.cores else NOTHING for system in systems]
        lines.append([row.case.title, *used])
    return _table(["CPU time of all processes in a second", *systems], lines)


def _cells(row: Row, record: Record, systems: list[str]) -> list[str]:
    measurements_ = [_cell(row, record, system) for system in systems]
    beside = [_ratio(row, name) for name in record.suite.beside]
    met = {True: "yes", False: "no", None: NOTHING}[row.met]
    targets = map(_target, row.case.targets, row.reached)
    return [row.case.title, *measurements_, *beside, _apart(row), ", ".join(targets) or NOTHING, met]


def _apart(row: Row) -> str:
    if row.apart is None:
        return NOTHING
    middle, least, most = row.apart
    return f"{middle:.0f} ns ({least:.0f} to {most:.0f})"


def _tails(record: Record) -> str:
    """Return the percentiles of what was timed one by one, and ours divided by the floor's."""
    systems = [name for name in SYSTEMS if name in record.versions]
    lines = []
    for row in rows(record):
        if record.suite.own_system in row.tails:
            cells = [" / ".join(map(numbers.time_ns, row.tails.get(system, ()))) or NOTHING for system in systems]
            lines.append([row.case.title, *cells, _beside_floor(row, record.suite.own_system), _apart(row)])
    head = [", ".join(("one by one: p50", *TAILS[1:])), *systems, "ours / floor", "cores apart"]
    return _table(head, lines) if lines else ""


def _beside_floor(row: Row, system: str) -> str:
    if FLOOR not in row.tails:
        return NOTHING
    return " / ".join(f"{tail / floor:.2f}" for tail, floor in zip(row.tails[system], row.tails[FLOOR], strict=True))


def _ratio(row: Row, name: str) -> str:
    ratio = row.beside(name)
    if ratio is None:
        return NOTHING
    return f"{ratio:.2f} ({row.best_peer})" if name == "peer" else f"{ratio:.2f}"


def _target(target: Target, reached: float | None) -> str:
    """Write a target, and what was reached, where no other column has it."""
    other = reached is not None and target.reference not in (*SYSTEMS, "peer", "absolute")
    return f"{target.text}: {reached:.2f}" if other else target.text


def _cell(row: Row, record: Record, system: str) -> str:
    if system in row.medians:
        return _figure(row.case, row.medians[system]) + (" ~" if system in row.disturbed else "")
    if system in record.absent:
        return "absent"
    return "failed" if (row.case.key, system) in record.failed else NOTHING


def _figure(case: Case, value: float) -> str:
    if case.unit == "rate":
        return numbers.rate(value)
    if case.unit == "percent":
        return f"{value:.0f} %"
    return f"{value:.1f}/s" if case.unit == "wakeups" else numbers.time_ns(value)


def _limits(record: Record) -> str:
    if not record.limits:
        return ""
    lines = []
    for key, title in LIMITS.items():
        values = [limits[key] for limits in record.limits]
        three = numbers.median(values), min(values), max(values)
        lines.append([title, *(_limit(key, value) for value in three)])
    return _table(["limit of the machine", "median", "least", "most"], lines)


def _limit(key: str, value: float) -> str:
    return f"{value:.1f} GB/s" if key.endswith("GBps") else numbers.time_ns(value)


def _facts(record: Record) -> str:
    versions = ", ".join(f"{name} {version}".strip() for name, version in record.versions.items() if version)
    return "\n".join(f"- {name}: {text}" for name, text in {**_machine(), "versions": versions}.items())


def _machine() -> dict[str, str]:
    try:
        compiler = build.compiler()
    except build.FloorError:
        compiler = []
    return machine.facts(compiler, PROJECT)


def _remarks(record: Record) -> str:
    waits = [waited for sample in record.samples for waited in sample["waited"]]
    lines = [
        f"{sum(waited > DISTURBED for waited in waits)} of {len(waits)} slices were disturbed: a process waited for its"
        f" core for more than {DISTURBED:.0%} of the time. They are left out; ~ marks a figure that has no others.",
    ]
    lines += [
        f"{case} of {system} was not measured: {why}"
        for (case, system), why in record.unsupported.items()
        if system in record.suite.beside and system != FLOOR
    ]
    lines += [f"{case} of {system} failed: {_last_line(why)}" for (case, system), why in record.failed.items()]
    lines += [f"{name} is absent: {_last_line(why)}" for name, why in record.absent.items()]
    return "\n".join(f"- {line}" for line in lines)


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1]


def _table(head: Sequence[str], lines: list[list[str]]) -> str:
    body = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in body)


def _row_dict(row: Row) -> dict[str, Any]:
    return {
        "case": row.case.key,
        "title": row.case.title,
        "unit": row.case.unit,
        "medians": row.medians,
        "ours_to_floor": row.beside("floor"),
        "ours_to_best_peer": row.beside("peer"),
        "ours_to": row.ratios,
        "best_peer": row.best_peer,
        "disturbed": sorted(row.disturbed),
        "cores": row.cores,
        "tails": row.tails,
        "apart": row.apart,
        "target": [each.text for each in row.case.targets],
        "reached": row.reached,
        "met": row.met,
    }


def _reason(key: tuple[str, str], reason: str) -> dict[str, str]:
    return {"case": key[0], "system": key[1], "reason": reason}
