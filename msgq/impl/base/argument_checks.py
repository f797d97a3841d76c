"""Checks of arguments and states that the sockets of all backends share."""

from __future__ import annotations

import math
import os
import sys
from _operator import index  # part of Python's core, unlike the module `operator`

from msgq.common.units import NS_PER_MS, NS_PER_S, TIMEOUT_MAX_MS, WAIT_FOREVER
from msgq.errors import (
    EndpointClosedError,
    InvalidTypeError,
    InvalidValueError,
    MsgqWarning,
    MultiplePublishersError,
    SocketOptionError,
    StateError,
)

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: Flags with ZeroMQ's values.
NOBLOCK = 1
POLLIN, POLLOUT, POLLERR, POLLPRI = 1, 2, 4, 8
_SNDMORE = 2
_OPTION_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
LIMIT_MAX = 2**64 - 1  # more messages than any endpoint has
# A time-out in milliseconds is probably meant in seconds if it is a float below this, with at most three decimals. A
# time-out that a program computes, such as the rest of a time, has more decimals.
_SUSPECT_MS_BELOW = 10
_SUSPECT_MS_DECIMALS = 3
# A time-out in seconds is probably meant in milliseconds if it is at least this, and a multiple of 100, but not of a
# quarter of an hour.
_SUSPECT_S_FROM = 1000
_SUSPECT_S_STEP = 100
_PLAUSIBLE_S_STEP = 900
_PYZMQ_OPTIONS = ("conflate", "linger", "rcvhwm", "rcvtimeo", "sndhwm", "sndtimeo")


def warn_program(text: str) -> None:
    """Warn with `MsgqWarning` at the line of the program that called msgq. By default, Python shows it once per line.

    The text must not contain values that change, because Python remembers each text.
    """
    import warnings  # late, like other modules that few programs need

    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("msgq", "visionipc"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, MsgqWarning, stacklevel=level)


def is_number(value: object) -> bool:
    """Return True for numbers of Python or NumPy, including fractions and decimals. A bool is not a number."""
    kind = type(value)
    return kind is int or kind is float or (hasattr(kind, "__float__") and kind.__name__ not in ("bool", "bool_"))


def check_seconds(parameter: str, value: object, unit: str, forever: str, endpoint: str) -> None:
    """Check that a time is a number.

    Raises:
        InvalidTypeError: the value is a timedelta, a bool, text, None, or has another type.
    """
    if is_number(value):
        return
    text = f"{parameter} is {value!r}, of type {type(value).__name__}; give a number of {unit}"
    if hasattr(value, "total_seconds"):
        text += f" (its total_seconds(){' * 1000' if unit == 'milliseconds' else ''})"
    raise InvalidTypeError(f"{text}, 0 not to wait, or {forever} to wait forever", endpoint)


def check_non_blocking(value: object, endpoint: str) -> None:
    """Check the argument `non_blocking` of a receive: a bool, or 0 or 1 (NOBLOCK).

    Raises:
        InvalidTypeError: the value is another number, probably a time. Such a time would silently disable waiting.
    """
    time = is_number(value) and not (hasattr(type(value), "__index__") and value in (0, NOBLOCK))
    if time or isinstance(value, (str, bytes)) or hasattr(value, "total_seconds"):
        text = f"non_blocking is {value!r}, of type {type(value).__name__}; give True or False"
        seconds = value if isinstance(value, float) and value >= 0 else "seconds"
        text += f"; to limit the wait, use receive(timeout={seconds}), or call setTimeout(milliseconds) before"
        raise InvalidTypeError(text, endpoint)


def constructor_error(function: str, arguments: Sequence[object]) -> InvalidTypeError:
    """Return the error for arguments of the constructor of a socket.

    `function`: name of the function that creates and connects such a socket.
    """
    texts = ", ".join(f"{argument!r:.80}" for argument in arguments)
    return InvalidTypeError(f"the constructor takes no arguments, but got {texts}; use msgq.{function}(name)")


def timeout_ms(timeout: float, endpoint: str = "") -> int:
    """Return a checked timeout in milliseconds, rounded up; -1: forever.

    Raises:
        InvalidTypeError: the value is not a number.
        InvalidValueError: the value is below 0 and not -1, or above 2**31 - 1.
    """
    check_seconds("timeout", timeout, "milliseconds", "-1", endpoint)
    if timeout != WAIT_FOREVER and not 0 <= timeout <= TIMEOUT_MAX_MS:
        text = f"timeout is {timeout} ms; give 0 to {TIMEOUT_MAX_MS}, or -1 to wait forever"
        raise InvalidValueError(text, endpoint)
    if 0 < timeout < _SUSPECT_MS_BELOW and type(timeout) is float and round(timeout, _SUSPECT_MS_DECIMALS) == timeout:
        warn_program(
            "this time-out is in milliseconds, as in stock msgq, and below 10 ms; multiply seconds by 1000, use "
            "receive(timeout=), which has seconds, or give whole milliseconds as an int"
        )
    return math.ceil(timeout)  # 0.5 is not 0, which would not wait at all


def timeout_ns(timeout: float | None, endpoint: str = "") -> int:
    """Return a timeout in seconds as nanoseconds, after a check; -1 for None, which waits forever.

    Raises:
        InvalidTypeError: the value is not a number.
        InvalidValueError: the value is below 0, or above 2**31 - 1 ms.
    """
    if timeout is None:
        return WAIT_FOREVER
    check_seconds("timeout", timeout, "seconds", "None", endpoint)
    timeout = to_plain_number(timeout)
    if not 0 <= timeout < _SUSPECT_S_FROM:
        most = TIMEOUT_MAX_MS * NS_PER_MS // NS_PER_S
        if not 0 <= timeout <= most:
            text = f"timeout is {timeout} s; give 0 to {most}, or None to wait forever"
            raise InvalidValueError(text, endpoint)
        _warn_of_long_timeout(timeout)
    return math.ceil(timeout * NS_PER_S)


def to_plain_number(number: Any) -> Any:
    """Return a number of NumPy as one of Python, because products of NumPy's small integers wrap around."""
    if isinstance(number, (int, float)) or not hasattr(number, "dtype"):
        return number
    return index(number) if hasattr(number, "__index__") else float(number)


def _warn_of_long_timeout(timeout: float) -> None:
    if timeout % _SUSPECT_S_STEP == 0 and timeout % _PLAUSIBLE_S_STEP:
        warn_program(
            "this time-out is in seconds, and longer than 16 minutes; divide milliseconds by 1000, or give None to "
            "wait without limit"
        )


def assign_bytes(view: memoryview, index: Any, value: Any, endpoint: str) -> None:
    """Assign data to bytes of a view, whatever the type of the data's elements, and release the view.

    Raises:
        InvalidValueError: the sizes differ, or a value for one byte is not 0 to 255.
        InvalidTypeError: the data has no contiguous bytes.
    """
    with view:
        if not isinstance(index, slice):
            try:
                view[index] = value
            except (TypeError, ValueError):
                text = f"{value!r} cannot be written into one byte; give 0 to 255, or a slice for several bytes"
                raise InvalidValueError(text, endpoint) from None
            return
        try:
            source = memoryview(value).cast("B")
        except (TypeError, ValueError) as error:
            text = f"data of type {type(value).__name__} cannot be written: {error}; give contiguous bytes"
            raise InvalidTypeError(text, endpoint) from None
        with source, view[index] as target:
            if len(source) != len(target):
                sizes = f"slice has {len(target)} bytes, but the data has {len(source)}"
                raise InvalidValueError(f"{sizes}; give a slice of the same size", endpoint)
            target[:] = source


def pickle_error(socket: object) -> TypeError:
    """Return the error for pickling or copying a socket, publisher or subscriber."""
    kind = type(socket).__name__
    text = "open another one in the process that needs it, or use this one in a forked child without pickling it"
    return TypeError(f"a {kind} cannot be pickled or copied; {text}")


def check_range(setting: str, value: Any, least: int, most: int, endpoint: str) -> int:
    """Return a setting as a whole number of this range.

    Raises:
        InvalidTypeError: the value is not a whole number.
        InvalidValueError: the number is out of range.
    """
    if not hasattr(value, "__index__"):
        text = f"{setting} is {value!r}, of type {type(value).__name__}; give a whole number, {least} to {most}"
        raise InvalidTypeError(text, endpoint)
    number = index(value)
    if not least <= number <= most:
        raise InvalidValueError(f"{setting} is {number}; give {least} to {most}", endpoint)
    return number


def check_count(setting: str, value: Any, most: int, endpoint: str) -> int | None:
    """Return a number of things, at least one; None: the setting has no value.

    Raises:
        InvalidTypeError, InvalidValueError: as `check_range`.
    """
    return None if value is None else check_range(setting, value, 1, most, endpoint)


def check_limit(limit: Any, endpoint: str) -> int:
    """Return the maximum number of messages of a call, at most LIMIT_MAX; None: no maximum.

    Raises:
        InvalidTypeError: the limit is not a whole number.
        InvalidValueError: the limit is negative.
    """
    if limit is None:
        return LIMIT_MAX
    if not hasattr(limit, "__index__"):
        text = f"limit is {limit!r}, of type {type(limit).__name__}; give a whole number, or None for all"
        raise InvalidTypeError(text, endpoint)
    number = index(limit)
    if number < 0:
        raise InvalidValueError(f"limit is {number}; give 0 or more, or None for all", endpoint)
    return min(number, LIMIT_MAX)


def unsendable_error(data: object, endpoint: str, can_have_schema: bool = False) -> InvalidTypeError:
    """Return the error for an object without bytes."""
    text = f"data is of type {type(data).__name__}, and has no bytes"
    if isinstance(data, str):
        return InvalidTypeError(f"{text}; give text.encode()", endpoint)
    cure = "give bytes or an array, for example json.dumps(value).encode()"
    if can_have_schema:
        cure += ", or create the publisher with pub_sock(name, schema=msgq.Schema.json(name))"
    return InvalidTypeError(f"{text}; {cure}", endpoint)


def address_error(data: object, endpoint: str) -> InvalidTypeError:
    """Return the error for an object whose bytes are addresses of Python objects, which only its process can read."""
    what = f"dtype {dtype}" if (dtype := getattr(data, "dtype", None)) else f"type {type(data).__name__}"
    text = f"data of {what} contains Python objects, which cannot be sent as bytes; convert it first"
    return InvalidTypeError(text, endpoint)


def not_connected_error(endpoint: str) -> EndpointClosedError:
    """Return the error for a socket that has no connection."""
    return EndpointClosedError("is closed, or was never connected; connect it, or create another one", endpoint)


def check_wait_for_readers(timeout: float | None, interval: float, n: int | None, endpoint: str) -> None:
    """Check the arguments of `wait_for_readers`.

    Raises:
        InvalidTypeError: a time is not a number.
        InvalidValueError: a negative time-out or `n`, or an interval that is not above 0.
    """
    if timeout is not None:
        check_seconds("timeout", timeout, "seconds", "None", endpoint)
    if not is_number(interval):
        text = f"interval is {interval!r}, of type {type(interval).__name__}; give seconds above 0"
        raise InvalidTypeError(text, endpoint)
    if timeout is not None and not timeout >= 0:
        text = f"timeout is {timeout} s; give 0 or more, or None to wait forever"
    elif not interval > 0:
        text = f"interval is {interval}; give seconds above 0"
    elif n is not None and n < 0:
        text = f"n is {n}; give the number of subscribers to wait for, or None to wait until all have read all"
    else:
        if timeout is not None and _SUSPECT_S_FROM <= timeout < math.inf:
            _warn_of_long_timeout(timeout)
        return
    raise InvalidValueError(text, endpoint)


def check_send_flags(flags: int, endpoint: str) -> None:
    """Check the flags of a `send`. NOBLOCK is allowed, and has no effect.

    Raises:
        InvalidValueError: other flags.
    """
    if flags & _SNDMORE:
        text = (
            f"flags are {flags} with SNDMORE, but multipart messages do not exist here; send all parts as one message"
        )
        raise InvalidValueError(text, endpoint)
    if flags & ~NOBLOCK:
        raise InvalidValueError(f"flags are {flags}; give 0 or NOBLOCK", endpoint)


def parse_receive_flags(flags: Any, endpoint: str) -> bool:
    """Return True for NOBLOCK.

    Raises:
        InvalidValueError: other flags, such as a time-out.
    """
    if not hasattr(flags, "__index__") or index(flags) & ~NOBLOCK:
        text = f"flags are {flags!r}; give 0 or NOBLOCK, or use receive(timeout=seconds)"
        raise InvalidValueError(text, endpoint)
    return bool(flags)


def check_origin(origin_time: int, endpoint: str) -> int:
    """Return a checked origin in nanoseconds; 0: the origin of the thread.

    Raises:
        InvalidValueError: the value is negative, or exceeds 63 bits.
    """
    number = index(origin_time)
    if not 0 <= number <= _INT64_MAX:
        text = f"origin_time is {number}; give nanoseconds of the host's clock, or 0 to inherit the thread's"
        raise InvalidValueError(text, endpoint)
    return number


def untracked_topic_error(endpoint: str) -> StateError:
    """Return the error for a call that needs a tracked topic."""
    text = "topic is not tracked: its messages have no timestamps; connect its first publisher with tracked=True"
    return StateError(text, endpoint)


def zmq_untracked_error(endpoint: str) -> StateError:
    """Return the error for timestamps, which the ZMQ backend does not support."""
    text = "ZMQ messages have no timestamps; use tracked topics and origin_time with the backends msgq and fake"
    return StateError(text, endpoint)


def takeover_error(endpoint: str, pid: int) -> MultiplePublishersError:
    """Return the error for a replaced publisher. `pid`: the new publisher's process; 0: unknown."""
    if pid == os.getpid():
        successor = f"another socket of this process ({pid})"
    elif pid:
        successor = f"process {pid}{_read_process_name(pid)}"
    else:
        successor = "a stock process, or a process that ended"
    text = f"another publisher took over: {successor}; nothing was sent. A topic has one publisher"
    cure = f"to take the topic back, close this socket, and call msgq.pub_sock({endpoint!r})"
    return MultiplePublishersError(f"{text}; {cure}", endpoint)


def _read_process_name(pid: int) -> str:
    """Return the name of a process, such as " (python3)"; "": the process ended, or is in another PID namespace."""
    try:
        with open(f"/proc/{pid}/comm") as file:  # not pathlib: its import takes longer than the import of sockets
            return f" ({file.read().strip()})"
    except OSError:
        return ""


def tracking_mismatch_error(endpoint: str, tracked: bool) -> StateError:
    """Return the error for a publisher whose `tracked` contradicts the topic."""
    if tracked:
        problem = "cannot become tracked: it has had messages without timestamps"
        return StateError(f"{problem}. Use another endpoint, or remove it when it is not in use (msgq clean)", endpoint)
    problem = "is tracked, and cannot change; connect with tracked=None to keep the setting"
    return StateError(f"{problem}, or remove it when it is not in use (msgq clean)", endpoint)


def check_option(name: str, value: int, least: int, endpoint: str) -> int:
    """Return a checked socket option: an integer from `least` to 2**31 - 1."""
    number = index(value)
    if not least <= number <= _OPTION_MAX:
        raise InvalidValueError(f"{name} is {number}; give {least} to {_OPTION_MAX}", endpoint)
    return number


def check_linger(milliseconds: int, endpoint: str) -> int:
    """Return a checked linger time in milliseconds; -1: forever."""
    return check_option("linger", milliseconds, -1, endpoint)


def check_rcvhwm(messages: int, endpoint: str) -> int:
    """Return a checked high-water mark of a subscriber in messages; 0: no limit."""
    return check_option("rcvhwm", messages, 0, endpoint)


def check_sndhwm(messages: int, endpoint: str) -> int:
    """Return a checked high-water mark of a publisher in messages; 0: no limit."""
    return check_option("sndhwm", messages, 0, endpoint)


def check_sndtimeo(milliseconds: int, endpoint: str) -> int:
    """Return a checked send timeout in milliseconds; -1: forever. A send never waits."""
    return check_option("sndtimeo", milliseconds, -1, endpoint)


def option_error(socket: object, name: str, endpoint: str) -> SocketOptionError:
    """Return the error for an attribute that a socket does not have, or that is read-only."""
    kind = type(socket)
    if hasattr(kind, name):
        return SocketOptionError(f"attribute {name!r} of {kind.__name__} is read-only", endpoint)
    known_options = ", ".join(option for option in _PYZMQ_OPTIONS if hasattr(kind, option))
    text = (
        f"{kind.__name__} has no attribute {name!r}; its pyzmq options are {known_options} (docs/coming-from/pyzmq.md)"
    )
    return SocketOptionError(text, endpoint)


def check_before_connect(name: str, closed: bool, endpoint: str) -> None:
    """Raise an error if an option for `connect` is set on a connected socket."""
    if not closed:
        raise StateError(
            f"{name} cannot change on a connected socket; set it before connect, or close the socket first", endpoint
        )


def refuse_queue_name(queue: object) -> None:
    """Raise InvalidTypeError if a name was given instead of an open queue."""
    if isinstance(queue, str):
        raise InvalidTypeError(f"queue is {queue!r}, a name; give an open queue, such as msgq.MessageQueue({queue!r})")
