"""Lines about refused clients. Clients can cause any number of refusals, but only a few lines."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

_PERIOD_S = 60.0  # minimum time between two lines of one kind

_logger = logging.getLogger(__name__)


class RefusalLog:
    """Logs one line per minute for each kind of refusal. The next line of a kind counts the omitted ones."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Start empty. `now_s`: clock in seconds."""
        self._now_s = now_s
        self._line_times_s: dict[str, float] = {}
        self._omitted: dict[str, int] = {}

    def report(self, kind: str, text: str) -> None:
        """Log a refusal. `kind`: one of a few texts, which no client can choose."""
        now_s = self._now_s()
        if now_s - self._line_times_s.get(kind, -math.inf) < _PERIOD_S:
            self._omitted[kind] = self._omitted.get(kind, 0) + 1
            return
        self._line_times_s[kind] = now_s
        omitted = self._omitted.pop(kind, 0)
        _logger.warning("%s%s", text, f" ({omitted} more since the previous line)" if omitted else "")
