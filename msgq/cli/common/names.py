"""Which endpoints a verb is about: names and patterns of all kinds, and what becomes of them while it runs."""

import errno
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Generic, TypeVar

import click

from msgq import timing
from msgq.errors import InvalidValueError, SegmentError
from msgq.kinds import CHANNEL, QUEUE, checked, kind_of
from msgq.queue_events import queue_of
from msgq.selection import Choice, Selection, chosen
from msgq.stats import endpoint_inodes

_T = TypeVar("_T")


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


def is_auxiliary(endpoint: str) -> bool:
    """Whether it only tells of another one: a timing topic, or the channel that a queue's events go to."""
    return timing.timed(endpoint) is not None or _queue(endpoint) is not None


def is_told_by_queue(endpoint: str, existing: Container[str]) -> bool:
    """Whether it is the channel of a queue's events, and the queue, which tells the same, is among the existing."""
    queue = _queue(endpoint)
    return queue is not None and queue in existing


def _queue(endpoint: str) -> str | None:
    """Return the queue whose events go to an endpoint that is called so, with its mark."""
    queue = queue_of(CHANNEL.plain(endpoint)) if kind_of(endpoint) is CHANNEL else None
    return None if queue is None else QUEUE.mark + queue


def missing_error(missing: Iterable[str], existing: Iterable[str]) -> click.ClickException:
    """Return the error for names that are not there; some that exist may have been meant, without their marks."""
    names = sorted(missing)
    meant = [name for name in existing if name not in names and kind_of(name).plain(name) in names]
    hint = f"did you mean {', '.join(meant)}?" if meant else "`msgq list` shows what there is"
    return click.ClickException(f"there is no {', '.join(names)}; {hint}")


class Names:
    """Names with their marks, and patterns for whole names; none of either means every endpoint, of all kinds.

    Parameters
    ----------
    auxiliary : include those that only tell of others, see `is_auxiliary`. Else every endpoint leaves them out, and a
        pattern the channels of events whose queues are there; a name means its endpoint in any case.

    Raises
    ------
    click.UsageError : what looks like a pattern is none.
    EndpointNameError : what looks like a name cannot be one.
    """

    def __init__(self, texts: Sequence[str], prefix: str | None, auxiliary: bool = False) -> None:
        self._selection = Selection([checked(one) if isinstance(one, str) else one for one in choices(texts)] or None)
        self._auxiliary, self._every = auxiliary, not texts
        self.plain = self._selection.names
        self.prefix = prefix
        self._text = ", ".join(texts) or "any endpoint"

    def __str__(self) -> str:
        return self._text

    def __contains__(self, name: str) -> bool:
        return name in self._selection and (self._auxiliary or not self._every or not is_auxiliary(name))

    def existing(self) -> dict[str, int]:
        """Return those that exist now, in the order of `msgq.stats.endpoints`, with the inodes of their files.

        A file whose name is no text is none.
        """
        every = endpoint_inodes(self.prefix)
        return {name: inode for name, inode in every.items() if name in self and self._counts(name, every)}

    def _counts(self, name: str, every: Container[str]) -> bool:
        """Whether one that exists and is selected is meant, beside the others that exist."""
        told = not self._auxiliary and name not in self.plain and is_told_by_queue(name, every)
        return not told and name.encode(errors="ignore").decode() == name


class Followed(Generic[_T]):
    """One thing for each endpoint that exists, made anew when its file is.

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
