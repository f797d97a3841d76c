"""From samples to the figures of the table."""

import math
from dataclasses import dataclass

from tools.bench.adapters import FLOOR, OURS
from tools.bench.cases import Case, Target
from tools.bench.figures import median
from tools.bench.run import DISTURBED, Record

# (repeat, turn within it) -> figure
Figures = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Row:
    """One case.

    Attributes
    ----------
    medians : the figure of each system that has one.
    to_floor, to_best_peer : ours divided by theirs, None where one of them is missing.
    best_peer : its name, or an empty text.
    disturbed : systems whose slices were disturbed, all of them, so that their figure is of such slices.
    met : whether every target was reached in this run; None without a target, or without quiet slices of ours.
    """

    case: Case
    medians: dict[str, float]
    to_floor: float | None
    to_best_peer: float | None
    best_peer: str
    disturbed: frozenset[str]
    met: bool | None


def rows(record: Record) -> list[Row]:
    """Return a row for each case of the run."""
    return [_row(record, case) for case in record.cases]


def _row(record: Record, case: Case) -> Row:
    values = {system: _figures(record, case.key, system) for system in record.versions}
    medians = {system: median(list(each.values())) for system, each in values.items() if each}
    disturbed = frozenset(system for system in medians if not _quiet(record, case.key, system))
    best = _best_peer(case, medians)
    ours = values.get(OURS, {})
    to_floor, to_peer = _ratio(ours, values.get(FLOOR, {})), _ratio(ours, values.get(best, {}))
    references = {FLOOR: to_floor, "peer": to_peer, "absolute": medians.get(OURS)}
    met = [_met(record, case, target, references) for target in case.targets]
    known = [each for each in met if each is not None and OURS not in disturbed]
    return Row(case, medians, to_floor, to_peer, best, disturbed, all(known) if known else None)


def _figures(record: Record, key: str, system: str) -> Figures:
    """Return the figures of the slices that were not disturbed, or of all if there are no others."""
    return _quiet(record, key, system) or _quiet(record, key, system, limit=math.inf)


def _quiet(record: Record, key: str, system: str, limit: float = DISTURBED) -> Figures:
    return {
        (sample["repeat"], turn): value
        for sample in record.samples
        if sample["case"] == key and sample["system"] == system
        for turn, (value, waited) in enumerate(zip(sample["slices"], sample["waited"], strict=True))
        if waited <= limit
    }


def _best_peer(case: Case, medians: dict[str, float]) -> str:
    peers = {system: value for system, value in medians.items() if system not in (OURS, FLOOR)}
    if not peers:
        return ""
    return (max if case.more_is_better else min)(peers, key=lambda system: peers[system])


def _ratio(ours: Figures, theirs: Figures) -> float | None:
    """Return the median of the ratios within one round: what drifts from second to second then cancels out.

    Where no round has both, it is the ratio of the medians.
    """
    if ratios := [ours[turn] / theirs[turn] for turn in ours if theirs.get(turn)]:
        return median(ratios)
    divisor = median(list(theirs.values())) if theirs else 0.0
    return median(list(ours.values())) / divisor if ours and divisor else None


def _met(record: Record, case: Case, target: Target, references: dict[str, float | None]) -> bool | None:
    if target.of in references:
        reached = references[target.of]
    else:  # another case of ours, a few seconds away
        ours, other = (_figures(record, key, OURS) for key in (case.key, target.of))
        reached = _ratio(ours, other)
    if reached is None:
        return None
    return reached >= target.bound if case.more_is_better else reached <= target.bound
