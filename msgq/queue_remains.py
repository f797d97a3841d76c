"""What work queues leave that nobody alive needs any more, beside what `msgq.remains` says: the same rules, for queues.

A queue is for messages that wait while nobody is there, so one that nobody has open is no remain. It is removed only
when it is named, and when nobody alive has it open; then under the lock that all who open it take, so who opens it then
makes another one.

What the dead left in a queue is put right by whoever opens it. Nobody needs to repair one that is in use.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator

from msgq import naming
from msgq.errors import MsgqError, SegmentError
from msgq.impl.workqueue.options import HANDLES_MAX
from msgq.impl.workqueue.queue import MessageQueue
from msgq.impl.workqueue.snapshot import remove_queue
from msgq.naming import QUEUE_MARK
from msgq.remains import Flaw, Removal, Users, flaws_of, reason
from msgq.stats import QueueStats, queue_inodes, queues
from msgq.stats import queue as read_queue


def users(queue: QueueStats) -> Users:
    """Return who has a queue open."""
    living = [str(one.participant) for one in queue.handles if one.participant.alive]
    unknown = [str(one.participant) for one in queue.handles if one.participant.alive is None]
    return Users(tuple(dict.fromkeys(living)), tuple(dict.fromkeys(unknown)))


def spared(prefix: str) -> Iterator[Removal]:
    """Say of each queue of a prefix why it stays when nobody names it."""
    for one in queues(prefix):
        living, _ = users(one)
        why = reason(living, ()) if living else "a queue goes only when it is named"
        yield Removal(QUEUE_MARK + one.name, prefix, one.path, one.bytes, why + _waiting(one), removed=False)


def clear_queues(names: Iterable[str], prefix: str, *, remove: bool = True, force: bool = False) -> Iterator[Removal]:
    """Remove queues that nobody has open, with the messages in them, and say of each what became of it.

    Parameters
    ----------
    names : of the queues; those that somebody else removes meanwhile are passed over.
    remove, force : as in `clear_topics`.
    """
    for name in names:
        try:
            yield _clear_queue(name, prefix, remove, force)
        except SegmentError as error:
            if error.errno != errno.ENOENT:  # else somebody else removed it meanwhile
                yield Removal(QUEUE_MARK + name, prefix, naming.queue_path(name, prefix), 0, str(error), removed=False)


def clear_directory(prefix: str) -> None:
    """Remove the directory of a prefix's queues when nothing is in it. Who makes a queue meanwhile makes it anew."""
    with contextlib.suppress(OSError):  # there are queues in it, or it is gone
        if prefix:
            os.rmdir(*naming.queue_directories(prefix))


def _clear_queue(name: str, prefix: str, remove: bool, force: bool) -> Removal:
    seen: list[QueueStats] = []

    def unused(queue: QueueStats) -> bool:
        seen.append(queue)
        living, unknown = users(queue)
        return not living and (force or not unknown)

    goes = remove_queue(name, prefix, unused) if remove else unused(read_queue(name, prefix))
    one = seen[-1]
    living, unknown = users(one)
    why = reason(living, unknown) + _waiting(one)
    return Removal(QUEUE_MARK + name, prefix, one.path, one.bytes, why, goes, not goes and not living)


def _waiting(queue: QueueStats) -> str:
    messages = queue.depth + queue.in_flight
    return f"; it has {messages} messages" if messages else ""


def repair(prefix: str) -> tuple[list[str], list[str]]:
    """Put right what the dead left in queues, and return what was done, and what could not be, a text a queue."""
    done, failed = [], []
    for one in queues(prefix):
        left = _left(one)
        if not left:
            continue
        try:
            MessageQueue(one.name, 0, prefix=prefix).close()  # whoever comes puts it right
            done.append(f"put right {QUEUE_MARK}{one.name}: {', '.join(left)}")
        except MsgqError as error:
            if error.errno != errno.ENOENT:  # somebody removed it meanwhile
                failed.append(str(error))
    return done, failed


def _left(queue: QueueStats) -> list[str]:
    """Say what the dead left, and leases that are over: the next who opens the queue puts it right."""
    left = []
    for one in queue.handles:
        if one.leaves:
            has = [f"{one.taken} messages"] if one.taken else []
            has += [f"{one.holds} places to fill"] if one.holds else []
            has += [f"its wish to be woken ({', '.join(one.waits)})"] if one.waits else []
            left.append(f"{one.participant} left {' and '.join(has)}")
    if queue.astray:
        left.append(f"{queue.astray} places of handles that are gone")
    if queue.overdue:
        left.append(f"{queue.overdue} messages whose lease is over")
    return left


def ailments(queue: QueueStats) -> list[Flaw]:
    """Return what a supervisor should know: what the dead left, places that mean nothing, full rows."""
    name = QUEUE_MARK + queue.name
    flaws = []
    if queue.nonsense:
        text = f"{name} has {queue.nonsense} places that nobody can use: another program wrote there"
        flaws.append(Flaw(f"{text} (make it anew, after `msgq clean {name}`)", wrong=True))
    if sum(one.participant.alive is not False for one in queue.handles) >= HANDLES_MAX:
        flaws.append(Flaw(f"{name} has {HANDLES_MAX} handles open, as many as it may", wrong=True))
    left = _left(queue)
    if left:
        flaws.append(Flaw(f"{name}: {', '.join(left)} (the next to open it puts it right; so does --fix)", wrong=False))
    return flaws


def unreadable(prefix: str) -> list[Flaw]:
    """Return what is in the place of a queue and cannot be read: damaged (wrong), or not for this user."""
    return flaws_of(queue_inodes(prefix), prefix, read_queue)
