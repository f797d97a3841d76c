"""Settings from environment variables. Besides, only `environment.pyx` reads the environment.

======================  ==================================================================
``OPENPILOT_PREFIX``    name of a directory for all endpoints, separate from other prefixes
``MSGQ_BACKEND``        ``msgq``, the default, ``zmq`` or ``fake``
``ZMQ``                 stock's old switch: any value except 0 means ``zmq``, unless MSGQ_BACKEND is set
``MSGQ_MODE``           permissions of new files, octal; default 600
``MSGQ_GROUP``          group of new files, by name or id; default: the system's choice
``MSGQ_TRUST``          users, by name or id and separated by commas, whose files are accepted
``MSGQ_PREALLOC``       if set (to any value): allocate and map whole files at once
``MSGQ_SIGBUS``         0: install no handler of SIGBUS, the signal after a truncation; default 1
``MSGQ_SPIN_US``        microseconds that a wait polls before it sleeps; default 0, for work queues 10
``MSGQ_ZMQ_TRANSPORT``  ``tcp`` (default) or ``ipc``; see docs/guides/zmq.md for all MSGQ_ZMQ variables
``MSGQ_ZMQ_BIND``       host to which publishers bind on tcp; default 127.0.0.1, ``*`` for all interfaces
``MSGQ_ZMQ_STOCK``      any value except 0: stock's ports and binding, regardless of the prefix
``MSGQ_ZMQ_MAP``        path of a TOML file with lines: endpoint = "address"
``MSGQ_ZMQ_HWM``        maximum messages in each queue of ZMQ; default 1000, 0 for no limit
``MSGQ_ZMQ_MAX_BYTES``  maximum bytes of a message over ZMQ; default 268435456, 0 for no limit
``MSGQ_ZMQ_CURVE``      directory with certificates, to encrypt all messages
``AWS_ENDPOINT_URL``    address of a private S3; docs/guides/object-storage.md lists all variables of stores
``CEREAL_FAKE``         if set (to any value): subscribers that connect stop at gates
``CEREAL_FAKE_PREFIX``  identifier of these gates; default: none
======================  ==================================================================
"""

from __future__ import annotations

import os
from _thread import _local  # threading.local; the import of threading needs more memory than all of the settings

from msgq.common import naming
from msgq.common.environment import environment
from msgq.errors import InvalidValueError

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

OCTAL_DIGITS_MAX = 5  # maximum digits of MSGQ_MODE. C programs have the same limit (c/base.c).
_DEFAULT_FILE_MODE = 0o600
_VALID_PREFIXES_MAX = 8
SPIN_DIGITS_MAX = 7  # maximum digits of MSGQ_SPIN_US. C programs have the same limit.


class _ThreadOverrides(_local):
    """What `overrides` set for the calling thread; None: nothing. Defaults in the class are faster than `getattr`."""

    prefix: str | None = None
    bind_host: str | None = None
    trust: str | None = None


thread_overrides = _ThreadOverrides()


def get_prefix() -> str:
    """Return the current prefix; "": none."""
    return resolve_prefix(None)


_valid_prefixes: set[str] = set()  # a few known ones, because each opening checks its prefix


def _validate_prefix(value: str, noun: str) -> str:
    valid = naming.validate_endpoint_name(value, noun)
    if len(_valid_prefixes) >= _VALID_PREFIXES_MAX:
        _valid_prefixes.clear()
    _valid_prefixes.add(valid)
    return valid


def resolve_prefix(asked: str | None) -> str:
    """Return `asked` after a check; None: the current prefix. "" stands for no prefix.

    The prefix of a bus of the fake backend stays as it is.
    """
    value = asked
    if value is None:
        value = thread_overrides.prefix
        if value is None:
            value = environment("OPENPILOT_PREFIX")
    if value is None or value == "":
        return ""
    if type(value) is str and value in _valid_prefixes:
        return value
    if asked is None:
        return _validate_prefix(value, "prefix (OPENPILOT_PREFIX)")
    return asked if asked.startswith(naming.BUS_PREFIX_START) else _validate_prefix(asked, "prefix")


def refuse_bus_prefix(in_prefix: str, endpoint: str) -> None:
    """Refuse the prefix of a bus for a participant in shared memory, which would wait in real time for nobody."""
    if in_prefix.startswith(naming.BUS_PREFIX_START):
        text = f"prefix {in_prefix!r} begins with {naming.BUS_PREFIX_START!r}, which names a bus of the fake backend"
        raise InvalidValueError(f"{text}; choose another prefix, or set MSGQ_BACKEND=fake", endpoint)


def get_backend_name() -> str:
    """Return the backend that the environment selects."""
    stock_switch = environment("ZMQ") not in (None, "", "0")
    return environment("MSGQ_BACKEND") or ("zmq" if stock_switch else "msgq")


def resolve_file_mode(asked: int | None, endpoint: str) -> int:
    """Return the permissions of new files: `asked`, else MSGQ_MODE, else 0600."""
    value = environment("MSGQ_MODE") or _DEFAULT_FILE_MODE if asked is None else asked
    result = _parse_mode(value, endpoint) if isinstance(value, str) else int(value)
    if result & ~0o666 or result & 0o600 != 0o600:
        text = (
            f"mode {result:#o} (MSGQ_MODE) is not possible; give read and write permissions, "
            "including the owner's, such as 0o660"
        )
        raise InvalidValueError(text, endpoint)
    return result


def _parse_mode(value: str, endpoint: str) -> int:
    digits = value.removeprefix("0o")
    if not 0 < len(digits) <= OCTAL_DIGITS_MAX or set(digits) - set("01234567"):
        raise InvalidValueError(f"mode (MSGQ_MODE) is {value!r}; give an octal number, such as 660", endpoint)
    return int(digits, 8)


def get_file_group() -> str:
    """Return the name or id of the group for new files (MSGQ_GROUP); "": the default group of the system."""
    return environment("MSGQ_GROUP") or ""


def get_trust() -> str:
    """Return the users whose files this thread accepts, in the format of MSGQ_TRUST.

    Own files and root's are always accepted.
    """
    value = thread_overrides.trust
    return get_process_trust() if value is None else value


def get_process_trust() -> str:
    """Return the users whose files this process accepts by default (MSGQ_TRUST). A thread may override them."""
    return environment("MSGQ_TRUST") or ""


def resolve_spin_us(asked: int | None, endpoint: str, default: int = 0) -> int:
    """Return the microseconds that a wait polls before it sleeps: `asked`, else MSGQ_SPIN_US, else `default`.

    Raises:
        InvalidValueError: the value is negative, not a number, or more than a second.
    """
    text = (environment("MSGQ_SPIN_US") or str(default)) if asked is None else str(asked)
    result = int(text) if text.isascii() and text.isdigit() and len(text) <= SPIN_DIGITS_MAX else -1
    if not 0 <= result <= 1_000_000:
        raise InvalidValueError(f"spin_us (MSGQ_SPIN_US) is {text!r}; give 0 to 1000000 microseconds", endpoint)
    return result


def get_zmq_transport(endpoint: str) -> str:
    """Return the transport of ZMQ sockets: "tcp" or "ipc" (MSGQ_ZMQ_TRANSPORT)."""
    value = environment("MSGQ_ZMQ_TRANSPORT") or "tcp"
    if value not in ("tcp", "ipc"):
        raise InvalidValueError(f"MSGQ_ZMQ_TRANSPORT is {value!r}; give tcp or ipc", endpoint)
    return value


def uses_stock_zmq_addresses() -> bool:
    """Return True if ZMQ addresses are those of stock, which ignore the prefix (MSGQ_ZMQ_STOCK)."""
    return environment("MSGQ_ZMQ_STOCK") not in (None, "", "0")


def get_zmq_bind_host() -> str:
    """Return the host to which publishers bind on tcp (MSGQ_ZMQ_BIND)."""
    asked = thread_overrides.bind_host or environment("MSGQ_ZMQ_BIND")
    return asked or ("*" if uses_stock_zmq_addresses() else "127.0.0.1")


def get_zmq_map_path() -> str:
    """Return the path of the TOML file with addresses of endpoints; "": none (MSGQ_ZMQ_MAP)."""
    return environment("MSGQ_ZMQ_MAP") or ""


def get_zmq_high_water_mark(endpoint: str) -> int:
    """Return the maximum messages in ZMQ's queues (MSGQ_ZMQ_HWM): 1000 by default; 0: no limit."""
    return _read_limit("MSGQ_ZMQ_HWM", 1000, 2**31 - 1, "messages", endpoint)


def get_zmq_max_bytes(endpoint: str) -> int:
    """Return the maximum bytes of a message over ZMQ (MSGQ_ZMQ_MAX_BYTES): 256 MiB by default; 0: no limit.

    The default exceeds all messages of rings up to 768 MiB. The limit prevents another host from filling the memory
    with one message.
    """
    return _read_limit("MSGQ_ZMQ_MAX_BYTES", 2**28, 2**62, "bytes", endpoint)


def _read_limit(variable: str, default: int, most: int, unit: str, endpoint: str) -> int:
    value = environment(variable) or str(default)
    if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) <= most):
        raise InvalidValueError(f"{variable} is {value!r}; give a number of {unit}, or 0 for no limit", endpoint)
    return int(value)


def get_zmq_curve_directory() -> str:
    """Return the directory of the CURVE certificates; "": no encryption (MSGQ_ZMQ_CURVE)."""
    return environment("MSGQ_ZMQ_CURVE") or ""


def overrides(
    in_prefix: str | None = None, bind_host: str | None = None, trust: str | None = None
) -> AbstractContextManager[None]:
    """Within a block, change the prefix, the bind host or the trust for connections of the calling thread.

    Other threads and started programs are not affected.

    Args:
        in_prefix: replaces OPENPILOT_PREFIX; "": no prefix; None: unchanged.
        bind_host: replaces MSGQ_ZMQ_BIND; None: unchanged.
        trust: replaces MSGQ_TRUST; "": no users; None: unchanged.
    """
    if in_prefix is None and bind_host is None and trust is None:
        return _NO_OVERRIDE
    asked = {"prefix": in_prefix, "bind_host": bind_host, "trust": trust}
    return _SettingsBlock({name: value for name, value in asked.items() if value is not None})


class _UnchangedSettings:
    """A block that changes nothing. A class, as is the next, because contextlib needs more memory than all settings."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


_NO_OVERRIDE = _UnchangedSettings()


class _SettingsBlock:
    """A block with other settings."""

    __slots__ = ("_before", "_new_values")

    def __init__(self, new_values: dict[str, str]) -> None:
        self._new_values = new_values

    def __enter__(self) -> None:
        self._before = vars(thread_overrides).copy()
        vars(thread_overrides).update(self._new_values)

    def __exit__(self, *_: object) -> None:
        vars(thread_overrides).clear()
        vars(thread_overrides).update(self._before)


def is_fake_events_enabled() -> bool:
    """Return True if subscribers that connect now stop at gates."""
    return environment("CEREAL_FAKE") is not None


def toggle_fake_events(enabled: bool) -> None:
    """Choose whether subscribers that connect from now on stop at gates, in this process and its children.

    Sets or removes the environment variable CEREAL_FAKE. Do not call it while other threads read the environment in C.
    Only subscribers of the ring stop. With another backend, the call has no effect.
    """
    if enabled:
        os.environ["CEREAL_FAKE"] = "1"
    else:
        os.environ.pop("CEREAL_FAKE", None)


def read_fake_prefix() -> str:
    """Return the identifier of this process's gates; "": none.

    Raises:
        EndpointNameError: CEREAL_FAKE_PREFIX is not valid in a file name.
    """
    value = environment("CEREAL_FAKE_PREFIX")
    return naming.validate_endpoint_name(value, "fake prefix (CEREAL_FAKE_PREFIX)") if value else ""


def set_fake_prefix(prefix: str | bytes) -> None:
    """Set the identifier of gates. Handles and subscribers with different identifiers do not see each other.

    Sets the environment variable CEREAL_FAKE_PREFIX, as `toggle_fake_events` does; "" removes it.

    Raises:
        EndpointNameError: the identifier is not valid in a file name.
    """
    if prefix:
        os.environ["CEREAL_FAKE_PREFIX"] = naming.validate_endpoint_name(prefix, "fake prefix")
    else:
        delete_fake_prefix()


def delete_fake_prefix() -> None:
    """Remove the identifier of gates, and the environment variable CEREAL_FAKE_PREFIX."""
    os.environ.pop("CEREAL_FAKE_PREFIX", None)


def get_storage_variables(names: Iterable[str]) -> dict[str, str]:
    """Return those environment variables of an object store that are set."""
    return {name: value for name in names if (value := environment(name))}
