"""State of the bus for the page: one sampling loop for all viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgq.cli.serve.websocket_client import WebsocketClient
from msgq.impl.base import clock
from msgq.kinds.stats import AnyEndpointRow
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints


class BusMonitor:
    """Samples the bus while at least one viewer watches. All methods run in one event loop.

    Parameters
    ----------
    selection : endpoints to show.
    interval_s : seconds between two samples.
    list_clients : returns the clients of the websocket.
    """

    def __init__(
        self, selection: EndpointSelection, interval_s: float, list_clients: Callable[[], list[WebsocketClient]]
    ) -> None:
        """Start without viewers."""
        self._selection, self._interval_s, self._list_clients = selection, interval_s, list_clients
        self._sampling_thread = ThreadPoolExecutor(1, "msgq serve monitor")
        self._viewer_count = 0
        self._state = b""
        self._has_new_state = asyncio.Condition()
        self._sampling: asyncio.Task[None] | None = None

    async def watch_states(self) -> AsyncIterator[bytes]:
        """Yield the state as JSON after each sample. A slow viewer skips samples."""
        self._viewer_count += 1
        try:
            if self._sampling is None:
                self._sampling = asyncio.create_task(self._sample_until_unused())
            while not self._sampling.done():
                async with self._has_new_state:
                    await self._has_new_state.wait()
                    state = self._state
                yield state
        finally:
            self._viewer_count -= 1

    async def close(self) -> None:
        """Stop sampling. No viewer may be left."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        self._sampling_thread.shutdown()

    async def _sample_until_unused(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            sampler = await loop.run_in_executor(self._sampling_thread, BusSampler, self._selection)
            while self._viewer_count:
                sample = await loop.run_in_executor(self._sampling_thread, sampler.take_sample)
                clients = [_describe_client(client) for client in self._list_clients()]
                self._state = json.dumps({**sample, "clients": clients}).encode()
                async with self._has_new_state:
                    self._has_new_state.notify_all()
                await asyncio.sleep(self._interval_s)
        finally:
            self._sampling = None


class BusSampler:
    """Measurements of all endpoints. One thread at a time."""

    def __init__(self, selection: EndpointSelection) -> None:
        """Start the measurement of rates."""
        self._endpoints = LiveEndpoints(selection)

    def take_sample(self) -> dict[str, Any]:
        """Return the current state in JSON types. Unknown values are None."""
        rows = self._endpoints.poll()
        return {"time_ns": clock.time_ns(), "endpoints": [_describe_endpoint(row) for row in rows]}


def _describe_endpoint(row: AnyEndpointRow) -> dict[str, Any]:
    names = ("endpoint", "kind", "messages", "rate", "byte_rate", "lost", "lost_rate", "memory")
    return {
        **{name: getattr(row, name) for name in names},
        "note": row.note_text,
        "publishers": row.publishers,
        "subscribers": row.subscribers,
        "live_subscribers": row.live_subscriber_count,
        "schema": None if row.stats.schema is None else row.stats.schema.name,
    }


def _describe_client(client: WebsocketClient) -> dict[str, Any]:
    return {
        "address": client.address,
        "subscriptions": len(client.subscriptions),
        "sent": client.sent_messages,
        "dropped": client.dropped_messages,
    }
