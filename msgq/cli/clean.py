"""`msgq clean`: removes the topics that nobody alive uses."""

import errno
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from msgq import naming
from msgq.cli import options
from msgq.cli.remains import clear_orphans, dead_claims, dead_gates, orphaned_prefixes, remove_gate
from msgq.cli.render import echo, echo_json, in_bytes, who
from msgq.errors import SegmentError
from msgq.impl.segment import TopicLock, unlink_topic
from msgq.stats import TopicStats, topics
from msgq.stats import topic as read_topic

_EPILOG = (
    "Exit codes: 0 all went well, also when there was nothing to remove, or somebody else was faster; "
    "1 an endpoint that was named could not be removed, or something failed; 2 wrong usage."
)


@dataclass(frozen=True)
class Outcome:
    """What became of one topic. `action` is "removed", "would remove" or "kept"."""

    endpoint: str
    prefix: str
    action: str
    reason: str
    bytes: int

    def __str__(self) -> str:
        where = f"prefix {self.prefix}: " if self.prefix else ""
        return f"{where}{self.action} {self.endpoint or 'its directory'} ({in_bytes(self.bytes)}): {self.reason}"


@click.command(epilog=_EPILOG)
@click.argument("endpoints", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--force", is_flag=True, help="Also remove topics of which nobody can say whether they are used.")
@click.option("--all-prefixes", is_flag=True, help="Look under all prefixes, and under none.")
@options.as_json
@options.prefix
def command(
    endpoints: tuple[str, ...], dry_run: bool, force: bool, all_prefixes: bool, as_json: bool, prefix: str | None
) -> None:
    """Remove the segments of topics that nobody alive uses.

    Looks at all topics under the prefix, or at the ENDPOINTS given. A topic with a living publisher or subscriber is
    never removed, not even by force. Of stock participants nobody can say whether they live: their topics stay, unless
    --force.

    What has lost its ring, because somebody removed the directory of a prefix for instance, is removed as well: under
    the prefix, or under all prefixes when none is in force. So is what killed controllers of event-gated runs and
    killed ZMQ publishers left.
    """
    if all_prefixes and (endpoints or prefix is not None):
        raise click.UsageError("--all-prefixes goes neither with --prefix nor with endpoints")
    where = "" if all_prefixes else naming.checked_prefix(prefix)
    outcomes: list[Outcome] = []
    for one in ["", *naming.prefixes()] if all_prefixes else [where]:
        outcomes += _clean_topics(_chosen(endpoints, topics(one)), dry_run, force, one)
    outcomes += _clean_remains(endpoints, dry_run, None if all_prefixes else where)
    if not endpoints:
        for one in [where] if where else ["", *orphaned_prefixes()]:
            outcomes += _clean_orphans(one, dry_run)
    for outcome in outcomes:
        echo_json(outcome) if as_json else echo(str(outcome))
    if not outcomes and not as_json:
        echo("no topics")
    if endpoints and any(outcome.action == "kept" for outcome in outcomes):
        sys.exit(1)


def _chosen(endpoints: Sequence[str], found: Sequence[TopicStats]) -> list[str]:
    names = [topic.endpoint for topic in found]
    if missing := [endpoint for endpoint in endpoints if endpoint not in names]:
        raise click.ClickException(f"no such topic: {', '.join(missing)}; `msgq list` shows those that there are")
    return list(dict.fromkeys(endpoints)) or names


def _clean_topics(endpoints: Sequence[str], dry_run: bool, force: bool, prefix: str) -> Iterator[Outcome]:
    for endpoint in endpoints:
        try:
            with TopicLock(endpoint, prefix) as there:  # who connects now waits, and then makes the topic anew
                if not there:  # somebody else removed it meanwhile
                    continue
                outcome = _clean(read_topic(endpoint, prefix), dry_run, force, prefix)
        except SegmentError as error:
            if error.errno == errno.ENOENT:  # as above
                continue
            outcome = Outcome(endpoint, prefix, "kept", str(error), 0)
        yield outcome


def _clean(topic: TopicStats, dry_run: bool, force: bool, prefix: str) -> Outcome:
    living, unknown = users(topic)
    if living:
        return Outcome(topic.endpoint, prefix, "kept", f"in use by {', '.join(living)}", topic.data_bytes)
    reason = f"nobody can say whether these live: {', '.join(unknown)}" if unknown else "nobody uses it"
    if unknown and not force:
        return Outcome(topic.endpoint, prefix, "kept", f"{reason}; --force removes it", topic.data_bytes)
    if not dry_run:
        unlink_topic(topic.endpoint, prefix)
    return Outcome(topic.endpoint, prefix, _action(dry_run), reason, topic.data_bytes)


def _action(dry_run: bool) -> str:
    return "would remove" if dry_run else "removed"


def _clean_remains(endpoints: Sequence[str], dry_run: bool, prefix: str | None) -> Iterator[Outcome]:
    for gate in dead_gates(prefix):
        if not endpoints or gate.endpoint in endpoints:
            kept = "" if dry_run else remove_gate(gate)
            action = "kept" if kept else _action(dry_run)
            yield Outcome(gate.endpoint, gate.prefix, action, kept or gate.what, gate.bytes)
    if not endpoints:
        for claim in dead_claims(prefix, remove=not dry_run):
            yield Outcome(claim.endpoint, claim.prefix, _action(dry_run), claim.what, claim.bytes)


def _clean_orphans(prefix: str, dry_run: bool) -> Iterator[Outcome]:
    for orphan in clear_orphans(prefix, remove=not dry_run):
        what = "a side segment that has no ring" if orphan.endpoint else "nothing is in it"
        action = "kept" if orphan.kept else _action(dry_run)
        yield Outcome(orphan.endpoint, prefix, action, orphan.kept or what, orphan.bytes)


def users(topic: TopicStats) -> tuple[list[str], list[str]]:
    """Who uses a topic: the participants that live, and those of whom that is not known.

    Passive subscribers leave no trace, and need none: what they have mapped stays theirs when the name is gone.
    """
    named = [subscriber.participant for subscriber in topic.subscribers]
    if topic.publisher is not None:
        named.append(topic.publisher)
    living = [who(participant) for participant in named if participant.alive]
    if topic.unlisted:
        living.append("subscribers for whom the table had no room")
    unknown = [who(participant) for participant in named if participant.alive is None]
    if topic.publisher_kind == "stock":
        unknown.append("a stock publisher")
    if topic.stock_subscribers:
        unknown.append(f"{topic.stock_subscribers} stock subscribers")
    return living, unknown
