"""Differences of two decoded values, with tolerances for numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msgq.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Maximum difference of two numbers: `absolute`, or `relative` to the larger number. The wider tolerance counts."""

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        if not (self.absolute >= 0 and self.relative >= 0):
            raise InvalidValueError(
                f"tolerance {self.absolute} (absolute) or {self.relative} (relative) is negative; use 0 or more"
            )

    def is_close_enough(self, a: float, b: float) -> bool:
        """Return True if two numbers are equal within the tolerance. NaN equals NaN."""
        if a == b or (a != a and b != b) or math.isinf(self.absolute):
            return True
        try:
            apart = abs(a - b)
            return apart <= self.absolute or (math.isfinite(apart) and apart <= self.relative * max(abs(a), abs(b)))
        except OverflowError:  # an integer that no float can be
            return False


ToleranceLookup = Callable[[str], Tolerance]
#: Path, and what is there on both sides.
ValuePair = tuple[str, Any, Any]


class _MissingValue:
    def __repr__(self) -> str:
        return "nothing"


_MISSING_VALUE = _MissingValue()


def find_value_difference(a: Any, b: Any, tolerances: ToleranceLookup, path: str = "") -> ValuePair | None:
    """Return the first pair of values that differ; None: no difference.

    Args:
        a: first decoded value.
        b: second decoded value.
        tolerances: callable that returns the tolerance of a path such as "pose.x" or "ranges[3]". Infinity ignores the
            path.
    """
    a, b = _convert_to_plain_value(a), _convert_to_plain_value(b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return _find_first_difference(_iter_member_pairs(a, b, {**a, **b}, path), tolerances)
    if hasattr(a, "DESCRIPTOR") and type(a) is type(b):  # a protobuf message: an unset field has its default
        names = [field.name for field, _ in (*a.ListFields(), *b.ListFields())]
        a, b = ({name: getattr(message, name) for name in names} for message in (a, b))
        return _find_first_difference(_iter_member_pairs(a, b, names, path), tolerances)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return _find_first_difference(
            ((f"{path}[{i}]", *pair) for i, pair in enumerate(zip(a, b, strict=True))), tolerances
        )
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape and a.dtype == b.dtype:
        return _find_first_difference(_iter_unequal_elements(a, b, path), tolerances)
    if _is_number(a) and _is_number(b):
        return None if tolerances(path).is_close_enough(a, b) else (path, a, b)
    if type(a) is type(b) and not isinstance(a, np.ndarray) and a == b:
        return None
    return None if math.isinf(tolerances(path).absolute) else (path, a, b)


def _find_first_difference(places: Iterable[ValuePair], tolerances: ToleranceLookup) -> ValuePair | None:
    differences = (find_value_difference(a, b, tolerances, path) for path, a, b in places)
    return next((place for place in differences if place is not None), None)


def _iter_member_pairs(
    a: Mapping[Any, Any], b: Mapping[Any, Any], names: Iterable[Any], path: str
) -> Iterable[ValuePair]:
    for name in names:
        yield f"{path}.{name}" if path else str(name), a.get(name, _MISSING_VALUE), b.get(name, _MISSING_VALUE)


def _iter_unequal_elements(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], path: str) -> Iterable[ValuePair]:
    """Yield the pairs of elements that differ. NaN equals NaN."""
    for index in np.argwhere((a != b) & ~((a != a) & (b != b))).tolist():
        yield f"{path}[{','.join(map(str, index))}]", a[tuple(index)], b[tuple(index)]


def _convert_to_plain_value(value: Any) -> Any:
    """Convert a value to a plain Python value. Arrays and protobuf messages stay unchanged."""
    if isinstance(value, np.void) and value.dtype.names:
        return {name: value[name] for name in value.dtype.names}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return list(value) if value.dtype.names else value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return list(value)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
