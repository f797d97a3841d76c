"""Cleanup of vectors and boards.

Vectors and boards keep their values without processes, so they are removed only by name (`msgq.kinds.persistent`).
Writers are registered, and prevent a removal. Readers leave no trace, and neither do handles that have not written yet.
After a removal they continue with their mapping, and later writers use another file.

The next writer takes over elements of dead writers. Therefore this module repairs nothing.
"""

from __future__ import annotations

from msgq.common.naming import RECORDS_NAME_PREFIX
from msgq.common.stats.records import RecordStats
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.impl.records.core import remove_record
from msgq.kinds.cleanup import ERROR, WARNING, EndpointIssue, KindCleanup
from msgq.kinds.persistent import PersistentKind
from msgq.kinds.removal import find_users
from msgq.records.names import KIND

WRITERS_MAX = 128  # rows


def _describe_values(record: RecordStats) -> str:
    return f"; it has {format_count_noun(record.elements_written, 'value')}" if record.elements_written else ""


PERSISTENT_RECORDS = PersistentKind(
    kind=KIND,
    noun="vector or board",
    remove=remove_record,
    list_users=lambda record: find_users(writer.participant for writer in record.writers),
    describe_contents=_describe_values,
    unused_reason="no process writes it; readers cannot be detected",
)


def diagnose(record: RecordStats) -> list[EndpointIssue]:
    """Return the issues of a vector or board: dead writers, their elements, and a full table."""
    name = RECORDS_NAME_PREFIX + record.name
    issues = []
    if sum(writer.participant.alive is not False for writer in record.writers) >= WRITERS_MAX:
        issues.append(EndpointIssue(f"{name} has {WRITERS_MAX} writing handles, its limit", severity=ERROR))
    leftovers = []
    for writer in record.writers:
        if writer.participant.alive is False:
            has = [f"{format_count_noun(writer.locked, 'locked element')}"] if writer.locked else []
            has += [f"{format_count_noun(writer.keys, 'key')} without an owner"] if writer.keys else []
            leftovers.append(f"{writer.participant} left {' and '.join(has) or 'its row'}")
    orphaned_count = record.locked_by_dead - sum(
        writer.locked for writer in record.writers if writer.participant.alive is False
    )
    if orphaned_count > 0:
        leftovers.append(f"{format_count_noun(orphaned_count, 'element')} of closed writers")
    if leftovers:
        issues.append(
            EndpointIssue(f"{name}: {join_first_texts(leftovers)} (reclaimed by the next writer)", severity=WARNING)
        )
    return issues


CLEANUP = KindCleanup(
    remove_unused=PERSISTENT_RECORDS.remove_unused,
    remove_orphans=PERSISTENT_RECORDS.remove_orphans,
    diagnose=diagnose,
    list_keep_reasons=PERSISTENT_RECORDS.list_keep_reasons,
)
