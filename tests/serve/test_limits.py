"""Limits of `msgq serve`: waiting messages of a client, and connections."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from msgq.cli.serve.websocket_client import WebsocketClient
from tests.serve.foxglove_client import Server


class RecordingSocket:
    """Keeps what a client sends."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.messages: list[bytes] = []

    async def send_str(self, text: str) -> None:
        self.texts.append(text)

    async def send_bytes(self, message: bytes) -> None:
        self.messages.append(message)


def test_client_keeps_newest_messages_within_limit() -> None:
    async def fill() -> WebsocketClient:
        client = WebsocketClient("address")
        for number in range(20):
            client.queue_message(1, number, bytes([number]) * (1 << 20))
        client.report_drops()
        client.report_drops()
        return client

    async def drain(client: WebsocketClient, socket: Any) -> None:
        sending = asyncio.create_task(client.send_waiting(socket))
        while client.sent_messages + client.dropped_messages < 20:
            await asyncio.sleep(0)
        sending.cancel()

    async def check() -> None:
        client, socket = await fill(), RecordingSocket()
        await drain(client, socket)
        assert [message[13] for message in socket.messages] == list(range(client.dropped_messages, 20))
        assert client.dropped_messages == 13
        assert len(socket.texts) == 1
        assert "13 messages lost" in socket.texts[0]

    asyncio.run(check())


def test_message_above_limit_is_sent_alone() -> None:
    async def check() -> None:
        client, socket = WebsocketClient("address"), RecordingSocket()
        client.queue_message(1, 0, b"small")
        client.queue_message(1, 0, bytes(9 << 20))
        sending = asyncio.create_task(client.send_waiting(socket))  # type: ignore[arg-type]
        while not client.sent_messages:
            await asyncio.sleep(0)
        sending.cancel()
        assert [len(message) for message in socket.messages] == [13 + (9 << 20)]
        assert client.dropped_messages == 1

    asyncio.run(check())


def test_client_that_reads_no_texts_is_ended() -> None:
    async def check() -> None:
        client = WebsocketClient("address")
        for _ in range(10_001):
            client.queue_text("{}")
        await client.send_waiting(RecordingSocket())  # type: ignore[arg-type]

    asyncio.run(check())


def test_connection_above_limit_is_refused(prefix: str) -> None:
    async def use(server: Server) -> None:
        address = f"{server.page}events"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            opened = [await session.get(address) for _ in range(64)]
            assert {response.status for response in opened} == {200}
            async with session.get(address) as refused:
                assert refused.status == 503
                assert "64 clients" in await refused.text()
            async with session.get(server.page) as page:
                assert page.status == 200
            for response in opened:
                response.close()
            status = 503
            while status == 503:
                async with session.get(address) as response:
                    status = response.status
            assert status == 200

    with Server() as server:
        asyncio.run(use(server))
