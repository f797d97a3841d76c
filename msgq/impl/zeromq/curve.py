"""CURVE encryption. Subscribers need only the publishers' public key."""

from __future__ import annotations

import zmq

from msgq.common import settings
from msgq.errors import BackendNotAvailableError, InvalidValueError


def secure_publisher(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """If MSGQ_ZMQ_CURVE is set, allow only CURVE on the socket, with ``server.key_secret`` from that directory."""
    if directory := settings.get_zmq_curve_directory():
        public, secret = _load_certificate_keys(f"{directory}/server.key_secret", endpoint)
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = public, secret or b""


def secure_subscriber(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Do the same for a subscriber, with its own ``client.key_secret`` and the publishers' ``server.key``."""
    if directory := settings.get_zmq_curve_directory():
        public, secret = _load_certificate_keys(f"{directory}/client.key_secret", endpoint)
        socket.curve_serverkey = _load_certificate_keys(f"{directory}/server.key", endpoint)[0]
        socket.curve_publickey, socket.curve_secretkey = public, secret or b""


def _load_certificate_keys(path: str, endpoint: str) -> tuple[bytes, bytes | None]:
    if not zmq.has("curve"):
        raise BackendNotAvailableError("MSGQ_ZMQ_CURVE is set, but this libzmq was built without CURVE", endpoint)
    from zmq.auth import load_certificate  # rarely needed

    try:
        public, secret = load_certificate(path)
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"MSGQ_ZMQ_CURVE: cannot read the certificate {path}: {error}", endpoint) from error
    if path.endswith("_secret") and secret is None:
        raise InvalidValueError(
            f"MSGQ_ZMQ_CURVE: certificate {path} has no secret key; give a secret certificate", endpoint
        )
    return public, secret
