"""A client's request to a server: what comes back, checked and mapped."""

from __future__ import annotations

import os
import socket
import time

from msgq.errors import CorruptSegmentError, IpcError, StreamNotFoundError, WaitTimeoutError
from visionipc import shared, wire
from visionipc.impl.leases import MAX_CLIENTS, TABLE_BYTES, VERSION, ClientLeases
from visionipc.impl.memory import Region
from visionipc.listener import peer_pid

ANSWER_S = 1.0  # a server answers in microseconds; one that is stopped should not hold us for long
_TRY_AGAIN_S = 0.002  # nothing tells when a server whose queue is full takes the next
_FDS_MAX = wire.BUFFERS_MAX + 1


def _ask(name: str, request: bytes, within: float) -> tuple[bytes, list[int], int] | None:
    """Return a server's answer, its descriptors, and the server's process; None: there is no server.

    It has `within` seconds.

    Raises
    ------
    WaitTimeoutError : it does not answer.
    CorruptSegmentError : it answers more than an answer can be.
    IpcError : the system refuses.
    """
    path = wire.socket_path(name)
    room = wire.BUFFERS_MAX * wire.RECORD.size + wire.GRANT.size
    until = time.monotonic() + within
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as connection:
        try:
            _connect(connection, path, until)
            connection.settimeout(_left(until))
            connection.send(request)
            connection.settimeout(_left(until))
            pid = peer_pid(connection)
            data, fds, flags, _ = socket.recv_fds(connection, room, _FDS_MAX, socket.MSG_CMSG_CLOEXEC)
        except (FileNotFoundError, ConnectionError, BrokenPipeError):
            return None
        except TimeoutError as error:
            raise WaitTimeoutError(f"the server at {path} does not answer; is it stopped?", name) from error
        except OSError as error:
            raise IpcError(f"cannot ask the server at {path}: {error.strerror}", name, error.errno) from error
    if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
        _close(fds)
        raise CorruptSegmentError("the server answers too much, or no descriptor is left to take it with", name, path)
    return data, fds, pid


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connect(connection: socket.socket, path: str, until: float) -> None:
    """Connect; a queue that is full, which a Unix socket does not wait for, empties when the server takes the next."""
    connection.setblocking(False)
    while True:
        try:
            return connection.connect(path)
        except BlockingIOError:
            time.sleep(min(_TRY_AGAIN_S, _left(until)))


def _close(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def streams(name: str, within: float = ANSWER_S) -> set[int] | None:
    """Return the types of a server's streams; None: there is no server. Raises what `serving` does."""
    found = serving(name, within)
    return None if found is None else found[1]


def serving(name: str, within: float = ANSWER_S) -> tuple[int, set[int]] | None:
    """Return a server's process (0: of a PID namespace not seen from here) and its streams; None: there is no server.

    Raises
    ------
    WaitTimeoutError, CorruptSegmentError, IpcError : the server misbehaves.
    """
    answer = _ask(name, wire.REQUEST.pack(wire.LIST), within)
    if answer is None:
        return None
    data, fds, pid = answer
    _close(fds)
    if len(data) % wire.REQUEST.size or len(data) > wire.STREAMS_MAX * wire.REQUEST.size:
        raise CorruptSegmentError(f"the server lists its streams in {len(data)} bytes", name)
    return pid, {kind for (kind,) in wire.REQUEST.iter_unpack(data)}


class Stream:
    """One life of a stream, as its server told it: the buffers, mapped, and our row in the table of leases.

    Attributes
    ----------
    records : one a buffer.
    regions : their memory.
    fds : their descriptors, closed with this object.
    leases : ours; None when the server is stock.
    """

    def __init__(self, data: bytes, fds: list[int], kind: int, endpoint: str) -> None:
        self.fds = fds
        self.leases: ClientLeases | None = None
        try:
            self._take(data, kind, endpoint)
        except BaseException:
            _close(fds)  # now: somebody may keep the error, and with it this object
            raise

    def _take(self, data: bytes, kind: int, endpoint: str) -> None:
        fds = self.fds
        grant = None
        if len(data) % wire.RECORD.size == wire.GRANT.size:
            grant = wire.unpack_grant(data[-wire.GRANT.size :], VERSION, endpoint)
            data = data[: -wire.GRANT.size]
        self.records = wire.unpack_records(data, grant, kind, endpoint)
        if len(fds) != len(self.records) + (grant is not None):
            text = f"the server sent {len(fds)} descriptors for {len(self.records)} buffers"
            raise CorruptSegmentError(text, endpoint)
        if grant is not None:
            table = fds.pop()
            try:
                shared.check(table, TABLE_BYTES, True, endpoint)
                region = Region(table, TABLE_BYTES, True, endpoint)
            finally:
                os.close(table)
            self.leases = ClientLeases(region, grant.row, endpoint)
        size = self.records[0].geometry.size + wire.FRAME_ID_BYTES
        for fd in fds:
            shared.check(fd, size, grant is not None, endpoint)
        self.regions = [Region(fd, size, False, endpoint) for fd in fds]
        self.server_id = self.records[0].server_id

    def __del__(self) -> None:
        _close(self.fds)


def open_stream(name: str, kind: int, within: float = ANSWER_S) -> Stream | None:
    """Return a server's stream; None: there is no server. It has `within` seconds for an answer.

    Raises
    ------
    StreamNotFoundError : the server has no such stream.
    IpcError : the server has as many clients as it can have.
    WaitTimeoutError, CorruptSegmentError, SegmentError, IpcError : the server misbehaves, or the system refuses.
    """
    answer = _ask(name, wire.REQUEST.pack(kind) + wire.HELLO, within)
    if answer is None or not answer[0]:
        _close(answer[1] if answer else [])
        there = streams(name, within)
        if there is None:
            return None
        if kind in there:
            text = f"{MAX_CLIENTS} clients hold places in it, or the server has no descriptors left"
            raise IpcError(f"the server did not admit us to stream {kind}: {text}", name)
        raise StreamNotFoundError(f"the server has no stream {kind}, only {sorted(there)}", name)
    data, fds, _ = answer
    return Stream(data, fds, kind, wire.get_endpoint_name(name, kind))
