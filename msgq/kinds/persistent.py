"""Kinds whose endpoints keep their content while no process uses them: queues, vectors and boards.

An unused endpoint of these kinds is not a leftover. Such an endpoint is removed only if the user names it and no living
process has it open. The removal holds the lock that opening processes need, so a later open creates a new endpoint.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgq.common import shm_paths
from msgq.common.stats import Participant
from msgq.errors import SegmentError
from msgq.kinds import Kind
from msgq.kinds.cleanup import EndpointUsers, FileRemoval, explain_removal
from msgq.kinds.snapshots import read, read_all


class FileStats(Protocol):
    """Statistics of an endpoint in one file."""

    @property
    def name(self) -> str:
        """Name of the endpoint."""

    @property
    def path(self) -> str:
        """Path of its file."""

    @property
    def bytes(self) -> int:
        """Bytes of its file."""


_StatsType = TypeVar("_StatsType", bound=FileStats)


@dataclass(frozen=True, slots=True)
class PersistentKind(Generic[_StatsType]):
    """A kind whose endpoints keep their content without processes, and are removed only if the user names them.

    Attributes:
        kind: the kind.
        noun: noun for an endpoint of this kind.
        remove: removes an endpoint if a function agrees. The function is called under the lock of opening processes.
        participants: return the processes that have an endpoint open.
        describe_contents: return a text about the content, to append to the reason; "" without content.
        unused_reason: text about an endpoint without users.
    """

    kind: Kind
    noun: str
    remove: Callable[[str, str, Callable[[_StatsType], bool]], bool]
    participants: Callable[[_StatsType], Iterable[Participant]]
    describe_contents: Callable[[_StatsType], str]
    unused_reason: str = "no process uses it"

    def list_users(self, stats: _StatsType) -> EndpointUsers:
        """Return the processes that have an endpoint open."""
        participants = list(self.participants(stats))
        living = [str(participant) for participant in participants if participant.alive]
        unknown = [str(participant) for participant in participants if participant.alive is None]
        return EndpointUsers(tuple(dict.fromkeys(living)), tuple(dict.fromkeys(unknown)))

    def list_keep_reasons(self, prefix: str) -> Iterator[FileRemoval]:
        """Yield for each endpoint of a prefix the reason why it stays if the user does not name it."""
        for stats in read_all(self.kind, prefix):
            living, _ = self.list_users(stats)
            reason = explain_removal(living, ()) if living else f"to remove a {self.noun}, name it"
            yield self._make_removal(stats, prefix, reason, removed=False)

    def remove_unused(
        self, names: Iterable[str], prefix: str, *, remove: bool = True, force: bool = False
    ) -> Iterator[FileRemoval]:
        """Remove endpoints that no process has open, with their content, and yield the result for each.

        Args:
            names: bare names. An endpoint that another process removes during the call is skipped.
            remove: as in `RemoveUnused`.
            force: as in `RemoveUnused`.
        """
        for name in names:
            try:
                yield self._remove_unused(name, prefix, remove, force)
            except SegmentError as error:
                if error.errno != errno.ENOENT:  # ENOENT: another process has removed it
                    yield FileRemoval(self.kind.endpoint(name), prefix, error.path, 0, str(error), removed=False)

    def remove_orphans(self, prefix: str, remove: bool = True) -> tuple[FileRemoval, ...]:
        """Remove the directory of a prefix if it is empty.

        A process that creates an endpoint creates the directory again.
        """
        with contextlib.suppress(OSError):  # the directory has files, or is missing
            if remove and shm_paths.has_directories(prefix) and self.kind.locate_files is not None:
                os.rmdir(self.kind.locate_files(prefix)[0])
        return ()

    def _remove_unused(self, name: str, prefix: str, remove: bool, force: bool) -> FileRemoval:
        seen: list[_StatsType] = []

        def is_unused(stats: _StatsType) -> bool:
            seen.append(stats)
            living, unknown = self.list_users(stats)
            return not living and (force or not unknown)

        goes = self.remove(name, prefix, is_unused) if remove else is_unused(read(self.kind, name, prefix))
        stats = seen[-1]
        living, unknown = self.list_users(stats)
        reason = explain_removal(living, unknown, self.unused_reason)
        return self._make_removal(stats, prefix, reason, removed=goes, can_be_forced=not goes and not living)

    def _make_removal(
        self, stats: _StatsType, prefix: str, reason: str, removed: bool, can_be_forced: bool = False
    ) -> FileRemoval:
        place = self.kind.endpoint(stats.name), prefix, stats.path, stats.bytes
        return FileRemoval(*place, reason + self.describe_contents(stats), removed, can_be_forced)
