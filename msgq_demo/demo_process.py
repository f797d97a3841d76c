"""A process of the demo as its program sees it: start, stop, and a report to the parent."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgq
from msgq.common.histogram import Histogram
from msgq.common.parent_watch import ParentWatch
from msgq.common.rate_loop import rate_loop
from msgq_demo.endpoints import START_KEY, STATUS_BOARD

_TIMEOUT_S = 0.1

#: Takes a time-out in seconds. Yields the endpoint and the publishing time of each received message.
Receive = Callable[[float], Iterable[tuple[str, int]]]


class DemoProcess:
    """Waits for the start signal on the board, and writes the state and the results of this process to the board.

    Attributes:
        name: name of the process, and its key of the board.
        stop: set when the parent requests the end, or is dead.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._parent_watch = ParentWatch()
        self._parent_watch.start()
        self.stop = self._parent_watch.stop
        self._board = msgq.Board(STATUS_BOARD)
        self._status = self._board.declare(name)

    @property
    def orphaned(self) -> bool:
        """True if the parent is dead."""
        return self._parent_watch.orphaned

    def report_ready(self) -> None:
        """Report that the endpoints of this process are open. The parent waits for all processes."""
        self._status.write(b"[]")

    def tick(self, rate_hz: float) -> Iterator[int]:
        """Wait for the start signal, and then yield at a steady rate until the end."""
        self.report_ready()
        start = self._board.observe(START_KEY)
        while start.read() is None and not self.stop.is_set():
            start.wait(timeout=_TIMEOUT_S)
        yield from rate_loop(rate_hz, self.stop)

    def measure(self, endpoints: Sequence[str], receive: Receive, count_lost: Callable[[str], int | None]) -> None:
        """Receive until the end, and then the remaining messages. Report counts and latencies of each endpoint."""
        latencies = {endpoint: Histogram() for endpoint in endpoints}
        received = dict.fromkeys(endpoints, 0)

        def receive_messages(timeout_s: float) -> bool:
            found = False
            for endpoint, publish_time in receive(timeout_s):
                latencies[endpoint].add(max(0, msgq.time_ns() - publish_time))
                received[endpoint] += 1
                found = True
            return found

        self.report_ready()
        while not self.stop.is_set():
            receive_messages(_TIMEOUT_S)
        while receive_messages(0):
            pass
        results = [
            (endpoint, received[endpoint], count_lost(endpoint), *latencies[endpoint].percentiles_us(0.5, 0.99))
            for endpoint in endpoints
        ]
        self._status.write(json.dumps(results).encode())
