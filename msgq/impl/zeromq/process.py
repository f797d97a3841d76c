"""State that all sockets of a process share: ZMQ's context, handling of forks, and closing at exit.

ZMQ's objects must not be used in a forked child, because their threads do not exist there. For methods of a socket,
`msgq.impl.zeromq.guard` prevents such use.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import re
import stat
import threading
import weakref
from typing import Protocol

import zmq

from msgq.errors import ConcurrentUseError, IpcError
from msgq.impl.zeromq.guard import keep_forever

CURVE_OVERHEAD_BYTES = 33  # bytes that encryption adds to a message
ZMQ_SOCKETS_MAX = 4096  # limit of a context; a subscriber has three sockets, with its monitor
CONTEXT_EPOLL_COUNT = 2  # a context's I/O thread and its reaper have one each

_zmq_context: zmq.Context[zmq.Socket[bytes]] | None = None
_context_epolls: set[int] = set()  # the context's; empty when they are not known
_monitor_numbers = itertools.count()
_context_lock = threading.RLock()  # a signal handler may interrupt its holder
# All sockets by id. Unlike a WeakSet, a list of them is possible while another thread adds one.
_open_sockets: weakref.WeakValueDictionary[int, ForkSensitiveSocket] = weakref.WeakValueDictionary()


class ForkSensitiveSocket(Protocol):
    """A socket that must be handled after a fork."""

    _socket: zmq.Socket[bytes]

    @property
    def closed(self) -> bool:
        """True if the socket is closed."""

    def close(self) -> None:
        """Close the socket."""

    def _close_parent_descriptors(self) -> None:
        """In a forked child: close descriptors of the parent, and use no other state."""


def register_socket(socket: ForkSensitiveSocket) -> None:
    """Register a socket, so that it is protected in forked children and closed at exit."""
    _open_sockets[id(socket)] = socket


def _list_sockets() -> list[ForkSensitiveSocket]:
    return [socket for reference in _open_sockets.valuerefs() if (socket := reference()) is not None]


def get_zmq_context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return ZMQ's context of this process, created at the first use.

    All `Context` objects share it, so that `Context.term` works as on the ring. ZMQ's own `term` would wait until every
    socket is closed.
    """
    global _zmq_context, _context_epolls
    if _zmq_context is None:
        epolls_before = _list_open_epolls()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        context.set(zmq.MAX_SOCKETS, ZMQ_SOCKETS_MAX)
        context.socket(zmq.PAIR).close()  # the first one starts its threads
        new_epolls = _list_open_epolls() - epolls_before
        with _context_lock:
            if _zmq_context is None:  # or another thread, or a signal handler, was faster
                # If another thread created epolls at the same time, ZMQ's epolls are unknown, and children close none.
                _zmq_context, _context_epolls = context, new_epolls if len(new_epolls) == CONTEXT_EPOLL_COUNT else set()
    return _zmq_context


def open_zmq_socket(kind: int, endpoint: str, max_bytes: int = 0) -> zmq.Socket[bytes]:
    """Return a new ZMQ socket. Raises IpcError if ZMQ has no more sockets.

    Args:
        kind: ZMQ's socket type.
        endpoint: name for error texts.
        max_bytes: maximum bytes of a received message; 0: no limit. For a larger announced message, ZMQ disconnects
            before it allocates memory.
    """
    try:
        socket: zmq.Socket[bytes] = get_zmq_context().socket(kind)
        if max_bytes:
            socket.set(zmq.MAXMSGSIZE, max_bytes + CURVE_OVERHEAD_BYTES)
        return socket
    except zmq.ZMQError as error:
        raise IpcError(f"ZMQ cannot make a socket: {error}", endpoint, error.errno) from error


def open_monitor_socket(socket: zmq.Socket[bytes], endpoint: str) -> zmq.Socket[bytes]:
    """Return a monitor of a socket's connections. Raises IpcError as `open_zmq_socket`.

    If the queue of a monitor were full, ZMQ's thread for all sockets would wait. Therefore the queue has no limit, and
    the monitor omits events that repeat while no publisher exists. An unread monitor queues two events, a few hundred
    bytes, for each ended connection.
    """
    address = f"inproc://msgq-monitor-{next(_monitor_numbers)}"
    monitor = open_zmq_socket(zmq.PAIR, endpoint)
    try:
        monitor.rcvhwm = 0
        socket.monitor(address, zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
        monitor.connect(address)
        return monitor
    except zmq.ZMQError as error:
        monitor.close()
        raise IpcError(f"ZMQ cannot make a socket: {error}", endpoint, error.errno) from error


def keep_parent_socket(socket: zmq.Socket[bytes]) -> None:
    """In a forked child: keep a socket of the parent forever, so that its destructor does not run."""
    keep_forever(socket)


def _drop_parent_sockets() -> None:
    """In a child: set the parent's objects aside. The child creates its own."""
    global _zmq_context, _context_epolls, _context_lock
    keep_forever(_zmq_context)
    for socket in _list_sockets():
        if not socket.closed:
            keep_parent_socket(socket._socket)
            socket._close_parent_descriptors()
    _open_sockets.clear()
    _close_parent_connections()
    _zmq_context, _context_epolls, _context_lock = None, set(), threading.RLock()


def _close_parent_connections() -> None:
    """Close the child's copies of the connections of the parent's ZMQ, and no other descriptors.

    With open copies, the parent's peers would not notice its end, and subscribers would not connect to the next
    publisher.
    """
    for epoll in _context_epolls:
        with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{epoll}") as watched:
            for number, inode in re.findall(r"^tfd: *(\d+) .* ino:([0-9a-f]+)", watched.read(), re.MULTILINE):
                _close_if_same_socket(int(number), int(inode, 16))


def _close_if_same_socket(number: int, inode: int) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        status = os.fstat(number)
        if stat.S_ISSOCK(status.st_mode) and status.st_ino == inode:
            os.close(number)


def _list_open_epolls() -> set[int]:
    """Return the epoll descriptors of this process."""
    epolls = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the directory itself, which is closed by now
            if os.readlink(f"/proc/self/fd/{number}") == "anon_inode:[eventpoll]":
                epolls.add(int(number))
    return epolls


@atexit.register
def _close_sockets_at_exit() -> None:
    """Close open sockets. Messages that were just sent have at most the sockets' linger time to leave."""
    for socket in _list_sockets():
        with contextlib.suppress(ConcurrentUseError):  # a daemon thread still uses it
            socket.close()
    if _zmq_context is not None and all(socket.closed for socket in _list_sockets()):
        _zmq_context.term()


os.register_at_fork(after_in_child=_drop_parent_sockets)
