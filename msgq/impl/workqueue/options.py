"""Argument checks and errors of work queues, for all backends."""

from __future__ import annotations

import errno
import math
import os
from _operator import index  # part of Python's core, unlike the module `operator`

from msgq.common import naming, settings
from msgq.common.naming import events_channel
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_MS, NS_PER_S, TIMEOUT_MAX_MS
from msgq.errors import (
    EndpointClosedError,
    InvalidTypeError,
    InvalidValueError,
    IpcError,
    LeaseExpiredError,
    MessageTooLargeError,
    QueueAccessError,
    QueueMismatchError,
    StateError,
)
from msgq.impl.base.argument_checks import check_count, check_range, is_number, to_plain_number

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from msgq.common.schema import Schema

#: Flags of `MessageQueue`, which are the system's.
O_CREAT, O_EXCL, O_NONBLOCK = os.O_CREAT, os.O_EXCL, os.O_NONBLOCK
O_CREX = O_CREAT | O_EXCL

DEFAULT_MAX_MESSAGES = 128
DEFAULT_MESSAGE_SIZE = 8192
DEFAULT_SIZES = DEFAULT_MAX_MESSAGES, DEFAULT_MESSAGE_SIZE
MESSAGES_MAX = 65536
HANDLES_MAX = 128
MESSAGE_SIZE_MAX = 2**30
PRIORITY_MAX = 32767
# Both ends of a small queue that is always full or empty would sleep after each few messages, and a wake takes 30 us.
SPIN_US = 10
#: Values of the option `events`; a queue's file has the index.
EVENTS_CHOICES = (None, True, "payload")
SCHEMA_DATA_MAX = 20032
_LONGEST_WAIT_S = TIMEOUT_MAX_MS * NS_PER_MS // NS_PER_S  # limit of waits and leases: 24 days


class OpenRequest:
    """Checked options for opening a queue.

    Attributes:
        name: name of the queue.
        create: True only creates, False only opens, None does either.
        block: True: calls without a timeout wait.
        strict: True: an existing queue must have the given attributes.
        mode: permissions of a new queue.
        max_messages: given value; None: the default for a new queue.
        max_message_size: given value; None: the default for a new queue.
        events: given value; None: no events for a new queue.
    """

    def __init__(
        self,
        name: str,
        create: bool | None,
        block: bool,
        strict: bool,
        mode: int,
        max_messages: int | None,
        max_message_size: int | None,
        events: bool | str | None,
    ) -> None:
        self.name, self.create, self.block, self.strict, self.mode = name, create, block, strict, mode
        self.max_messages, self.max_message_size, self.events = max_messages, max_message_size, events

    @property
    def names_sizes(self) -> bool:
        """True if the queue gets its sizes at the opening: a size is given, or events, which depend on the sizes."""
        return bool(self.max_messages or self.max_message_size or self.events)

    def new_sizes(self) -> tuple[int, int]:
        """Return the number of messages and the maximum bytes of a message of a new queue."""
        return self.max_messages or DEFAULT_MAX_MESSAGES, self.max_message_size or DEFAULT_MESSAGE_SIZE

    def new_events(self) -> int:
        """Return the events of a new queue as an index of EVENTS_CHOICES."""
        return EVENTS_CHOICES.index(self.events)

    def check(self, max_messages: int, max_message_size: int, events: int, creator: tuple[str, int]) -> None:
        """Compare with an existing queue. `creator`: name and process that chose its sizes.

        Raises:
            QueueMismatchError: a value differs from the request.
        """
        if not self.strict:
            return
        options: tuple[tuple[str, object, object], ...] = (
            ("max_messages", self.max_messages, max_messages),
            ("max_message_size", self.max_message_size, max_message_size),
            ("events", self.events, EVENTS_CHOICES[events]),
        )
        for option, asked, value in options:
            if asked is not None and asked != value:
                name, pid = creator
                text = f"has {option}={value!r}, but {option}={asked!r} was requested"
                text = f"{text}; process {pid} ({name}) chose the existing value. Omit the option to use it, or unlink"
                text = f"{text} the queue"
                raise QueueMismatchError(text, self.name)


def parse_open_request(
    name: str | bytes,
    flags: int | None,
    mode: int | None,
    max_messages: int | None,
    max_message_size: int | None,
    read: bool,
    write: bool,
    events: bool | str | None = None,
    create: bool | None = None,
) -> OpenRequest:
    """Return the checked arguments of a `MessageQueue`.

    Raises:
        EndpointNameError: the name is not valid in a file name.
        InvalidValueError: a flag, mode or size is invalid, or both `read` and `write` are False.
        TypeError: a number has another type.
    """
    checked = naming.validate_queue_name(name)
    if not read and not write:
        raise InvalidValueError("read and write are both False; set one of them", checked)
    if flags is not None and create is not None:
        raise InvalidValueError(f"flags={flags!r} and create={create!r} exclude each other; give one of them", checked)
    bits = O_CREAT if flags is None else index(flags)
    if bits & ~(O_CREX | O_NONBLOCK):
        text = f"flags are {bits:#o}; give O_CREAT, O_EXCL, O_CREX, O_NONBLOCK, or 0 to open; sizes are given by name"
        raise InvalidValueError(text, checked)
    if flags is not None:
        create = None if bits & O_CREX == O_CREAT else bits & O_CREX == O_CREX
    return OpenRequest(
        checked,
        create,
        not bits & O_NONBLOCK,
        flags is None,
        _check_mode(mode, checked),
        check_count("max_messages", max_messages, MESSAGES_MAX, checked),
        check_count("max_message_size", max_message_size, MESSAGE_SIZE_MAX, checked),
        _check_events(events, checked),
    )


def _check_mode(asked: int | None, name: str) -> int:
    """Return the permissions of a new queue.

    Receiving writes to the file, so one of the two rights alone is not allowed.
    """
    result = settings.resolve_file_mode(asked, name)
    if not result & 0o066:
        return result
    half = [what for what, bits in (("group", 0o060), ("others", 0o006)) if result & bits not in (0, bits)]
    if half and asked is not None:
        text = f"mode {result:#o} gives {' and '.join(half)} only one of read and write, but queues need both;"
        raise InvalidValueError(f"{text} give 6 or 0 for each", name)
    for what in half:  # MSGQ_MODE is meant for topics, too
        result &= ~(0o060 if what == "group" else 0o006)
    return result


def _check_events(asked: bool | str | None, name: str) -> bool | str | None:
    if not (asked is None or asked is True or asked == "payload"):
        raise InvalidValueError(f"events is {asked!r}; give None, True or 'payload'", name)
    if asked:
        naming.validate_channel_name(events_channel(name))
    return asked


def check_schema(schema: Schema | None, name: str) -> None:
    """Check the type and the size of a schema.

    Raises:
        TypeError, InvalidValueError: in this order.
    """
    if schema is None:
        return
    from msgq.common.schema import require_schema  # imported late: few queues have a schema

    require_schema(schema)
    if len(schema.data) > SCHEMA_DATA_MAX:
        text = f"schema has {len(schema.data)} bytes of data; a queue allows at most {SCHEMA_DATA_MAX}"
        raise InvalidValueError(text, name)


def check_priority(priority: int, name: str) -> int:
    """Return a checked priority, 0 to 32767."""
    return check_range("priority", priority, 0, PRIORITY_MAX, name)


def deadline_wait_ns(timeout: float | None, deadline: float, name: str, now: float) -> int:
    """Return the duration of a wait until a deadline in ns, at least 0.

    Args:
        timeout: None, because a call has either a timeout or a deadline.
        deadline: seconds of the clock of `now`. A deadline in the past is allowed.

    Raises:
        InvalidTypeError: the deadline is not a number.
        InvalidValueError: both are given, or the deadline is NaN or more than 24 days away.
    """
    if timeout is not None:
        raise InvalidValueError(f"timeout={timeout} and deadline={deadline} exclude each other; give one of them", name)
    if not is_number(deadline):
        text = f"deadline is {deadline!r}, of type {type(deadline).__name__}"
        raise InvalidTypeError(f"{text}; give a time of time.monotonic(), or None to wait forever", name)
    deadline = to_plain_number(deadline)
    huge = isinstance(deadline, int) and abs(deadline) > 2**64  # more than a float may hold
    seconds_left = (math.inf if deadline > 0 else -math.inf) if huge else deadline - now
    if not seconds_left <= _LONGEST_WAIT_S:  # most of all a time of the wall clock, which would wait for decades
        text = f"deadline {deadline} is {seconds_left:.6g} s away (maximum {_LONGEST_WAIT_S} s)"
        raise InvalidValueError(f"{text}; give a time of time.monotonic(), or None to wait forever", name)
    return math.ceil(max(seconds_left, 0.0) * NS_PER_S)


def lease_ns(lease: float | None, name: str) -> int:
    """Return the duration of a lease in ns; 0: no limit."""
    if lease is None:
        return 0
    if not is_number(lease):
        raise _seconds_type_error("lease", lease, "None for a job without a lease", name)
    lease = to_plain_number(lease)
    if not 0 < lease <= _LONGEST_WAIT_S:
        text = f"lease is {lease} s; give more than 0, up to {_LONGEST_WAIT_S}, or None"
        raise InvalidValueError(text, name)
    return math.ceil(lease * NS_PER_S)


def _seconds_type_error(argument: str, value: object, alternative: str, name: str) -> InvalidTypeError:
    text = f"{argument} is {value!r}, of type {type(value).__name__}; give a number of seconds"
    advice = " (its total_seconds())" if hasattr(value, "total_seconds") else ""
    return InvalidTypeError(f"{text}{advice}, or {alternative}", name)


def delay_ns(delay: float | None, name: str) -> int:
    """Return a delay in ns; 0: no delay."""
    if delay is None:
        return 0
    if not is_number(delay):
        raise _seconds_type_error("delay", delay, "None for no delay", name)
    delay = to_plain_number(delay)
    if not 0 <= delay <= _LONGEST_WAIT_S:
        raise InvalidValueError(f"delay is {delay} s; give 0 to {_LONGEST_WAIT_S}, or None", name)
    return math.ceil(delay * NS_PER_S)


class Notification:
    """Action for a message in an empty queue. One attribute is set, the others are None.

    Attributes:
        function: function that is called with the queue.
        signal: signal that is sent to this process.
        descriptor: descriptor (eventfd, pipe or socket) that gets eight bytes. Bytes that do not fit are dropped.
    """

    def __init__(
        self,
        function: Callable[[Any], object] | None = None,
        signal: int | None = None,
        descriptor: int | None = None,
    ) -> None:
        self.function, self.signal, self.descriptor = function, signal, descriptor


def parse_notification(target: Any, name: str) -> Notification:
    """Return the action for a function, a signal number, or an object with ``fileno()``.

    Raises:
        InvalidValueError: the signal does not exist, or the descriptor is closed or not writable.
        TypeError: another type.
    """
    import fcntl  # both imported late: few queues have a notification
    import signal

    if callable(target):
        return Notification(function=target)
    if isinstance(target, int) and not isinstance(target, bool):
        if target not in signal.valid_signals():
            raise InvalidValueError(
                f"{target} is not a signal number; to give a descriptor, pass an object with fileno()", name
            )
        return Notification(signal=int(target))
    if not hasattr(target, "fileno"):
        type_name = type(target).__name__
        raise TypeError(f"notify got {type_name}; give a function, a signal number or an object with fileno()")
    descriptor = target.fileno()
    try:
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError as error:
        raise InvalidValueError(f"descriptor {descriptor}: {error.strerror}", name, error.errno) from error
    if access == os.O_RDONLY:
        text = f"descriptor {descriptor} is read-only; give an eventfd, a socket, or the writing end of a pipe"
        raise InvalidValueError(text, name, errno.EBADF)
    return Notification(descriptor=descriptor)


# ---- errors ----


def full_error(max_messages: int, waited: bool, name: str) -> IpcError:
    """Return the error for a full queue. `waited`: True after a timeout.

    A `QueueFullError`, or an `IpcError` with the same `errno` if its module cannot be read, as without a descriptor.
    """
    text = f"holds {format_count_noun(max_messages, 'message')}, its limit (max_messages), including jobs that are not"
    text = f"{text} acknowledged; the message was not sent"
    number = errno.ETIMEDOUT if waited else errno.EAGAIN
    try:
        from msgq.errors import QueueFullError  # late, because its base class needs threading
    except OSError:
        return IpcError(text, name, number)
    return QueueFullError(text, name, number)


def too_large_error(size: int, max_message_size: int, name: str) -> MessageTooLargeError:
    """Return the error for a message that exceeds the maximum size."""
    text = f"a message of {size} bytes does not fit: at most {max_message_size} are allowed (max_message_size)"
    return MessageTooLargeError(text, name)


def too_small_error(size: int, room: int, name: str) -> MessageTooLargeError:
    """Return the error for a buffer that is smaller than the next message."""
    return MessageTooLargeError(
        f"message has {size} bytes, but the buffer has {room}; the message stays in the queue", name
    )


def access_error(right: str, name: str) -> QueueAccessError:
    """Return the error for a handle without the right "read" or "write"."""
    does = "receive" if right == "read" else "send"
    return QueueAccessError(f"was opened with {right}=False, and cannot {does}", name)


def job_ended_error(name: str) -> StateError:
    """Return the error for a job that has ended before."""
    return StateError("job was already acknowledged or returned", name)


def job_released_error(name: str) -> EndpointClosedError:
    """Return the error for a job of a closed handle."""
    return EndpointClosedError("handle was closed, and the job returned to the queue", name)


def lease_expired_error(name: str) -> LeaseExpiredError:
    """Return the error for a job with an expired lease."""
    text = "lease expired, and the message returned to the queue; another process may have taken it"
    return LeaseExpiredError(text, name)
