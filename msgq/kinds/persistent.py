"""What stays until it is named: it keeps what is in it while nobody is there.

So one that nobody has open is no remain. It is removed only when it is named, and when nobody alive has it open; then
under the lock that all take who come, so who comes then makes another one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgq.common.stats import Participant
from msgq.errors import SegmentError
from msgq.kinds.cleanup import EndpointUsers, FileRemoval, explain_removal


class FileStats(Protocol):
    """What is known of something in one file."""

    @property
    def name(self) -> str:
        """Of it."""

    @property
    def path(self) -> str:
        """Of its file."""

    @property
    def bytes(self) -> int:
        """Of its file."""


_StatsType = TypeVar("_StatsType", bound=FileStats)


@dataclass(frozen=True, slots=True)
class PersistentKind(Generic[_StatsType]):
    """A kind of things that keep what is in them while nobody is there, so that each is removed only when it is named.

    Attributes
    ----------
    noun, name_prefix : what one is called, and what stands before its name among topics.
    file, directories : return where one is, and the directory of a prefix's ones (`msgq.common.shm_paths`).
    read_every, read : return how all are, and how one is (`msgq.stats`).
    remove : removes one if a function says so, that is asked under the lock of those who open it.
    participants : return who has one open.
    contents : return what is in one, to be said with the reason; "" for nothing.
    nobody : what is said of one that nobody has open.
    """

    noun: str
    name_prefix: str
    file: Callable[[str, str], str]
    directories: Callable[[str], tuple[str]]
    read_every: Callable[[str], Iterable[_StatsType]]
    read: Callable[[str, str], _StatsType]
    remove: Callable[[str, str, Callable[[_StatsType], bool]], bool]
    participants: Callable[[_StatsType], Iterable[Participant]]
    describe_contents: Callable[[_StatsType], str]
    unused_reason: str = "no process uses it"

    def list_users(self, stats: _StatsType) -> EndpointUsers:
        """Return who has one open."""
        participants = list(self.participants(stats))
        living = [str(participant) for participant in participants if participant.alive]
        unknown = [str(participant) for participant in participants if participant.alive is None]
        return EndpointUsers(tuple(dict.fromkeys(living)), tuple(dict.fromkeys(unknown)))

    def list_keep_reasons(self, prefix: str) -> Iterator[FileRemoval]:
        """Say of each that a prefix has why it stays when nobody names it."""
        for stats in self.read_every(prefix):
            living, _ = self.list_users(stats)
            why = explain_removal(living, ()) if living else f"to remove a {self.noun}, name it"
            yield FileRemoval(
                self.name_prefix + stats.name,
                prefix,
                stats.path,
                stats.bytes,
                why + self.describe_contents(stats),
                removed=False,
            )

    def remove_unused(
        self, names: Iterable[str], prefix: str, *, remove: bool = True, force: bool = False
    ) -> Iterator[FileRemoval]:
        """Remove those that nobody has open, with what is in them, and say of each what became of it.

        Parameters
        ----------
        names : of them; those that somebody else removes meanwhile are passed over.
        remove, force : as in `remove_unused`.
        """
        for name in names:
            try:
                yield self._remove_unused(name, prefix, remove, force)
            except SegmentError as error:
                if error.errno != errno.ENOENT:  # else somebody else removed it meanwhile
                    yield FileRemoval(
                        self.name_prefix + name, prefix, self.file(name, prefix), 0, str(error), removed=False
                    )

    def remove_orphans(self, prefix: str, remove: bool = True) -> tuple[FileRemoval, ...]:
        """Remove a prefix's directory when nothing is in it. Who makes one of these meanwhile makes it anew."""
        with contextlib.suppress(OSError):  # there are some in it, or it is gone
            if prefix and remove:
                os.rmdir(*self.directories(prefix))
        return ()

    def _remove_unused(self, name: str, prefix: str, remove: bool, force: bool) -> FileRemoval:
        seen: list[_StatsType] = []

        def is_unused(stats: _StatsType) -> bool:
            seen.append(stats)
            living, unknown = self.list_users(stats)
            return not living and (force or not unknown)

        goes = self.remove(name, prefix, is_unused) if remove else is_unused(self.read(name, prefix))
        stats = seen[-1]
        living, unknown = self.list_users(stats)
        why = explain_removal(living, unknown, self.unused_reason) + self.describe_contents(stats)
        return FileRemoval(self.name_prefix + name, prefix, stats.path, stats.bytes, why, goes, not goes and not living)
