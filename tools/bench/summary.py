"""From samples to the measurements of the table."""

import math
from dataclasses import dataclass, replace
from typing import Any

from tools.bench.adapters import FLOOR, SYSTEMS
from tools.bench.cases import Case, Target
from tools.bench.numbers import median
from tools.bench.run import DISTURBED, Record

TAILS = ("p50", "p99", "p99.9")
# (repeat, turn within it) -> figure
Measurements = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Row:
    """One case.

    Attributes
    ----------
    medians : the figure of each system that has one; in ``worst`` the longest, else the median of all slices.
    ratios : ours divided by theirs, for each other system that has a figure, where ours has one.
    best_peer : the name of the best of them beside the floor, or an empty text.
    cores : CPU time that each system's processes took in a second, median.
    disturbed : systems whose slices were disturbed, all of them, so that their figure is of such slices.
    reached : for each target what is to be compared with its bound, None where something is missing.
    tails : for each system with latencies its p50, p99 and p99.9, ns: medians of the repeats.
    apart : how long a cache line took from one core to the other, ns: median, least, most; None: not measured.
    met : whether every target was reached in this run; None without a target, or without quiet slices of ours.
    """

    case: Case
    medians: dict[str, float]
    ratios: dict[str, float]
    best_peer: str
    cores: dict[str, float]
    disturbed: frozenset[str]
    reached: tuple[float | None, ...]
    tails: dict[str, tuple[float, ...]]
    apart: tuple[float, float, float] | None
    met: bool | None

    def beside(self, name: str) -> float | None:
        """Return ours divided by that system's, or by the best ``peer``'s."""
        return self.ratios.get(self.best_peer if name == "peer" else name)


def rows(record: Record) -> list[Row]:
    """Return a row for each case of the run."""
    return [_row(record, case) for case in record.cases]


def _row(record: Record, case: Case) -> Row:
    own = record.suite.own_system
    values = {system: _measurements(record, case.key, system) for system in record.versions}
    middle = max if case.unit == "worst" else median
    medians = {system: middle(list(each.values())) for system, each in values.items() if each}
    compared = {name: _ratio(values[own], values[name]) for name in medians if name != own and own in medians}
    ratios = {name: ratio for name, ratio in compared.items() if ratio is not None}
    disturbed = frozenset(system for system in medians if not _quiet(record, case.key, system))
    best = _best_peer(case, {name: value for name, value in medians.items() if name not in (own, FLOOR)})
    used, tails = _cores(record, case.key), _tails(record, case.key)
    row = Row(case, medians, ratios, best, used, disturbed, (), tails, _apart(record, case.key), None)
    reached = tuple(_reaches_target(record, row, target) for target in case.targets)
    met = [_meets_target(case, *each) for each in zip(case.targets, reached, strict=True) if each[1] is not None]
    return replace(row, reached=reached, met=all(met) if met and own not in disturbed else None)


def _measurements(record: Record, key: str, system: str) -> Measurements:
    """Return the measurements of the slices that were not disturbed, or of all if there are no others."""
    return _quiet(record, key, system) or _quiet(record, key, system, limit=math.inf)


def _quiet(record: Record, key: str, system: str, limit: float = DISTURBED) -> Measurements:
    return {
        (sample["repeat"], turn): value
        for sample in record.samples
        if sample["case"] == key and sample["system"] == system
        for turn, (value, waited) in enumerate(zip(sample["slices"], sample["waited"], strict=True))
        if waited <= limit
    }


def _time_columns(record: Record, key: str, system: str) -> list[dict[str, Any]]:
    """Return a case's samples, one a repeat, whose calls were timed one by one."""
    chosen = (each for each in record.samples if (each["case"], each["system"]) == (key, system))
    return [each for each in chosen if "p99" in each]


def _percentiles(record: Record, key: str, system: str) -> Measurements:
    """Return the 99th percentile of all latencies of a repeat."""
    return {(sample["repeat"], 0): sample["p99"] for sample in _time_columns(record, key, system)}


def _tails(record: Record, key: str) -> dict[str, tuple[float, ...]]:
    tails = {}
    for system in record.versions:
        if samples := _time_columns(record, key, system):
            tails[system] = tuple(median([each[share] for each in samples]) for share in TAILS)
    return tails


def _apart(record: Record, key: str) -> tuple[float, float, float] | None:
    lines = record.apart.get(key)
    return (median(lines), min(lines), max(lines)) if lines else None


def _cores(record: Record, key: str) -> dict[str, float]:
    used: dict[str, list[float]] = {}
    for sample in record.samples:
        if sample["case"] == key and sample["cores"]:
            used.setdefault(sample["system"], []).extend(sample["cores"])
    return {system: median(each) for system, each in used.items()}


def _best_peer(case: Case, peers: dict[str, float]) -> str:
    return (max if case.more_is_better else min)(peers, key=lambda system: peers[system], default="")


def _ratio(own: Measurements, other: Measurements) -> float | None:
    """Return the median of the ratios within one round: what drifts from second to second then cancels out.

    Where no round has both, it is the ratio of the medians.
    """
    if ratios := [own[turn] / other[turn] for turn in own if other.get(turn)]:
        return median(ratios)
    divisor = median(list(other.values())) if other else 0.0
    return median(list(own.values())) / divisor if own and divisor else None


def _reaches_target(record: Record, row: Row, target: Target) -> float | None:
    own = record.suite.own_system
    if target.reference == "absolute":
        return row.medians.get(own)
    if target.reference == "median":
        samples = _time_columns(record, row.case.key, own)
        return median([each["p99"] / each["p50"] for each in samples]) if samples else None
    if target.reference == "p99":
        return _ratio(*(_percentiles(record, row.case.key, system) for system in (own, FLOOR)))
    if target.reference == "peer" or target.reference in SYSTEMS:
        return row.beside(target.reference)
    # another case of ours, a few seconds away
    return _ratio(*(_measurements(record, key, own) for key in (row.case.key, target.reference)))


def _meets_target(case: Case, target: Target, reached: float | None) -> bool:
    assert reached is not None
    return reached >= target.bound if case.more_is_better else reached <= target.bound
