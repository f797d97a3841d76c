"""What each kind of endpoint leaves, in one table: clean and doctor go through it, so that no kind is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from msgq.channel import cleanup as channels
from msgq.channel.names import KIND as CHANNEL
from msgq.kinds import Kind, stored_kinds
from msgq.kinds.removal import Issue, Removal, read_issues
from msgq.records import cleanup as records
from msgq.records.names import KIND as RECORDS
from msgq.stats import EndpointStats, endpoint
from msgq.topic import cleanup as topics
from msgq.topic.names import KIND as TOPIC
from msgq.workqueue import cleanup as queues
from msgq.workqueue.names import KIND as QUEUE

Repairs = tuple[list[str], list[str]]  # what was done, and what could not be


class Clear(Protocol):
    """Removes endpoints of a kind that nobody alive uses, each under its lock."""

    def __call__(self, names: Iterable[str], prefix: str, /, *, remove: bool, force: bool) -> Iterator[Removal]:
        """Remove these, by names without their mark, and say of each what became of it; see `remove_unused`."""


@dataclass(frozen=True, slots=True)
class KindCleaner:
    """What becomes of endpoints of a kind that nobody alive uses.

    Attributes
    ----------
    kind : theirs.
    check, noun : what the doctor's line of them is called, and what several of them are.
    clear : removes them.
    remove_orphans : takes a prefix, and whether to remove; removes what belongs to none of them, and empty directories.
    diagnose : takes their stats; returns what a supervisor should know of one.
    orphans : takes a prefix; returns what belongs to none of them.
    repair : takes a prefix; puts right what the dead left. None: whoever comes next does that, or needs nothing.
    keep_reasons : takes a prefix; says of each why it stays. None: they go also without being named.
    """

    kind: Kind
    check: str
    noun: str
    clear: Clear
    remove_orphans: Callable[[str, bool], Iterable[Removal]]
    diagnose: Callable[[Any], list[Issue]]
    orphans: Callable[[str], list[Issue]] = lambda prefix: []
    repair: Callable[[str], Repairs] | None = None
    keep_reasons: Callable[[str], Iterator[Removal]] | None = None


def _told(removals: Iterable[Removal]) -> Repairs:
    every = list(removals)
    done = [f"removed {one.endpoint}: {one.reason}" for one in every if one.removed and one.endpoint]
    return done, [one.reason for one in every if not one.removed]


CLEANERS = (
    KindCleaner(
        TOPIC,
        "topics",
        "topics",
        clear=topics.remove_unused,
        remove_orphans=topics.remove_orphans,
        diagnose=topics.diagnose,
        repair=lambda prefix: _told(topics.repair(prefix)),
    ),
    KindCleaner(
        CHANNEL,
        "channels",
        "channels",
        clear=channels.remove_unused,
        remove_orphans=channels.clear_pools,
        diagnose=channels.diagnose,
        orphans=channels.orphans,
        repair=lambda prefix: _told(channels.repair(prefix)),
    ),
    KindCleaner(
        RECORDS,
        "records",
        "vectors and boards",
        clear=records.RECORDS.clear,
        remove_orphans=records.RECORDS.remove_orphans,
        diagnose=records.diagnose,
        keep_reasons=records.RECORDS.keep_reasons,
    ),
    KindCleaner(
        QUEUE,
        "queues",
        "queues",
        clear=queues.QUEUES.clear,
        remove_orphans=queues.QUEUES.remove_orphans,
        diagnose=queues.diagnose,
        repair=queues.repair,
        keep_reasons=queues.QUEUES.keep_reasons,
    ),
)


def repair(prefix: str) -> Repairs:
    """Put right what the dead left in endpoints of all kinds, remove what only they used; what somebody may use stays.

    Returns
    -------
    What was done, and what could not be though it should, a text each.
    """
    done, failed = [], []
    for one in CLEANERS:
        if one.repair is not None:
            more, less = one.repair(prefix)
            done += more
            failed += less
    return done, failed


def unreadable(prefix: str) -> list[Issue]:
    """Return what is in the place of an endpoint and cannot be read: damaged (wrong), or not for this user."""
    return [flaw for kind in stored_kinds() for flaw in _unreadable(kind, prefix)]


def _unreadable(kind: Kind, prefix: str) -> list[Issue]:
    if kind.files is None:
        return []
    directory, start = kind.files(prefix)
    paths = sorted(Path(directory).glob(f"{start}?*"))
    files = [path for path in paths if not path.is_dir() or path.is_symlink()]  # else the endpoints of a prefix
    return read_issues([kind.name_prefix + path.name.removeprefix(start) for path in files], prefix, endpoint)


def diagnose(remains: KindCleaner, found: Iterable[EndpointStats], prefix: str) -> list[Issue]:
    """Return what is not as it should be with endpoints of a kind, `found`: what is wrong first."""
    flaws = [flaw for one in found for flaw in remains.diagnose(one.stats)] + remains.orphans(prefix)
    return sorted(flaws, key=lambda flaw: not flaw.wrong)
