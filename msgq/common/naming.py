"""Valid names of endpoints, and the name prefixes of their kinds."""

from __future__ import annotations

from msgq.errors import EndpointNameError

#: Beginning of the prefix of a bus of the fake backend, whose files are in the memory of the process.
BUS_PREFIX_START = "bus:"
RING_FILE_PREFIX = "msgq_"
SIDE_FILE_PREFIX = "msgqside_"
ZMQ_FILE_PREFIX = "msgqzmq_"
FRAMES_FILE_PREFIX = "msgqframes_"
GATE_FILE_PREFIX = "msgqgate_"
CLOCK_FILE_PREFIX = "msgqclock"
ORIGIN_FILE_PREFIX = "msgqorigin"
CHANNEL_FILE_PREFIX = "msgqchan_"
POOL_FILE_PREFIX = "msgqpool_"
QUEUE_FILE_PREFIX = "msgqjobs_"
RECORDS_FILE_PREFIX = "msgqrec_"
CHANNEL_NAME_PREFIX = "channel/"  # prefix of channel names in lists of endpoints. Names of topics contain no "/"
QUEUE_NAME_PREFIX = "queue/"  # the same for work queues
RECORDS_NAME_PREFIX = "records/"  # the same for vectors and boards
EVENTS_SUFFIX = ":events"  # suffix of a work queue's name, which gives the name of the channel with its events
FILE_NAME_BYTES_MAX = 255  # limit of Linux
NAME_BYTES_MAX = FILE_NAME_BYTES_MAX - len(SIDE_FILE_PREFIX)
POOL_UID_DIGITS = 16
CHANNEL_BYTES_MAX = FILE_NAME_BYTES_MAX - len(POOL_FILE_PREFIX) - 1 - POOL_UID_DIGITS


def validate_endpoint_name(endpoint: str | bytes, noun: str = "endpoint", most: int = NAME_BYTES_MAX) -> str:
    """Return a valid name as str. The name becomes the name of a file.

    Raises:
        EndpointNameError: the name is empty, has more than `most` bytes, is not UTF-8, or contains "/" or NUL.
        TypeError: the name is neither str nor bytes.
    """
    if not isinstance(endpoint, (str, bytes)):
        raise TypeError(f"{noun} {endpoint!r} is of type {type(endpoint).__name__}; give str or bytes")
    try:
        name = endpoint.decode() if isinstance(endpoint, bytes) else endpoint
        size = len(name.encode())
    except UnicodeError as error:
        raise EndpointNameError(f"{noun} {endpoint!r} is not UTF-8: {error}") from None
    if not 0 < size <= most:
        raise EndpointNameError(f"{noun} {name[:40]!r} has {size} bytes; give 1 to {most} bytes")
    if "/" in name or "\0" in name or name in (".", ".."):
        hint = "put addresses into MSGQ_ZMQ_MAP" if "://" in name else _advise_on_name(name)
        raise EndpointNameError(
            f"{noun} {name!r} is not a valid file name (no '/' or NUL, not '.' or '..'){hint and '; '}{hint}"
        )
    return str.__str__(name)  # not an object of a subclass, such as an enumeration, which compiled code refuses


#: Classes that open the endpoints whose names have a mark in other tools.
_CLASS_OF_NAME_PREFIX = {
    CHANNEL_NAME_PREFIX: "Channel",
    QUEUE_NAME_PREFIX: "MessageQueue",
    RECORDS_NAME_PREFIX: "SeqlockVector or Board",
}


def _advise_on_name(name: str) -> str:
    """Return advice about an invalid name: a valid name without slashes, or the class to use; "": no advice."""
    for mark, kind in _CLASS_OF_NAME_PREFIX.items():
        if name.startswith(mark):
            return f"open {name.removeprefix(mark)!r} with msgq.{kind}"
    valid = ".".join(part for part in name.replace("\0", "").split("/") if part.strip("."))
    return f"give {valid!r}" if valid and valid != name else ""


def validate_channel_name(channel: str | bytes) -> str:
    """Return a valid channel name as str. The name becomes a part of file names.

    Raises:
        EndpointNameError: as `validate_endpoint_name`, or the name has more than 229 bytes.
    """
    return validate_endpoint_name(channel, "channel", CHANNEL_BYTES_MAX)


def validate_queue_name(queue: str | bytes) -> str:
    """Return a valid queue name as str, without a leading "/" (which POSIX names have).

    The name becomes the name of a file.

    Raises:
        EndpointNameError: as `validate_endpoint_name`.
    """
    if isinstance(queue, str):
        queue = queue.removeprefix("/")
    elif isinstance(queue, bytes):
        queue = queue.removeprefix(b"/")
    return validate_endpoint_name(queue, "queue")


def validate_records_name(records: str | bytes) -> str:
    """Return the valid name of a vector or board as str. The name becomes the name of a file.

    Raises:
        EndpointNameError: as `validate_endpoint_name`.
    """
    return validate_endpoint_name(records, "records")


def events_channel(queue: str) -> str:
    """Return the name of a queue's events channel."""
    return queue + EVENTS_SUFFIX


def parse_events_channel(channel: str) -> str | None:
    """Return the name of the queue that publishes events on a channel; None: not an events channel."""
    queue = channel.removesuffix(EVENTS_SUFFIX)
    return queue if queue not in ("", channel) else None
