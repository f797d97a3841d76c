"""Requests of a client to a server. Answers are checked and mapped."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from array import array
from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import Any

from msgq.errors import CorruptSegmentError, IpcError, StreamNotFoundError, WaitTimeoutError
from msgq.impl.base.core import DescriptorMapping, get_sharing_advice
from visionipc import memfd, wire
from visionipc.impl.core import LEASE_CLIENTS_MAX, LEASE_TABLE_BYTES, VERSION, ClientLeases, IncomingStream
from visionipc.listener import check_peer_owner, get_peer_pid

ANSWER_TIMEOUT_S = 1.0  # a server answers in microseconds. A stopped server must not block the client for long
_RETRY_INTERVAL_S = 0.002  # no event reports that a server with a full queue accepts the next client
_ANSWER_BYTES_MAX = wire.BUFFERS_MAX * wire.BUFFER_STRUCT.size + wire.GRANT_STRUCT.size
_ANCILLARY_BYTES = socket.CMSG_LEN((wire.BUFFERS_MAX + 1) * array("i").itemsize)  # a descriptor per buffer, and a table
_RECEIVE_FLAGS = socket.MSG_CMSG_CLOEXEC


class _ServerAnswer:
    """The answer of a server, with its descriptors, which the caller of `_send_request` closes.

    The object exists before the answer, because a signal handler may raise at each step of the exchange.

    Attributes:
        data: bytes of the answer.
        pid: process id of the server.
        fds: descriptors of the answer. `Stream` takes over this list.
    """

    def __init__(self) -> None:
        self.data, self.pid, self.fds = b"", 0, list[int]()
        self._received: list[Any] = []  # result of `recvmsg`

    def receive(self, connection: socket.socket) -> bool:
        """Receive the answer, or evaluate a received one again. Return False if the answer is truncated."""
        if not self._received:
            # C code stores the result. Between `recvmsg` and an assignment, Python runs signal handlers.
            self._received[:] = map(connection.recvmsg, (_ANSWER_BYTES_MAX,), (_ANCILLARY_BYTES,), (_RECEIVE_FLAGS,))
        self.data, ancillary, flags, _ = self._received[0]
        self.fds[:] = _unpack_descriptors(ancillary)
        return not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)

    def close_descriptors(self) -> None:
        """Close the descriptors that no stream has closed."""
        _close_descriptors(self.fds)


def _unpack_descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    fds = array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()


def _send_request(name: str, request: bytes, within: float, prefix: str | None, answer: _ServerAnswer) -> bool:
    """Fill the answer of a server. Return False without a server.

    The server has `within` seconds for its answer.

    Raises:
        WaitTimeoutError: the server does not answer.
        CorruptSegmentError: the answer is too long.
        SegmentError: the server belongs to a user who is not trusted.
        IpcError: a system call failed.
    """
    path = wire.socket_path(name, prefix)
    try:
        is_complete = _exchange_request(name, path, request, time.monotonic() + within, answer)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except TimeoutError as error:
        raise WaitTimeoutError(f"server at {path} does not answer; look for a stopped process", name) from error
    except (IpcError, InterruptedError):  # some of these errors are also OSErrors; a signal handler raised the other
        raise
    except OSError as error:
        hint = get_sharing_advice(path) if isinstance(error, PermissionError) else ""
        raise IpcError(f"cannot query the server at {path}: {error.strerror}{hint}", name, error.errno) from error
    if not is_complete:
        raise CorruptSegmentError(
            "server sent a truncated answer; check the limit of open files (ulimit -n)", name, path
        )
    return True


def _exchange_request(name: str, path: str, request: bytes, until: float, answer: _ServerAnswer) -> bool:
    """Fill the answer. Return False if it is truncated.

    If the server closes without an answer, ask again.
    """
    while True:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError), _unix_socket() as connection:
            connection.bind(wire.make_client_address())
            _connect_socket(connection, path, until)
            check_peer_owner(connection, name, path)
            connection.settimeout(_seconds_left(until))
            answer.pid = get_peer_pid(connection)
            try:
                connection.send(request)
                connection.settimeout(_seconds_left(until))
                return answer.receive(connection)
            except OSError:
                raise
            except BaseException:  # from a signal handler; the answer may hold a row that this client must return
                answer.receive(connection)
                raise
        time.sleep(min(_RETRY_INTERVAL_S, _seconds_left(until)))


def _unix_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


def _seconds_left(until: float) -> float:
    remaining = until - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _connect_socket(connection: socket.socket, path: str, until: float) -> None:
    """Connect to a server. If the server's queue is full, retry, because a Unix socket does not wait for it."""
    connection.setblocking(False)
    while True:
        try:
            return connection.connect(path)
        except BlockingIOError:
            time.sleep(min(_RETRY_INTERVAL_S, _seconds_left(until)))


def _close_descriptors(fds: list[int], kept: int = 0) -> None:
    """Close the descriptors behind the first `kept` ones.

    C code closes, because between `pop` and `close`, Python runs signal handlers.
    """
    deque(map(os.close, map(fds.pop, repeat(-1, len(fds) - kept))), maxlen=0)


def request_stream_types(name: str, within: float = ANSWER_TIMEOUT_S, prefix: str | None = None) -> set[int] | None:
    """Return the types of a server's streams; None: no server. Raises the errors of `request_server_info`."""
    server = request_server_info(name, within, prefix)
    return None if server is None else server[1]


def request_server_info(
    name: str, within: float = ANSWER_TIMEOUT_S, prefix: str | None = None
) -> tuple[int, set[int]] | None:
    """Return the process id of a server and its streams; None: no server. Process id 0: in an invisible PID namespace.

    Raises:
        WaitTimeoutError, CorruptSegmentError, IpcError: the server answers late or incorrectly.
    """
    answer = _ServerAnswer()
    try:
        if not _send_request(name, wire.REQUEST_STRUCT.pack(wire.LIST_REQUEST), within, prefix, answer):
            return None
    finally:
        answer.close_descriptors()
    data = answer.data
    if len(data) % wire.REQUEST_STRUCT.size or len(data) > wire.STREAMS_MAX * wire.REQUEST_STRUCT.size:
        raise CorruptSegmentError(f"server sent a list of streams of {len(data)} bytes, which is invalid", name)
    return answer.pid, {kind for (kind,) in wire.REQUEST_STRUCT.iter_unpack(data)}


class Stream(IncomingStream):
    """One incarnation of a stream.

    Attributes:
        requested_buffers: number of buffers that the server was asked for.
    """

    requested_buffers: int

    def was_published_before_admission(self, generation: int) -> bool:
        """Return True if the frame was published before the server registered this client."""
        return self.leases is not None and (self.leases.since - generation) % (1 << 32) < 1 << 31


def _parse_stream_answer(data: bytes, fds: list[int], kind: int, endpoint: str) -> Stream:
    """Return the stream in an answer, which then owns the descriptors. The client's row is taken last."""
    grant = None
    if _answer_has_grant(data):
        grant = wire.unpack_grant(data[-wire.GRANT_STRUCT.size :], VERSION, endpoint)
        data = data[: -wire.GRANT_STRUCT.size]
    records = wire.unpack_records(data, grant, kind, endpoint)
    if len(fds) != len(records) + (grant is not None):
        text = f"server sent {len(fds)} descriptors for {len(records)} buffers"
        raise CorruptSegmentError(text, endpoint)
    size = records[0].geometry.size + wire.FRAME_ID_BYTES
    buffers = fds[: len(records)]
    for fd in buffers:
        memfd.check_memfd(fd, size, grant is not None, endpoint)
    regions = [DescriptorMapping(fd, size, False, endpoint, populate=memfd.is_allocated(fd, size)) for fd in buffers]
    leases = None
    if grant is not None:
        leases = _map_lease_row(fds[-1], grant, endpoint)
        _close_descriptors(fds, kept=len(records))
    stream = Stream(records, regions, fds, leases)
    # A stock server has no spare buffers, and an earlier version of this library does not report them.
    stream.requested_buffers = min((grant and grant.buffers) or len(records), len(records))
    return stream


def _answer_has_grant(data: bytes) -> bool:
    """Return True if an answer has a grant after its records."""
    return len(data) % wire.BUFFER_STRUCT.size == wire.GRANT_STRUCT.size


def _map_lease_row(fd: int, grant: wire.Grant, endpoint: str) -> ClientLeases:
    memfd.check_memfd(fd, LEASE_TABLE_BYTES, True, endpoint)
    region = DescriptorMapping(fd, LEASE_TABLE_BYTES, True, endpoint)
    return ClientLeases(region, fd, grant.row, grant.since, endpoint)


def _return_row(name: str, request: bytes, data: bytes, prefix: str | None) -> None:
    """Tell the server that this client cannot use its row. The server does not answer."""
    if not _answer_has_grant(data) or len(data) <= wire.BUFFER_STRUCT.size:
        return
    server_id = wire.BUFFER_STRUCT.unpack_from(data)[7]
    *_, row, _, _ = wire.GRANT_STRUCT.unpack(data[-wire.GRANT_STRUCT.size :])
    with contextlib.suppress(OSError), _unix_socket() as connection:
        connection.bind(wire.make_client_address())
        _connect_socket(connection, wire.socket_path(name, prefix), time.monotonic() + ANSWER_TIMEOUT_S)
        connection.send(request + wire.RETURN_ROW_STRUCT.pack(server_id, row))


def open_stream(name: str, kind: int, within: float = ANSWER_TIMEOUT_S, prefix: str | None = None) -> Stream | None:
    """Return a server's stream; None: no server. The server has `within` seconds for its answer.

    Raises:
        StreamNotFoundError: the server has no such stream.
        IpcError: the server has its maximum number of clients.
        WaitTimeoutError, CorruptSegmentError, SegmentError: the server answers late or incorrectly, or the system
            refuses.
    """
    request = wire.REQUEST_STRUCT.pack(kind)
    for _ in range(2):  # a stream that is listed may have been made just now
        answer = _ServerAnswer()
        try:
            if not _send_request(name, request, within, prefix, answer):
                return None
            if answer.data:
                return _parse_stream_answer(answer.data, answer.fds, kind, wire.get_endpoint_name(name, kind))
        except BaseException:
            answer.close_descriptors()
            _return_row(name, request, answer.data, prefix)
            raise
        answer.close_descriptors()
        available = request_stream_types(name, within, prefix)
        if available is None:
            return None
        if kind not in available:
            raise StreamNotFoundError(f"stream {kind} not found; the server has {sorted(available)}", name)
    text = f"it has {LEASE_CLIENTS_MAX} clients, its limit, or the server has no descriptors left"
    raise IpcError(f"server did not accept the client on stream {kind}: {text}", name)
