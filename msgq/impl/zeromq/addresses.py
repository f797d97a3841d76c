"""Addresses of endpoints: a port by hash as in stock msgq, a socket file, or an entry of the user's map."""

from __future__ import annotations

import tomllib
from typing import NamedTuple
from urllib.parse import quote

from msgq.common import settings, shm_paths
from msgq.errors import EndpointNameError, InvalidValueError

FNV_OFFSET_BASIS = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
FIRST_PORT = 8023
PORT_COUNT = 57512
PATH_BYTES_MAX = 107  # struct sockaddr_un has room for 108, a NUL included
ALL_INTERFACES = "*"


class ZmqAddress(NamedTuple):
    """Address of publisher and subscribers: host and port, or the path of a socket file."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def uri(self) -> str:
        """Address in ZMQ's notation."""
        if self.path:
            return f"ipc://{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def hash_fnv1a(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash."""
    value = FNV_OFFSET_BASIS
    for byte in data:
        value = (value ^ byte) * FNV_PRIME % 2**64
    return value


def prefixed_name(endpoint: str) -> str:
    """Return the endpoint's name with the current prefix. Hashes and the map use this name."""
    prefix = settings.get_prefix()
    return f"{prefix}/{endpoint}" if prefix else endpoint


def compute_port(name: str) -> int:
    """Return the port of a full name. For a name without a prefix, stock msgq uses the same port."""
    return FIRST_PORT + hash_fnv1a(name.encode()) % PORT_COUNT


def publisher_address(endpoint: str) -> ZmqAddress:
    """Return the address for binding.

    Raises:
        EndpointNameError: the path of the socket file exceeds 107 bytes.
        InvalidValueError: an environment variable or the map is invalid.
        SegmentError: the directory for socket files is unusable.
    """
    return _resolve_address(endpoint, settings.get_zmq_bind_host())


def subscriber_address(endpoint: str, host: str) -> ZmqAddress:
    """Return the address for connecting. The map may replace `host`, the publisher's host.

    Raises as `publisher_address`.
    """
    address = _resolve_address(endpoint, host)
    return address._replace(host=_validate_host(host, endpoint)) if address.host == ALL_INTERFACES else address


def _strip_brackets(host: str) -> str:
    """Return a host without the brackets of an IPv6 address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _validate_host(host: str, endpoint: str) -> str:
    """Return a host without brackets. Raises InvalidValueError for a host with a scheme or a port."""
    bare = _strip_brackets(host)
    if set(bare) & set(":[]/"):
        from ipaddress import AddressValueError, IPv6Address  # only here: few hosts have a colon

        try:
            IPv6Address(bare)
        except AddressValueError:
            text = f"host {host!r} is invalid; give a name or an IP address, without scheme and port. The name of the"
            advice = "endpoint decides the port; MSGQ_ZMQ_MAP gives it another"
            raise InvalidValueError(f"{text} {advice}", endpoint) from None
    return bare


def _resolve_address(endpoint: str, host: str) -> ZmqAddress:
    name = prefixed_name(endpoint)
    mapped = _read_map_entry(name, endpoint)
    if mapped is not None:
        address = mapped
    elif settings.get_zmq_transport(endpoint) == "ipc":
        # One flat directory: a slash, which only stands behind a prefix, becomes %2F.
        address = ZmqAddress(path=f"{shm_paths.create_zmq_directory('ipc', endpoint)}/{quote(name, safe='')}")
    else:
        address = ZmqAddress(
            _validate_host(host, endpoint), compute_port(endpoint if settings.uses_stock_zmq_addresses() else name)
        )
    if len(address.path.encode()) > PATH_BYTES_MAX:
        text = (
            f"path {address.path} of its socket has more than {PATH_BYTES_MAX} bytes; choose a shorter name, or map it"
        )
        raise EndpointNameError(f"{text} (MSGQ_ZMQ_MAP)", endpoint)
    return address


def _read_map_entry(name: str, endpoint: str) -> ZmqAddress | None:
    """Return the address of a full name in the map; None: no entry."""
    path = settings.get_zmq_map_path()
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            value = tomllib.load(file).get(name)
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"MSGQ_ZMQ_MAP: cannot read {path}: {error}", endpoint) from error
    return None if value is None else _parse_address(value, f"MSGQ_ZMQ_MAP: {path}", endpoint)


def _parse_address(value: object, source: str, endpoint: str) -> ZmqAddress:
    text = value if isinstance(value, str) else ""
    scheme, _, location = text.partition("://")
    if scheme == "ipc" and location.startswith("/") and "\0" not in location:
        return ZmqAddress(path=location)
    host, _, port = location.rpartition(":")
    if scheme == "tcp" and host and port.isascii() and port.isdigit() and 0 < int(port) < 2**16:
        return ZmqAddress(_strip_brackets(host), int(port))
    raise InvalidValueError(f"{source}: {value!r} is not an address; give 'tcp://host:port' or 'ipc:///path'", endpoint)
