"""What vectors and boards leave that nobody alive needs any more.

They keep their values while nobody is there, so they go only when they are named (`msgq.kinds.persistent`). Who writes
is entered, and so keeps the vector or board where it is. Who reads leaves no trace, nor does who has it open and has
not written so far: they go on with what they have mapped, and nobody who comes later writes there.

What the dead held is taken over by whoever writes next. Nobody needs to repair it, so nothing here does.
"""

from __future__ import annotations

from functools import partial

from msgq.common import shm_paths
from msgq.common.naming import RECORDS_NAME_PREFIX
from msgq.common.stats.records import RecordStats
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.impl.records.core import remove_record
from msgq.kinds.cleanup import ERROR, WARNING, EndpointIssue, KindCleanup
from msgq.kinds.persistent import PersistentKind
from msgq.kinds.snapshots import read, read_all
from msgq.records.names import KIND

WRITERS_MAX = 128  # rows


def _describe_values(record: RecordStats) -> str:
    return f"; it has {format_count_noun(record.elements_written, 'value')}" if record.elements_written else ""


PERSISTENT_RECORDS = PersistentKind(
    noun="vector or board",
    name_prefix=RECORDS_NAME_PREFIX,
    file=shm_paths.records_path,
    directories=shm_paths.records_directories,
    read_every=partial(read_all, KIND),
    read=partial(read, KIND),
    remove=remove_record,
    participants=lambda record: [one.participant for one in record.writers],
    describe_contents=_describe_values,
    unused_reason="nobody writes it, and who reads it cannot be seen",
)


def diagnose(record: RecordStats) -> list[EndpointIssue]:
    """Return what a supervisor should know: the dead, what they left, full rows."""
    name = RECORDS_NAME_PREFIX + record.name
    issues = []
    if sum(one.participant.alive is not False for one in record.writers) >= WRITERS_MAX:
        issues.append(EndpointIssue(f"{name} has {WRITERS_MAX} handles that write, as many as it may", severity=ERROR))
    left = []
    for one in record.writers:
        if one.participant.alive is False:
            has = [f"{format_count_noun(one.locked, 'element')} that it was writing"] if one.locked else []
            has += [f"{format_count_noun(one.keys, 'key')}, whose values no process renews"] if one.keys else []
            left.append(f"{one.participant} left {' and '.join(has) or 'its row'}")
    gone = record.locked_by_dead - sum(one.locked for one in record.writers if one.participant.alive is False)
    if gone > 0:
        left.append(f"{format_count_noun(gone, 'element')} of writers that are gone")
    if left:
        issues.append(
            EndpointIssue(f"{name}: {join_first_texts(left)} (reclaimed by the next writer)", severity=WARNING)
        )
    return issues


CLEANUP = KindCleanup(
    check="records",
    noun="vectors and boards",
    remove_unused=PERSISTENT_RECORDS.remove_unused,
    remove_orphans=PERSISTENT_RECORDS.remove_orphans,
    diagnose=diagnose,
    list_keep_reasons=PERSISTENT_RECORDS.list_keep_reasons,
)
