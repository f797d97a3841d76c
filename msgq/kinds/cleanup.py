"""What dead processes leave, and its removal. Interface of the file cleanup.py of each kind.

Nothing is removed that a living process may be using. A process that has mapped a file keeps the mapping: only the
name goes. Prefixes are those of `settings.resolve_prefix`, "" for none.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

from msgq.common.texts import join_first_texts
from msgq.errors import CorruptSegmentError, EndpointNameError, LayoutVersionError, SegmentError


@dataclass(frozen=True, slots=True)
class FileRemoval:
    """What became of something in shared memory.

    Attributes
    ----------
    endpoint : whose it was, of a channel as `channel/NAME`; "" for the directory of a prefix that ended.
    prefix : of the endpoint, "" for none.
    path : of the file; of a topic its ring, of a channel its file.
    bytes : of the file; of a topic those of the ring's data area, of a channel those of all its files.
    reason : why it went, or why it was kept.
    removed : whether it is gone; or would be, where that was only asked.
    can_be_forced : it was kept, and `force` would remove it.
    """

    endpoint: str
    prefix: str
    path: str
    bytes: int
    reason: str
    removed: bool = True
    can_be_forced: bool = False


class EndpointUsers(NamedTuple):
    """Who uses a topic or a channel, in words: those that live, and those of whom nobody here can say that."""

    living_users: tuple[str, ...]
    unknown_users: tuple[str, ...]


Severity = Literal["error", "warning"]
ERROR: Final = "error"
WARNING: Final = "warning"


class EndpointIssue(NamedTuple):
    """Something that a supervisor should know. An error keeps this user from using the endpoint, a warning does not."""

    text: str
    severity: Severity


class RepairReport(NamedTuple):
    """What a repair did, and what it could not do though it should, a text each."""

    completed_repairs: list[str]
    failed_repairs: list[str]


class RemoveUnused(Protocol):
    """Removes endpoints of a kind that no living process uses, each under its lock."""

    def __call__(self, names: Iterable[str], prefix: str, /, *, remove: bool, force: bool) -> Iterator[FileRemoval]:
        """Give the result for each.

        Parameters
        ----------
        names : bare names; those that another process removes in the meantime are passed over.
        remove : False: only say what would be removed.
        force : also remove endpoints of which nobody can say whether they are used; never one with a living user.
        """


def _find_no_issues(_prefix: str) -> list[EndpointIssue]:
    return []


def _repair_nothing(_prefix: str) -> RepairReport:
    return RepairReport([], [])


@dataclass(frozen=True, slots=True)
class KindCleanup:
    """What becomes of endpoints of a kind that no living process uses, and what dead processes leave.

    Attributes
    ----------
    check, noun : the name of the doctor's check, and several endpoints of the kind in its text.
    remove_unused : removes endpoints.
    remove_orphans : takes a prefix, and whether to remove; removes files that belong to no endpoint, and empty
        directories.
    diagnose : takes statistics; returns what a supervisor should know of an endpoint.
    find_orphans : takes a prefix; returns the files that belong to no endpoint.
    repair : takes a prefix; repairs what dead processes left, and removes what only they used.
    list_keep_reasons : takes a prefix; says of each endpoint why it stays. None: endpoints of this kind are removed
        also without being named.
    """

    check: str
    noun: str
    remove_unused: RemoveUnused
    remove_orphans: Callable[[str, bool], Iterable[FileRemoval]]
    diagnose: Callable[[Any], list[EndpointIssue]]
    find_orphans: Callable[[str], list[EndpointIssue]] = _find_no_issues
    repair: Callable[[str], RepairReport] = _repair_nothing
    list_keep_reasons: Callable[[str], Iterator[FileRemoval]] | None = None


def describe_removals(removals: Iterable[FileRemoval]) -> RepairReport:
    """Return removals as the result of a repair."""
    every = list(removals)
    done = [
        f"removed {removal.endpoint}: {removal.reason}" for removal in every if removal.removed and removal.endpoint
    ]
    return RepairReport(done, [removal.reason for removal in every if not removal.removed])


def explain_removal(living: Sequence[str], unknown: Sequence[str], nobody: str = "no process uses it") -> str:
    """Return why something goes or stays that these use, see `EndpointUsers`; `nobody` says that there are none."""
    if living:
        return f"in use by {join_first_texts(living)}"
    return f"in use by processes of unknown liveness: {join_first_texts(unknown)}" if unknown else nobody


def count_by_role(dead: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return a text per role about its dead participants, with their count. dead : pairs of role and participant."""
    users_by_role: dict[str, list[str]] = {}
    for role, users in dead:
        users_by_role.setdefault(role, []).append(str(users))
    return {
        role: f"{role} {users[0]}" if len(users) == 1 else f"{len(users)} {role}s: {join_first_texts(users)}"
        for role, users in users_by_role.items()
    }


def remove_directories(rings: str, sides: str) -> None:
    """Remove the directories of a prefix that ended; not when somebody has come, for the ring comes first."""
    with contextlib.suppress(OSError):  # not empty
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(rings)
        os.rmdir(sides)


def read_issues(names: Iterable[str], prefix: str, read: Callable[[str, str], object]) -> list[EndpointIssue]:
    """Return why some endpoints cannot be read by a function of `msgq.stats`: damaged (errors), or not for us."""
    issues = []
    for name in names:
        try:
            read(name, prefix)
        except (SegmentError, EndpointNameError) as error:  # a name that is no text, too
            if error.errno != errno.ENOENT:  # else it was removed meanwhile
                damaged = isinstance(error, (CorruptSegmentError, LayoutVersionError))
                issues.append(EndpointIssue(str(error), severity=ERROR if damaged else WARNING))
    return issues
