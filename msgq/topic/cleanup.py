"""Removal of unused topics, and of files that dead processes left.

A removal holds the lock that connecting processes need. The liveness of stock participants, and of processes in other
PID namespaces, is unknown, so their topics stay.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator

from msgq.common import settings, shm_paths
from msgq.common.stats import Participant
from msgq.common.stats.topic import TopicStats
from msgq.common.texts import format_count_noun
from msgq.errors import SegmentError, SegmentNotFoundError
from msgq.impl.base.core import check_owner, is_trusted
from msgq.impl.base.files import FileStatus, list_files, read_file_status
from msgq.impl.ring.core import TopicLock, unlink_orphan, unlink_topic
from msgq.kinds.cleanup import (
    ERROR,
    WARNING,
    EndpointIssue,
    EndpointUsers,
    FileRemoval,
    KindCleanup,
    count_by_role,
    describe_removals,
    remove_directories,
)
from msgq.kinds.removal import EndpointRemover, find_users
from msgq.kinds.snapshots import read, read_all
from msgq.topic.names import KIND

_DEAD_ROLE_NOTES = {
    "publisher": "removed when a publisher starts",
    "subscriber": "harmless: new subscribers reuse the slots of dead subscribers",
}
_FIX_HINT = "--fix removes the topic if only dead processes use it"


def find_topic_users(topic: TopicStats) -> EndpointUsers:
    """Return the users of a topic.

    Passive subscribers leave no trace. A passive subscriber keeps its mapping after a removal.
    """
    living, unknown = find_users(participant for _, participant in topic.participants)
    if topic.unlisted:
        living += ("unlisted subscribers",)
    if topic.publisher_kind == "stock":
        unknown += ("stock publisher",)
    if topic.stock_subscribers:
        unknown += (format_count_noun(topic.stock_subscribers, "stock subscriber"),)
    return EndpointUsers(living, unknown)


def find_dead_participants(topic: TopicStats) -> list[tuple[str, Participant]]:
    """Return the dead participants that are still registered, each with its role, "publisher" or "subscriber"."""
    return [(role, participant) for role, participant in topic.participants if participant.alive is False]


def diagnose_topic(topic: TopicStats) -> list[EndpointIssue]:
    """Return the dead participants of a topic as issues. A dead publisher is an error: a topic has only one."""
    return [
        EndpointIssue(
            f"{topic.endpoint}: {participant} ({_DEAD_ROLE_NOTES[role]}; {_FIX_HINT})",
            severity=ERROR if role == "publisher" else WARNING,
        )
        for role, participant in count_by_role(find_dead_participants(topic)).items()
    ]


def _remove_topic(endpoint: str, prefix: str, is_unused: Callable[[TopicStats], bool]) -> bool:
    with TopicLock(endpoint, prefix) as ring_exists:  # a process that connects now waits, then creates the topic
        if not ring_exists:
            raise SegmentNotFoundError("topic not found", endpoint)
        is_removable = is_unused(read(KIND, endpoint, prefix))
        if is_removable:
            unlink_topic(endpoint, prefix)
        return is_removable


TOPICS = EndpointRemover(kind=KIND, remove=_remove_topic, list_users=find_topic_users)


def remove_dead_topics(prefix: str) -> Iterator[FileRemoval]:
    """Remove side segments without a ring, and topics that only dead processes use. Topics with possible users stay.

    Yields removed files, and files that could not be removed. Topics without any registration stay, too.
    """
    yield from remove_orphaned_sides(prefix)
    only_dead = [topic.endpoint for topic in read_all(KIND, prefix) if find_dead_participants(topic)]
    yield from TOPICS.remove_dead(only_dead, prefix)


def _find_topic_files(path_of: Callable[[str, str], str], prefix: str) -> dict[str, FileStatus]:
    """Return the status of each endpoint's file. `path_of`: `ring_path` or `side_segment_path`.

    The result includes unreadable files.
    """
    directory, _, start = path_of("", prefix).rpartition("/")
    files = sorted(name for name, _ in list_files(directory) if name.startswith(start) and name != start)
    found = {name.removeprefix(start): read_file_status(f"{directory}/{name}") for name in files}
    return {name: status for name, status in found.items() if status is not None}  # None: just removed


def find_orphaned_sides(prefix: str) -> list[str]:
    """Return the endpoints with a trusted user's side segment and without a ring."""
    names = [
        name
        for name, status in _find_topic_files(shm_paths.side_segment_path, prefix).items()
        if is_trusted(status.owner)
    ]
    return [name for name in names if read_file_status(shm_paths.ring_path(name, prefix)) is None]


def find_orphaned_prefixes() -> list[str]:
    """Return the prefixes with side segments and without rings, or with only an empty directory."""
    return [
        prefix
        for prefix in shm_paths.list_prefixes()
        if _is_trusted_prefix(prefix) and (find_orphaned_sides(prefix) or _is_empty_prefix(prefix))
    ]


def _is_trusted_prefix(prefix: str) -> bool:
    try:
        return is_trusted(os.lstat(shm_paths.topic_directories(prefix)[1]).st_uid)
    except FileNotFoundError:
        return False


def _is_empty_prefix(prefix: str) -> bool:
    rings, sides = shm_paths.topic_directories(prefix)
    with contextlib.suppress(OSError):
        return not os.path.lexists(rings) and not os.listdir(sides)
    return False


def remove_orphans(prefix: str, remove: bool = True) -> Iterator[FileRemoval]:
    """Call `remove_orphaned_sides`, unless another user owns the directories of the prefix."""
    if not shm_paths.has_directories(prefix) or _is_trusted_prefix(prefix):
        yield from remove_orphaned_sides(prefix, remove)


def remove_orphaned_sides(prefix: str, remove: bool = True) -> Iterator[FileRemoval]:
    """Remove the side segments of a prefix without a ring, and the empty directories.

    Sockets that connect during the call wait some microseconds, or create the directories again. Programs that use a
    removed ring keep their mapping of its side segment.

    Args:
        remove: False: only report what would be removed.
    """
    endpoints = find_orphaned_sides(prefix)
    rings, sides = shm_paths.topic_directories(prefix)
    has_directories = shm_paths.has_directories(prefix)
    is_empty_prefix = has_directories and _is_empty_prefix(prefix)
    has_no_rings = has_directories and not os.path.lexists(rings)
    for endpoint in endpoints:
        if (removal := _remove_orphaned_side(endpoint, prefix, remove)) is not None:
            yield removal
    if remove and has_no_rings:
        remove_directories(rings, sides)
    if is_empty_prefix:
        yield FileRemoval("", prefix, sides, 0, "empty")


def _remove_orphaned_side(endpoint: str, prefix: str, remove: bool) -> FileRemoval | None:
    """Remove one side segment; None: nothing to remove."""
    path = shm_paths.side_segment_path(endpoint, prefix)
    status = read_file_status(path)
    if status is None:
        return None
    try:
        if remove and not unlink_orphan(endpoint, prefix):
            return None
    except SegmentError as error:
        return (
            None if error.errno == errno.ENOENT else FileRemoval(endpoint, prefix, path, 0, str(error), removed=False)
        )
    return FileRemoval(endpoint, prefix, path, status.bytes, "side segment without a ring")


def find_permission_issues(prefix: str) -> list[EndpointIssue]:
    """Return errors for files of users who are not trusted, and warnings for files with a too open mode."""
    issues = []
    for path_of in (shm_paths.ring_path, shm_paths.side_segment_path):
        for name, status in _find_topic_files(path_of, prefix).items():
            path, mode = path_of(name, prefix), status.mode
            try:
                check_owner(status.owner, name, path)
            except SegmentError as error:
                issues.append(EndpointIssue(str(error), severity=ERROR))
                continue
            if status.owner == os.geteuid() and mode & 0o022 & ~settings.resolve_file_mode(None, ""):
                text = f"{path} has mode {mode:o}, so that others can write it; run chmod {mode & 0o755:o}"
                issues.append(EndpointIssue(text, severity=WARNING))
    return issues


CLEANUP = KindCleanup(
    remove_unused=TOPICS.remove_unused,
    remove_orphans=remove_orphans,
    diagnose=diagnose_topic,
    repair=lambda prefix: describe_removals(remove_dead_topics(prefix)),
)
