"""Refused requests of `msgq serve`: token, host name and origin, for the page, its events and the websocket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import aiohttp
import pytest

from msgq.cli.common.web.access_control import is_loopback_address
from tests.command import run, start
from tests.serve.foxglove_client import SUBPROTOCOL, Server, connect

TOKEN = "0123456789abcdef"
PATHS = ("", "events", "websocket")


async def fetch_status(server: Server, path: str, headers: dict[str, str], query: str = "") -> int:
    """Return the HTTP status of a request; 101 for an opened websocket."""
    base = f"http://127.0.0.1:{server.port}/"
    async with aiohttp.ClientSession(headers=headers) as session:
        if path == "websocket":
            try:
                async with session.ws_connect(f"{base}{query}", protocols=[SUBPROTOCOL]):
                    return 101
            except aiohttp.WSServerHandshakeError as refusal:
                return refusal.status
        async with session.get(f"{base}{path}{query}") as response:
            return response.status


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("serve") / "token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


def test_token_is_required_for_page_events_and_websocket(prefix: str, protected: str) -> None:
    cases = [
        ({}, "", False),
        ({}, "?token=", False),
        ({}, "?token=0123456789abcdeg", False),
        ({}, "?token=0123456789abcdef0", False),
        ({}, "?token=%C3%A4", False),
        ({}, "?token=%ED%A0%80", False),
        ({"Authorization": "Bearer \udcff"}, "", False),
        ({"Authorization": TOKEN}, "", False),
        ({"Authorization": f"Basic {TOKEN}"}, f"?token={TOKEN}x", False),
        ({}, f"?token={TOKEN}", True),
        ({"Authorization": f"Bearer {TOKEN}"}, "", True),
    ]

    async def check(server: Server) -> None:
        for path in PATHS:
            for headers, query, is_accepted in cases:
                accepted = 101 if path == "websocket" else 200
                status = await fetch_status(server, path, headers, query)
                assert status == (accepted if is_accepted else 401), (path, headers, query)

    with Server(start("serve", "--port", "0", "--json", "--token-file", protected)) as server:
        assert server.token == TOKEN
        asyncio.run(check(server))


def test_foreign_host_and_origin_are_refused(prefix: str) -> None:
    cases = [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:{port}"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://other.example"}, 200),
        ({"Host": "proxy.example"}, 200),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Host": "localhost:{port}", "Origin": "http://localhost:{port}"}, 200),
        ({"Origin": "file://"}, 200),
    ]

    async def check(server: Server) -> None:
        for path in PATHS:
            for headers, expected in cases:
                sent = {name: value.format(port=server.port) for name, value in headers.items()}
                wanted = 101 if path == "websocket" and expected == 200 else expected
                assert await fetch_status(server, path, sent) == wanted, (path, headers)

    words = [
        "serve",
        "--port",
        "0",
        "--json",
        "--allow-host",
        "Proxy.example",
        "--allow-origin",
        "https://other.example",
    ]
    with Server(start(*words)) as server:
        asyncio.run(check(server))


def test_other_address_than_loopback_generates_token(prefix: str) -> None:
    async def check(server: Server) -> None:
        assert await fetch_status(server, "", {}) == 401
        async with connect(server) as client:
            assert client.server_info["name"] == "msgq"

    with Server(start("serve", "--port", "0", "--json", "--address", "0.0.0.0")) as server:
        assert server.token is not None
        assert len(server.token) == 32
        assert server.websocket == f"ws://{socket.gethostname()}:{server.port}/?token={server.token}"
        asyncio.run(check(server))


def test_loopback_addresses_are_recognized() -> None:
    assert all(map(is_loopback_address, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback_address, ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "")))


@pytest.mark.parametrize("text", ["", "short", "0123456789 abcdef", "0123456789abcdeä"])
def test_weak_token_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    assert "does not contain a token" in run("serve", "--token-file", path, code=2).stderr
