"""Clients that occupy connections of `msgq serve` and `msgq stat --prometheus`, or send what is no request."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from msgq.cli.common.web import http_server, refusal_log
from msgq.cli.common.web.access_control import AccessControl
from msgq.cli.common.web.http_server import HttpServer
from msgq.cli.common.web.refusal_log import RefusalLog
from tests.command import Process, start
from tests.support import DEADLINE

ATTACKERS = 300  # more than the descriptors of the attacked process
PATHS = {"serve": "/", "stat": "/metrics"}
WORDS = {"serve": ("serve", "--port", "0", "--json"), "stat": ("stat", "--prometheus", "0", "--json")}
EXHAUSTED = "new connections wait: Too many open files; raise the limit of open files (ulimit -n)"
UNFINISHED = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "


class Victim:
    """A running web server."""

    def __init__(self, process: Process, path: str) -> None:
        self.process, self.path = process, path
        line = process.line()
        self.port = int((line.get("page") or line["url"]).split(":")[2].partition("/")[0])

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE, source_address=(source, 0))

    def fetch(self, host: str = "localhost") -> bytes:
        with self.connect() as client:
            head = f"GET {self.path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            return self.exchange(client, head.encode())

    def exchange(self, client: socket.socket, request: bytes) -> bytes:
        """Send bytes, and return all that the server answers."""
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))

    def read_lines(self) -> list[str]:
        """End the server, and return what it printed on standard error."""
        self.process.send_signal(signal.SIGTERM)
        lines = self.process.communicate(timeout=DEADLINE)[1].splitlines()
        assert self.process.returncode == 0, lines
        return [line for line in lines if not line.startswith("msgq: ")]


@pytest.fixture(params=WORDS)
def verb(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def victim(verb: str, prefix: str) -> Iterator[Victim]:
    with start(*WORDS[verb]) as process:
        yield Victim(process, PATHS[verb])


@contextmanager
def hold_unfinished_requests(victim: Victim, source: str = "127.0.0.1") -> Iterator[None]:
    """Within the block, attackers have connected, and have sent a part of a request."""
    with ExitStack() as stack:
        for _ in range(ATTACKERS):
            attacker = stack.enter_context(victim.connect(source))
            with suppress(OSError):  # the server may have ended this connection already
                attacker.sendall(UNFINISHED)
        yield


def limit_descriptors(victim: Victim, descriptors: int) -> None:
    most = resource.prlimit(victim.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(victim.process.pid, resource.RLIMIT_NOFILE, (descriptors, most))


def test_unfinished_requests_shut_out_no_client(victim: Victim) -> None:
    limit_descriptors(victim, 200)
    with hold_unfinished_requests(victim):
        assert [victim.fetch()[:12] for _ in range(3)] == [b"HTTP/1.1 200"] * 3
    assert victim.read_lines() == ["127.0.0.1 disconnected: too many connections without a request"]


def test_unfinished_bodies_occupy_no_connection(victim: Victim) -> None:
    head = f"GET {victim.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    limit_descriptors(victim, 100)
    with ExitStack() as stack:
        for _ in range(150):  # the server ends each connection, although the client does not send the body
            client = stack.enter_context(victim.connect())
            assert victim.exchange(client, head.encode()).startswith(b"HTTP/1.1 200")
        assert victim.fetch().startswith(b"HTTP/1.1 200")
    assert victim.read_lines() == []


def test_exhausted_descriptors_shut_out_no_client(prefix: str) -> None:
    with start(*WORDS["serve"]) as process:
        victim = Victim(process, "/")
        limit_descriptors(victim, 40)
        with hold_unfinished_requests(victim):
            assert [victim.fetch()[:12] for _ in range(3)] == [b"HTTP/1.1 200"] * 3
        assert victim.read_lines() == [EXHAUSTED]


def test_server_without_descriptors_accepts_clients_later(prefix: str) -> None:
    with start(*WORDS["serve"]) as process:
        victim = Victim(process, "/")
        limit_descriptors(victim, 3)  # those of the standard streams
        with victim.connect() as client:
            assert process.stderr is not None
            while (line := process.stderr.readline()).startswith("msgq: "):
                pass
            assert line == f"{EXHAUSTED}\n"
            limit_descriptors(victim, 200)
            request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
            assert victim.exchange(client, request).startswith(b"HTTP/1.1 200")
        assert victim.read_lines() == []


def test_unfinished_requests_do_not_replace_those_of_other_addresses(victim: Victim) -> None:
    with victim.connect() as patient:
        patient.sendall(f"GET {victim.path} HTTP/1.1\r\n".encode())
        with hold_unfinished_requests(victim, "127.0.0.2"):
            assert victim.exchange(patient, b"Host: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert [line.partition(":")[0] for line in victim.read_lines()] == ["127.0.0.2 disconnected"]


def test_malformed_requests_print_one_line(victim: Victim) -> None:
    for number in range(20):
        with victim.connect() as client:
            request = [b"\x16\x03\x01\x00\xa5", b"GET /\x00 HTTP/1.1\r\n", b"hello\r\n", b"GET / HTTP/1.1\r\nX\r\n"][
                number % 4
            ]
            answer = victim.exchange(client, request + b"\r\n\r\n")
            assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400")), request
    assert victim.fetch().startswith(b"HTTP/1.1 200")
    (line,) = victim.read_lines()
    assert line.startswith("127.0.0.1 refused: malformed HTTP request: ")


def test_malformed_bodies_print_nothing(victim: Victim) -> None:
    """No path reads a body, so its content does not matter."""
    head = f"GET {victim.path} HTTP/1.1\r\nHost: localhost\r\n"
    for body in ("Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n"):
        with victim.connect() as client:
            client.sendall((head + body).encode())
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
            with suppress(OSError):  # the server may have ended the connection
                client.sendall(b"no size of a chunk\r\n" * 2)
    assert victim.fetch().startswith(b"HTTP/1.1 200")
    assert victim.read_lines() == []


def test_foreign_hosts_are_refused_in_one_line(victim: Victim) -> None:
    for number in range(5):
        assert victim.fetch(f"evil{number}.example").startswith(b"HTTP/1.1 403")
    assert victim.fetch("127.0.0.1:80").startswith(b"HTTP/1.1 200")
    (line,) = victim.read_lines()
    assert line == "127.0.0.1 refused: host name 'evil0.example' is not accepted; start the server with --allow-host"


def test_allowed_host_is_accepted(verb: str, prefix: str) -> None:
    with start(*WORDS[verb], "--allow-host", "Robot.example") as process:
        victim = Victim(process, PATHS[verb])
        assert victim.fetch("robot.example:9464").startswith(b"HTTP/1.1 200")
        assert victim.read_lines() == []


def test_client_above_limit_is_printed(prefix: str) -> None:
    with start(*WORDS["serve"]) as process, ExitStack() as stack:
        victim = Victim(process, "/events")
        for _ in range(64):
            client = stack.enter_context(victim.connect())
            client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        for _ in range(2):
            assert victim.fetch().startswith(b"HTTP/1.1 503")
        assert victim.read_lines() == ["127.0.0.1 refused: 64 clients are connected already"]


# In this process


async def answer_with_one_byte(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=b"x")


async def answer_with_more_than_fits(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=bytes(64 << 20))


def run_with_server(handler: http_server.Handler, use: Callable[[int], Awaitable[None]]) -> None:
    """Run a coroutine that gets the port of a server with one path."""

    async def run() -> None:
        server = HttpServer(AccessControl(), {"/": handler})
        port = await server.start("127.0.0.1", 0)
        try:
            await use(port)
        finally:
            await server.close()

    asyncio.run(run())


async def read_until_end(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes before the end of a connection, also if it was reset."""
    found = bytearray()
    with suppress(ConnectionResetError):
        while part := await reader.read(1 << 16):
            found += part
    return bytes(found)


def test_connection_without_request_ends_at_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "_REQUEST_S", 0.01)

    async def use(port: int) -> None:
        for part in (b"", UNFINISHED):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(part)
            assert await read_until_end(reader) == b""
            writer.close()

    run_with_server(answer_with_one_byte, use)
    assert [record.getMessage() for record in caplog.records] == [
        "127.0.0.1 disconnected: no complete request within 0.01 s"
    ]


def test_client_that_does_not_read_its_answer_ends_at_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "_ANSWER_S", 0.01)

    async def use(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not caplog.records:
            await asyncio.sleep(0)
        assert len(await read_until_end(reader)) < 64 << 20
        writer.close()

    run_with_server(answer_with_more_than_fits, use)
    assert [record.getMessage() for record in caplog.records] == [
        "127.0.0.1 disconnected: no complete answer within 0.01 s"
    ]


def test_connection_ends_after_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def use(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        assert (await read_until_end(reader)).count(b"HTTP/1.1 200") == 1
        writer.close()

    run_with_server(answer_with_one_byte, use)
    assert not caplog.records


def test_connections_leave_descriptors_to_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 descriptors, connections without a request occupy a quarter, and those of one address seven."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (40, 40))

    async def use(port: int) -> None:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        ends = [asyncio.create_task(read_until_end(reader)) for reader, _ in streams]
        await asyncio.gather(*ends[:5])
        assert not any(end.done() for end in ends[5:])
        for _, writer in streams:
            writer.close()
        await asyncio.gather(*ends)

    run_with_server(answer_with_one_byte, use)


def test_request_above_limit_of_answers_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "_ANSWERS_MAX", 4)
    held = asyncio.Event()

    async def hold(_request: web.BaseRequest) -> web.StreamResponse:
        await held.wait()
        return web.Response()

    async def use(port: int) -> None:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for _, writer in streams:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first, *_ = await asyncio.wait(
            [asyncio.create_task(read_until_end(reader)) for reader, _ in streams], return_when="FIRST_COMPLETED"
        )
        assert [task.result()[:12] for task in first] == [b"HTTP/1.1 503"]  # an address may have three of four places
        held.set()
        for _, writer in streams:
            writer.close()

    run_with_server(hold, use)
    assert ["refused" in record.getMessage() for record in caplog.records] == [True]


def test_refusals_are_printed_once_a_minute_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    log = RefusalLog(lambda: now_s)
    for now_s in (0.0, 1.0, 59.0, 60.0, 61.0, 200.0):
        log.report("a", f"a at {now_s:g}")
    log.report("b", "b")
    texts: list[Any] = [record.getMessage() for record in caplog.records if record.name == refusal_log.__name__]
    assert texts == [
        "a at 0",
        "a at 60 (2 more since the previous line)",
        "a at 200 (1 more since the previous line)",
        "b",
    ]
