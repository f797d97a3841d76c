"""Values of any definition, drawn at random; and whether two values are the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType, is_byte_array
from msgq.decoding.scalar_types import ScalarType, TextType


def random_value(value_type: CdrType, chance: random.Random) -> Any:
    """Return a value as decoders give it, of numbers that each form has."""
    match value_type:
        case ScalarType(enum_names=None):
            return _numbers(value_type, 1, chance)[0].item()
        case TextType():
            return chance.choice(["", "a", "é€", "map", "text " * 9])
        case ScalarType(enum_names=names):
            return chance.choice([*(names or {}).values()])
        case CdrStruct():
            return {name: random_value(kind, chance) for name, kind in value_type.fields}
        case CdrArray() | CdrSequence():
            count = value_type.element_count if isinstance(value_type, CdrArray) else chance.choice([0, 1, 3])
            if is_byte_array(value_type):
                return chance.randbytes(count)
            if isinstance(value_type.element_type, ScalarType) and value_type.element_type.enum_names is None:
                return _numbers(value_type.element_type, count, chance)
            return [random_value(value_type.element_type, chance) for _ in range(count)]
    raise TypeError(value_type)


def _numbers(number_type: ScalarType, count: int, chance: random.Random) -> np.ndarray[Any, Any]:
    kind = np.dtype(number_type.code)
    if kind.kind == "b":
        return np.array([chance.random() < 0.5 for _ in range(count)], kind)
    if kind.kind == "f":
        return np.array([chance.uniform(-1e9, 1e9) for _ in range(count)], kind)
    return np.frombuffer(chance.randbytes(kind.itemsize * count), kind)


def same(value: Any, other: Any) -> bool:
    """Return whether two values are of the same kinds, and equal."""
    if isinstance(value, dict) and isinstance(other, dict):
        return list(value) == list(other) and all(same(value[name], other[name]) for name in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, np.ndarray) and isinstance(other, np.ndarray):
        return value.dtype == other.dtype and np.array_equal(value, other, equal_nan=value.dtype.kind == "f")
    return type(value) is type(other) and bool(value == other)
