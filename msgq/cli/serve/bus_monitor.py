"""State of the bus for the page: one sampling loop for all viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from msgq.cli.serve.message_forwarder import MessageForwarder
from msgq.cli.serve.websocket_client import WebsocketClient
from msgq.common import settings, timing
from msgq.common.stats import Participant
from msgq.errors import SegmentError
from msgq.impl.base import clock
from msgq.kinds.stats import AnyEndpointRow
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints
from msgq.monitor.stage_timings import StageCollector, StageRow
from msgq.stats import endpoint

STAGE_WINDOW_S = 10.0


class BusMonitor:
    """Samples the bus while at least one viewer watches. All methods run in one event loop.

    Args:
        selection: endpoints to show.
        interval_s: seconds between two samples.
        forwarder: serves the websocket; its clients and losses are part of the state.
    """

    def __init__(self, selection: EndpointSelection, interval_s: float, forwarder: MessageForwarder) -> None:
        """Start without viewers."""
        self._selection, self._interval_s, self._forwarder = selection, interval_s, forwarder
        self._sampling_thread = ThreadPoolExecutor(1, "msgq serve monitor")
        self._viewer_count = 0
        self._next_state: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._sampling: asyncio.Task[None] | None = None

    async def watch_states(self) -> AsyncGenerator[bytes, None]:
        """Yield the state as JSON after each sample. A slow viewer skips samples.

        Raises:
            Exception: a sample failed. The next viewer starts the sampling again.
        """
        self._viewer_count += 1
        try:
            if self._sampling is None or self._sampling.done():
                self._sampling = asyncio.create_task(self._sample_until_unused())
            while True:
                yield await asyncio.shield(self._next_state)
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
                clients = list(map(_describe_client, self._forwarder.clients))
                state = {**sample, "clients": clients, "server_lost": self._forwarder.lost_by_endpoint}
                self._next_state.set_result(json.dumps(state).encode())
                self._next_state = loop.create_future()
                await asyncio.sleep(self._interval_s)
        except Exception as error:
            self._next_state.set_exception(error)
            self._next_state = loop.create_future()


class BusSampler:
    """Measurements of endpoints and stages. One thread at a time."""

    def __init__(self, selection: EndpointSelection) -> None:
        """Start the measurement of rates."""
        self._prefix = selection.prefix
        self._endpoints = LiveEndpoints(selection, skips_named=True)
        self._stages = StageCollector(lambda topic: _find_handled_endpoint(topic) in selection, STAGE_WINDOW_S)

    def take_sample(self) -> dict[str, Any]:
        """Return the current state in JSON types. Unknown values are None."""
        with settings.overrides(self._prefix):
            rows = self._endpoints.poll()
            self._stages.poll()
            stages = list(map(_describe_stage, self._stages.compute_rows()))
            refused = {**self._endpoints.refused, **self._stages.topics.refused}
        endpoints = list(map(_describe_endpoint, rows))
        return {"time_ns": clock.time_ns(), "endpoints": endpoints, "stages": stages, "refused": refused}


def _find_handled_endpoint(topic: str) -> str:
    """Return the endpoint that a stage handles. `topic`: timing topic of the stage."""
    return (timing.parse_timing_topic(topic) or ("", topic))[1]


def _describe_endpoint(row: AnyEndpointRow) -> dict[str, Any]:
    names = ("endpoint", "kind", "messages", "rate", "byte_rate", "lost", "lost_rate", "memory", "backlog")
    return {
        **{name: getattr(row, name) for name in names},
        "note": row.note_text,
        "publishers": row.publishers,
        "subscribers": row.subscribers,
        "subscriber_count": row.live_subscriber_count,
        "senders": list(map(_describe_participant, row.sending_participants)),
        "receivers": list(map(_describe_participant, row.receiving_participants)),
        "schema": None if row.stats.schema is None else row.stats.schema.name,
    }


def _describe_stage(row: StageRow) -> dict[str, Any]:
    """Return the row with the processes that publish the timing topic of the stage."""
    participants: tuple[tuple[str, Participant], ...] = ()
    with suppress(SegmentError):  # the topic was removed just now
        participants = endpoint(timing.make_timing_topic(row.stage, row.endpoint)).participants
    return {**asdict(row), "pids": [participant.pid for role, participant in participants if role == "publisher"]}


def _describe_participant(participant: Participant) -> dict[str, Any]:
    return {"name": participant.name, "pid": participant.pid, "alive": participant.alive}


def _describe_client(client: WebsocketClient) -> dict[str, Any]:
    return {
        "address": client.address,
        "subscriptions": len(client.subscriptions),
        "sent": client.sent_messages,
        "dropped": client.dropped_messages,
    }
