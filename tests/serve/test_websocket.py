"""The websocket of `msgq serve`: channels, messages, slow clients, and the end of endpoints."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import pytest

import msgq
from tests.serve.foxglove_client import FoxgloveClient, Server, connect


def run_client(server: Server, use: Callable[[FoxgloveClient], Awaitable[None]]) -> None:
    """Connect a client, and use it."""

    async def use_client() -> None:
        async with connect(server) as client:
            await use(client)

    asyncio.run(use_client())


def publish(endpoint: str, schema: msgq.Schema | None, tracked: bool = False) -> msgq.PubSocket:
    """Return a publisher of a topic with a schema."""
    pub = msgq.PubSocket()
    pub.connect(msgq.context, endpoint, schema=schema, tracked=tracked)
    return pub


def test_client_receives_exact_payloads_and_publish_times_of_tracked_topic(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json")
    with publish("pose", schema, tracked=True) as pub, msgq.sub_sock("pose") as sub, Server() as server:

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("pose", subscription=7)
            await client.take_after(lambda: pub.send(b"{}"))
            sent = [b'{"x": %d}' % number for number in range(20)]
            pub.send_many(sent)
            expected: list[tuple[int, int, bytes]] = []
            while len(expected) < len(sent):
                message = sub.receive_tracked(non_blocking=True)
                assert message is not None
                if message.data != b"{}":
                    expected.append((7, message.publish_time, message.data))
            received = await client.take()
            while received[-1].payload != sent[-1]:
                received += await client.take()
            assert [message for message in received if message.payload != b"{}"] == expected

        run_client(server, use)


def test_removed_endpoint_is_unadvertised_and_new_endpoint_is_advertised(prefix: str) -> None:
    with Server() as server:

        async def use(client: FoxgloveClient) -> None:
            assert client.server_info["capabilities"] == []
            quotes = msgq.SeqlockVector("quotes", "f8", 10)
            await client.wait_for(lambda: "records/quotes" in client.channels)
            quotes.unlink()
            await client.wait_for(lambda: "records/quotes" not in client.channels)

        run_client(server, use)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_server_with_connected_client(prefix: str, number: signal.Signals) -> None:
    with msgq.pub_sock("pose"), Server() as server:

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("pose")
            server.process.send_signal(number)
            message = await client.socket.receive()
            while message.type is not message.type.CLOSED and message.type is not message.type.CLOSE:
                message = await client.socket.receive()

        run_client(server, use)
        assert server.process.end() == ([], "")
