"""Answers with metrics for Prometheus."""

from __future__ import annotations

import asyncio

from aiohttp import web

from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.prometheus_metrics import EndpointMetrics, render_metrics


class MetricsHandler:
    """Answers requests with the present metrics of a selection of endpoints."""

    def __init__(self, names: EndpointSelection) -> None:
        self._metrics = EndpointMetrics(names)

    async def send_metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer with the metrics in the format that the client accepts. Another thread reads the endpoints."""
        accept = request.headers.get("Accept", "")
        text, content_type = await asyncio.to_thread(render_metrics, self._metrics, accept)
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response
