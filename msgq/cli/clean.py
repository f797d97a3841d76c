"""`msgq clean`: removes the topics and channels that nobody alive uses, and queues and records that are named."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from msgq import naming
from msgq.channel_remains import clear_channels, clear_pools
from msgq.cli.common import options
from msgq.cli.common.names import choices, missing_error, topic_texts
from msgq.cli.common.render import echo, echo_json, in_bytes
from msgq.kept_remains import Kept
from msgq.naming import CHANNEL_MARK
from msgq.queue_remains import QUEUES
from msgq.record_remains import RECORDS
from msgq.remains import Removal, clear_claims, clear_gates, clear_orphans, clear_topics, orphaned_prefixes
from msgq.selection import Selection
from msgq.stats import channels, topics

_KEPT: tuple[Kept[Any], ...] = (QUEUES, RECORDS)
_EPILOG = (
    "Exit codes: 0 all went well, also when there was nothing to remove, or somebody else was faster; "
    "1 an endpoint that was named could not be removed, or something failed; 2 wrong usage."
)


@dataclass(frozen=True)
class Outcome:
    """A line: what became of one file or topic. `action` is "removed", "would remove" or "kept"."""

    endpoint: str
    prefix: str
    action: str
    reason: str
    bytes: int

    def __str__(self) -> str:
        where = f"prefix {self.prefix}: " if self.prefix else ""
        return f"{where}{self.action} {self.endpoint or 'its directory'} ({in_bytes(self.bytes)}): {self.reason}"


@click.command(epilog=_EPILOG)
@options.all_kinds
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--force", is_flag=True, help="Also remove that of which nobody can say whether it is used.")
@click.option("--all-prefixes", is_flag=True, help="Look under all prefixes, and under none.")
@options.as_json
@options.prefix
def command(
    endpoints: tuple[str, ...], dry_run: bool, force: bool, all_prefixes: bool, as_json: bool, prefix: str | None
) -> None:
    """Remove the files of topics and channels that nobody alive uses.

    Looks at all under the prefix, or at those that are named; a channel is called channel/NAME. What somebody alive
    publishes, subscribes to or has open is never removed, not even by force. Of stock participants nobody can say
    whether they live: their topics stay, unless --force.

    Pools of a channel's publishers that are gone and left no messages are removed as well.

    Work queues stay, with messages or empty: messages wait in them while nobody is there. One that nobody alive has
    open is removed when it is named, as queue/NAME or by a pattern that begins so. The same holds for vectors and
    boards, as records/NAME, that nobody alive writes. Who only reads one cannot be seen: it keeps what it has mapped.

    What has lost its ring or its hub, because somebody removed the directory of a prefix for instance, is removed as
    well: under the prefix, or under all prefixes when none is in force. So is what killed controllers of event-gated
    runs and killed ZMQ publishers left.
    """
    if all_prefixes and (endpoints or prefix is not None):
        raise click.UsageError("--all-prefixes goes neither with --prefix nor with endpoints")
    where = "" if all_prefixes else naming.checked_prefix(prefix)
    every = ["", *naming.prefixes()] if all_prefixes else [where]
    wanted = Selection(choices(endpoints) or None)
    removals: list[Removal] = []
    for one in every:
        removals += _clear(endpoints, one, not dry_run, force)
    removals += clear_gates(None if all_prefixes else where, not dry_run, wanted.__contains__)
    if not endpoints:
        removals += clear_claims(None if all_prefixes else where, not dry_run)
        for one in [where] if where else ["", *orphaned_prefixes()]:
            removals += clear_orphans(one, not dry_run)
        told = {(one.prefix, one.endpoint) for one in removals if one.removed and dry_run}  # their pools with them
        for one in [where] if where else ["", *naming.prefixes()]:
            removals += [pool for pool in clear_pools(one, not dry_run) if (one, pool.endpoint) not in told]
            for kind in () if dry_run else _KEPT:
                kind.clear_directory(one)
    outcomes = list(_outcomes(removals, dry_run))
    for outcome in outcomes:
        echo_json(outcome) if as_json else echo(str(outcome))
    if not outcomes and not as_json:
        echo("no topics, channels, queues or records")
    if endpoints and any(outcome.action == "kept" for outcome in outcomes):
        sys.exit(1)


def _clear(endpoints: Sequence[str], prefix: str, remove: bool, force: bool) -> Iterator[Removal]:
    """Remove what a prefix has of those that are named, or of all but what stays until it is."""
    chosen = _chosen(endpoints, prefix)
    yield from clear_topics(topic_texts(chosen), prefix, remove=remove, force=force)
    yield from clear_channels(_marked(CHANNEL_MARK, chosen), prefix, remove=remove, force=force)
    for kind in _KEPT:
        named = _marked(kind.mark, chosen)
        yield from kind.clear(named, prefix, remove=remove, force=force) if endpoints else kind.spared(prefix)


def _chosen(endpoints: Sequence[str], prefix: str) -> list[str]:
    """Return the endpoints that are meant, all if none is named. Each that is named must be there."""
    names = [topic.endpoint for topic in topics(prefix)] + [CHANNEL_MARK + channel.name for channel in channels(prefix)]
    named = [kind.mark + one.name for kind in _KEPT for one in kind.every(prefix)]
    marks = tuple(kind.mark for kind in _KEPT)
    every = [(text, Selection(choices([text])), text.startswith(marks)) for text in endpoints]
    meant = {text: [name for name in (named if kept else names) if name in one] for text, one, kept in every}
    if missing := [text for text, found in meant.items() if not found]:
        raise missing_error(missing, names + named)
    found = set().union(*meant.values())
    return [name for name in names + named if not meant or name in found]


def _marked(mark: str, names: Iterable[str]) -> list[str]:
    """Return the names with this mark, without it."""
    return [name.removeprefix(mark) for name in names if name.startswith(mark)]


def _outcomes(removals: Iterable[Removal], dry_run: bool) -> Iterator[Outcome]:
    for one in removals:
        action = "kept" if not one.removed else "would remove" if dry_run else "removed"
        hint = "; --force removes it" if one.forcible else ""
        yield Outcome(one.endpoint, one.prefix, action, one.reason + hint, one.bytes)
