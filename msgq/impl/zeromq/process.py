"""What all sockets of a process share: ZMQ's context, the fork generation, closing at exit, and the base class.

ZMQ's objects must not be touched in a forked child, in no way: their threads do not exist there. A socket carries the
generation that it was made in, and every call compares that with the present one first. The same comparison finds a
closed socket and one that another thread is using, because the socket's *ticket* is its generation only while it is
connected and free.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket as system
import weakref
from types import TracebackType
from typing import Any, Self

import zmq

from msgq.errors import ConcurrentUseError, EndpointClosedError, ForkedSocketError, InvalidValueError, IpcError
from msgq.impl.context import Context
from msgq.impl.zeromq.addresses import Address

# Tickets; those of a subscriber in use are the thread's identifier, those of a free socket its generation, from 0 up.
CLOSED = -1
RESERVED = -2
BUSY = -3

#: How many forks lie between the first process and this one.
generation = 0

_context: zmq.Context[zmq.Socket[bytes]] | None = None
_sockets: weakref.WeakSet[Endpoint] = weakref.WeakSet()
_inherited: list[Any] = []  # the parent's objects of ZMQ, kept so that the garbage collector does not touch them either


class Endpoint:
    """What publishers and subscribers have in common."""

    __slots__ = ("__weakref__", "_address", "_endpoint", "_generation", "_socket", "_ticket")

    _socket: zmq.Socket[bytes]

    def __init__(self) -> None:
        self._ticket = CLOSED
        self._generation = -1
        self._endpoint = ""
        self._address = Address()

    @property
    def endpoint(self) -> str:
        """The endpoint's name; "" before the first `connect`."""
        return self._endpoint

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, or was never connected."""
        return self._ticket == CLOSED

    def close(self) -> None:
        """Leave."""
        raise NotImplementedError

    def forget(self) -> None:
        """In a forked child: close file descriptors that belong to the parent, and touch nothing else."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _check_connectable(self, context: Context, name: str) -> None:
        if not isinstance(context, Context):
            raise TypeError(f"a context is a msgq.Context, not {type(context).__name__}")
        if context.closed:
            raise InvalidValueError("the context was terminated; make a new one", name)
        if self._ticket != CLOSED:
            raise InvalidValueError("the socket is connected already; close it first", self._endpoint)

    def _connected(self) -> None:
        self._generation = self._ticket = generation
        _sockets.add(self)

    def _check(self) -> None:
        if self._ticket != generation:
            raise self._misuse()

    def _misuse(self) -> IpcError:
        """Return the exception for a ticket that is not valid."""
        if self._ticket == CLOSED:
            return EndpointClosedError("is closed, or was never connected; call connect() first", self._endpoint)
        if self._generation != generation:
            text = "the socket belongs to the parent process; close it here, and connect again (or another one)"
            return ForkedSocketError(text, self._endpoint)
        if self._ticket == RESERVED:
            return ConcurrentUseError("a reservation is open; leave its with block first", self._endpoint)
        text = "is in use by another thread; a socket serves one thread at a time"
        return ConcurrentUseError(text, self._endpoint)


def zmq_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return ZMQ's context of this process, made when it is first needed.

    There is one behind all of `Context`, so that `Context.term` can do what it does on the ring: ZMQ's own would wait
    until every socket is closed.
    """
    global _context
    if _context is None:
        _context = zmq.Context()
    return _context


def _forked() -> None:
    """In a child: put aside what belongs to the parent; the child makes its own."""
    global _context, generation
    generation += 1
    _inherited.append(_context)
    _context = None
    mine = [socket for socket in _sockets if not socket.closed]
    for socket in mine:
        _inherited.append(socket._socket)
        socket.forget()
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
        return bool(address.port == local[1] or peer and peer[:2] == (address.host, address.port))
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
