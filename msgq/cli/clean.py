"""`msgq clean`: removes endpoints that no living process uses. Kinds that keep their content require a name."""

import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.common import shm_paths
from msgq.common.formatting import format_bytes
from msgq.common.selection import SelectedEndpoints, parse_patterns
from msgq.impl.backend import resolve_prefix
from msgq.kinds import kind_of, list_stored_kinds
from msgq.kinds.cleanup import FileRemoval
from msgq.monitor.endpoint_selection import is_shown_by_subject, no_match_error
from msgq.stats import endpoint_inodes
from msgq.stats import endpoints as endpoint_stats
from msgq.topic.leftovers import (
    remove_dead_claims,
    remove_dead_gates,
    remove_old_drafts,
    remove_topic_directories,
)

_HELP_EPILOG = (
    "Exit codes: 0 success, also if there was nothing to remove; "
    "1 a named endpoint could not be removed, or failure (message on stderr); 2 wrong usage."
)


@dataclass(frozen=True)
class CleanOutcome:
    """Result for one file or topic. `action` is "removed", "would remove" or "kept"."""

    endpoint: str
    prefix: str
    action: str
    reason: str
    bytes: int

    def __str__(self) -> str:
        where = f"prefix {self.prefix}: " if self.prefix else ""
        return f"{where}{self.action} {self.endpoint or 'its directory'} ({format_bytes(self.bytes)}): {self.reason}"


@click.command(epilog=_HELP_EPILOG)
@options.endpoints_argument
@click.option("--dry-run", is_flag=True, help="Print the files to remove, but remove nothing.")
@click.option(
    "--force", is_flag=True, help="Also remove endpoints with unknown use, such as topics of stock participants."
)
@click.option("--all-prefixes", is_flag=True, help="Clean all prefixes, and endpoints without a prefix.")
@options.json_option
@options.prefix_option
def command(
    endpoints: tuple[str, ...], dry_run: bool, force: bool, all_prefixes: bool, as_json: bool, prefix: str | None
) -> None:
    """Remove unused files of topics and channels.

    Without names, the command checks all endpoints of the prefix. Endpoints with a living participant stay, even with
    --force. The command cannot detect whether stock participants are alive. To remove topics of stock participants,
    give --force. The pool of a former publisher is removed if no messages of the channel are left in the pool.

    Work queues (queue/NAME), vectors and boards (records/NAME) keep their contents while no process uses them. To
    remove a work queue or records, give the name, or a pattern that begins with queue/ or records/. A queue stays
    while a living process has the queue open. Records with a living writer stay. The events of a queue are removed
    with the queue. The command cannot detect processes that only read records. A process that reads removed records
    keeps the old file mapped.

    Without names, the command also removes leftovers of killed replay controllers and ZMQ publishers, orphaned files,
    and directories whose creator was killed before the directory had a name. A file is orphaned if its ring or main
    file was deleted. Without a prefix, orphaned files and directories are removed under all prefixes. With --prefix,
    the empty directories of the prefix are also removed.
    """
    if all_prefixes and (endpoints or prefix is not None):
        raise click.UsageError("--all-prefixes excludes --prefix and endpoints; give one of them")
    current_prefix = "" if all_prefixes else resolve_prefix(prefix)
    every = ["", *shm_paths.list_prefixes()] if all_prefixes else [current_prefix]
    selection = SelectedEndpoints(parse_patterns(endpoints) or None)
    removals: list[FileRemoval] = []
    for searched in every:
        removals += _remove_endpoints(endpoints, searched, not dry_run, force)
    reported = {(removal.prefix, removal.endpoint) for removal in removals if removal.removed}
    removals += remove_dead_gates(None if all_prefixes else current_prefix, not dry_run, selection.__contains__)
    if not endpoints:
        removals += remove_dead_claims(None if all_prefixes else current_prefix, not dry_run)
        removals += _remove_orphans(current_prefix, not dry_run, reported)
        removals += remove_old_drafts(current_prefix or None, not dry_run)
        if prefix and not dry_run:
            remove_topic_directories(prefix)
    outcomes = list(_list_outcomes(removals, dry_run))
    for outcome in outcomes:
        echo_json(outcome) if as_json else echo(str(outcome))
    if not outcomes and not as_json:
        echo("no topics, channels, queues or records")
    if endpoints and any(outcome.action == "kept" for outcome in outcomes):
        sys.exit(1)


def _remove_endpoints(endpoints: Sequence[str], prefix: str, remove: bool, force: bool) -> Iterator[FileRemoval]:
    """Remove the named endpoints of a prefix.

    Without names: all unused endpoints except kinds that keep their content.
    """
    selected = _select_endpoints(endpoints, prefix)
    for kind in list_stored_kinds("cleanup"):
        if kind.cleanup.list_keep_reasons is not None and not endpoints:
            yield from kind.cleanup.list_keep_reasons(prefix)
        else:
            names = [kind.bare_name(name) for name in selected if kind_of(name) == kind]
            yield from kind.cleanup.remove_unused(names, prefix, remove=remove, force=force)


def _select_endpoints(endpoints: Sequence[str], prefix: str) -> list[str]:
    """Return the selected endpoints; without a selection, all endpoints. Each named endpoint must exist.

    A pattern selects the events channel of a queue only if the queue is gone.
    """
    every = [stats.endpoint for stats in endpoint_stats(prefix)]
    existing = endpoint_inodes(prefix)  # also queues that cannot be read
    every = [name for name in every if name in endpoints or not is_shown_by_subject(name, existing)]
    stay = {kind for kind in list_stored_kinds("cleanup") if kind.cleanup.list_keep_reasons is not None}
    meant: set[str] = set()
    missing = []
    for text in endpoints:
        selection, kind = SelectedEndpoints(parse_patterns([text])), kind_of(text)
        # a pattern means those that stay until they are named only if it begins with their mark
        selected = {
            name for name in every if name in selection and (kind_of(name) == kind or kind_of(name) not in stay)
        }
        meant |= selected
        missing += [] if selected else [text]
    if missing:
        raise no_match_error(missing, every)
    return [name for name in every if not endpoints or name in meant]


def _remove_orphans(prefix: str, remove: bool, reported: Container[tuple[str, str]]) -> Iterator[FileRemoval]:
    """Remove files without an endpoint; without a prefix, under all prefixes.

    Skips files that were already reported.
    """
    for kind in list_stored_kinds("cleanup"):
        for searched_prefix in [prefix] if prefix else ["", *shm_paths.list_prefixes()]:
            for removal in kind.cleanup.remove_orphans(searched_prefix, remove):
                if remove or (removal.prefix, removal.endpoint) not in reported:
                    yield removal


def _list_outcomes(removals: Iterable[FileRemoval], dry_run: bool) -> Iterator[CleanOutcome]:
    for removal in removals:
        action = "kept" if not removal.removed else "would remove" if dry_run else "removed"
        hint = "; --force removes it" if removal.can_be_forced else ""
        yield CleanOutcome(removal.endpoint, removal.prefix, action, removal.reason + hint, removal.bytes)
