"""What nobody alive needs any more: who uses a topic, what the dead left in shared memory, and how it is removed.

Nothing is removed that somebody may be using. A topic goes under the lock that all who connect take; of stock
participants, and of processes in other PID namespaces, nobody can say whether they live, so their topics stay. Whoever
has mapped a file keeps what is mapped: only its name goes.

Prefixes are those of `naming.checked_prefix`, "" for none. Functions that remove can be asked what they would do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgq import naming, sharing
from msgq.errors import CorruptSegmentError, EndpointNameError, LayoutVersionError, MsgqError, SegmentError
from msgq.impl.gate.gatefile import gate_owner, unlink_gate
from msgq.impl.ring.topic import TopicLock, unlink_orphan, unlink_topic
from msgq.stats import Participant, TopicStats, topics
from msgq.stats import topic as read_topic


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of something in shared memory.

    Attributes
    ----------
    endpoint : whose it was, of a channel as `channel/NAME`; "" for the directory of a prefix that ended.
    prefix : of the endpoint, "" for none.
    path : of the file; of a topic its ring, of a channel its hub.
    bytes : of the file; of a topic those of the ring's data area, of a channel those of all its files.
    reason : why it went, or why it was kept.
    removed : whether it is gone; or would be, where that was only asked.
    forcible : it was kept, and `force` would remove it.
    """

    endpoint: str
    prefix: str
    path: str
    bytes: int
    reason: str
    removed: bool = True
    forcible: bool = False


class Users(NamedTuple):
    """Who uses a topic or a channel, in words: those that live, and those of whom nobody here can say that."""

    living: tuple[str, ...]
    unknown: tuple[str, ...]


class Flaw(NamedTuple):
    """Something that is not as it should be. `wrong`: it keeps this user from using the topic or the channel."""

    text: str
    wrong: bool


def users(topic: TopicStats) -> Users:
    """Return who uses a topic.

    Passive subscribers leave no trace, and need none: their mappings stay theirs when the name is gone.
    """
    named = [participant for _, participant in _participants(topic)]
    living = [str(participant) for participant in named if participant.alive]
    if topic.unlisted:
        living.append("subscribers for whom the table had no room")
    unknown = [str(participant) for participant in named if participant.alive is None]
    if topic.publisher_kind == "stock":
        unknown.append("a stock publisher")
    if topic.stock_subscribers:
        unknown.append(f"{topic.stock_subscribers} stock subscribers")
    return Users(tuple(living), tuple(unknown))


def dead(topic: TopicStats) -> list[tuple[str, Participant]]:
    """Return who died and is still entered in a topic, each with its role, "publisher" or "subscriber"."""
    return [(role, participant) for role, participant in _participants(topic) if participant.alive is False]


def _participants(topic: TopicStats) -> list[tuple[str, Participant]]:
    found = [("subscriber", subscriber.participant) for subscriber in topic.subscribers]
    return found if topic.publisher is None else [*found, ("publisher", topic.publisher)]


def clear_topics(
    endpoints: Iterable[str], prefix: str, *, remove: bool = True, force: bool = False
) -> Iterator[Removal]:
    """Remove topics that nobody uses, and say of each what became of it.

    Parameters
    ----------
    endpoints : of the topics; those that somebody else removes meanwhile are passed over.
    remove : False: only say what would be done.
    force : remove also topics of which nobody can say whether they are used; never one with a living participant.
    """
    for endpoint in endpoints:
        try:
            removal = _clear_topic(endpoint, prefix, remove, force)
        except SegmentError as error:
            if error.errno == errno.ENOENT:  # somebody else removed it meanwhile
                continue
            removal = Removal(endpoint, prefix, naming.ring_path(endpoint, prefix), 0, str(error), removed=False)
        if removal is not None:
            yield removal


def _clear_topic(endpoint: str, prefix: str, remove: bool, force: bool) -> Removal | None:
    """Remove one topic; None: somebody else has."""
    with TopicLock(endpoint, prefix) as there:  # who connects now waits, and then makes the topic anew
        if not there:
            return None
        topic = read_topic(endpoint, prefix)
        living, unknown = users(topic)
        goes = not living and (force or not unknown)
        if goes and remove:
            unlink_topic(endpoint, prefix)
        why = reason(living, unknown)
        return Removal(endpoint, prefix, topic.path, topic.data_bytes, why, goes, not goes and not living)


def reason(living: Sequence[str], unknown: Sequence[str], nobody: str = "nobody uses it") -> str:
    """Return why something goes or stays that these use, see `Users`; `nobody` says that there are none."""
    if living:
        return f"in use by {', '.join(living)}"
    return f"nobody can say whether these live: {', '.join(unknown)}" if unknown else nobody


def repair(prefix: str) -> Iterator[Removal]:
    """Remove side segments that lost their ring, and topics that only the dead use; topics that somebody may use stay.

    Gives what was removed, and what could not be though it should. Topics that nobody ever entered stay as well.
    """
    yield from clear_orphans(prefix)
    for found in topics(prefix):
        path = naming.ring_path(found.endpoint, prefix)
        try:
            removal = _clear_topic(found.endpoint, prefix, True, False) if dead(found) else None
        except MsgqError as error:
            if error.errno != errno.ENOENT:  # somebody else removed it meanwhile
                yield Removal(found.endpoint, prefix, path, 0, str(error), removed=False)
            continue
        if removal is not None and removal.removed:
            yield Removal(found.endpoint, prefix, path, removal.bytes, "only the dead used it")


def _files(path_of: Callable[[str, str], str], prefix: str) -> dict[str, os.stat_result]:
    """Return the endpoints that have a plain file of a kind, `naming.ring_path` or `side_path`, and what is said of it.

    Also those that cannot be read.
    """
    sample = Path(path_of("x", prefix))
    start = sample.name.removesuffix("x")
    found = {}
    for path in sorted(sample.parent.glob(f"{start}?*")):
        with contextlib.suppress(OSError):  # just removed
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found[path.name.removeprefix(start)] = status
    return found


def orphans(prefix: str) -> list[str]:
    """Return the endpoints that have a side segment of a user who is trusted, but no ring."""
    found = [name for name, status in _files(naming.side_path, prefix).items() if sharing.trusts(status.st_uid)]
    return [name for name in found if not os.path.lexists(naming.ring_path(name, prefix))]


def orphaned_prefixes() -> list[str]:
    """Return the prefixes with side segments that have no rings, or with nothing but an empty directory for them."""
    return [prefix for prefix in naming.prefixes() if _is_trusted_place(prefix) and (orphans(prefix) or _bare(prefix))]


def _is_trusted_place(prefix: str) -> bool:
    try:
        return sharing.trusts(os.lstat(naming.directories(prefix)[1]).st_uid)
    except FileNotFoundError:
        return False


def _bare(prefix: str) -> bool:
    rings, sides = naming.directories(prefix)
    with contextlib.suppress(OSError):
        return not os.path.lexists(rings) and not os.listdir(sides)
    return False


def clear_orphans(prefix: str, remove: bool = True) -> Iterator[Removal]:
    """Remove what a prefix has of side segments without a ring, and the directories that they leave.

    Sockets that connect meanwhile wait for microseconds, or make the directories anew. Programs that still use a ring
    that was removed keep what they have mapped: its side segment loses its name as the ring did.

    Parameters
    ----------
    remove : False: only say what would be done.
    """
    found = orphans(prefix)
    rings, sides = naming.directories(prefix)
    bare, alone = bool(prefix) and _bare(prefix), bool(prefix) and not os.path.lexists(rings)
    if remove and found and prefix:
        # What is locked is the ring's name.
        sharing.make_directories("", naming.directories(prefix), naming.mode(None, ""))
    for endpoint in found:
        if (removal := _clear_orphan(endpoint, prefix, remove)) is not None:
            yield removal
    if remove and alone:
        remove_directories(rings, sides)
    if bare:
        yield Removal("", prefix, sides, 0, "nothing is in it")


def remove_directories(rings: str, sides: str) -> None:
    """Remove the directories of a prefix that ended; not when somebody has come, for the ring comes first."""
    with contextlib.suppress(OSError):  # not empty
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(rings)
        os.rmdir(sides)


def _clear_orphan(endpoint: str, prefix: str, remove: bool) -> Removal | None:
    """Remove one side segment; None when there is nothing to do any more."""
    path = naming.side_path(endpoint, prefix)
    try:
        size = os.stat(path).st_size
        if remove and not unlink_orphan(endpoint, prefix):
            return None
    except FileNotFoundError:
        return None
    except SegmentError as error:
        return None if error.errno == errno.ENOENT else Removal(endpoint, prefix, path, 0, str(error), removed=False)
    return Removal(endpoint, prefix, path, size, "a side segment that has no ring")


def clear_gates(
    prefix: str | None, remove: bool = True, wanted: Callable[[str], bool] = lambda endpoint: True
) -> Iterator[Removal]:
    """Remove the gates whose controllers are dead.

    Those of whom that is not known are left out.

    Parameters
    ----------
    prefix : of the gates; None: every one.
    remove : False: only say what would be done.
    wanted : says of an endpoint whether its gates are meant.
    """
    for path in naming.gate_paths():
        in_prefix, _, endpoint = naming.gate_names(path)
        if prefix not in (None, in_prefix) or not wanted(endpoint):
            continue
        with contextlib.suppress(SegmentError, FileNotFoundError):  # another user's, or just removed
            owner = gate_owner(path)
            if owner is not None and owner[1] is False:
                what = f"a gate whose controller, process {owner[0]}, is dead"
                size = os.stat(path).st_size
                kept = _remove_gate(path, owner[2]) if remove else ""
                yield Removal(endpoint, in_prefix, path, size, kept or what, not kept)


def _remove_gate(path: str, inode: int) -> str:
    """Remove it, unless another one has the name by now. Returns why it could not be, or ""."""
    try:
        unlink_gate(path, inode)
    except SegmentError as error:
        return str(error)
    return ""


def clear_claims(prefix: str | None, remove: bool = True) -> Iterator[Removal]:
    """Remove the claims of ZMQ publishers that are dead.

    A publisher locks its claim for as long as it lives, and the kernel takes the lock back when it dies: that says more
    than a process id would. A publisher that starts at the same address in the microseconds of the look is refused.

    Parameters
    ----------
    prefix : of the claims; None: every one.
    remove : False: only say what would be done.
    """
    for path in naming.zmq_claims():
        if (removal := _clear_claim(path, prefix, remove)) is not None:
            yield removal


def _clear_claim(path: str, prefix: str | None, remove: bool) -> Removal | None:
    """Remove one claim; None: it is a living publisher's, or of another prefix. Its lock is free again afterwards."""
    with contextlib.suppress(OSError, ValueError), open(path, "r+") as claim:
        said = json.load(claim)
        in_prefix, _, endpoint = str(said["name"]).rpartition("/")
        if prefix not in (None, in_prefix) or not _lock(claim.fileno()):
            return None
        status = os.fstat(claim.fileno())
        if status.st_nlink:
            if remove:
                os.unlink(path)
            what = f"the claim of a ZMQ publisher, process {said['pid']}, that is dead"
            return Removal(endpoint, in_prefix, path, status.st_size, what)
    return None


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        raise
    return True


def unreadable(prefix: str) -> list[Flaw]:
    """Return what is in the place of a ring and cannot be read: damaged (wrong), or not for this user."""
    directory, start = naming.topic_files(prefix)
    paths = sorted(Path(directory).glob(f"{start}?*"))
    files = [path for path in paths if not path.is_dir() or path.is_symlink()]  # else the topics of a prefix
    return flaws_of([path.name.removeprefix(start) for path in files], prefix, read_topic)


def flaws_of(names: Iterable[str], prefix: str, read: Callable[[str, str], object]) -> list[Flaw]:
    """Return why some of these cannot be read, by a function of `msgq.stats`: damaged (wrong), or not for this user."""
    flaws = []
    for name in names:
        try:
            read(name, prefix)
        except (SegmentError, EndpointNameError) as error:  # a name that is no text, too
            if error.errno != errno.ENOENT:  # else it was removed meanwhile
                damaged = isinstance(error, (CorruptSegmentError, LayoutVersionError))
                flaws.append(Flaw(str(error), wrong=damaged))
    return flaws


def strangers(prefix: str) -> list[Flaw]:
    """Return which segments have an owner who is not trusted (wrong: they are refused), or a mode that is too open."""
    flaws = []
    for path_of in (naming.ring_path, naming.side_path):
        for name, status in _files(path_of, prefix).items():
            path, mode = path_of(name, prefix), stat.S_IMODE(status.st_mode)
            if not sharing.trusts(status.st_uid):
                text = f"belongs to {sharing.user_name(status.st_uid)}{sharing.how_to_trust(status.st_uid)}"
                flaws.append(Flaw(f"{path} {text}: until then it is refused", wrong=True))
            elif status.st_uid == os.geteuid() and mode & 0o022 & ~naming.mode(None, ""):
                text = f"{path} has mode {mode:o}: others may write what they like there (chmod {mode & 0o755:o})"
                flaws.append(Flaw(text, wrong=False))
    return flaws
