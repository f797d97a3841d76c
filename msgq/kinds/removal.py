"""What is said of remains of every kind, as values; why something goes or stays."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgq.common.texts import some
from msgq.errors import CorruptSegmentError, EndpointNameError, LayoutVersionError, SegmentError


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of something in shared memory.

    Attributes
    ----------
    endpoint : whose it was, of a channel as `channel/NAME`; "" for the directory of a prefix that ended.
    prefix : of the endpoint, "" for none.
    path : of the file; of a topic its ring, of a channel its file.
    bytes : of the file; of a topic those of the ring's data area, of a channel those of all its files.
    reason : why it went, or why it was kept.
    removed : whether it is gone; or would be, where that was only asked.
    forcible : it was kept, and `force` would remove it.
    """

    endpoint: str
    prefix: str
    path: str
    bytes: int
    reason: str
    removed: bool = True
    forcible: bool = False


class Users(NamedTuple):
    """Who uses a topic or a channel, in words: those that live, and those of whom nobody here can say that."""

    living: tuple[str, ...]
    unknown: tuple[str, ...]


class Issue(NamedTuple):
    """Something that is not as it should be. `wrong`: it keeps this user from using the topic or the channel."""

    text: str
    wrong: bool


def reason(living: Sequence[str], unknown: Sequence[str], nobody: str = "nobody uses it") -> str:
    """Return why something goes or stays that these use, see `Users`; `nobody` says that there are none."""
    if living:
        return f"in use by {some(living)}"
    return f"in use by processes of unknown liveness: {some(unknown)}" if unknown else nobody


def by_role(dead: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return a text per role about its dead participants, with their count. dead : pairs of role and participant."""
    found: dict[str, list[str]] = {}
    for role, who in dead:
        found.setdefault(role, []).append(str(who))
    return {
        role: f"{role} {who[0]}" if len(who) == 1 else f"{len(who)} {role}s: {some(who)}" for role, who in found.items()
    }


def remove_directories(rings: str, sides: str) -> None:
    """Remove the directories of a prefix that ended; not when somebody has come, for the ring comes first."""
    with contextlib.suppress(OSError):  # not empty
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(rings)
        os.rmdir(sides)


def read_issues(names: Iterable[str], prefix: str, read: Callable[[str, str], object]) -> list[Issue]:
    """Return why some of these cannot be read, by a function of `msgq.stats`: damaged (wrong), or not for this user."""
    flaws = []
    for name in names:
        try:
            read(name, prefix)
        except (SegmentError, EndpointNameError) as error:  # a name that is no text, too
            if error.errno != errno.ENOENT:  # else it was removed meanwhile
                damaged = isinstance(error, (CorruptSegmentError, LayoutVersionError))
                flaws.append(Issue(str(error), wrong=damaged))
    return flaws
