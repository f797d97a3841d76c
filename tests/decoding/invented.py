"""Values of any definition, invented; and whether two values are the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from msgq.decoding.type_model import Array, Enum, Number, Sequence, Struct, Text, Type, is_octets


def invented(of: Type, chance: random.Random) -> Any:
    """Return a value as decoders give it, of numbers that each form has."""
    match of:
        case Number():
            return _numbers(of, 1, chance)[0].item()
        case Text():
            return chance.choice(["", "a", "é€", "map", "text " * 9])
        case Enum():
            return chance.choice([*of.names.values()])
        case Struct():
            return {name: invented(kind, chance) for name, kind in of.fields}
        case Array() | Sequence():
            count = of.length if isinstance(of, Array) else chance.choice([0, 1, 3])
            if is_octets(of):
                return chance.randbytes(count)
            if isinstance(of.value_type, Number):
                return _numbers(of.value_type, count, chance)
            return [invented(of.value_type, chance) for _ in range(count)]
    raise TypeError(of)


def _numbers(of: Number, count: int, chance: random.Random) -> np.ndarray[Any, Any]:
    kind = np.dtype(of.code)
    if kind.kind == "b":
        return np.array([chance.random() < 0.5 for _ in range(count)], kind)
    if kind.kind == "f":
        return np.array([chance.uniform(-1e9, 1e9) for _ in range(count)], kind)
    return np.frombuffer(chance.randbytes(kind.itemsize * count), kind)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are of the same kinds, and equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and bool(one == other)
