"""Paths of the library's files in shared memory."""

from __future__ import annotations

import os
import stat

from msgq.common.naming import (
    BUS_PREFIX_START,
    CHANNEL_FILE_PREFIX,
    CLOCK_FILE_PREFIX,
    FILE_NAME_BYTES_MAX,
    FRAMES_FILE_PREFIX,
    GATE_FILE_PREFIX,
    ORIGIN_FILE_PREFIX,
    POOL_FILE_PREFIX,
    POOL_UID_DIGITS,
    QUEUE_FILE_PREFIX,
    RECORDS_FILE_PREFIX,
    RING_FILE_PREFIX,
    SIDE_FILE_PREFIX,
    ZMQ_FILE_PREFIX,
    validate_endpoint_name,
)
from msgq.errors import EndpointNameError, SegmentError

SHARED_MEMORY = "/dev/shm"
#: Beginnings of the names of a prefix's directories.
_DIRECTORY_STARTS = (
    RING_FILE_PREFIX,
    SIDE_FILE_PREFIX,
    CHANNEL_FILE_PREFIX,
    POOL_FILE_PREFIX,
    QUEUE_FILE_PREFIX,
    RECORDS_FILE_PREFIX,
)
_DRAFT_SUFFIX_BYTES = 6  # random letters after the name and "."


def _make_path(file_prefix: str, in_prefix: str, name: str) -> str:
    if not in_prefix:
        return f"{SHARED_MEMORY}/{file_prefix}{name}"
    if not in_prefix.startswith(BUS_PREFIX_START):
        return f"{SHARED_MEMORY}/{file_prefix}{in_prefix}/{name}"
    root, in_prefix = _split_bus(in_prefix)
    return f"{root}/{file_prefix}{in_prefix}/{name}" if in_prefix else f"{root}/{file_prefix}{name}"


def _split_bus(in_prefix: str) -> tuple[str, str]:
    """Return the root of the paths, and the prefix in it. The files of a bus are not in shared memory."""
    bus, _, prefix = in_prefix.partition("/")
    return (bus, prefix) if bus.startswith(BUS_PREFIX_START) else (SHARED_MEMORY, in_prefix)


def strip_bus(in_prefix: str) -> str:
    """Return the prefix of paths without the name of its bus."""
    return _split_bus(in_prefix)[1]


def has_directories(in_prefix: str) -> bool:
    """Return True if the files of a prefix have directories of their own. A bus and shared memory itself have none."""
    return bool(in_prefix) and _split_bus(in_prefix)[0] == SHARED_MEMORY


def _locate_files(file_prefix: str, in_prefix: str) -> tuple[str, str]:
    """Return the directory of files, and the prefix of their names."""
    root, in_prefix = _split_bus(in_prefix)
    return (f"{root}/{file_prefix}{in_prefix}", "") if in_prefix else (root, file_prefix)


def ring_path(endpoint: str, in_prefix: str) -> str:
    """Return the path of an endpoint's ring. Stock msgq uses the same path."""
    return _make_path(RING_FILE_PREFIX, in_prefix, endpoint)


def side_segment_path(endpoint: str, in_prefix: str) -> str:
    """Return the path of an endpoint's side segment."""
    return _make_path(SIDE_FILE_PREFIX, in_prefix, endpoint)


def topic_directories(in_prefix: str) -> tuple[str, str]:
    """Return the two directories of a prefix: for rings, and for side segments."""
    return f"{SHARED_MEMORY}/{RING_FILE_PREFIX}{in_prefix}", f"{SHARED_MEMORY}/{SIDE_FILE_PREFIX}{in_prefix}"


def channel_path(channel: str, in_prefix: str) -> str:
    """Return the path of a channel's file."""
    return _make_path(CHANNEL_FILE_PREFIX, in_prefix, channel)


def pool_path(channel: str, in_prefix: str, uid: int) -> str:
    """Return the path of the pool of one of a channel's publishers."""
    file = f"{channel}:{uid:0{POOL_UID_DIGITS}x}"
    return _make_path(POOL_FILE_PREFIX, in_prefix, file)


def channel_directories(in_prefix: str) -> tuple[str, str]:
    """Return the two directories of a prefix: for channel files, and for pools."""
    return f"{SHARED_MEMORY}/{CHANNEL_FILE_PREFIX}{in_prefix}", f"{SHARED_MEMORY}/{POOL_FILE_PREFIX}{in_prefix}"


def locate_channel_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory of a prefix's channel files, and the prefix of their file names."""
    return _locate_files(CHANNEL_FILE_PREFIX, in_prefix)


def queue_path(queue: str, in_prefix: str) -> str:
    """Return the path of a work queue."""
    return _make_path(QUEUE_FILE_PREFIX, in_prefix, queue)


def locate_queue_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory of a prefix's work queues, and the prefix of their file names."""
    return _locate_files(QUEUE_FILE_PREFIX, in_prefix)


def records_path(records: str, in_prefix: str) -> str:
    """Return the path of a vector or board."""
    return _make_path(RECORDS_FILE_PREFIX, in_prefix, records)


def locate_records_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory of a prefix's vectors and boards, and the prefix of their file names."""
    return _locate_files(RECORDS_FILE_PREFIX, in_prefix)


def locate_pool_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory of a prefix's pools, and the prefix of their file names."""
    return _locate_files(POOL_FILE_PREFIX, in_prefix)


def clock_paths() -> tuple[str, str]:
    """Return the path of the host's clock, and of this user's own clock.

    The second is used if the first is not trusted.
    """
    return f"{SHARED_MEMORY}/{CLOCK_FILE_PREFIX}", f"{SHARED_MEMORY}/{CLOCK_FILE_PREFIX}_{os.geteuid()}"


def origin_counter_path() -> str:
    """Return the path of the counter with which this user's processes create origins."""
    return f"{SHARED_MEMORY}/{ORIGIN_FILE_PREFIX}_{os.geteuid()}"


def list_prefixes() -> list[str]:
    """Return the prefixes with a directory for topics, channels, work queues or records, sorted."""
    names = {_parse_directory_name(name) for name in _list_directories()}
    return sorted(names - {""})


def list_draft_directories() -> list[tuple[str, str]]:
    """Return path and prefix of each directory of a prefix that has no name yet, sorted.

    A directory that other users may enter gets its group and mode first, under the name `.NAME.XXXXXX`.
    """
    drafts = []
    for directory in _list_directories():
        name, _, suffix = directory.rpartition(".")
        in_prefix = _parse_directory_name(name.removeprefix("."))
        if in_prefix and name.startswith(".") and len(suffix) == _DRAFT_SUFFIX_BYTES:
            drafts.append((f"{SHARED_MEMORY}/{directory}", in_prefix))
    return sorted(drafts)


def _list_directories() -> list[str]:
    return [entry.name for entry in os.scandir(SHARED_MEMORY) if entry.is_dir(follow_symlinks=False)]


def _parse_directory_name(name: str) -> str:
    """Return the prefix of a directory; "": it is no directory of a prefix."""
    for start in _DIRECTORY_STARTS:
        in_prefix = name.removeprefix(start)
        if in_prefix not in ("", name):
            try:
                return validate_endpoint_name(in_prefix, "prefix")
            except EndpointNameError:
                return ""
    return ""


def locate_side_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory of a prefix's side segments, and the prefix of their file names."""
    return _locate_files(SIDE_FILE_PREFIX, in_prefix)


def locate_ring_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory of a prefix's rings, and the prefix of their file names."""
    return _locate_files(RING_FILE_PREFIX, in_prefix)


def create_zmq_directory(kind: str, endpoint: str) -> str:
    """Return a directory for the ZMQ backend's files that only this user can enter. Creates it if necessary.

    Args:
        kind: "ipc" for socket files, "claims" for files that record publishers.
        endpoint: name for error texts.

    Raises:
        SegmentError: the directory cannot be created, or belongs to another user.
    """
    top = _create_private_directory(f"{SHARED_MEMORY}/{ZMQ_FILE_PREFIX}{os.geteuid()}", endpoint)
    return _create_private_directory(f"{top}/{kind}", endpoint)


def create_frames_lock_path(socket_path: str, endpoint: str) -> str:
    """Return the path of a frame server's lock, in a directory that only this user can enter. Creates the directory.

    Args:
        socket_path: path of the server's socket. Its last part is the name of the lock, so each socket has one lock.
        endpoint: name for error texts.

    Raises:
        SegmentError: the directory cannot be created, or belongs to another user.
    """
    directory = _create_private_directory(f"{SHARED_MEMORY}/{FRAMES_FILE_PREFIX}{os.geteuid()}", endpoint)
    return f"{directory}/{os.path.basename(socket_path)}"


def _create_private_directory(path: str, endpoint: str) -> str:
    try:
        private = make_private_directory(path)
    except OSError as error:
        raise SegmentError(f"cannot create directory: {error.strerror}", endpoint, path, error.errno) from error
    if not private:
        raise SegmentError("path is not a private directory of this user (mode 700); remove the path", endpoint, path)
    return path


def make_private_directory(path: str) -> bool:
    """Create a directory that only this user can enter. Return False if an existing file or directory is not private.

    Raises:
        OSError: the directory does not exist, and cannot be created.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return _is_private_directory(path)
    return True


def _is_private_directory(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def gate_path(endpoint: str, in_prefix: str, identifier: str) -> str:
    """Return the path of an endpoint's gate. The paths of its FIFOs have ":" and a word of at most 6 letters appended.

    Raises:
        EndpointNameError: the three parts together are too long for a file name.
    """
    parts = [part.replace("%", "%25").replace(":", "%3A") for part in (in_prefix, identifier, endpoint)]
    name = GATE_FILE_PREFIX + ":".join(parts)
    if len(name.encode()) > FILE_NAME_BYTES_MAX - len(":called"):
        text = (
            f"prefix {in_prefix!r}, fake prefix {identifier!r} and endpoint are too long for a file name; shorten them"
        )
        raise EndpointNameError(text, endpoint)
    return f"{SHARED_MEMORY}/{name}"


def list_gate_paths() -> list[str]:
    """Return the paths of all gates, including those of other users and prefixes."""
    names = [name for name in os.listdir(SHARED_MEMORY) if name.startswith(GATE_FILE_PREFIX) and name.count(":") == 2]
    return [f"{SHARED_MEMORY}/{name}" for name in sorted(names)]


def parse_gate_path(path: str) -> tuple[str, str, str]:
    """Return prefix, identifier and endpoint from the path of a gate."""
    parts = os.path.basename(path).removeprefix(GATE_FILE_PREFIX).split(":")
    in_prefix, identifier, endpoint = (part.replace("%3A", ":").replace("%25", "%") for part in parts)
    return in_prefix, identifier, endpoint


def list_zmq_claim_paths() -> list[str]:
    """Return the paths of this user's claims of ZMQ addresses."""
    directory = f"{SHARED_MEMORY}/{ZMQ_FILE_PREFIX}{os.geteuid()}/claims"
    try:
        return [f"{directory}/{name}" for name in sorted(os.listdir(directory))]
    except FileNotFoundError:
        return []
