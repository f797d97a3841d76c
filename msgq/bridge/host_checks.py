"""Checks of hosts before forwarding."""

from __future__ import annotations

import socket

from msgq.common import naming, settings
from msgq.errors import InvalidValueError
from msgq.impl import backend


def check_bind_host() -> None:
    """Check now that a publisher can bind to its host, before the first outgoing topic."""
    host = settings.get_zmq_bind_host()
    if settings.get_zmq_transport("") == "ipc":
        return
    try:
        addresses = socket.getaddrinfo(
            None if host == "*" else host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = addresses[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        text = (
            f"host {host!r} (--bind, MSGQ_ZMQ_BIND) cannot be bound: {error}; give "
            "an address of this machine, or * for all"
        )
        raise InvalidValueError(text) from error


def check_source(topic: str, host: str) -> None:
    """Check now that the publisher's host can be resolved. Otherwise ZMQ would retry silently without limit."""
    address = backend.load_backend("zmq").subscriber_address(naming.validate_endpoint_name(topic), host)
    if address.path:
        return
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = f"host {address.host!r} cannot be resolved: {error}; give another name, or an IP address"
        raise InvalidValueError(text, topic) from error
