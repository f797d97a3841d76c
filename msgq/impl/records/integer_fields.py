"""Checks of values for integer fields, because NumPy's assignment truncates 1.5 to 1, and converts "7" to 7."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.errors import RecordTypeError

if TYPE_CHECKING:
    import numpy.typing as npt

_INTEGER_TYPES = frozenset({int, bool, np.bool_, *(np.dtype(code).type for code in "bBhHiIlLqQ")})


class IntegerFieldCheck:
    """Checks the values of one record. The values have the structure of the dtype: NumPy has converted them."""

    def __init__(self, dtype: np.dtype[Any], endpoint: str) -> None:
        self._dtype, self._endpoint = dtype, endpoint
        names = dtype.names or ()
        places = [place for place, name in enumerate(names) if dtype[name].kind in "iu"]
        self._get_integers = operator.itemgetter(*places, places[-1]) if places else None
        self._composite_fields = [
            (place, name, dtype[name])
            for place, name in enumerate(names)
            if dtype[name].kind == "V" and _has_integers(dtype[name])
        ]

    def check_values(self, values: Any) -> None:
        """Raise `RecordTypeError` if an integer field has a value of another kind."""
        if self._dtype.names is None or not isinstance(values, tuple):
            self._check_field(values, self._dtype, "")
            return
        if self._get_integers is not None and not _INTEGER_TYPES.issuperset(map(type, self._get_integers(values))):
            self._check_field(values, self._dtype, "")  # names the field, and accepts other integers
            return
        for place, name, dtype in self._composite_fields:
            self._check_field(values[place], dtype, name)

    def _check_field(self, value: Any, dtype: np.dtype[Any], field: str) -> None:
        """Check a value of a field; ``field=""``: the whole record."""
        if hasattr(value, "dtype") and value.dtype.names is not None:
            is_integer = np.can_cast(value.dtype, dtype.base, "same_kind")
        elif dtype.names is not None:
            for name, member in zip(dtype.names, value, strict=False):
                self._check_field(member, dtype[name], f"{field}.{name}" if field else name)
            return
        elif dtype.base.names is not None:
            element = np.dtype((dtype.base, dtype.shape[1:]))
            for member in [value] if isinstance(value, tuple) else value:
                self._check_field(member, element, field)
            return
        else:
            is_integer = dtype.base.kind not in "iu" or _is_integer(value)
        if not is_integer:
            owner = f"field {field!r}" if field else "message"
            text = f"{owner} is {value!r:.80}, of type {type(value).__name__}, but the schema has {dtype.base}"
            raise RecordTypeError(f"{text}; convert it, for example with round(...) or int(...)", self._endpoint)


def make_integer_check(dtype: np.dtype[Any], endpoint: str) -> IntegerFieldCheck | None:
    """Return the check of a dtype; None: the dtype has no integers."""
    return IntegerFieldCheck(dtype, endpoint) if _has_integers(dtype) else None


def _has_integers(dtype: np.dtype[Any]) -> bool:
    base = dtype.base
    return base.kind in "iu" if base.names is None else any(_has_integers(base[name]) for name in base.names)


def _is_integer(value: npt.ArrayLike) -> bool:
    """Return True for an integer, and for an array or nested lists of integers."""
    return type(value) in _INTEGER_TYPES or np.asarray(value).dtype.kind in "biu"
