"""Checks of the arguments of a writer of recordings."""

from __future__ import annotations

import operator
from typing import Any

from msgq.errors import InvalidTypeError, InvalidValueError

_TIME_NS_MAX = (1 << 63) - 2  # also that of a message


def to_integer(name: str, value: Any) -> int:
    """Return an integer, also one of NumPy, as an int.

    Raises:
        InvalidTypeError: the value is no integer.
    """
    try:
        return operator.index(value)
    except TypeError:
        unit = " of ns since the epoch" if name.endswith("time") else ""
        raise InvalidTypeError(f"{name} is of type {type(value).__name__}; give an int{unit}") from None


def check_time(name: str, value: Any) -> int:
    """Return a time in ns.

    Raises:
        InvalidTypeError: the value is no integer.
        InvalidValueError: the time is before 1970 or after 2262.
    """
    time_ns = to_integer(name, value)
    if not 0 <= time_ns <= _TIME_NS_MAX:
        raise InvalidValueError(f"{name}={time_ns} is out of range; use 0 to {_TIME_NS_MAX}")
    return time_ns


def check_texts(owner: str, *texts: Any) -> None:
    """Raise an error if a text of an owner, such as "metadata", cannot be written.

    Raises:
        InvalidTypeError: a text is no str.
        InvalidValueError: a text is not UTF-8.
    """
    for text in texts:
        if not isinstance(text, str):
            raise InvalidTypeError(f"text {text!r} of {owner} is of type {type(text).__name__}; give a str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(f"text {text!r} of {owner} is not UTF-8: {error.reason}; give other text") from None
