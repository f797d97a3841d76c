"""One publisher per address: a publisher's claim on its address, and the listening socket.

A locked file names the publisher of an address among this user's processes. The kernel releases the lock when the
process dies or calls exec. Other programs at the address are detected when binding fails.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import time
from typing import Any

from msgq.common import shm_paths
from msgq.errors import InvalidValueError, IpcError, MultiplePublishersError
from msgq.impl.base.process import LockFile
from msgq.impl.zeromq.addresses import ALL_INTERFACES, ZmqAddress, hash_fnv1a, prefixed_name

LISTEN_BACKLOG = 128
# ZMQ closes a socket a short time after the call, so the port of a closed publisher is not free at once.
PORT_FREE_SECONDS = 1.0
RETRY_SECONDS = 0.001


class AddressClaim:
    """The right to publish at an address, until `release_address` or the end of the process.

    Attributes:
        listener: file descriptor of the listening socket. ZMQ closes it.
    """

    def __init__(self, endpoint: str, address: ZmqAddress) -> None:
        """Claim the address.

        Raises:
            MultiplePublishersError: another publisher of this endpoint, or an unknown program, has the address.
            IpcError: a publisher of another endpoint has the address, or binding failed for another reason.
        """
        self._address = address
        self._path = _compute_claim_path(endpoint, address)
        try:
            self._lock_file = LockFile(self._path)
        except BlockingIOError as error:
            raise _address_in_use_error(endpoint, address, _read_claim(self._path)) from error
        except OSError as error:
            raise IpcError(f"cannot lock {self._path}: {error.strerror}", endpoint, error.errno) from error
        try:
            self.listener = self._open_claimed_listener(endpoint)
        except BaseException:
            self._lock_file.release()
            raise

    def _open_claimed_listener(self, endpoint: str) -> int:
        claim_record = {"pid": os.getpid(), "name": prefixed_name(endpoint), "port": self._address.port}
        try:
            if self._address.path:
                listener = _listen_at_path(self._address.path)
            else:
                listener = _listen_at_port(endpoint, self._address)
            self._write_claim(listener, json.dumps(claim_record).encode())
        except IpcError:  # some of these errors are also OSErrors
            raise
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _address_in_use_error(
                    endpoint, self._address, _find_port_holder(endpoint, self._address.port)
                ) from error
            raise IpcError(f"cannot bind {self._address.uri}: {error.strerror}", endpoint, error.errno) from error
        return listener

    def _write_claim(self, listener: int, text: bytes) -> None:
        """Write the claim's text. Before this, a search for the holder of the port must not find this process."""
        try:
            self._lock_file.write(text)
        except BaseException:
            os.close(listener)
            raise

    def release_address(self) -> None:
        """Release the address."""
        if self._address.path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._address.path)
        self._lock_file.release()

    def close_inherited_listener(self) -> None:
        """In a forked child: close the inherited listener, so that the address is free when the parent ends."""
        os.close(self.listener)


def _compute_claim_path(endpoint: str, address: ZmqAddress) -> str:
    # The same port of another network namespace is another address.
    space = "" if address.path else f"{os.stat('/proc/self/ns/net').st_ino} "
    return f"{shm_paths.create_zmq_directory('claims', endpoint)}/{hash_fnv1a((space + address.uri).encode()):016x}"


def _read_claim(path: str) -> dict[str, Any]:
    """Return the content of a claim; empty if its holder is writing it, or has ended."""
    try:
        with open(path) as file:
            claim = json.load(file)
    except (OSError, ValueError):
        return {}
    return claim if isinstance(claim, dict) else {}


def _address_in_use_error(endpoint: str, address: ZmqAddress, holder: dict[str, Any]) -> IpcError:
    """Return the error for an address in use."""
    holder_name = f"process {holder['pid']}" if "pid" in holder else "another program"
    if holder.get("name", prefixed_name(endpoint)) == prefixed_name(endpoint):
        return MultiplePublishersError(
            f"{holder_name} publishes at {address.uri}; close that publisher first", endpoint
        )
    text = f"{address.uri} is in use: {holder_name} publishes {holder['name']!r}, whose name leads to the same port"
    return IpcError(f"{text}; give one endpoint another address (MSGQ_ZMQ_MAP)", endpoint, errno.EADDRINUSE)


def _find_port_holder(endpoint: str, port: int) -> dict[str, Any]:
    """Return the claim of a living publisher on this port, on any host, for an error text."""
    directory = shm_paths.create_zmq_directory("claims", endpoint)
    for claim in (_read_claim(f"{directory}/{name}") for name in os.listdir(directory)):
        if port and claim.get("port") == port and os.path.exists(f"/proc/{claim.get('pid')}"):
            return claim
    return {}


def _listen_at_port(endpoint: str, address: ZmqAddress) -> int:
    host = None if address.host == ALL_INTERFACES else address.host
    try:
        addresses = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        text = f"host {address.host!r} (MSGQ_ZMQ_BIND, MSGQ_ZMQ_MAP) cannot be bound: {error}"
        raise InvalidValueError(text, endpoint) from error
    family, _, _, _, name = addresses[0]
    deadline = time.monotonic() + PORT_FREE_SECONDS
    while True:
        try:
            return _open_listener(family, name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _listen_at_path(path: str) -> int:
    """Listen on a socket file. A file of a dead publisher is replaced, any other file is an error."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _accepts_connections(path):
            os.unlink(path)
    return _open_listener(socket.AF_UNIX, path)


def _accepts_connections(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # its backlog is full
            return True
    return True


def _open_listener(family: int, name: Any) -> int:
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(name)
        listener.listen(LISTEN_BACKLOG)
        listener.setblocking(False)
        return listener.detach()
