"""Removal of unused endpoints, each under the lock that opening processes need."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgq.common.stats import Participant
from msgq.errors import SegmentError
from msgq.kinds import Kind
from msgq.kinds.cleanup import EndpointUsers, FileRemoval, explain_removal
from msgq.kinds.snapshots import read


class FileStats(Protocol):
    """Statistics of an endpoint with a file."""

    @property
    def path(self) -> str:
        """Path of its file."""


StatsType = TypeVar("StatsType", bound=FileStats)


def find_users(participants: Iterable[Participant]) -> EndpointUsers:
    """Return the processes of participants that are not known to be dead, each once."""
    every = list(participants)
    living, unknown = ([str(one) for one in every if one.alive is alive] for alive in (True, None))
    return EndpointUsers(tuple(dict.fromkeys(living)), tuple(dict.fromkeys(unknown)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRemover(Generic[StatsType]):
    """Removes endpoints of a kind that no process uses.

    Attributes:
        kind: the kind.
        remove: takes a bare name, a prefix and a function; removes the endpoint if the function agrees. The function is
            called under the lock of opening processes. Returns True if the endpoint was removed.
        list_users: returns the processes that use an endpoint.
        unused_reason: text about an endpoint without users.
        describe_contents: returns a text about the content, to append to the reason; "" without content.
    """

    kind: Kind
    remove: Callable[[str, str, Callable[[StatsType], bool]], bool]
    list_users: Callable[[StatsType], EndpointUsers]
    unused_reason: str = "no process uses it"
    describe_contents: Callable[[StatsType], str] = lambda _stats: ""

    def remove_unused(
        self, names: Iterable[str], prefix: str, *, remove: bool = True, force: bool = False
    ) -> Iterator[FileRemoval]:
        """Remove endpoints that no process uses, and yield the result for each; see `RemoveUnused`."""
        for name in names:
            try:
                yield self._remove_unused(name, prefix, remove, force)
            except SegmentError as error:
                yield from self._report_failure(name, prefix, error)

    def remove_dead(self, names: Iterable[str], prefix: str) -> Iterator[FileRemoval]:
        """Remove endpoints with dead users, and yield those that were removed or that could not be removed.

        Endpoints with users that are not known to be dead stay.
        """
        for name in names:
            try:
                removal = self._remove_unused(name, prefix, remove=True, force=False)
            except SegmentError as error:
                yield from self._report_failure(name, prefix, error)
                continue
            if removal.removed:
                yield dataclasses.replace(removal, reason="only dead processes used it")

    def _report_failure(self, name: str, prefix: str, error: SegmentError) -> Iterator[FileRemoval]:
        if error.errno != errno.ENOENT:  # ENOENT: another process has removed it
            yield FileRemoval(self.kind.endpoint(name), prefix, error.path, 0, str(error), removed=False)

    def _remove_unused(self, name: str, prefix: str, remove: bool, force: bool) -> FileRemoval:
        seen: list[tuple[StatsType, EndpointUsers]] = []

        def is_unused(stats: StatsType) -> bool:
            living, unknown = users = self.list_users(stats)
            seen.append((stats, users))
            return not living and (force or not unknown)

        goes = self.remove(name, prefix, is_unused) if remove else is_unused(read(self.kind, name, prefix))
        stats, (living, unknown) = seen[-1]
        reason = explain_removal(living, unknown, self.unused_reason)
        return self.make_removal(name, prefix, stats, reason, removed=goes, can_be_forced=not goes and not living)

    def make_removal(
        self, name: str, prefix: str, stats: StatsType, reason: str, *, removed: bool, can_be_forced: bool = False
    ) -> FileRemoval:
        """Return the result for an endpoint: what was or would be removed, or the reason why the endpoint stays."""
        size = self.kind.stats.row_class.compute_totals(stats).bytes
        place = self.kind.endpoint(name), prefix, stats.path, size
        return FileRemoval(*place, reason + self.describe_contents(stats), removed, can_be_forced)
