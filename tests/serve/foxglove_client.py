"""A client of the Foxglove websocket protocol, and a running `msgq serve`."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from tests.command import Process, start
from tests.support import DEADLINE

SUBPROTOCOL = "foxglove.websocket.v1"


class Server:
    """A running `msgq serve --json`, as a context manager. By default on a free port, for all endpoints."""

    def __init__(self, process: Process | None = None) -> None:
        self.process = process or start("serve", "--port", "0", "--interval", "0.05", "--json")

    def __enter__(self) -> Server:
        self.process.__enter__()
        addresses = self.process.line()
        self.page, self.websocket = addresses["page"], addresses["websocket"]
        self.port, self.token = addresses["port"], addresses["token"]
        query = f"?token={self.token}" if self.token else ""
        self.local_page, self.local_websocket = (f"{name}://127.0.0.1:{self.port}/{query}" for name in ("http", "ws"))
        return self

    def __exit__(self, *details: Any) -> None:
        self.process.__exit__(*details)


class Message(NamedTuple):
    """A message of a subscription."""

    subscription: int
    time_ns: int
    payload: bytes


class FoxgloveClient:
    """A connected client. `channels` has the advertised channels by topic, and `statuses` the status messages.

    `publishers` and `subscribers` have the names of the participants by topic, after a request of the graph.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.channels: dict[str, dict[str, Any]] = {}
        self.statuses: list[str] = []
        self.publishers: dict[str, list[str]] = {}
        self.subscribers: dict[str, list[str]] = {}
        self.server_info: dict[str, Any] = {}
        self._messages: list[Message] = []

    async def read(self) -> None:
        """Read one websocket message."""
        message = await self.socket.receive(DEADLINE)
        if message.type is aiohttp.WSMsgType.BINARY:
            opcode, subscription, time_ns = struct.unpack_from("<BIQ", message.data)
            assert opcode == 1
            self._messages.append(Message(subscription, time_ns, message.data[13:]))
            return
        assert message.type is aiohttp.WSMsgType.TEXT, message
        fields = json.loads(message.data)
        if fields["op"] == "serverInfo":
            self.server_info = fields
        elif fields["op"] == "advertise":
            for channel in fields["channels"]:
                assert channel["id"] not in [known["id"] for known in self.channels.values()]
                self.channels[channel["topic"]] = channel
        elif fields["op"] == "unadvertise":
            removed = set(fields["channelIds"])
            self.channels = {name: channel for name, channel in self.channels.items() if channel["id"] not in removed}
        elif fields["op"] == "connectionGraphUpdate":
            self._update_graph(fields)
        else:
            assert fields["op"] == "status"
            self.statuses.append(fields["message"])

    def _update_graph(self, fields: dict[str, Any]) -> None:
        self.publishers |= {topic["name"]: topic["publisherIds"] for topic in fields["publishedTopics"]}
        self.subscribers |= {topic["name"]: topic["subscriberIds"] for topic in fields["subscribedTopics"]}
        for topic in fields["removedTopics"]:
            del self.publishers[topic], self.subscribers[topic]

    async def wait_for(self, condition: Callable[[], object]) -> None:
        """Read messages until a condition holds."""
        while not condition():
            await self.read()

    async def subscribe(self, topic: str, subscription: int = 1) -> None:
        """Subscribe to a topic when it is advertised."""
        await self.wait_for(lambda: topic in self.channels)
        entry = {"id": subscription, "channelId": self.channels[topic]["id"]}
        await self.socket.send_json({"op": "subscribe", "subscriptions": [entry]})

    async def unsubscribe(self, subscription: int) -> None:
        """End a subscription."""
        await self.socket.send_json({"op": "unsubscribe", "subscriptionIds": [subscription]})

    async def take(self, count: int = 1) -> list[Message]:
        """Return the next messages of all subscriptions."""
        await self.wait_for(lambda: len(self._messages) >= count)
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken

    async def take_after(self, send: Callable[[], object]) -> Message:
        """Call `send` again and again until a message arrives, because nothing shows when a subscription begins."""
        while not self._messages:
            send()
            try:
                async with asyncio.timeout(0.02):
                    await self.read()
            except TimeoutError:
                continue
        return self._messages.pop(0)


@asynccontextmanager
async def connect(server: Server, **options: Any) -> AsyncIterator[FoxgloveClient]:
    """Connect a client. The options are those of aiohttp's `ws_connect`."""
    options = {"protocols": [SUBPROTOCOL], **options}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(server.local_websocket, max_msg_size=0, **options) as socket,
    ):
        client = FoxgloveClient(socket)
        await client.read()
        yield client


@asynccontextmanager
async def watch_states(server: Server) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Open the events of the page. The value yields the state of each event."""
    address = server.local_page.replace(f":{server.port}/", f":{server.port}/events")
    async with aiohttp.ClientSession() as session, session.get(address) as response:
        assert response.status == 200

        async def iterate() -> AsyncIterator[dict[str, Any]]:
            while line := await response.content.readuntil(b"\n\n"):
                yield json.loads(line.removeprefix(b"data: "))

        yield iterate()
