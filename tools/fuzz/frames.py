"""One process of fuzzing frames: what a hostile client asks, what a hostile server answers, and its packets.

Started by `parent`. Every call must end with a result or an IpcError, an honest client must be served all the time, and
no descriptor may be lost.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading

import msgq
from tools.fuzz.rounds import run_rounds, watchdog
from visionipc import VisionIpcClient, VisionIpcServer, wire
from visionipc.connection import _parse_stream_answer
from visionipc.formats import FrameFormat, geometry
from visionipc.impl.core import LEASE_TABLE_BYTES, VERSION
from visionipc.memfd import create_memfd

NAME = "frames"
WIDTH, HEIGHT = 64, 32
LAYOUT = geometry(FrameFormat.NV12, WIDTH, HEIGHT)
BUFFER_BYTES = LAYOUT.size + wire.FRAME_ID_BYTES
SERVER_ID = 77
STEPS = 40
WORDS = (0, 1, 2, 7, 127, 128, 255, 256, 2**31 - 1, 2**31, 2**32 - 1)
LONG_WORDS = (*WORDS, LAYOUT.size, BUFFER_BYTES, SERVER_ID, 2**32, 2**62, 2**63, 2**64 - 1)


def mutate_bytes(chance: random.Random, data: bytes) -> bytes:
    """Change a few words or bytes, cut it, or make it longer; as often as not, leave it as it is."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 8))):
        kind = chance.randrange(5)
        if kind == 0:
            changed = changed[: chance.randrange(len(changed) + 1)]
        elif kind == 1:
            changed += chance.randbytes(chance.choice((1, 4, 64, 112)))
        elif kind == 2 and len(changed) >= 8:
            struct.pack_into("<Q", changed, chance.randrange(0, len(changed) - 7), chance.choice(LONG_WORDS))
        elif kind == 3 and len(changed) >= 4:
            struct.pack_into("<I", changed, chance.randrange(0, len(changed) - 3, 4), chance.choice(WORDS))
        elif changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def answer(chance: random.Random, count: int) -> bytes:
    """Return what a server answers that has so many buffers: as ours, or as stock's."""
    data = b"".join(wire.Record(LAYOUT, SERVER_ID, index, 0).pack(-1) for index in range(count))
    if chance.random() < 0.8:
        data += wire.Grant(FrameFormat.NV12, 1, chance.choice((0, 1, 255)), chance.getrandbits(32), count).pack(VERSION)
    return mutate_bytes(chance, data)


def descriptors(chance: random.Random, count: int) -> list[int]:
    """Return what a server sends with it: of buffers and the table, or something else."""
    sizes = [BUFFER_BYTES] * count + [LEASE_TABLE_BYTES]
    if chance.random() < 0.3:
        sizes[chance.randrange(len(sizes))] = chance.choice((0, 1, BUFFER_BYTES - 1, LEASE_TABLE_BYTES - 1, 2**20))
    if chance.random() < 0.1:
        sizes.pop()
    fds = [create_memfd("fuzz", size, NAME) if size > 1 else os.memfd_create("fuzz", os.MFD_CLOEXEC) for size in sizes]
    if chance.random() < 0.1:
        fds.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    return fds


# ---- hostile clients ----


def ask(chance: random.Random) -> socket.socket | None:
    """Ask a server something; the connection, if it is left open."""
    question = wire.REQUEST_STRUCT.pack(chance.choice((0, 0, 1, wire.LIST_REQUEST))) + wire.CLIENT_TAG
    if chance.random() < 0.3:
        question += wire.RETURN_ROW_STRUCT.pack(chance.choice(LONG_WORDS) % 2**64, chance.choice(WORDS))
    fds = descriptors(chance, 1) if chance.random() < 0.1 else []
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(1.0)
    with contextlib.suppress(OSError):  # it sent us away
        connection.connect(wire.socket_path(NAME))
        socket.send_fds(connection, [mutate_bytes(chance, question)], fds)
    for fd in fds:
        os.close(fd)
    if chance.random() < 0.3:
        return connection
    if chance.random() < 0.5:
        with contextlib.suppress(OSError):
            for fd in socket.recv_fds(connection, 1 << 16, 253)[1]:
                os.close(fd)
    connection.close()
    return None


def check_served(server: VisionIpcServer, chance: random.Random) -> None:
    """An honest client gets a frame."""
    with VisionIpcClient(NAME, 0, False) as client:
        if not client.connect(False):
            raise AssertionError("an honest client finds no server")
        frame_id = chance.getrandbits(32)
        server.send(0, bytes(LAYOUT.size), frame_id)
        if (frame := client.recv(5000)) is None or client.frame_id != frame_id:
            raise AssertionError(f"an honest client gets {frame}")


def fuzz_server(chance: random.Random) -> None:
    """Ask a real server."""
    with VisionIpcServer(NAME) as server:
        server.create_buffers(0, 4, WIDTH, HEIGHT)
        server.start_listener()
        with contextlib.ExitStack() as stack:
            for _ in range(STEPS):
                if (connection := ask(chance)) is not None:
                    stack.enter_context(connection)
            check_served(server, chance)


# ---- hostile servers ----


class Impostor:
    """Listens where a server would, and answers nonsense."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = random.Random(chance.random())  # random numbers of its thread
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(wire.socket_path(NAME))
        self._socket.listen(8)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                self._answer(client, client.recv(256))

    def _answer(self, client: socket.socket, request: bytes) -> None:
        if request[:4] == wire.REQUEST_STRUCT.pack(wire.LIST_REQUEST):
            client.send(mutate_bytes(self._chance, wire.REQUEST_STRUCT.pack(0)))
            return
        count = self._chance.choice((1, 2, 3, 20))
        fds = descriptors(self._chance, count)
        try:
            if self._chance.random() < 0.98:
                socket.send_fds(client, [answer(self._chance, count)], fds)
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Stop listening."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        os.unlink(wire.socket_path(NAME))


def packet(chance: random.Random) -> bytes:
    """Return a packet about a frame that may be none."""
    index, generation = chance.choice((0, 0, 1, *WORDS)), chance.choice((0, 1, 2, 2**32 - 1))
    return mutate_bytes(
        chance, wire.FRAME_PACKET_STRUCT.pack(SERVER_ID, index, chance.choice(WORDS), generation, 1, 2, 1)
    )


def fuzz_client(chance: random.Random) -> None:
    """Have a real client talk to a server that lies, and receive its packets."""
    impostor = Impostor(chance)
    try:
        with VisionIpcClient(NAME, 0, chance.random() < 0.2) as client, contextlib.ExitStack() as stack:
            publisher = stack.enter_context(msgq.pub_sock(wire.get_endpoint_name(NAME, 0)))
            held: list[object] = []
            for _ in range(STEPS):
                with watchdog():
                    if not client.is_connected() or chance.random() < 0.1:
                        client.connect(False)
                with watchdog():
                    publisher.send(packet(chance) or b"\0")
                with watchdog():
                    held.append(client.recv(1))
                del held[: chance.randrange(len(held) + 1)]
            with watchdog():
                VisionIpcClient.available_streams(NAME, False)
    finally:
        impostor.close()


def fuzz_parsing(chance: random.Random) -> None:
    """Only take answers apart, which is done a hundred times as often a second."""
    for _ in range(STEPS * 10):
        count = chance.choice((1, 2, 128, 129))
        data = answer(chance, count)
        with watchdog():
            wire.unpack_records(data, None, 0, NAME)
        with watchdog():
            _parse_stream_answer(data, [], 0, NAME)  # with no descriptor for anything


def run_round(chance: random.Random) -> None:
    """Run one round, and see that no descriptor is lost."""
    before = len(os.listdir("/proc/self/fd"))
    chance.choice((fuzz_parsing, fuzz_server, fuzz_client, fuzz_client))(chance)
    after = len(os.listdir("/proc/self/fd"))
    if after > before:
        raise AssertionError(f"{after - before} descriptors were lost")


if __name__ == "__main__":
    fuzz_client(random.Random(0))  # opens what the process keeps
    run_rounds(run_round)
