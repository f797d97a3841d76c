"""A client of the websocket: its subscriptions, and the messages that wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container

from aiohttp import web

from msgq.cli.serve.connection_graph import ConnectionGraph, build_graph_difference
from msgq.cli.serve.foxglove_protocol import STATUS_WARNING, build_status, encode_message_data
from msgq.common.texts import format_count_noun

_WAITING_BYTES_MAX = 8 << 20  # limit of a client; above it, the oldest messages are dropped
_WAITING_TEXTS_MAX = 10000


class WebsocketClient:
    """A connected client. If the client is too slow, the oldest waiting messages are dropped and counted.

    Attributes:
        address: address of the client.
        subscriptions: channel number of each subscription, by the number that the client chose.
        known_graph: connection graph that the client knows; None: the client does not want the graph.
        sent_messages: number of messages that were sent.
        dropped_messages: number of messages that were dropped, because the client was too slow.
    """

    def __init__(self, address: str) -> None:
        """Start without subscriptions."""
        self.address = address
        self.subscriptions: dict[int, int] = {}
        self.known_graph: ConnectionGraph | None = None
        self.sent_messages = self.dropped_messages = 0
        self._reported_drops = 0
        self._texts: deque[str] = deque()
        self._messages: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._has_waiting = asyncio.Event()
        self._is_ending = False

    def drop_subscriptions(self, channels: Container[int]) -> None:
        """Forget the subscriptions to channels that no longer exist."""
        self.subscriptions = {
            number: channel for number, channel in self.subscriptions.items() if channel not in channels
        }

    def update_graph(self, graph: ConnectionGraph) -> None:
        """Send the difference to the graph that the client knows, if the client wants the graph."""
        if self.known_graph is not None:
            update = build_graph_difference(self.known_graph, graph)
            self.known_graph = graph
            if update is not None:
                self.queue_text(update)

    def queue_text(self, text: str) -> None:
        """Send a text message before the waiting messages.

        Texts are never dropped. A client with too many waiting texts is disconnected.
        """
        self._texts.append(text)
        self._has_waiting.set()
        if len(self._texts) > _WAITING_TEXTS_MAX:
            self.end_connection()

    def queue_message(self, subscription_id: int, time_ns: int, payload: bytes) -> None:
        """Send a message of a subscribed channel."""
        while self._messages and self._waiting_bytes + len(payload) > _WAITING_BYTES_MAX:
            self._waiting_bytes -= len(self._messages.popleft())
            self.dropped_messages += 1
        message = encode_message_data(subscription_id, time_ns, payload)
        self._messages.append(message)
        self._waiting_bytes += len(message)
        self._has_waiting.set()

    def report_drops(self) -> None:
        """If messages were dropped since the last call, notify the client."""
        dropped = self.dropped_messages - self._reported_drops
        if dropped:
            self._reported_drops = self.dropped_messages
            text = f"{format_count_noun(dropped, 'message')} lost, because this client is too slow"
            self.queue_text(build_status(STATUS_WARNING, text))

    def end_connection(self) -> None:
        """End `send_waiting`."""
        self._is_ending = True
        self._has_waiting.set()

    async def send_waiting(self, socket: web.WebSocketResponse) -> None:
        """Send all until the connection ends, `end_connection` is called, or the client reads no texts."""
        while not self._is_ending:
            await self._has_waiting.wait()
            if self._texts:
                await socket.send_str(self._texts.popleft())
            elif self._messages:
                message = self._messages.popleft()
                self._waiting_bytes -= len(message)
                await socket.send_bytes(message)
                self.sent_messages += 1
            else:
                self._has_waiting.clear()
