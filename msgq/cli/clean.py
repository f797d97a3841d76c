"""`msgq clean`: removes the topics that nobody alive uses."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from msgq import naming
from msgq.cli import options
from msgq.cli.remains import dead_claims, dead_gates, remove_gate
from msgq.cli.render import echo, echo_json, in_bytes, who
from msgq.impl.segment import TopicLock, unlink_topic
from msgq.stats import TopicStats, topics
from msgq.stats import topic as read_topic

_EPILOG = (
    "Exit codes: 0 all went well, also when there was nothing to remove; "
    "1 an endpoint that was named could not be removed, or something failed; 2 wrong usage."
)


@dataclass(frozen=True)
class Outcome:
    """What became of one topic. `action` is "removed", "would remove" or "kept"."""

    endpoint: str
    action: str
    reason: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.action} {self.endpoint} ({in_bytes(self.bytes)}): {self.reason}"


@click.command(epilog=_EPILOG)
@click.argument("endpoints", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--force", is_flag=True, help="Also remove topics of which nobody can say whether they are used.")
@options.as_json
@options.prefix
def command(endpoints: tuple[str, ...], dry_run: bool, force: bool, as_json: bool, prefix: str | None) -> None:
    """Remove the segments of topics that nobody alive uses.

    Looks at all topics, or at the ENDPOINTS given. A topic with a living publisher or subscriber is never removed,
    not even by force. Of stock participants, and of those in other PID namespaces, nobody can say whether they live:
    their topics stay, unless --force.

    What killed controllers of event-gated runs and killed ZMQ publishers left is removed as well.
    """
    outcomes = []
    for endpoint in _chosen(endpoints, topics(prefix)):
        with TopicLock(endpoint, prefix):  # who connects now waits, and then makes the topic anew
            outcomes.append(_clean(read_topic(endpoint, prefix), dry_run, force, prefix))
    outcomes += _clean_remains(endpoints, dry_run, naming.checked_prefix(prefix))
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


def _clean(topic: TopicStats, dry_run: bool, force: bool, prefix: str | None) -> Outcome:
    living, unknown = users(topic)
    if living:
        return Outcome(topic.endpoint, "kept", f"in use by {', '.join(living)}", topic.data_bytes)
    reason = f"nobody can say whether these live: {', '.join(unknown)}" if unknown else "nobody uses it"
    if unknown and not force:
        return Outcome(topic.endpoint, "kept", f"{reason}; --force removes it", topic.data_bytes)
    if not dry_run:
        unlink_topic(topic.endpoint, prefix)
    return Outcome(topic.endpoint, "would remove" if dry_run else "removed", reason, topic.data_bytes)


def _clean_remains(endpoints: Sequence[str], dry_run: bool, prefix: str) -> list[Outcome]:
    gates = [gate for gate in dead_gates(prefix) if not endpoints or gate.endpoint in endpoints]
    if not dry_run:
        for gate in gates:
            remove_gate(gate)
    claims = [] if endpoints else list(dead_claims(prefix, remove=not dry_run))
    action = "would remove" if dry_run else "removed"
    return [Outcome(one.endpoint, action, one.what, one.bytes) for one in [*gates, *claims]]


def users(topic: TopicStats) -> tuple[list[str], list[str]]:
    """Who uses a topic: the participants that live, and those of whom that is not known.

    Passive subscribers leave no trace, and need none: what they have mapped stays theirs when the name is gone.
    """
    named = [subscriber.participant for subscriber in topic.subscribers]
    if topic.publisher is not None:
        named.append(topic.publisher)
    living = [who(participant) for participant in named if participant.alive]
    unknown = [who(participant) for participant in named if participant.alive is None]
    if topic.publisher_kind == "stock":
        unknown.append("a stock publisher")
    if topic.stock_subscribers:
        unknown.append(f"{topic.stock_subscribers} stock subscribers")
    return living, unknown
