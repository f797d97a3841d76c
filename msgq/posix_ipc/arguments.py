"""Argument checks with the results, the errors and the order of posix_ipc."""

from __future__ import annotations

import errno
import math
import operator
import os
from typing import Any

from msgq.posix_ipc.errors import ExistentialError, PermissionsError

NAME_BYTES_MAX = 255  # kernel's limit without the "/"
LONGEST_WAIT_S = 2_000_000.0  # seconds; longer waits have no limit
TIMEOUT_S_MAX = 2.0**63 - 2.0**32  # maximum time-out to which the kernel can add the time of day


def to_long(value: Any) -> int:
    """Return an integer that fits 64 bits."""
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} has more than 64 bits")
    return number


def to_permissions(value: Any) -> int:
    """Return a mode that fits 32 bits, without its sign."""
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"mode {number} has more than 32 bits")
    return number & 0xFFFFFFFF


def to_timeout_s(timeout: Any) -> float | None:
    """Return seconds; None: no limit. An invalid time becomes NaN, because its error comes after other errors."""
    if timeout is None or (type(timeout) in (int, float) and 0 <= timeout <= LONGEST_WAIT_S):
        return timeout  # type: ignore[no-any-return]
    if not isinstance(timeout, (int, float)) or timeout < 0 or (isinstance(timeout, int) and timeout >= 2**63):
        raise TypeError(f"timeout is {timeout!r}; give None, or 0 or more seconds")
    seconds = float(timeout)
    if seconds <= LONGEST_WAIT_S:
        return seconds
    return None if seconds < TIMEOUT_S_MAX else math.nan


def to_bytes(message: Any) -> Any:
    """Return a message as an object with a buffer."""
    if isinstance(message, str):
        return message.encode()
    if not memoryview(message).c_contiguous:
        raise BufferError("message is not contiguous in memory; copy it first")
    return message


def check_name(name: Any) -> str | None:
    """Return the argument `name`, which may be bytes."""
    if name is None or isinstance(name, str):
        return name
    if not isinstance(name, bytes):
        raise TypeError(f"name is of type {type(name).__name__}; give a str, or None for a new name")
    return name.decode()


def parse_queue_name(name: str) -> str:
    """Return the part of a name after its leading "/". Otherwise raise the kernel's error."""
    bare_name = name[1:]
    if not bare_name:
        raise ExistentialError(f"name {name!r} is empty after the '/'; give at least one character", errno=errno.ENOENT)
    if len(os.fsencode(bare_name)) > NAME_BYTES_MAX:
        raise ValueError(f"name {name[:40]!r}... is too long")
    if "/" in bare_name or bare_name in (".", ".."):
        raise PermissionsError(
            f"name {name!r} is invalid: it must not have a second '/', or be '.' or '..'", errno=errno.EACCES
        )
    if "\0" in bare_name:
        raise ValueError(f"name {name!r} has a null character")
    return bare_name


def apply_umask(mode: int) -> int:
    """Return the mode of the file: without the umask, without single rights, and with both rights of the owner."""
    with open("/proc/self/status") as status:  # os.umask would change it for the files of other threads
        mask = next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o077)
    mode &= ~mask
    return 0o600 | sum(both for both in (0o060, 0o006) if mode & both == both)
