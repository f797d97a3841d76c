"""Settings from environment variables: the only place that reads them.

======================  ==================================================================
``OPENPILOT_PREFIX``    topics live in a directory of this name, apart from all others
``MSGQ_BACKEND``        ``msgq``, the default, ``zmq`` or ``fake``
``ZMQ``                 stock's old switch: anything but 0 means ``zmq``, unless MSGQ_BACKEND is set
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
import threading
from collections.abc import Iterator

from msgq.common import naming
from msgq.common.environment import environment
from msgq.errors import InvalidValueError

_thread_overrides = threading.local()  # what `overrides` set


def get_prefix() -> str:
    """Return the prefix in force, "" for none."""
    value = getattr(_thread_overrides, "prefix", None)
    if value is None:
        value = environment("OPENPILOT_PREFIX")
    return naming.validate_endpoint_name(value, "prefix (OPENPILOT_PREFIX)") if value else ""


def resolve_prefix(asked: str | None) -> str:
    """Return `asked`, checked, or the prefix in force when it is None; "" is none."""
    if asked is None:
        return get_prefix()
    return naming.validate_endpoint_name(asked, "prefix") if asked else ""


def get_backend_name() -> str:
    """Return the backend asked for by the environment."""
    stock_switch = environment("ZMQ") not in (None, "", "0")
    return environment("MSGQ_BACKEND") or ("zmq" if stock_switch else "msgq")


def resolve_file_mode(asked: int | None, endpoint: str) -> int:
    """Return the permissions for a new segment: `asked`, else MSGQ_MODE, else 0600."""
    value = environment("MSGQ_MODE") or "" if asked is None else asked
    try:
        result = int(value or "600", 8) if isinstance(value, str) else int(value)
    except ValueError:
        raise InvalidValueError(f"MSGQ_MODE is {value!r}; give an octal number, such as 660", endpoint) from None
    if result & ~0o666 or result & 0o600 != 0o600:
        text = (
            f"mode {result:#o} is not possible; give read and write permissions, including the owner's, such as 0o660"
        )
        raise InvalidValueError(text, endpoint)
    return result


def get_file_group() -> str:
    """Return the group that new files get, by name or id, "" for the one that the system gives them (MSGQ_GROUP)."""
    return environment("MSGQ_GROUP") or ""


def get_trust() -> str:
    """Return whose files this thread uses beside its own and root's, as MSGQ_TRUST has it."""
    value = getattr(_thread_overrides, "trust", None)
    return get_process_trust() if value is None else value


def get_process_trust() -> str:
    """Return whose files this process uses beside its own and root's where no thread says otherwise (MSGQ_TRUST)."""
    return environment("MSGQ_TRUST") or ""


def is_preallocation_enabled() -> bool:
    """Return whether whole segments have their memory, and are mapped, at once (MSGQ_PREALLOC)."""
    return environment("MSGQ_PREALLOC") is not None


def is_sigbus_handled() -> bool:
    """Return whether a ring that others make smaller shall be an error instead of SIGBUS (MSGQ_SIGBUS).

    Raises
    ------
    InvalidValueError : it is neither 0 nor 1.
    """
    value = environment("MSGQ_SIGBUS") or "1"
    if value not in ("0", "1"):
        raise InvalidValueError(f"MSGQ_SIGBUS is {value!r}; give 1, or 0 for no signal handler")
    return value == "1"


def resolve_spin_us(asked: int | None, endpoint: str, default: int = 0) -> int:
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
        raise InvalidValueError(f"spin_us (MSGQ_SPIN_US) is {value!r}; give 0 to 1000000 microseconds", endpoint)
    return result


def get_zmq_transport(endpoint: str) -> str:
    """Return how ZMQ sockets reach each other: "tcp" or "ipc" (MSGQ_ZMQ_TRANSPORT)."""
    value = environment("MSGQ_ZMQ_TRANSPORT") or "tcp"
    if value not in ("tcp", "ipc"):
        raise InvalidValueError(f"MSGQ_ZMQ_TRANSPORT is {value!r}; give tcp or ipc", endpoint)
    return value


def uses_stock_zmq_addresses() -> bool:
    """Return whether ZMQ addresses are those of stock, which has no prefix in them (MSGQ_ZMQ_STOCK)."""
    return environment("MSGQ_ZMQ_STOCK") not in (None, "", "0")


def get_zmq_bind_host() -> str:
    """Return the host that publishers bind on tcp (MSGQ_ZMQ_BIND)."""
    asked = getattr(_thread_overrides, "bind_host", None) or environment("MSGQ_ZMQ_BIND")
    return asked or ("*" if uses_stock_zmq_addresses() else "127.0.0.1")


def get_zmq_map_path() -> str:
    """Return the TOML file that gives endpoints their addresses, "" for none (MSGQ_ZMQ_MAP)."""
    return environment("MSGQ_ZMQ_MAP") or ""


def get_zmq_high_water_mark(endpoint: str) -> int:
    """Return how many messages ZMQ's queues hold (MSGQ_ZMQ_HWM): 1000, as ZMQ itself; 0 is no limit."""
    return _read_limit("MSGQ_ZMQ_HWM", 1000, 2**31 - 1, "messages", endpoint)


def get_zmq_max_bytes(endpoint: str) -> int:
    """Return how large a message over ZMQ may be (MSGQ_ZMQ_MAX_BYTES): 256 MiB; 0 is no limit.

    That is above all that a ring of up to 768 MiB takes, and far below what a stranger would need to fill the memory by
    announcing one message.
    """
    return _read_limit("MSGQ_ZMQ_MAX_BYTES", 2**28, 2**62, "bytes", endpoint)


def _read_limit(variable: str, default: int, most: int, unit: str, endpoint: str) -> int:
    value = environment(variable) or str(default)
    if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) <= most):
        raise InvalidValueError(f"{variable} is {value!r}; give a number of {unit}, or 0 for no limit", endpoint)
    return int(value)


def get_zmq_curve_directory() -> str:
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
    return _apply_overrides(wanted) if wanted else _NO_OVERRIDE


_NO_OVERRIDE = contextlib.nullcontext()


@contextlib.contextmanager
def _apply_overrides(wanted: dict[str, str]) -> Iterator[None]:
    before = vars(_thread_overrides).copy()
    vars(_thread_overrides).update(wanted)
    try:
        yield
    finally:
        vars(_thread_overrides).clear()
        vars(_thread_overrides).update(before)


def is_fake_events_enabled() -> bool:
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


def read_fake_prefix() -> str:
    """Return the identifier of the gates of this process, "" for none.

    Raises
    ------
    EndpointNameError : the environment variable CEREAL_FAKE_PREFIX holds what cannot be part of a file's name.
    """
    value = environment("CEREAL_FAKE_PREFIX")
    return naming.validate_endpoint_name(value, "fake prefix (CEREAL_FAKE_PREFIX)") if value else ""


def set_fake_prefix(prefix: str | bytes) -> None:
    """Choose the identifier of gates: handles and subscribers of different ones do not know each other.

    Sets the environment variable CEREAL_FAKE_PREFIX, as `toggle_fake_events` does; "" removes it.

    Raises
    ------
    EndpointNameError : it cannot be part of a file's name.
    """
    if prefix:
        os.environ["CEREAL_FAKE_PREFIX"] = naming.validate_endpoint_name(prefix, "fake prefix")
    else:
        delete_fake_prefix()


def delete_fake_prefix() -> None:
    """Go back to gates without an identifier, by removing the environment variable CEREAL_FAKE_PREFIX."""
    os.environ.pop("CEREAL_FAKE_PREFIX", None)
