"""Delivery of the bus's messages to the clients of the websocket."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from aiohttp import WSMsgType, web

from msgq.cli.serve import foxglove_protocol as protocol
from msgq.cli.serve.channel_catalog import CatalogChanges, ChannelCatalog
from msgq.cli.serve.connection_graph import ConnectionGraph, GraphReader
from msgq.cli.serve.message_reader import MessageReader, ReadMessage
from msgq.cli.serve.picture_reader import PictureReader
from msgq.cli.serve.websocket_client import WebsocketClient
from msgq.common.formatting import format_count
from msgq.errors import InvalidValueError
from msgq.monitor.endpoint_selection import EndpointSelection

_REFRESH_PERIOD_S = 0.5  # maximum delay until a new endpoint is found
_READ_PERIOD_S = 0.02

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class ClientMessage(NamedTuple):
    """A message of a channel, in the format for clients."""

    channel: int
    time_ns: int
    payload: bytes


class MessageForwarder:
    """Reads the endpoints that clients subscribe to, and delivers each message to its subscribers.

    Without clients, the forwarder does nothing. Without subscriptions, the forwarder reads no messages.

    Attributes:
        clients: connected clients.
        lost_by_endpoint: number of messages that the server was too slow to read, by subscribed endpoint; None:
            unknown.
    """

    def __init__(self, selection: EndpointSelection) -> None:
        """Start without clients. `selection`: endpoints to offer."""
        self.clients: list[WebsocketClient] = []
        self.lost_by_endpoint: dict[str, int | None] = {}
        self._catalog = ChannelCatalog(selection)
        self._reader, self._picture_reader = MessageReader(selection.prefix), PictureReader(selection.prefix)
        self._selection = selection
        self._graph_reader: GraphReader | None = None  # exists while a client wants the connection graph
        self._session_id = secrets.token_hex(8)
        self._bus_thread = ThreadPoolExecutor(1, "msgq serve")
        self._clients_changed = asyncio.Event()
        self._channels: dict[int, protocol.FoxgloveChannel] = {}  # known to the clients, by number
        self._delivery: asyncio.Task[None] | None = None

    async def serve_client(self, socket: web.WebSocketResponse, address: str) -> None:
        """Serve a client until its connection ends."""
        client = WebsocketClient(address)
        client.queue_text(protocol.build_server_info("msgq", self._session_id))
        client.queue_text(protocol.build_advertise(self._channels))
        self.clients.append(client)
        if self._delivery is None or self._delivery.done():
            self._delivery = asyncio.create_task(self._deliver_until_unused())
            self._delivery.add_done_callback(self._handle_delivery_end)
        tasks = [
            asyncio.create_task(part) for part in (self._receive_requests(client, socket), client.send_waiting(socket))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.clients.remove(client)
            self._clients_changed.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _handle_delivery_end(self, delivery: asyncio.Task[None]) -> None:
        if not delivery.cancelled() and delivery.exception() is not None:
            _logger.error("delivery of messages failed", exc_info=delivery.exception())
            for client in self.clients:
                client.end_connection()

    async def close(self) -> None:
        """Stop reading. No client may be connected."""
        if self._delivery is not None:
            await asyncio.wait([self._delivery])
        await self._run_in_bus_thread(self._picture_reader.close)
        self._bus_thread.shutdown()

    async def _receive_requests(self, client: WebsocketClient, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            self._handle_request(client, message.data if message.type is WSMsgType.TEXT else "")

    def _handle_request(self, client: WebsocketClient, text: str) -> None:
        try:
            request = protocol.parse_request(text)
            if isinstance(request, protocol.SubscribeRequest):
                self._subscribe(client, request)
            elif isinstance(request, protocol.GraphRequest):
                client.known_graph = ConnectionGraph({}, {}) if request.is_wanted else None
            else:
                for number in request.subscription_ids:
                    client.subscriptions.pop(number, None)
        except InvalidValueError as error:
            client.queue_text(protocol.build_status(protocol.STATUS_ERROR, str(error)))

    def _subscribe(self, client: WebsocketClient, request: protocol.SubscribeRequest) -> None:
        for number, channel in request.subscriptions:
            if channel not in self._channels:  # removed just now
                continue
            if number in client.subscriptions or channel in client.subscriptions.values():
                raise InvalidValueError(f"subscription {number} to channel {channel} exists already; unsubscribe first")
            client.subscriptions[number] = channel
        self._clients_changed.set()

    async def _deliver_until_unused(self) -> None:
        """Follow endpoints, and deliver messages, while clients are connected."""
        refresh_time_s = 0.0
        while self.clients:
            subscribed = {channel for client in self.clients for channel in client.subscriptions.values()}
            is_due = time.monotonic() - refresh_time_s >= _REFRESH_PERIOD_S
            changes, messages = await self._run_in_bus_thread(partial(self._read_batch, subscribed, is_due))
            self._deliver_messages(messages)  # first: a changed schema removes the channel of these messages
            self._announce_changes(changes)
            if is_due:
                refresh_time_s = time.monotonic()
                self._report_losses()
                await self._update_graphs()
            if not subscribed:
                await self._wait_for_change()
            if not self.clients:
                refresh_time_s, self._channels, self._graph_reader = 0.0, {}, None
                await self._run_in_bus_thread(self._close_endpoints)

    async def _update_graphs(self) -> None:
        """Send changes of the connection graph to the clients that want the graph."""
        if all(client.known_graph is None for client in self.clients):
            self._graph_reader = None
            return
        reader = self._graph_reader = self._graph_reader or GraphReader(self._selection)
        graph = await self._run_in_bus_thread(reader.read_graph)
        for client in self.clients:
            client.update_graph(graph)

    def _close_endpoints(self) -> None:
        self._reader.select_endpoints({})
        self._picture_reader.select_streams({})
        self._catalog.clear()

    async def _wait_for_change(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_PERIOD_S):
                await self._clients_changed.wait()
        self._clients_changed.clear()

    async def _run_in_bus_thread(self, function: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._bus_thread, function)

    def _read_batch(self, subscribed: set[int], is_due: bool) -> tuple[CatalogChanges, list[ClientMessage]]:
        """Read new messages in the thread of the bus."""
        catalog, reader = self._catalog, self._reader
        endpoints = [catalog.endpoints[number] for number in subscribed if number in catalog.endpoints]
        entries = {endpoint: catalog.entries[endpoint] for endpoint in endpoints}
        streams = {name: entry.picture_stream for name, entry in entries.items() if entry.picture_stream is not None}
        self._picture_reader.select_streams(streams)
        reader.select_endpoints({name: entry.inode for name, entry in entries.items() if name not in streams})
        read = reader.take_messages(_READ_PERIOD_S if subscribed else 0) + self._picture_reader.take_pictures()
        messages = list(self._convert_messages(read))
        changed = reader.list_endpoints_with_new_schema()
        for endpoint in changed:
            reader.accept_schema(endpoint)
        changes = catalog.refresh(reader.list_schemas()) if changed or is_due else CatalogChanges({}, [])
        return changes, messages

    def _convert_messages(self, messages: Iterable[ReadMessage]) -> Iterator[ClientMessage]:
        """Convert messages for their channels. Messages without a channel have no subscriber."""
        for message in messages:
            entry = self._catalog.find_entry(message)
            if entry is not None:
                payload = self._catalog.formats[entry.number].convert_payload(message.payload)
                yield ClientMessage(entry.number, message.time_ns, payload)

    def _announce_changes(self, changes: CatalogChanges) -> None:
        for number in changes.removed:
            del self._channels[number]
        self._channels |= changes.added
        for client in self.clients:
            client.drop_subscriptions(changes.removed)
            if changes.removed:
                client.queue_text(protocol.build_unadvertise(changes.removed))
            if changes.added:
                client.queue_text(protocol.build_advertise(changes.added))

    def _report_losses(self) -> None:
        """Notify clients of messages that the server or the client was too slow for, since the last call."""
        before, self.lost_by_endpoint = self.lost_by_endpoint, dict(self._reader.lost_by_endpoint)
        for client in self.clients:
            client.report_drops()
            topics = {self._channels[channel].topic for channel in client.subscriptions.values()}
            for endpoint in topics & self.lost_by_endpoint.keys():
                if self.lost_by_endpoint[endpoint] != before.get(endpoint, 0):
                    lost = self.lost_by_endpoint[endpoint]
                    count = "an unknown number of" if lost is None else format_count(lost)
                    text = f"{count} messages of {endpoint} lost in total, because the server is too slow"
                    client.queue_text(protocol.build_status(protocol.STATUS_WARNING, text))

    def _deliver_messages(self, messages: list[ClientMessage]) -> None:
        subscribers: dict[int, list[tuple[WebsocketClient, int]]] = {}
        for client in self.clients:
            for number, channel in client.subscriptions.items():
                subscribers.setdefault(channel, []).append((client, number))
        for message in messages:
            for client, number in subscribers.get(message.channel, ()):
                client.queue_message(number, message.time_ns, message.payload)
