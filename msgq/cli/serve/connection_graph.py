"""Publishers and subscribers of the endpoints, for clients that show the connection graph."""

from __future__ import annotations

from typing import NamedTuple

from msgq.cli.serve.foxglove_protocol import build_graph_update
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints


class ConnectionGraph(NamedTuple):
    """Names of publishers and of subscribers by endpoint."""

    publishers: dict[str, list[str]]
    subscribers: dict[str, list[str]]


class GraphReader:
    """Reads the connection graph. One thread at a time."""

    def __init__(self, selection: EndpointSelection) -> None:
        """Prepare the reading of these endpoints."""
        self._endpoints = LiveEndpoints(selection, skips_named=True)

    def read_graph(self) -> ConnectionGraph:
        """Return the current graph."""
        rows = self._endpoints.poll()
        return ConnectionGraph(
            {row.endpoint: row.publishers for row in rows}, {row.endpoint: row.subscribers for row in rows}
        )


def build_graph_difference(before: ConnectionGraph, after: ConnectionGraph) -> str | None:
    """Return the update for clients that know the graph `before`; None: no difference."""
    publishers = {name: ids for name, ids in after.publishers.items() if before.publishers.get(name) != ids}
    subscribers = {name: ids for name, ids in after.subscribers.items() if before.subscribers.get(name) != ids}
    removed = before.publishers.keys() - after.publishers.keys()
    if not publishers and not subscribers and not removed:
        return None
    return build_graph_update(publishers, subscribers, removed)
