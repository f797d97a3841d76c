"""Checks of values for integer fields, because NumPy's assignment truncates 1.5 to 1, and converts "7" to 7."""

from __future__ import annotations

import operator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from msgq.errors import RecordTypeError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@cache
def _list_integer_types() -> frozenset[type]:
    import numpy as np

    return frozenset({int, bool, np.bool_, *(np.dtype(code).type for code in "bBhHiIlLqQ")})


class IntegerFieldCheck:
    """Checks the values of records. The values have the structure of the dtype: NumPy has converted them.

    Attributes:
        integer_positions: positions of the fields that are integers; empty if other fields contain integers.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype, self._integer_types = dtype, _list_integer_types()
        names = dtype.names or ()
        positions = [position for position, name in enumerate(names) if dtype[name].kind in "iu"]
        self._get_integers = operator.itemgetter(*positions, positions[-1]) if positions else None
        self._composite_fields = [
            (position, name, dtype[name])
            for position, name in enumerate(names)
            if dtype[name].kind == "V" and _has_integers(dtype[name])
        ]
        self.integer_positions = () if self._composite_fields else tuple(positions)

    def check_records(self, records: Any, dimensions: int, endpoint: str) -> None:
        """Call `check_values` for one record (0 dimensions), or for each record of nested sequences."""
        if not dimensions or self._dtype.names is None or isinstance(records, memoryview):
            self.check_values(records, endpoint)
            return
        for record in records:
            self.check_records(record, dimensions - 1, endpoint)

    def check_values(self, values: Any, endpoint: str) -> None:
        """Raise `RecordTypeError` if an integer field of a record has a value of another kind."""
        if self._dtype.names is None or not isinstance(values, tuple):
            _check_field(values, self._dtype, "", endpoint)
            return
        if self._get_integers is not None and not self._integer_types.issuperset(map(type, self._get_integers(values))):
            _check_field(values, self._dtype, "", endpoint)  # names the field, and accepts other integers
            return
        for position, name, dtype in self._composite_fields:
            _check_field(values[position], dtype, name, endpoint)


def _check_field(value: Any, dtype: np.dtype[Any], field: str, endpoint: str) -> None:
    """Check a value of a field; ``field=""``: the whole record."""
    import numpy as np

    given_dtype: Any = getattr(value, "dtype", None)  # tensors of other libraries have dtypes without names
    if getattr(given_dtype, "names", None) is not None:
        is_integer = np.can_cast(given_dtype, dtype.base, "same_kind")
    elif dtype.names is not None and isinstance(value, (tuple, list)):
        for name, member in zip(dtype.names, value, strict=False):
            _check_field(member, dtype[name], f"{field}.{name}" if field else name, endpoint)
        return
    elif dtype.shape and dtype.base.names is not None:
        element = np.dtype((dtype.base, dtype.shape[1:]))
        for member in [value] if isinstance(value, tuple) else value:
            _check_field(member, element, field, endpoint)
        return
    else:
        is_integer = not _has_integers(dtype) or _is_integer(value, dtype)
    if not is_integer:
        owner = f"field {field!r}" if field else "value"
        text = f"{owner} is {value!r:.80}, of type {type(value).__name__}, but the schema has {dtype.base}"
        raise RecordTypeError(f"{text}; convert it, for example with round(...) or int(...)", endpoint)


@lru_cache(maxsize=256)
def make_integer_check(dtype: np.dtype[Any]) -> IntegerFieldCheck | None:
    """Return the check of a dtype; None: the dtype has no integers."""
    return IntegerFieldCheck(dtype) if _has_integers(dtype) else None


def _has_integers(dtype: np.dtype[Any]) -> bool:
    base = dtype.base
    return base.kind in "iu" if base.names is None else any(_has_integers(base[name]) for name in base.names)


def _is_integer(value: npt.ArrayLike, dtype: np.dtype[Any]) -> bool:
    """Return True for an integer, for nested lists of integers, and for an array or buffer that `dtype` accepts."""
    import numpy as np

    if type(value) in _list_integer_types():
        return True
    array = np.asarray(value)
    if array.dtype.names is not None:
        return np.can_cast(array.dtype, dtype.base, "same_kind")
    return array.dtype.kind in "biu" or not array.size or all(map(_is_index, np.array(value, object).flat))


def _is_index(value: object) -> bool:
    """Return True for an integer. NumPy makes floats of lists that need both int64 and uint64, such as [2**63, 1]."""
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
