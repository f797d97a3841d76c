"""Removal of unused endpoints and of leftovers of dead processes. Interface of the file cleanup.py of each kind.

Files that a living process may use are never removed. A removed file loses its name only: processes that have mapped
the file continue to use it. Prefixes are those of `settings.resolve_prefix`, "" for none.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

from msgq.common.shm_paths import strip_bus
from msgq.common.texts import join_first_texts
from msgq.errors import CorruptSegmentError, EndpointNameError, LayoutVersionError, SegmentError


@dataclass(frozen=True, slots=True)
class FileRemoval:
    """Result of a removal, or the reason against it.

    Attributes:
        endpoint: endpoint of the file, for example `channel/NAME`; "" for the directory of a prefix.
        prefix: prefix of the endpoint; "": none.
        path: path of the file: for a topic its ring, for a channel its main file.
        bytes: bytes of the file: for a topic, of the ring's data area; for a channel, of all its files.
        reason: reason for the removal, or against it.
        removed: True if the file was removed. In a dry run: True if it would be removed.
        can_be_forced: True if the file was kept, and `force` would remove it.
    """

    endpoint: str
    prefix: str
    path: str
    bytes: int
    reason: str
    removed: bool = True
    can_be_forced: bool = False

    def __post_init__(self) -> None:
        """Give the prefix as the program gives it, without the name of its bus."""
        object.__setattr__(self, "prefix", strip_bus(self.prefix))


class EndpointUsers(NamedTuple):
    """Processes that use an endpoint, as texts: living processes, and processes of unknown liveness."""

    living_users: tuple[str, ...]
    unknown_users: tuple[str, ...]


Severity = Literal["error", "warning"]
ERROR: Final = "error"
WARNING: Final = "warning"


class EndpointIssue(NamedTuple):
    """A problem of an endpoint. An error prevents this user from using the endpoint, a warning does not."""

    text: str
    severity: Severity


class RepairReport(NamedTuple):
    """Result of a repair: texts about completed repairs, and about failed repairs."""

    completed_repairs: list[str]
    failed_repairs: list[str]


class RemoveUnused(Protocol):
    """Removes endpoints of a kind that no living process uses, each under its lock."""

    def __call__(self, names: Iterable[str], prefix: str, /, *, remove: bool, force: bool) -> Iterator[FileRemoval]:
        """Yield the result for each endpoint.

        Args:
            names: bare names. An endpoint that another process removes during the call is skipped.
            remove: False: only report what would be removed.
            force: True: also remove endpoints with users of unknown liveness. Endpoints with living users always stay.
        """


def _repair_nothing(_prefix: str) -> RepairReport:
    return RepairReport([], [])


@dataclass(frozen=True, slots=True)
class KindCleanup:
    """Functions that remove unused endpoints of a kind, and leftovers of dead processes.

    Attributes:
        remove_unused: removes endpoints that no living process uses.
        remove_orphans: takes a prefix and whether to remove; removes files without an endpoint, and empty directories.
        diagnose: takes statistics of an endpoint; returns its issues.
        repair: takes a prefix; repairs endpoints after the death of processes, and removes what only dead processes
            used.
        list_keep_reasons: takes a prefix; yields for each endpoint the reason why it stays. None: endpoints of this
            kind are also removed if the user does not name them.
    """

    remove_unused: RemoveUnused
    remove_orphans: Callable[[str, bool], Iterable[FileRemoval]]
    diagnose: Callable[[Any], list[EndpointIssue]]
    repair: Callable[[str], RepairReport] = _repair_nothing
    list_keep_reasons: Callable[[str], Iterator[FileRemoval]] | None = None

    def find_orphans(self, prefix: str) -> list[EndpointIssue]:
        """Return issues about files without an endpoint."""
        return []


def describe_removals(removals: Iterable[FileRemoval]) -> RepairReport:
    """Return removals as the result of a repair."""
    every = list(removals)
    done = [
        f"removed {removal.endpoint}: {removal.reason}" for removal in every if removal.removed and removal.endpoint
    ]
    return RepairReport(done, [removal.reason for removal in every if not removal.removed])


def explain_removal(living: Sequence[str], unknown: Sequence[str], nobody: str = "no process uses it") -> str:
    """Return the reason for or against a removal; see `EndpointUsers`. `nobody`: text for an endpoint without users."""
    if living:
        return f"in use by {join_first_texts(living)}"
    return f"in use by processes of unknown liveness: {join_first_texts(unknown)}" if unknown else nobody


def count_by_role(dead: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return a text about dead participants for each role. `dead`: pairs of role and participant."""
    users_by_role: dict[str, list[str]] = {}
    for role, users in dead:
        users_by_role.setdefault(role, []).append(str(users))
    return {
        role: f"{role} {users[0]}" if len(users) == 1 else f"{len(users)} {role}s: {join_first_texts(users)}"
        for role, users in users_by_role.items()
    }


def remove_directories(rings: str, sides: str) -> None:
    """Remove the empty directories of a prefix, the rings' directory first. A directory with files stays."""
    with contextlib.suppress(OSError):  # not empty
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(rings)
        os.rmdir(sides)


def read_issues(names: Iterable[str], prefix: str, read: Callable[[str, str], object]) -> list[EndpointIssue]:
    """Return the reasons why `read` fails for some endpoints: errors for damaged files, warnings for other failures."""
    issues = []
    for name in names:
        try:
            read(name, prefix)
        except (SegmentError, EndpointNameError) as error:  # a name that is no text, too
            if error.errno != errno.ENOENT:  # ENOENT: another process has removed it
                damaged = isinstance(error, (CorruptSegmentError, LayoutVersionError))
                issues.append(EndpointIssue(str(error), severity=ERROR if damaged else WARNING))
    return issues
