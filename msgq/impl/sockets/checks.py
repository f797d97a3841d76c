"""What the sockets of all backends refuse alike: arguments that make no sense, and calls at the wrong time."""

from __future__ import annotations

import math
import operator

from msgq.errors import EndpointClosedError, InvalidValueError, StateError
from msgq.units import FOR_EVER, NS_PER_MS, NS_PER_S, TIMEOUT_MAX_MS

#: As in ZeroMQ.
NOBLOCK = 1
POLLIN, POLLOUT, POLLERR, POLLPRI = 1, 2, 4, 8
_SNDMORE = 2
_OPTION_MAX = 2**31 - 1
_WORD_MAX = 2**63 - 1


def timeout_ms(timeout: float, endpoint: str = "") -> int:
    """Return a time-out in milliseconds, checked and rounded up; -1 is for ever.

    Raises
    ------
    InvalidValueError : below 0 and not -1, or above 2**31 - 1.
    """
    if timeout != FOR_EVER and not 0 <= timeout <= TIMEOUT_MAX_MS:
        text = f"a time-out of {timeout} ms is not possible; give 0 to {TIMEOUT_MAX_MS}, or -1 to wait for ever"
        raise InvalidValueError(text, endpoint)
    return math.ceil(timeout)  # 0.5 is not 0, which would not wait at all


def timeout_ns(timeout: float | None, endpoint: str = "") -> int:
    """Return a time-out in seconds as nanoseconds, checked; None, for ever, as -1.

    Raises
    ------
    InvalidValueError : below 0, or above 2**31 - 1 ms.
    """
    if timeout is None:
        return FOR_EVER
    most = TIMEOUT_MAX_MS * NS_PER_MS // NS_PER_S
    if not 0 <= timeout <= most:
        text = f"a time-out of {timeout} s is not possible; give 0 to {most}, or None to wait for ever"
        raise InvalidValueError(text, endpoint)
    return math.ceil(timeout * NS_PER_S)


def closed_error(endpoint: str) -> EndpointClosedError:
    """Return the error for a socket that has no connection."""
    return EndpointClosedError("is closed, or was never connected; connect it, or make another one", endpoint)


def check_readers_wait(timeout: float | None, interval: float, n: int | None, endpoint: str) -> None:
    """Check the arguments of `wait_for_readers`.

    Raises
    ------
    InvalidValueError : a negative time-out or `n`, or an interval that is not above 0.
    """
    if (timeout is not None and not timeout >= 0) or not interval > 0 or (n is not None and n < 0):
        text = f"timeout={timeout} (seconds, None for ever), interval={interval} (> 0 seconds), n={n}: not possible"
        raise InvalidValueError(text, endpoint)


def check_send_flags(flags: int, endpoint: str) -> None:
    """Check the flags of a `send`. NOBLOCK asks for what it does anyway.

    Raises
    ------
    InvalidValueError : others than NOBLOCK.
    """
    if flags & _SNDMORE:
        text = f"flags are {flags}, with SNDMORE: there are no multipart messages here; send one message of all parts"
        raise InvalidValueError(text, endpoint)
    if flags & ~NOBLOCK:
        raise InvalidValueError(f"flags are {flags}; a send takes 0 or NOBLOCK", endpoint)


def check_origin(origin_time: int, endpoint: str) -> int:
    """Return the origin that a message is given: nanoseconds, 0 for the thread's own.

    Raises
    ------
    InvalidValueError : below 0, or beyond 63 bits.
    """
    if not 0 <= origin_time <= _WORD_MAX:
        text = f"origin_time is {origin_time}; give nanoseconds of the host's clock, or 0 to inherit the thread's"
        raise InvalidValueError(text, endpoint)
    return origin_time


def untracked_error(endpoint: str) -> StateError:
    """Return the error for a call that needs a tracked topic."""
    text = "the topic is not tracked: its messages carry no times. Let its first publisher connect with tracked=True"
    return StateError(text, endpoint)


def no_stamps_error(endpoint: str) -> StateError:
    """Return the error for what the ZMQ backend cannot do."""
    text = "ZMQ messages carry no times: tracked topics, and origin_time, are there with the backends msgq and fake"
    return StateError(text, endpoint)


def wrong_tracking_error(endpoint: str, wanted: bool) -> StateError:
    """Return the error for a publisher that wants stamps on a topic without them, or none where there are."""
    if wanted:
        what = "cannot be tracked any more: there were messages without stamps"
        return StateError(f"{what}. Use another endpoint, or remove it when nobody uses it (msgq clean)", endpoint)
    what = "is tracked, and stays so: connect with tracked=None to take it as it is"
    return StateError(f"{what}, or remove it when nobody uses it (msgq clean)", endpoint)


def check_option(name: str, value: int, least: int, endpoint: str) -> int:
    """Return the value for an option of a socket: a whole number from `least` to 2**31 - 1."""
    number = operator.index(value)
    if not least <= number <= _OPTION_MAX:
        raise InvalidValueError(f"{name} is {number}; give {least} to {_OPTION_MAX}", endpoint)
    return number


def check_linger(milliseconds: int, endpoint: str) -> int:
    """Return a time to linger: milliseconds, -1 for ever."""
    return check_option("linger", milliseconds, -1, endpoint)


def check_rcvhwm(messages: int, endpoint: str) -> int:
    """Return a high-water mark: messages, 0 for no limit."""
    return check_option("rcvhwm", messages, 0, endpoint)


def check_before_connect(name: str, closed: bool, endpoint: str) -> None:
    """Refuse to change on a connected socket what only counts at `connect`."""
    if not closed:
        raise StateError(f"{name} counts when the socket connects; set it before, or close it first", endpoint)
