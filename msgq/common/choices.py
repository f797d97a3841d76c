"""Arguments that take one text or several, with the rules of msgq.common.selection, but without its expressions.

A program that only publishes and subscribes does not need regular expressions, whose import needs 0.7 MB of memory.
"""

from __future__ import annotations

from _collections_abc import Iterable  # loaded at Python's start, unlike the package `collections`

from msgq.errors import InvalidTypeError, InvalidValueError

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any


def list_names(names: str | Iterable[str], argument: str, *, may_be_empty: bool = False) -> list[str]:
    """Return the names that an argument of a public function selects; see msgq.common.selection.

    Args:
        names: one name, or an iterable of names.
        argument: name of the argument, for errors.
        may_be_empty: True: no name is allowed.

    Raises:
        InvalidTypeError: the argument or a name has another type.
        InvalidValueError: there is no name.
    """
    return list_choices(names, argument, (str,), "a name or a list of names", may_be_empty)


def list_choices(choices: Any, argument: str, types: tuple[type, ...], expected: str, may_be_empty: bool) -> list[Any]:
    """Return one or several choices of these types as a list, as `list_names` does. `expected` describes them."""
    if isinstance(choices, types):
        return [choices]
    if isinstance(choices, (bytes, bytearray, memoryview)) or not isinstance(choices, Iterable):
        raise InvalidTypeError(f"{argument} is {choices!r} of type {type(choices).__name__}; give {expected}")
    every = list(choices)
    for choice in every:
        if not isinstance(choice, types):
            text = f"{argument} contains {choice!r} of type {type(choice).__name__}; give {expected}"
            raise InvalidTypeError(text)
    if not every and not may_be_empty:
        raise InvalidValueError(f"{argument} is empty and selects nothing; give {expected}, or omit it to select all")
    return every
