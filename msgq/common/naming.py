"""Names, paths and environment variables: the only place that knows any of them.

======================  ==================================================================
``OPENPILOT_PREFIX``    topics live in a directory of this name, apart from all others
``MSGQ_BACKEND``        ``msgq``, the default, ``zmq`` or ``fake``
``ZMQ_FILE_PREFIX``                 stock's old switch: anything but 0 means ``zmq``, unless MSGQ_BACKEND is set
``MSGQ_MODE``           permissions of new segments, octal; 600 by default
``MSGQ_GROUP``          group of new segments, by name or id; by default the one that the system gives them
``MSGQ_TRUST``          users, by name or id, with commas, whose files are used as one's own and root's are
``MSGQ_PREALLOC``       when set (to anything), whole segments have their memory, and are mapped, at once
``MSGQ_SIGBUS``         0: no handler of SIGBUS, which a file that others make smaller raises; 1 by default
``MSGQ_SPIN_US``        microseconds that a blocking receive spins before it sleeps; by default 0, of work queues 10
``MSGQ_ZMQ_TRANSPORT``  ``tcp`` (default) or ``ipc``, see docs/guides/zmq.md for this and what follows
``MSGQ_ZMQ_BIND``       host that publishers bind on tcp; 127.0.0.1 by default, ``*`` for all interfaces
``MSGQ_ZMQ_STOCK``      anything but 0: ports and binding as stock has them, whatever the prefix
``MSGQ_ZMQ_MAP``        a TOML file: endpoint = "address"
``MSGQ_ZMQ_HWM``        messages in each queue of ZMQ; 1000 by default, 0 for no limit
``MSGQ_ZMQ_MAX_BYTES``  the largest message over ZMQ; 268435456 by default, 0 for no limit
``MSGQ_ZMQ_CURVE``      a directory with certificates; encrypts everything
``CEREAL_FAKE``         when set (to anything), subscribers that connect stop at gates
``CEREAL_FAKE_PREFIX``  the identifier of those gates; none by default
======================  ==================================================================
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator

from msgq.common.environment import environment
from msgq.errors import EndpointNameError, InvalidValueError, SegmentError

SHARED_MEMORY = "/dev/shm"
RING_FILE_PREFIX = "msgq_"
SIDE_FILE_PREFIX = "msgqside_"
ZMQ_FILE_PREFIX = "msgqzmq_"
FRAMES_FILE_PREFIX = "msgqframes_"
GATE_FILE_PREFIX = "msgqgate_"
CLOCK_FILE_PREFIX = "msgqclock"
ORIGIN_FILE_PREFIX = "msgqorigin"
CHANNEL_FILE_PREFIX = "msgqchan_"
CHANNEL_NAME_PREFIX = "channel/"  # before a channel's name, where topics have theirs; no topic has a "/"
POOL_FILE_PREFIX = "msgqpool_"
QUEUE_FILE_PREFIX = "msgqjobs_"
QUEUE_NAME_PREFIX = "queue/"  # before a work queue's name, where topics have theirs
RECORDS_FILE_PREFIX = "msgqrec_"
RECORDS_NAME_PREFIX = "records/"  # before the name of vectors and boards, where topics have theirs
FILE_NAME_BYTES_MAX = 255  # of a file's name
NAME_BYTES_MAX = FILE_NAME_BYTES_MAX - len(SIDE_FILE_PREFIX)
POOL_UID_DIGITS = 16
CHANNEL_BYTES_MAX = FILE_NAME_BYTES_MAX - len(POOL_FILE_PREFIX) - 1 - POOL_UID_DIGITS


def endpoint_name(endpoint: str | bytes, noun: str = "endpoint", most: int = NAME_BYTES_MAX) -> str:
    """Return the name as str, checked: it becomes the name of a file.

    Raises
    ------
    EndpointNameError : empty, longer than `most` bytes, not UTF-8, or with "/" or NUL in it.
    TypeError : neither str nor bytes.
    """
    if not isinstance(endpoint, (str, bytes)):
        raise TypeError(f"{noun} {endpoint!r} is {type(endpoint).__name__}; give str or bytes")
    try:
        name = endpoint.decode() if isinstance(endpoint, bytes) else endpoint
        size = len(name.encode())
    except UnicodeError as error:
        raise EndpointNameError(f"{noun} {endpoint!r} is not UTF-8: {error}") from None
    if not 0 < size <= most:
        raise EndpointNameError(f"{noun} {name[:40]!r} has {size} bytes; allowed are 1 to {most}")
    if "/" in name or "\0" in name or name in (".", ".."):
        hint = "an address goes into MSGQ_ZMQ_MAP" if "://" in name else _advise_on_name(name)
        raise EndpointNameError(
            f"{noun} {name!r} cannot name a file: no '/' or NUL, not '.' or '..'{hint and '; '}{hint}"
        )
    return name


#: Classes that open the endpoints whose names have a mark in other tools.
_CLASS_OF_NAME_PREFIX = {
    CHANNEL_NAME_PREFIX: "Channel",
    QUEUE_NAME_PREFIX: "MessageQueue",
    RECORDS_NAME_PREFIX: "SeqlockVector or Board",
}


def _advise_on_name(name: str) -> str:
    """Return advice for an invalid name: a valid one without slashes, or the class that opens the endpoint; or ""."""
    for mark, kind in _CLASS_OF_NAME_PREFIX.items():
        if name.startswith(mark):
            return f"msgq.{kind} opens {name.removeprefix(mark)!r}"
    valid = ".".join(part for part in name.replace("\0", "").split("/") if part.strip("."))
    return f"give {valid!r}" if valid and valid != name else ""


_thread_settings = threading.local()  # what `overrides` set


def prefix() -> str:
    """Return the prefix in force, "" for none."""
    value = getattr(_thread_settings, "prefix", None)
    if value is None:
        value = environment("OPENPILOT_PREFIX")
    return endpoint_name(value, "prefix (OPENPILOT_PREFIX)") if value else ""


def resolve_prefix(asked: str | None) -> str:
    """Return `asked`, checked, or the prefix in force when it is None; "" is none."""
    if asked is None:
        return prefix()
    return endpoint_name(asked, "prefix") if asked else ""


def ring_path(endpoint: str, in_prefix: str) -> str:
    """Return the path of an endpoint's ring, where stock msgq has it too."""
    return (
        f"{SHARED_MEMORY}/{RING_FILE_PREFIX}{in_prefix}/{endpoint}"
        if in_prefix
        else f"{SHARED_MEMORY}/{RING_FILE_PREFIX}{endpoint}"
    )


def side_path(endpoint: str, in_prefix: str) -> str:
    """Return the path of an endpoint's side segment."""
    return (
        f"{SHARED_MEMORY}/{SIDE_FILE_PREFIX}{in_prefix}/{endpoint}"
        if in_prefix
        else f"{SHARED_MEMORY}/{SIDE_FILE_PREFIX}{endpoint}"
    )


def directories(in_prefix: str) -> tuple[str, str]:
    """Return the two directories of a prefix, of its rings and of their side segments."""
    return f"{SHARED_MEMORY}/{RING_FILE_PREFIX}{in_prefix}", f"{SHARED_MEMORY}/{SIDE_FILE_PREFIX}{in_prefix}"


def channel_name(channel: str | bytes) -> str:
    """Return a channel's name, checked: it becomes a part of the names of files.

    Raises
    ------
    EndpointNameError : as `endpoint_name`, and longer than 229 bytes.
    """
    return endpoint_name(channel, "channel", CHANNEL_BYTES_MAX)


def channel_path(channel: str, in_prefix: str) -> str:
    """Return the path of a channel's file."""
    return (
        f"{SHARED_MEMORY}/{CHANNEL_FILE_PREFIX}{in_prefix}/{channel}"
        if in_prefix
        else f"{SHARED_MEMORY}/{CHANNEL_FILE_PREFIX}{channel}"
    )


def pool_path(channel: str, in_prefix: str, uid: int) -> str:
    """Return the path of the pool of one of a channel's publishers."""
    file = f"{channel}:{uid:0{POOL_UID_DIGITS}x}"
    return (
        f"{SHARED_MEMORY}/{POOL_FILE_PREFIX}{in_prefix}/{file}"
        if in_prefix
        else f"{SHARED_MEMORY}/{POOL_FILE_PREFIX}{file}"
    )


def channel_directories(in_prefix: str) -> tuple[str, str]:
    """Return the two directories of a prefix, of its channels' files and of their pools."""
    return f"{SHARED_MEMORY}/{CHANNEL_FILE_PREFIX}{in_prefix}", f"{SHARED_MEMORY}/{POOL_FILE_PREFIX}{in_prefix}"


def channel_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory that holds the files of a prefix's channels, and what their file names start with."""
    return (
        (f"{SHARED_MEMORY}/{CHANNEL_FILE_PREFIX}{in_prefix}", "") if in_prefix else (SHARED_MEMORY, CHANNEL_FILE_PREFIX)
    )


def queue_name(queue: str | bytes) -> str:
    """Return a work queue's name, checked: it becomes the name of a file. A "/" before it, as POSIX has, is taken off.

    Raises
    ------
    EndpointNameError : as `endpoint_name`.
    """
    if isinstance(queue, str):
        queue = queue.removeprefix("/")
    elif isinstance(queue, bytes):
        queue = queue.removeprefix(b"/")
    return endpoint_name(queue, "queue")


def queue_path(queue: str, in_prefix: str) -> str:
    """Return the path of a work queue."""
    return (
        f"{SHARED_MEMORY}/{QUEUE_FILE_PREFIX}{in_prefix}/{queue}"
        if in_prefix
        else f"{SHARED_MEMORY}/{QUEUE_FILE_PREFIX}{queue}"
    )


def queue_directories(in_prefix: str) -> tuple[str]:
    """Return the directory of a prefix, of its work queues."""
    return (f"{SHARED_MEMORY}/{QUEUE_FILE_PREFIX}{in_prefix}",)


def queue_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory that holds a prefix's work queues, and what their file names start with."""
    return (f"{SHARED_MEMORY}/{QUEUE_FILE_PREFIX}{in_prefix}", "") if in_prefix else (SHARED_MEMORY, QUEUE_FILE_PREFIX)


def records_name(records: str | bytes) -> str:
    """Return the name of a vector or board, checked: it becomes the name of a file.

    Raises
    ------
    EndpointNameError : as `endpoint_name`.
    """
    return endpoint_name(records, "records")


def records_path(records: str, in_prefix: str) -> str:
    """Return the path of a vector or board."""
    return (
        f"{SHARED_MEMORY}/{RECORDS_FILE_PREFIX}{in_prefix}/{records}"
        if in_prefix
        else f"{SHARED_MEMORY}/{RECORDS_FILE_PREFIX}{records}"
    )


def records_directories(in_prefix: str) -> tuple[str]:
    """Return the directory of a prefix, of its vectors and boards."""
    return (f"{SHARED_MEMORY}/{RECORDS_FILE_PREFIX}{in_prefix}",)


def records_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory that holds a prefix's vectors and boards, and what their file names start with."""
    return (
        (f"{SHARED_MEMORY}/{RECORDS_FILE_PREFIX}{in_prefix}", "") if in_prefix else (SHARED_MEMORY, RECORDS_FILE_PREFIX)
    )


def pools(in_prefix: str) -> list[tuple[str, int]]:
    """Return the channel and the uid of each pool that a prefix has, sorted; `pool_path` has its path."""
    directory, start = (
        (f"{SHARED_MEMORY}/{POOL_FILE_PREFIX}{in_prefix}", "") if in_prefix else (SHARED_MEMORY, POOL_FILE_PREFIX)
    )
    pool_files = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for entry in os.scandir(directory):
            channel, colon, uid = entry.name.removeprefix(start).rpartition(":")
            digits = len(uid) == POOL_UID_DIGITS and set(uid) <= set("0123456789abcdef")
            if entry.name.startswith(start) and channel and colon and digits and entry.is_file(follow_symlinks=False):
                pool_files.append((channel, int(uid, 16)))
    return sorted(pool_files)


def clock_paths() -> tuple[str, str]:
    """Return the paths of the host's clock, and of this user's own, for when a stranger's is in the former's place."""
    return f"{SHARED_MEMORY}/{CLOCK_FILE_PREFIX}", f"{SHARED_MEMORY}/{CLOCK_FILE_PREFIX}_{os.geteuid()}"


def origin_path() -> str:
    """Return the path of the word with which this user's processes make origins."""
    return f"{SHARED_MEMORY}/{ORIGIN_FILE_PREFIX}_{os.geteuid()}"


def prefixes() -> list[str]:
    """Return the prefixes that have a directory, of topics, channels, work queues or records; sorted."""
    names = set()
    for entry in os.scandir(SHARED_MEMORY):
        for start in (
            RING_FILE_PREFIX,
            SIDE_FILE_PREFIX,
            CHANNEL_FILE_PREFIX,
            POOL_FILE_PREFIX,
            QUEUE_FILE_PREFIX,
            RECORDS_FILE_PREFIX,
        ):
            name = entry.name.removeprefix(start)
            if name not in ("", entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(EndpointNameError):  # not ours: no prefix can be called so
                    names.add(endpoint_name(name, "prefix"))
    return sorted(names)


def backend_name() -> str:
    """Return the backend asked for by the environment."""
    stock_switch = environment("ZMQ") not in (None, "", "0")
    return environment("MSGQ_BACKEND") or ("zmq" if stock_switch else "msgq")


def mode(asked: int | None, endpoint: str) -> int:
    """Return the permissions for a new segment: `asked`, else MSGQ_MODE, else 0600."""
    value = environment("MSGQ_MODE") or "" if asked is None else asked
    try:
        result = int(value or "600", 8) if isinstance(value, str) else int(value)
    except ValueError:
        raise InvalidValueError(f"MSGQ_MODE is {value!r}; it must be octal, as 660", endpoint) from None
    if result & ~0o666 or result & 0o600 != 0o600:
        text = f"mode {result:#o} is not possible; give read and write permissions, the owner's included, as 0o660"
        raise InvalidValueError(text, endpoint)
    return result


def group() -> str:
    """Return the group that new files get, by name or id, "" for the one that the system gives them (MSGQ_GROUP)."""
    return environment("MSGQ_GROUP") or ""


def trust() -> str:
    """Return whose files this thread uses beside its own and root's, as MSGQ_TRUST has it."""
    value = getattr(_thread_settings, "trust", None)
    return process_trust() if value is None else value


def process_trust() -> str:
    """Return whose files this process uses beside its own and root's where no thread says otherwise (MSGQ_TRUST)."""
    return environment("MSGQ_TRUST") or ""


def preallocate() -> bool:
    """Return whether whole segments have their memory, and are mapped, at once (MSGQ_PREALLOC)."""
    return environment("MSGQ_PREALLOC") is not None


def guards_memory() -> bool:
    """Return whether a ring that others make smaller shall be an error instead of SIGBUS (MSGQ_SIGBUS).

    Raises
    ------
    InvalidValueError : it is neither 0 nor 1.
    """
    value = environment("MSGQ_SIGBUS") or "1"
    if value not in ("0", "1"):
        raise InvalidValueError(f"MSGQ_SIGBUS is {value!r}; it must be 1, or 0 for no handler of the signal")
    return value == "1"


def spin_us(asked: int | None, endpoint: str, default: int = 0) -> int:
    """Return how many microseconds to spin before sleeping: `asked`, else MSGQ_SPIN_US, else `default`.

    Raises
    ------
    InvalidValueError : it is negative, no number, or more than a second.
    """
    value = environment("MSGQ_SPIN_US") if asked is None else asked
    try:
        result = int(default if value in (None, "") else value)
    except ValueError:
        result = -1
    if not 0 <= result <= 1_000_000:
        raise InvalidValueError(f"spin_us (MSGQ_SPIN_US) is {value!r}; allowed are 0 to 1000000", endpoint)
    return result


def side_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory that holds the side segments of a prefix's rings, and what their file names start with."""
    return (f"{SHARED_MEMORY}/{SIDE_FILE_PREFIX}{in_prefix}", "") if in_prefix else (SHARED_MEMORY, SIDE_FILE_PREFIX)


def topic_files(in_prefix: str) -> tuple[str, str]:
    """Return the directory that holds the rings of a prefix, and what their file names start with."""
    return (f"{SHARED_MEMORY}/{RING_FILE_PREFIX}{in_prefix}", "") if in_prefix else (SHARED_MEMORY, RING_FILE_PREFIX)


def zmq_transport(endpoint: str) -> str:
    """Return how ZMQ sockets reach each other: "tcp" or "ipc" (MSGQ_ZMQ_TRANSPORT)."""
    value = environment("MSGQ_ZMQ_TRANSPORT") or "tcp"
    if value not in ("tcp", "ipc"):
        raise InvalidValueError(f"MSGQ_ZMQ_TRANSPORT is {value!r}; it must be tcp or ipc", endpoint)
    return value


def zmq_as_stock() -> bool:
    """Return whether ZMQ addresses are those of stock, which has no prefix in them (MSGQ_ZMQ_STOCK)."""
    return environment("MSGQ_ZMQ_STOCK") not in (None, "", "0")


def zmq_bind_host() -> str:
    """Return the host that publishers bind on tcp (MSGQ_ZMQ_BIND)."""
    asked = getattr(_thread_settings, "bind_host", None) or environment("MSGQ_ZMQ_BIND")
    return asked or ("*" if zmq_as_stock() else "127.0.0.1")


def zmq_map_path() -> str:
    """Return the TOML file that gives endpoints their addresses, "" for none (MSGQ_ZMQ_MAP)."""
    return environment("MSGQ_ZMQ_MAP") or ""


def zmq_high_water_mark(endpoint: str) -> int:
    """Return how many messages ZMQ's queues hold (MSGQ_ZMQ_HWM): 1000, as ZMQ itself; 0 is no limit."""
    return _read_limit("MSGQ_ZMQ_HWM", 1000, 2**31 - 1, "messages", endpoint)


def zmq_max_bytes(endpoint: str) -> int:
    """Return how large a message over ZMQ may be (MSGQ_ZMQ_MAX_BYTES): 256 MiB; 0 is no limit.

    That is above all that a ring of up to 768 MiB takes, and far below what a stranger would need to fill the memory by
    announcing one message.
    """
    return _read_limit("MSGQ_ZMQ_MAX_BYTES", 2**28, 2**62, "bytes", endpoint)


def _read_limit(variable: str, default: int, most: int, unit: str, endpoint: str) -> int:
    value = environment(variable) or str(default)
    if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) <= most):
        raise InvalidValueError(f"{variable} is {value!r}; it must be a number of {unit}, 0 for no limit", endpoint)
    return int(value)


def zmq_curve_directory() -> str:
    """Return the directory of the CURVE certificates, "" for no encryption (MSGQ_ZMQ_CURVE)."""
    return environment("MSGQ_ZMQ_CURVE") or ""


def overrides(
    in_prefix: str | None = None, bind_host: str | None = None, trust: str | None = None
) -> contextlib.AbstractContextManager[None]:
    """Let all that the calling thread connects meanwhile use another prefix, bind another host, or trust others.

    Other threads do not notice, nor do programs that are started meanwhile.

    Parameters
    ----------
    in_prefix : instead of OPENPILOT_PREFIX, "" for none; None leaves it.
    bind_host : instead of MSGQ_ZMQ_BIND; None leaves it.
    trust : instead of MSGQ_TRUST, "" for nobody; None leaves it.
    """
    asked = {"prefix": in_prefix, "bind_host": bind_host, "trust": trust}
    wanted = {name: value for name, value in asked.items() if value is not None}
    return _override_settings(wanted) if wanted else _NO_OVERRIDE


_NO_OVERRIDE = contextlib.nullcontext()


@contextlib.contextmanager
def _override_settings(wanted: dict[str, str]) -> Iterator[None]:
    before = vars(_thread_settings).copy()
    vars(_thread_settings).update(wanted)
    try:
        yield
    finally:
        vars(_thread_settings).clear()
        vars(_thread_settings).update(before)


def zmq_directory(kind: str, endpoint: str) -> str:
    """Return a directory that only this user can enter, for the ZMQ backend's files; creates it when needed.

    Parameters
    ----------
    kind : "ipc" for socket files, "claims" for who publishes where.
    endpoint : for the error.

    Raises
    ------
    SegmentError : it cannot be created, or it is somebody else's.
    """
    top = _private_directory(f"{SHARED_MEMORY}/{ZMQ_FILE_PREFIX}{os.geteuid()}", endpoint)
    return _private_directory(f"{top}/{kind}", endpoint)


def frames_lock_path(socket_path: str, endpoint: str) -> str:
    """Return the path of the lock of a server of frames, in a directory that only this user can enter; creates that.

    Parameters
    ----------
    socket_path : where the server listens; its last part is the lock's name, so that one socket has one lock.
    endpoint : for the error.

    Raises
    ------
    SegmentError : the directory cannot be created, or it is somebody else's.
    """
    directory = _private_directory(f"{SHARED_MEMORY}/{FRAMES_FILE_PREFIX}{os.geteuid()}", endpoint)
    return f"{directory}/{os.path.basename(socket_path)}"


def _private_directory(path: str, endpoint: str) -> str:
    try:
        private = make_private_directory(path)
    except OSError as error:
        raise SegmentError(f"cannot create the directory: {error.strerror}", endpoint, path, error.errno) from error
    if not private:
        raise SegmentError("must be a directory that only you can enter (mode 700); remove it", endpoint, path)
    return path


def make_private_directory(path: str) -> bool:
    """Create a directory that only this user can enter; return whether what is there then is one.

    Raises
    ------
    OSError : nothing is there, and it cannot be created.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def fake_events() -> bool:
    """Return whether subscribers that connect now stop at gates."""
    return environment("CEREAL_FAKE") is not None


def toggle_fake_events(enabled: bool) -> None:
    """Choose whether subscribers that connect from now on, here and in child processes, stop at gates.

    Sets or removes the environment variable CEREAL_FAKE. Not while other threads read the environment in C. Only the
    ring's subscribers stop: with another backend this is no error, and changes nothing.
    """
    if enabled:
        os.environ["CEREAL_FAKE"] = "1"
    else:
        os.environ.pop("CEREAL_FAKE", None)


def fake_prefix() -> str:
    """Return the identifier of the gates of this process, "" for none.

    Raises
    ------
    EndpointNameError : the environment variable CEREAL_FAKE_PREFIX holds what cannot be part of a file's name.
    """
    value = environment("CEREAL_FAKE_PREFIX")
    return endpoint_name(value, "fake prefix (CEREAL_FAKE_PREFIX)") if value else ""


def set_fake_prefix(prefix: str | bytes) -> None:
    """Choose the identifier of gates: handles and subscribers of different ones do not know each other.

    Sets the environment variable CEREAL_FAKE_PREFIX, as `toggle_fake_events` does; "" removes it.

    Raises
    ------
    EndpointNameError : it cannot be part of a file's name.
    """
    if prefix:
        os.environ["CEREAL_FAKE_PREFIX"] = endpoint_name(prefix, "fake prefix")
    else:
        delete_fake_prefix()


def delete_fake_prefix() -> None:
    """Go back to gates without an identifier, by removing the environment variable CEREAL_FAKE_PREFIX."""
    os.environ.pop("CEREAL_FAKE_PREFIX", None)


def gate_path(endpoint: str, in_prefix: str, identifier: str) -> str:
    """Return the path of an endpoint's gate; those of its FIFOs are this, ":" and a word of at most 6 letters.

    Raises
    ------
    EndpointNameError : the three together are too long for one file's name.
    """
    parts = [part.replace("%", "%25").replace(":", "%3A") for part in (in_prefix, identifier, endpoint)]
    name = GATE_FILE_PREFIX + ":".join(parts)
    if len(name.encode()) > FILE_NAME_BYTES_MAX - len(":called"):
        text = f"prefix {in_prefix!r}, fake prefix {identifier!r} and endpoint are too long together for a gate's file"
        raise EndpointNameError(text, endpoint)
    return f"{SHARED_MEMORY}/{name}"


def gate_paths() -> list[str]:
    """Return the paths of all gates, those of other users and prefixes included."""
    names = [name for name in os.listdir(SHARED_MEMORY) if name.startswith(GATE_FILE_PREFIX) and name.count(":") == 2]
    return [f"{SHARED_MEMORY}/{name}" for name in sorted(names)]


def gate_names(path: str) -> tuple[str, str, str]:
    """Return the prefix, the identifier and the endpoint of a gate's path."""
    parts = os.path.basename(path).removeprefix(GATE_FILE_PREFIX).split(":")
    in_prefix, identifier, endpoint = (part.replace("%3A", ":").replace("%25", "%") for part in parts)
    return in_prefix, identifier, endpoint


def zmq_claims() -> list[str]:
    """Return the paths of this user's claims of ZMQ addresses."""
    directory = f"{SHARED_MEMORY}/{ZMQ_FILE_PREFIX}{os.geteuid()}/claims"
    with contextlib.suppress(FileNotFoundError):
        return [f"{directory}/{name}" for name in sorted(os.listdir(directory))]
    return []
