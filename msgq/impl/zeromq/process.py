"""What all sockets of a process share: ZMQ's context, what to do after a fork, and closing at exit.

ZMQ's objects must not be touched in a forked child, in no way: their threads do not exist there. That a socket's own
methods do not is up to `msgq.impl.guard`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket as system
import weakref
from typing import Any, Protocol

import zmq

from msgq.errors import ConcurrentUseError, IpcError
from msgq.impl.zeromq.addresses import Address

_context: zmq.Context[zmq.Socket[bytes]] | None = None
_sockets: weakref.WeakSet[Inheritable] = weakref.WeakSet()
_inherited: list[Any] = []  # the parent's objects of ZMQ, kept so that the garbage collector does not touch them either


class Inheritable(Protocol):
    """A socket, as far as a fork is concerned."""

    _socket: zmq.Socket[bytes]
    _address: Address

    @property
    def closed(self) -> bool:
        """Whether it is closed."""

    def close(self) -> None:
        """Close it."""

    def _forget(self) -> None:
        """In a forked child: close file descriptors that belong to the parent, and touch nothing else."""


def remember(socket: Inheritable) -> None:
    """Keep the socket out of forked children's reach, and close it at exit."""
    _sockets.add(socket)


def zmq_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return ZMQ's context of this process, made when it is first needed.

    There is one behind all of `Context`, so that `Context.term` can do what it does on the ring: ZMQ's own would wait
    until every socket is closed.
    """
    global _context
    if _context is None:
        _context = zmq.Context()
    return _context


def new_socket(kind: int, endpoint: str) -> zmq.Socket[bytes]:
    """Return a new socket of ZMQ's; IpcError when there are no more to be had."""
    try:
        return zmq_context().socket(kind)
    except zmq.ZMQError as error:
        raise IpcError(f"ZMQ cannot make a socket: {error}", endpoint, error.errno) from error


def _forked() -> None:
    """In a child: put aside what belongs to the parent; the child makes its own."""
    global _context
    _inherited.append(_context)
    _context = None
    mine = [socket for socket in _sockets if not socket.closed]
    for socket in mine:
        _inherited.append(socket._socket)
        socket._forget()
    _sockets.clear()
    if mine:
        _close_connections([socket._address for socket in mine])


def _close_connections(addresses: list[Address]) -> None:
    """Close the child's copies of the connections at these addresses.

    With them the parent's peers would not see its end: subscribers would not connect to the next publisher.
    """
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            connection = system.socket(fileno=number)
        except OSError:
            continue  # no socket, or the directory itself
        if any(_belongs(connection, address) for address in addresses):
            connection.close()
        else:
            connection.detach()


def _belongs(connection: system.socket, address: Address) -> bool:
    """Whether a connection is of the publisher or the subscriber at an address."""
    local = connection.getsockname()
    try:
        peer = connection.getpeername()
    except OSError:
        peer = None
    if connection.family == system.AF_UNIX:
        return bool(address.path) and address.path in (local, peer)
    if connection.family in (system.AF_INET, system.AF_INET6):
        return bool(address.port == local[1] or (peer and peer[:2] == (address.host, address.port)))
    return False


@atexit.register
def _close_all() -> None:
    """Close what is open, and give messages that were just sent the time to leave (at most the sockets' linger)."""
    for socket in list(_sockets):
        with contextlib.suppress(ConcurrentUseError):  # a daemon thread still uses it
            socket.close()
    if _context is not None and all(socket.closed for socket in _sockets):
        _context.term()


os.register_at_fork(after_in_child=_forked)
