"""From samples to the figures of the tables and pictures."""

import math
from dataclasses import dataclass, replace
from typing import Any

from tools.bench.adapters import FLOOR, OURS, SYSTEMS
from tools.bench.cases import Case, Target
from tools.bench.numbers import SHARES, median
from tools.bench.result import Result
from tools.bench.run import DISTURBED

SLOWER_CALLS = 3  # minimum number of slower calls for a percentile
TAILS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
# (repeat, turn within it) -> figure
Measurements = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        rounds: the figures of each system's slices.
        medians: the figure of each system: for the unit ``worst`` the longest time, otherwise the median of all slices.
        ratios: figure of msgq divided by the figure of each other system; empty without a figure of msgq.
        best_peer: name of the best system except the floor; "": no peer has a figure.
        cores: median CPU time of each system's processes per second.
        disturbed: systems without an undisturbed slice. Their figures are from disturbed slices.
        reached: for each target, the value to compare with its bound; None: a figure is missing.
        curves: for each system with latencies, times in ns by share of the calls, as medians of the repeats. Shares
            that are too high for the number of calls are missing.
        costs: for each system of a bus, its context switches for each delivery, and the private and shared memory of a
            process in bytes, as medians of the repeats.
        apart: time of a cache line between the cores in ns: median, minimum and maximum; None: not measured.
        met: True if every target was reached in this run; None: no target, or no undisturbed slice of msgq.
    """

    case: Case
    rounds: dict[str, list[float]]
    medians: dict[str, float]
    ratios: dict[str, float]
    best_peer: str
    cores: dict[str, float]
    disturbed: frozenset[str]
    reached: tuple[float | None, ...]
    curves: dict[str, dict[float, float]]
    costs: dict[str, dict[str, float]]
    apart: tuple[float, float, float] | None
    met: bool | None

    def beside(self, name: str) -> float | None:
        """Return the figure of msgq divided by that of a system; "peer": of the best peer."""
        return self.ratios.get(self.best_peer if name == "peer" else name)

    def tail_ratio(self, name: str, share: float) -> float | None:
        """Return the time of msgq at a share of the calls, divided by the time of a system."""
        times = [self.curves.get(system, {}).get(share) for system in (OURS, name)]
        return times[0] / times[1] if times[0] is not None and times[1] else None


def summarize_table(result: Result, name: str) -> list[Row]:
    """Return the rows of a table."""
    return [_row(result, case) for case in result.tables.get(name, ())]


def summarize(result: Result) -> list[Row]:
    """Return the rows of all tables."""
    return [_row(result, case) for case in result.cases]


def _row(result: Result, case: Case) -> Row:
    values = {system: _measurements(result, case.key, system) for system in result.versions}
    rounds = {system: list(each.values()) for system, each in values.items() if each}
    middle = max if case.unit == "worst" else median
    medians = {system: middle(each) for system, each in rounds.items()}
    compared = {name: _ratio(values[OURS], values[name]) for name in medians if name != OURS and OURS in medians}
    ratios = {name: ratio for name, ratio in compared.items() if ratio is not None}
    disturbed = frozenset(system for system in medians if not _quiet(result, case.key, system))
    best = _best_peer(case, {name: value for name, value in medians.items() if name not in (OURS, FLOOR)})
    key = case.key
    used, curves, costs = _cores(result, key), _curves(result, key), _costs(result, key)
    row = Row(case, rounds, medians, ratios, best, used, disturbed, (), curves, costs, _apart(result, key), None)
    reached = tuple(_reaches_target(result, row, target) for target in case.targets)
    met = [_meets_target(case, *each) for each in zip(case.targets, reached, strict=True) if each[1] is not None]
    return replace(row, reached=reached, met=all(met) if met and OURS not in disturbed else None)


def _measurements(result: Result, key: str, system: str) -> Measurements:
    """Return the measurements of the slices that were not disturbed, or of all if there are no others."""
    return _quiet(result, key, system) or _quiet(result, key, system, limit=math.inf)


def _quiet(result: Result, key: str, system: str, limit: float = DISTURBED) -> Measurements:
    return {
        (sample["repeat"], turn): value
        for sample in _samples(result, key, system)
        for turn, (value, waited) in enumerate(zip(sample["slices"], sample["waited"], strict=True))
        if waited <= limit
    }


def _samples(result: Result, key: str, system: str) -> list[dict[str, Any]]:
    return [each for each in result.samples if each["case"] == key and each["system"] == system]


def _timed(result: Result, key: str, system: str) -> list[dict[str, Any]]:
    """Return a row's samples, one a repeat, whose calls were timed one by one."""
    return [each for each in _samples(result, key, system) if "latencies" in each]


def _at(sample: dict[str, Any], share: float) -> float:
    return float(sample["latencies"][SHARES.index(share)])


def _percentiles(result: Result, key: str, system: str) -> Measurements:
    """Return the 99th percentile of all latencies of a repeat."""
    return {(sample["repeat"], 0): _at(sample, 0.99) for sample in _timed(result, key, system)}


def _curves(result: Result, key: str) -> dict[str, dict[float, float]]:
    curves = {}
    for system in result.versions:
        if samples := _timed(result, key, system):
            calls = sum(sample["count"] for sample in samples)
            shares = [share for share in SHARES if share < 1 and round(calls * (1 - share), 6) >= SLOWER_CALLS]
            curves[system] = {share: median([_at(each, share) for each in samples]) for share in shares}
    return curves


def _costs(result: Result, key: str) -> dict[str, dict[str, float]]:
    costs = {}
    for system in result.versions:
        if samples := [each["costs"] for each in _samples(result, key, system) if "costs" in each]:
            costs[system] = {name: median([each[name] for each in samples]) for name in samples[0]}
    return costs


def _apart(result: Result, key: str) -> tuple[float, float, float] | None:
    lines = result.apart.get(key)
    return (median(lines), min(lines), max(lines)) if lines else None


def _cores(result: Result, key: str) -> dict[str, float]:
    used: dict[str, list[float]] = {}
    for sample in result.samples:
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


def _reaches_target(result: Result, row: Row, target: Target) -> float | None:
    if target.reference == "absolute":
        return row.medians.get(OURS)
    if target.reference == "median":
        samples = _timed(result, row.case.key, OURS)
        return median([_at(each, 0.99) / _at(each, 0.5) for each in samples]) if samples else None
    if target.reference == "p99":
        return _ratio(*(_percentiles(result, row.case.key, system) for system in (OURS, FLOOR)))
    if target.reference == "peer" or target.reference in SYSTEMS:
        return row.beside(target.reference)
    # another row of msgq, measured a few seconds later or earlier
    return _ratio(*(_measurements(result, key, OURS) for key in (row.case.key, target.reference)))


def _meets_target(case: Case, target: Target, reached: float | None) -> bool:
    assert reached is not None
    return reached >= target.bound if case.more_is_better else reached <= target.bound
