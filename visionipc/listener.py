"""Unix socket of a server: one thread answers requests, and never waits for a single client."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from msgq.common import file_permissions, settings, shm_paths
from msgq.errors import IpcError, MultiplePublishersError, SegmentError
from msgq.impl.base.core import check_owner
from msgq.impl.base.process import LockFile
from visionipc import wire

_REQUEST_TIMEOUT_S = 1.0  # seconds after which the server disconnects a client that sends nothing
_PENDING_CLIENTS_MAX = 64  # clients that have sent nothing yet. The oldest is disconnected
_CREDENTIALS_STRUCT = struct.Struct("=iII")  # struct ucred of unix(7)


@dataclass(slots=True)
class Answer:
    """Answer to a client.

    Attributes:
        data_parts: bytes.
        fds: descriptors that the answer owns.
        revoke_grant: revokes the client's grant if the answer does not reach the client.
    """

    data_parts: list[bytes]
    fds: list[int] = field(default_factory=list)
    revoke_grant: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Close the descriptors."""
        while self.fds:
            os.close(self.fds.pop())


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a client.

    Attributes:
        data: bytes, at least one.
        pid: process id of the client; 0: in an invisible PID namespace.
        takes_leases: True if the client supports grants.
    """

    data: bytes
    pid: int
    takes_leases: bool


#: Gives the answer to a request; None sends the client away.
AnswerFunction = Callable[[Request], Answer | None]


def _read_peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return process id and user id of the peer."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_STRUCT.size)
    pid, user, _ = _CREDENTIALS_STRUCT.unpack(data)
    return pid, user


def get_peer_pid(connection: socket.socket) -> int:
    """Return the process id of the peer when it connected; 0: in an invisible PID namespace."""
    pid, _ = _read_peer_credentials(connection)
    return pid


def check_peer_owner(connection: socket.socket, name: str, path: str) -> None:
    """Raise an error for a server of a user who is not trusted.

    Raises:
        SegmentError: the user is not trusted. The text names the user, and how to trust the user.
    """
    _, user = _read_peer_credentials(connection)
    check_owner(user, name, path)


def _unix_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def _find_listener_pid(address: str) -> int | None:
    """Return the pid of the listening process; None: no process listens."""
    with _unix_socket() as probe:
        try:
            probe.connect(address)
        except BlockingIOError:
            return 0  # it is there, and has a full queue
        except OSError:
            return None
        return get_peer_pid(probe)


def _read_lock_pid(path: str) -> int:
    """Return the pid in a lock file; 0: missing, because the holder is writing or releasing it."""
    try:
        with open(path) as lock:
            return int(lock.read(32))
    except (OSError, ValueError):
        return 0


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


def _close_listeners_in_child() -> None:
    for listener in list(_listeners):
        listener.close_in_child()


# A child must not keep the parent's socket and lock alive.
os.register_at_fork(after_in_child=_close_listeners_in_child)


class Listener:
    """Listens until `close`. Each path has one server, even if two servers start at the same time."""

    def __init__(self, name: str, answer: AnswerFunction, prefix: str | None = None) -> None:
        """Bind, listen, and start the thread. `prefix`: see `wire.socket_path`.

        Raises:
            MultiplePublishersError: a living server listens on the path. The text names it.
            SegmentError: the path is unusable.
        """
        self._name = name
        self._make_answer = answer
        self._path = wire.socket_path(name, prefix)
        self._pending: dict[socket.socket, float] = {}
        self._is_stopping = False
        self._lock = self._lock_socket_path()
        try:
            self._socket = self._bind_socket()
        except BaseException:
            self._lock.release()
            raise
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._answer_requests, name=f"visionipc {name}"[:15], daemon=True)
        _listeners.add(self)
        self._thread.start()

    def _lock_socket_path(self) -> LockFile:
        """Return the lock of the path. One process can hold it, and its death releases it."""
        path = shm_paths.create_frames_lock_path(self._path, self._name)
        try:
            return LockFile(path)
        except BlockingIOError as error:
            owner = _find_listener_pid(self._path)
            raise self._make_in_use_error(_read_lock_pid(path) if owner is None else owner) from error
        except OSError as error:
            raise SegmentError(f"cannot lock: {error.strerror}", self._name, path, error.errno) from error

    def _make_in_use_error(self, pid: int) -> MultiplePublishersError:
        owner = f"process {pid}" if pid else "another process"  # in another PID namespace, starting or leaving
        text = f"{owner} serves {self._path}; stop it, or choose another name"
        return MultiplePublishersError(text, self._name)

    def _bind_socket(self) -> socket.socket:
        listener = _unix_socket()
        try:
            owner = _find_listener_pid(self._path)
            if owner is not None:
                raise self._make_in_use_error(owner)
            self._lock.write(b"%d" % os.getpid())  # pid for the error of the next listener
            file_permissions.bind_unix_socket(
                listener, self._path, settings.resolve_file_mode(None, self._name), self._name
            )
            listener.listen(128)
            self._inode = os.stat(self._path).st_ino
        except OSError as error:
            listener.close()
            raise SegmentError(f"cannot listen: {error.strerror}", self._name, self._path, error.errno) from error
        except BaseException:
            listener.close()
            raise
        return listener

    def _answer_requests(self) -> None:
        while not self._is_stopping:
            now = time.monotonic()
            until = min(self._pending.values(), default=None)
            for key, _ in self._selector.select(None if until is None else max(0, until - now)):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._socket:
                    self._accept_client()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pending:
                    self._answer_client(key.fileobj)
            for connection in [c for c, until in self._pending.items() if until <= now]:  # the client has sent nothing
                self._drop_client(connection)

    def _accept_client(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            # No descriptor left: the waiting ones are those that can be spared. Else the client has gone already.
            if error.errno in (errno.EMFILE, errno.ENFILE) and not self._evict_oldest():
                time.sleep(0.01)
            return
        connection.setblocking(False)
        if len(self._pending) >= _PENDING_CLIENTS_MAX:
            self._evict_oldest()
        self._pending[connection] = time.monotonic() + _REQUEST_TIMEOUT_S
        self._selector.register(connection, selectors.EVENT_READ)

    def _evict_oldest(self) -> bool:
        """Disconnect the client that has waited longest. Return False if no client waits."""
        if not self._pending:
            return False
        self._drop_client(next(iter(self._pending)))
        return True

    def _answer_client(self, connection: socket.socket) -> None:
        """Answer a client's request. A client that sends invalid data, or does not receive at once, gets no answer."""
        answer = None
        try:
            if data := connection.recv(256):
                answer = self._make_answer(
                    Request(data, get_peer_pid(connection), wire.is_lease_client_address(connection.getpeername()))
                )
            if answer is not None:
                socket.send_fds(connection, answer.data_parts, answer.fds)
        except (OSError, IpcError):
            if answer is not None:
                answer.revoke_grant()
        finally:
            if answer is not None:
                answer.close()
            self._drop_client(connection)

    def _drop_client(self, connection: socket.socket) -> None:
        if self._pending.pop(connection, None) is None:  # the answer closed us
            return
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        connection.close()

    def close(self) -> None:
        """Stop listening, and remove the path, unless another server owns it now."""
        _listeners.discard(self)
        self._wake.shutdown(socket.SHUT_RDWR)  # reaches the thread also when a child has a copy of this end
        self._wake.close()
        self._is_stopping = True
        if threading.current_thread() is not self._thread:  # its answer may be the last that uses the server
            self._thread.join()
        for connection in list(self._pending):
            self._drop_client(connection)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        self._lock.release()
        self._close_descriptors()

    def close_in_child(self) -> None:
        """In a forked child: close the child's descriptors. Thread and path belong to the parent."""
        for connection in (self._wake, *self._pending):
            connection.close()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for end in (self._socket, self._woken):
            end.close()
        self._selector.close()
