"""Data on the Unix socket and the topic: stock's structures, and additions of this library.

A request is one u32: the type of a stream, or LIST_REQUEST. A stock server closes the connection for longer requests. A
client of this library is recognized by the abstract address of its socket, which begins with `CLIENT_TAG` and which
stock servers ignore. A server of this library then appends a `Grant` to the records, and adds the descriptor of the
lease table. The descriptors of buffers are then read-only. If a client cannot use the answer, for example without free
descriptors, it sends another request with `RETURN_ROW_STRUCT` after the type, and gets no answer.
"""

from __future__ import annotations

import os
import re
import secrets
import struct
from dataclasses import dataclass

from msgq.common import naming, settings
from msgq.errors import CorruptSegmentError, EndpointNameError, InvalidValueError
from visionipc.formats import BUFFER_BYTES_MAX, FrameFormat, Geometry

LIST_REQUEST = 0xFFFFFFFF
STREAMS_MAX = 64
BUFFERS_MAX = 128
CLIENT_TAG = b"mqframe1"
FRAME_ID_BYTES = 8  # bytes of the frame's id behind the picture

REQUEST_STRUCT = struct.Struct("=I")
BUFFER_STRUCT = struct.Struct("=QQ16xi4xQQQQ16xQQIi")  # VisionBuf: 112 bytes
GRANT_STRUCT = struct.Struct("=8sIIIIII32x")
RETURN_ROW_STRUCT = struct.Struct("=QI")  # server_id, row
#: server_id, buffer, frame_id, generation (0 from stock: padding), timestamp_sof, timestamp_eof, valid.
FRAME_PACKET_STRUCT = struct.Struct("=QQIIQQB7x")

SOCKET_DIRECTORY = "/tmp"
SOCKET_PREFIX = "visionipc_"
_ENDPOINT_REGEX = re.compile(r"visionipc_(.+)_(\d{1,10})", re.DOTALL | re.ASCII)
_PATH_BYTES_MAX = 107  # sun_path of unix(7), without the NUL


@dataclass(frozen=True, slots=True)
class Record:
    """One buffer, with the fields of a VisionBuf.

    Attributes:
        geometry: layout of the picture.
        server_id: id of the stream's incarnation, also in each packet.
        index: index of the buffer.
        type: type of the stream.
    """

    geometry: Geometry
    server_id: int
    index: int
    type: int

    def pack(self, fd: int) -> bytes:
        """Return the 112 bytes."""
        g = self.geometry
        layout = (g.width, g.height, g.stride, g.uv_offset)
        return BUFFER_STRUCT.pack(
            g.size, g.size + FRAME_ID_BYTES, fd, *layout, self.server_id, self.index, self.type, 0
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """Additional data from a server of this library to a client of this library.

    Attributes:
        format: pixel format. Stock uses NV12.
        channels: number of channels.
        row: row of the client in the lease table.
        since: generation of the newest frame at that time; 0: no frame.
        buffers: number of buffers that `create_buffers` was asked for, without spare buffers.
    """

    format: FrameFormat
    channels: int
    row: int
    since: int
    buffers: int

    def pack(self, version: int) -> bytes:
        """Return the 64 bytes. `version`: version of the table's layout."""
        return GRANT_STRUCT.pack(CLIENT_TAG, version, self.format, self.channels, self.row, self.since, self.buffers)


def unpack_grant(data: bytes, version: int, endpoint: str) -> Grant:
    """Return the grant from the result of `Grant.pack`.

    Raises:
        CorruptSegmentError: the data is invalid, or has another version.
    """
    magic, spoken, pixels, channels, row, since, buffers = GRANT_STRUCT.unpack(data)
    if magic != CLIENT_TAG or spoken != version or pixels not in list(FrameFormat):
        text = f"server has protocol version ({magic!r}, {spoken}), but this library has ({CLIENT_TAG!r}, {version})"
        raise CorruptSegmentError(text, endpoint)
    return Grant(FrameFormat(pixels), channels, row, since, buffers)


def unpack_records(data: bytes, grant: Grant | None, stream: int, endpoint: str) -> list[Record]:
    """Return the checked records of a server's answer.

    Raises:
        CorruptSegmentError: a record is invalid, or the records contradict each other.
    """
    if not data or len(data) % BUFFER_STRUCT.size or len(data) // BUFFER_STRUCT.size > BUFFERS_MAX:
        raise CorruptSegmentError(f"server sent {len(data)} bytes, which are not a list of buffers", endpoint)
    records = []
    for index, fields in enumerate(BUFFER_STRUCT.iter_unpack(data)):
        size, mapped, _, width, height, stride, uv_offset, server_id, number, kind, _ = fields
        if number != index or kind != stream or mapped != size + FRAME_ID_BYTES or not 0 < size <= BUFFER_BYTES_MAX:
            text = f"server sent invalid buffer {index}: number {number} of stream {kind}, {size} of {mapped} bytes"
            raise CorruptSegmentError(text, endpoint)
        pixels, channels = (grant.format, grant.channels) if grant else (FrameFormat.NV12, 1)
        layout = Geometry(pixels, width, height, stride, uv_offset, size, channels)
        if grant:  # layouts of stock are checked when the picture is used
            _check_received_layout(layout, endpoint)
        records.append(Record(layout, server_id, index, stream))
    if any((record.geometry, record.server_id) != (records[0].geometry, records[0].server_id) for record in records):
        raise CorruptSegmentError("server sent buffers of different layouts", endpoint)
    return records


def _check_received_layout(layout: Geometry, endpoint: str) -> None:
    try:
        layout.check(endpoint)
    except InvalidValueError as error:  # an error for programs that choose a layout
        raise CorruptSegmentError(f"server sent an invalid layout: {layout}", endpoint) from error


def get_endpoint_name(name: str | bytes, stream: int) -> str:
    """Return the topic that announces the frames of a server's stream."""
    return naming.validate_endpoint_name(
        f"visionipc_{naming.validate_endpoint_name(name, 'server name')}_{int(stream)}"
    )


def parse_endpoint_name(endpoint: str) -> tuple[str, int] | None:
    """Return server name and stream type of a topic that announces frames; None: another endpoint."""
    match = _ENDPOINT_REGEX.fullmatch(endpoint)
    return None if match is None else (match[1], int(match[2]))


def make_client_address() -> bytes:
    """Return a unique address for a client's socket, with the tag of clients that support grants."""
    return b"\0" + CLIENT_TAG + secrets.token_hex(8).encode()


def is_lease_client_address(address: object) -> bool:
    """Return True for the socket address of a client that supports grants."""
    return isinstance(address, bytes) and address.startswith(b"\0" + CLIENT_TAG)


def socket_path(name: str | bytes, prefix: str | None = None) -> str:
    """Return the path of a server's socket.

    Args:
        name: name of the server.
        prefix: prefix; "": none; None: from the environment, as in stock.

    Raises:
        EndpointNameError: the name is not valid in a file name, or the path is too long for a socket.
    """
    name = naming.validate_endpoint_name(name, "server name")
    path = f"{SOCKET_DIRECTORY}/{_make_socket_name_start(prefix)}{name}"
    if len(path.encode()) > _PATH_BYTES_MAX:
        raise EndpointNameError(f"socket path {path!r} is longer than {_PATH_BYTES_MAX} bytes; shorten the name")
    return path


def list_server_names() -> list[str]:
    """Return the sorted names of all socket files of servers in the current prefix. Some servers may have ended."""
    start = _make_socket_name_start(None)
    with os.scandir(SOCKET_DIRECTORY) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(start)]
    return sorted(name[len(start) :] for name in names if len(name) > len(start))


def _make_socket_name_start(prefix: str | None) -> str:
    in_prefix = settings.resolve_prefix(prefix)
    return f"{in_prefix}_{SOCKET_PREFIX}" if in_prefix else SOCKET_PREFIX
