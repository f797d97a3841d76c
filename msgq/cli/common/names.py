"""Which endpoints a verb is about: names and patterns, and what becomes of them while it runs."""

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import click

from msgq.errors import InvalidValueError, SegmentError
from msgq.naming import CHANNEL_MARK, QUEUE_MARK, RECORDS_MARK, endpoint_name
from msgq.selection import Choice, Selection, chosen
from msgq.stats import channel_inodes, queue_inodes, record_inodes, topic_inodes

_T = TypeVar("_T")

_MARKED = {CHANNEL_MARK: channel_inodes, QUEUE_MARK: queue_inodes, RECORDS_MARK: record_inodes}
MARKS = tuple(_MARKED)  # of what is no topic


def choices(texts: Sequence[str]) -> tuple[Choice, ...]:
    """Return what the names and patterns mean that a user wrote.

    Raises
    ------
    click.UsageError : what looks like a pattern is none.
    """
    try:
        return tuple(map(chosen, texts))
    except InvalidValueError as error:
        raise click.UsageError(str(error)) from None


def topic_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts that may mean topics."""
    return [text for text in texts if not text.startswith(MARKS)]


def marked_names(prefix: str | None) -> list[str]:
    """Return the names of all that is there and no topic, with their marks."""
    return [mark + name for mark, inodes in _MARKED.items() for name in inodes(prefix)]


def missing_error(missing: Iterable[str], marked: Iterable[str]) -> click.ClickException:
    """Return the error for names that are not there; one of `marked` may have been meant, without its mark."""
    names = sorted(missing)
    meant = [name for name in marked if name.startswith(MARKS) and name.partition("/")[2] in names]
    hint = f"did you mean {', '.join(meant)}?" if meant else "`msgq list` shows what there is"
    return click.ClickException(f"there is no {', '.join(names)}; {hint}")


class Names:
    """Names, and patterns for whole names; none of either means every endpoint.

    Raises
    ------
    click.UsageError : what looks like a pattern is none.
    EndpointNameError : what looks like a name cannot be one.
    """

    def __init__(self, texts: Sequence[str], prefix: str | None) -> None:
        self._selection = Selection(choices(texts) or None)
        if marked := [name for name in self._selection.names if name.startswith(MARKS)]:
            known = "only list, info and clean know channels, queues and records"
            raise click.UsageError(f"{', '.join(marked)}: {known}; this is for topics")
        self.plain = {endpoint_name(name) for name in self._selection.names}
        self.prefix = prefix
        self._text = ", ".join(texts) or "any endpoint"

    def __str__(self) -> str:
        return self._text

    def __contains__(self, name: str) -> bool:
        return name in self._selection

    def existing(self) -> dict[str, int]:
        """Return those that exist now, sorted, with the inodes of their rings; a file whose name is no text is none."""
        rings = topic_inodes(self.prefix).items()
        return {name: inode for name, inode in rings if name in self and name.encode(errors="ignore").decode() == name}


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
        self.by_name: dict[str, _T] = {}

    def refresh(self) -> None:
        """Look for endpoints that came or went."""
        existing = self._names.existing()
        for name in [name for name, inode in self._inodes.items() if existing.get(name) != inode]:
            del self._inodes[name], self.by_name[name]
        for name, inode in existing.items():
            if name not in self._inodes:
                try:
                    self.by_name[name] = self._make(name)
                except SegmentError as error:
                    if error.errno != errno.ENOENT and name in self._names.plain:
                        raise
                else:
                    self._inodes[name] = inode
