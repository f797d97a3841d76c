"""What each kind of endpoint leaves, in one table: clean and doctor go through it, so that no kind is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from msgq.kinds import CHANNEL, KINDS, QUEUE, RECORDS, TOPIC, Kind
from msgq.remains import channels, queues, records, topics
from msgq.remains.removal import Flaw, Removal, flaws_of
from msgq.stats import EndpointStats, endpoint

Repairs = tuple[list[str], list[str]]  # what was done, and what could not be


class Clear(Protocol):
    """Removes endpoints of a kind that nobody alive uses, each under its lock."""

    def __call__(self, names: Iterable[str], prefix: str, /, *, remove: bool, force: bool) -> Iterator[Removal]:
        """Remove these, by names without their mark, and say of each what became of it; see `clear_topics`."""


@dataclass(frozen=True, slots=True)
class KindRemains:
    """What becomes of endpoints of a kind that nobody alive uses.

    Attributes
    ----------
    kind : theirs.
    check, noun : what the doctor's line of them is called, and what several of them are.
    clear : removes them.
    sweep : takes a prefix, and whether to remove; removes what belongs to none of them, and directories with nothing in
        them.
    ailments : takes their stats; returns what a supervisor should know of one.
    lost : takes a prefix; returns what belongs to none of them.
    repair : takes a prefix; puts right what the dead left. None: whoever comes next does that, or needs nothing.
    spared : takes a prefix; says of each why it stays. None: they go without being named; else only when they are.
    """

    kind: Kind
    check: str
    noun: str
    clear: Clear
    sweep: Callable[[str, bool], Iterable[Removal]]
    ailments: Callable[[Any], list[Flaw]]
    lost: Callable[[str], list[Flaw]] = lambda prefix: []
    repair: Callable[[str], Repairs] | None = None
    spared: Callable[[str], Iterator[Removal]] | None = None


def _told(removals: Iterable[Removal]) -> Repairs:
    every = list(removals)
    done = [f"removed {one.endpoint}: {one.reason}" for one in every if one.removed and one.endpoint]
    return done, [one.reason for one in every if not one.removed]


REMAINS = (
    KindRemains(
        TOPIC,
        "topics",
        "topics",
        clear=topics.clear_topics,
        sweep=topics.sweep,
        ailments=topics.ailments,
        repair=lambda prefix: _told(topics.repair(prefix)),
    ),
    KindRemains(
        CHANNEL,
        "channels",
        "channels",
        clear=channels.clear_channels,
        sweep=channels.clear_pools,
        ailments=channels.ailments,
        lost=channels.lost,
        repair=lambda prefix: _told(channels.repair(prefix)),
    ),
    KindRemains(
        RECORDS,
        "records",
        "vectors and boards",
        clear=records.RECORDS.clear,
        sweep=records.RECORDS.sweep,
        ailments=records.ailments,
        spared=records.RECORDS.spared,
    ),
    KindRemains(
        QUEUE,
        "queues",
        "queues",
        clear=queues.QUEUES.clear,
        sweep=queues.QUEUES.sweep,
        ailments=queues.ailments,
        repair=queues.repair,
        spared=queues.QUEUES.spared,
    ),
)


def repair(prefix: str) -> Repairs:
    """Put right what the dead left in endpoints of all kinds, remove what only they used; what somebody may use stays.

    Returns
    -------
    What was done, and what could not be though it should, a text each.
    """
    done, failed = [], []
    for one in REMAINS:
        if one.repair is not None:
            more, less = one.repair(prefix)
            done += more
            failed += less
    return done, failed


def unreadable(prefix: str) -> list[Flaw]:
    """Return what is in the place of an endpoint and cannot be read: damaged (wrong), or not for this user."""
    return [flaw for kind in KINDS for flaw in _unreadable(kind, prefix)]


def _unreadable(kind: Kind, prefix: str) -> list[Flaw]:
    directory, start = kind.files(prefix)
    paths = sorted(Path(directory).glob(f"{start}?*"))
    files = [path for path in paths if not path.is_dir() or path.is_symlink()]  # else the endpoints of a prefix
    return flaws_of([kind.mark + path.name.removeprefix(start) for path in files], prefix, endpoint)


def ailments(remains: KindRemains, found: Iterable[EndpointStats], prefix: str) -> list[Flaw]:
    """Return what is not as it should be with endpoints of a kind, `found`: what is wrong first."""
    flaws = [flaw for one in found for flaw in remains.ailments(one.stats)] + remains.lost(prefix)
    return sorted(flaws, key=lambda flaw: not flaw.wrong)
