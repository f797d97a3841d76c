"""Which endpoints a verb is about: names and regular expressions, and what becomes of them while it runs."""

import errno
import re
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import click

from msgq.errors import SegmentError
from msgq.naming import endpoint_name
from msgq.stats import topic_inodes

EXPRESSION = frozenset("*?+|^$\\()[]{}")  # what only regular expressions have; a dot is common in names

_T = TypeVar("_T")


class Names:
    """Names, and regular expressions for whole names; none of either means every endpoint.

    Raises
    ------
    click.UsageError : what looks like a regular expression is none.
    EndpointNameError : what looks like a name cannot be one.
    """

    def __init__(self, patterns: Sequence[str], prefix: str | None) -> None:
        self.plain = {endpoint_name(text) for text in patterns if EXPRESSION.isdisjoint(text)}
        self.prefix = prefix
        self._all = not patterns
        self._text = ", ".join(patterns) or "any endpoint"
        self._expressions = []
        for text in patterns:
            if text in self.plain:
                continue
            try:
                self._expressions.append(re.compile(text))
            except re.error as error:
                raise click.UsageError(f"{text!r} is no regular expression: {error}") from None

    def __str__(self) -> str:
        return self._text

    def __contains__(self, name: str) -> bool:
        return self._all or name in self.plain or any(one.fullmatch(name) for one in self._expressions)

    def existing(self) -> dict[str, int]:
        """Return those that exist now, sorted, with the inodes of their rings; a file whose name is no text is none."""
        found = topic_inodes(self.prefix).items()
        return {name: inode for name, inode in found if name in self and name.encode(errors="ignore").decode() == name}


class Followed(Generic[_T]):
    """One thing for each endpoint that exists, made anew when its ring is.

    Parameters
    ----------
    names : of the endpoints.
    make : returns the thing for an endpoint. What it cannot read is passed over, unless it was asked for by name.
    """

    def __init__(self, names: Names, make: Callable[[str], _T]) -> None:
        self._names, self._make = names, make
        self._inodes: dict[str, int] = {}
        self.things: dict[str, _T] = {}

    def refresh(self) -> None:
        """Look for endpoints that came or went."""
        existing = self._names.existing()
        for name in [name for name, inode in self._inodes.items() if existing.get(name) != inode]:
            del self._inodes[name], self.things[name]
        for name, inode in existing.items():
            if name not in self._inodes:
                try:
                    self.things[name] = self._make(name)
                except SegmentError as error:
                    if error.errno != errno.ENOENT and name in self._names.plain:
                        raise
                else:
                    self._inodes[name] = inode
