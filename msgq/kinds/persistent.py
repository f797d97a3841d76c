"""Kinds whose endpoints keep their content while no process uses them: queues, vectors and boards.

An unused endpoint of these kinds is not a leftover. Such an endpoint is removed only if the user names it and no living
process has it open. The removal holds the lock that opening processes need, so a later open creates a new endpoint.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from msgq.common import shm_paths
from msgq.kinds.cleanup import FileRemoval, explain_removal
from msgq.kinds.removal import EndpointRemover, StatsType
from msgq.kinds.snapshots import read_all


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentKind(EndpointRemover[StatsType]):
    """A kind whose endpoints keep their content without processes, and are removed only if the user names them.

    Attributes:
        noun: noun for an endpoint of this kind.
    """

    noun: str

    def list_keep_reasons(self, prefix: str) -> Iterator[FileRemoval]:
        """Yield for each endpoint of a prefix the reason why it stays if the user does not name it."""
        for stats in read_all(self.kind, prefix):
            living, _ = self.list_users(stats)
            reason = explain_removal(living, ()) if living else f"to remove a {self.noun}, name it"
            yield self.make_removal(stats.name, prefix, stats, reason, removed=False)

    def remove_orphans(self, prefix: str, remove: bool = True) -> tuple[FileRemoval, ...]:
        """Remove the directory of a prefix if it is empty.

        A process that creates an endpoint creates the directory again.
        """
        with contextlib.suppress(OSError):  # the directory has files, or is missing
            if remove and shm_paths.has_directories(prefix) and self.kind.locate_files is not None:
                os.rmdir(self.kind.locate_files(prefix)[0])
        return ()
