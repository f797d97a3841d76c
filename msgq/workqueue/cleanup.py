"""Cleanup of work queues.

A queue keeps its messages without processes, so it is removed only by name; see `msgq.kinds.persistent`. The queues of
results of dead clients (`JobClient`) are removed without a name.

A process that opens a queue repairs what dead processes left. A queue in use needs no other repair.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from msgq.common.naming import QUEUE_NAME_PREFIX
from msgq.common.stats.workqueue import QueueStats
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.errors import MsgqError
from msgq.impl.backend import is_fake_backend, load_backend, load_backend_class
from msgq.impl.workqueue.core import remove_queue
from msgq.impl.workqueue.options import HANDLES_MAX
from msgq.kinds.cleanup import (
    ERROR,
    WARNING,
    EndpointIssue,
    FileRemoval,
    KindCleanup,
    RepairReport,
    describe_removals,
)
from msgq.kinds.persistent import PersistentKind
from msgq.kinds.removal import find_users
from msgq.kinds.snapshots import read_all
from msgq.workqueue.envelope import parse_reply_queue
from msgq.workqueue.names import KIND
from msgq.workqueue.reply_sender import has_living_receiver


def _describe_pending(queue: QueueStats) -> str:
    messages = queue.depth + queue.in_flight + queue.delayed
    return f"; it has {format_count_noun(messages, 'message')}" if messages else ""


QUEUES = PersistentKind(
    kind=KIND,
    noun="queue",
    remove=remove_queue,
    list_users=lambda queue: find_users(one.participant for one in queue.handles),
    describe_contents=_describe_pending,
)


def is_abandoned(queue: QueueStats) -> bool:
    """Return True for the results of a dead client."""
    return parse_reply_queue(queue.name) is not None and not has_living_receiver(queue)


def _remove_abandoned_replies(prefix: str, remove: bool) -> list[FileRemoval]:
    names = [queue.name for queue in read_all(KIND, prefix) if is_abandoned(queue)]
    return list(QUEUES.remove_unused(names, prefix, remove=remove))


def remove_orphans(prefix: str, remove: bool = True) -> Iterator[FileRemoval]:
    """Remove the results of dead clients, and the directory of a prefix if it is empty."""
    yield from _remove_abandoned_replies(prefix, remove)
    yield from QUEUES.remove_orphans(prefix, remove)


def list_keep_reasons(prefix: str) -> Iterator[FileRemoval]:
    """Yield for each queue of a prefix, except the results of dead clients, the reason why the queue stays."""
    abandoned = {KIND.name_prefix + queue.name for queue in read_all(KIND, prefix) if is_abandoned(queue)}
    return (kept for kept in QUEUES.list_keep_reasons(prefix) if kept.endpoint not in abandoned)


def repair(prefix: str) -> RepairReport:
    """Repair the queues of a prefix after the death of processes. Return texts about completed and failed repairs."""
    done, failed = describe_removals(_remove_abandoned_replies(prefix, remove=True))
    backend = load_backend("fake" if is_fake_backend() else "msgq")  # on a bus, leases expire in virtual time
    queue_class = load_backend_class("MessageQueue", backend)
    for one in read_all(KIND, prefix):
        left = _describe_leftovers(one)
        if not left:
            continue
        try:
            queue_class(one.name, 0, prefix=prefix).close()  # each new handle recovers the slots of dead owners
            done.append(f"repaired {QUEUE_NAME_PREFIX}{one.name}: {join_first_texts(left)}")
        except MsgqError as error:
            if error.errno != errno.ENOENT:  # ENOENT: another process has removed it
                failed.append(str(error))
    return RepairReport(done, failed)


def _describe_leftovers(queue: QueueStats) -> list[str]:
    """Return texts about leftovers of dead processes and expired leases.

    The next process that opens the queue repairs them.
    """
    left = []
    for one in queue.handles:
        if one.leaves:
            has = [format_count_noun(one.taken, "message")] if one.taken else []
            has += [f"{format_count_noun(one.pending_slots, 'slot')} to fill"] if one.pending_slots else []
            has += [f"its wait ({', '.join(one.waits)})"] if one.waits else []
            left.append(f"{one.participant} left {' and '.join(has)}")
    if queue.lost_slots:
        left.append(f"{format_count_noun(queue.lost_slots, 'slot')} of closed handles")
    if queue.expired_leases:
        left.append(f"{format_count_noun(queue.expired_leases, 'message')} with an expired lease")
    return left


def diagnose(queue: QueueStats) -> list[EndpointIssue]:
    """Return the issues of a queue: leftovers of dead processes, slots with invalid data, and a full table."""
    name = QUEUE_NAME_PREFIX + queue.name
    issues = []
    if queue.corrupt_slots:
        text = (
            f"{name} has {format_count_noun(queue.corrupt_slots, 'unusable slot')}: another program wrote into the file"
        )
        issues.append(EndpointIssue(f"{text}; run `msgq clean {name}`, then create the queue again", severity=ERROR))
    if sum(one.participant.alive is not False for one in queue.handles) >= HANDLES_MAX:
        issues.append(EndpointIssue(f"{name} has {HANDLES_MAX} open handles, its limit", severity=ERROR))
    if is_abandoned(queue):
        text = f"{name} has results for a dead client; `msgq clean` removes it"
        return [*issues, EndpointIssue(text, severity=WARNING)]
    left = _describe_leftovers(queue)
    if left:
        issues.append(
            EndpointIssue(
                f"{name}: {join_first_texts(left)} (repaired when a process opens it, or by --fix)", severity=WARNING
            )
        )
    return issues


CLEANUP = KindCleanup(
    remove_unused=QUEUES.remove_unused,
    remove_orphans=remove_orphans,
    diagnose=diagnose,
    repair=repair,
    list_keep_reasons=list_keep_reasons,
)
