"""A stage of a program: what its messages come from, how long they wait for it, and how long it works on each."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from msgq.common import naming, settings
from msgq.common.timing import TIMING_SCHEMA, make_timing_topic
from msgq.common.units import NS_PER_MS
from msgq.errors import EndpointClosedError, InvalidValueError, SegmentSizeError
from msgq.impl import backend as backends
from msgq.impl.base.argument_checks import timeout_ms, timeout_ns
from msgq.impl.records.core import Span, SpanStack, TracedMessageIterator
from msgq.records.clocks import HostStampClock, find_stamp_clock
from msgq.records.traced_source import read_stamps, resolve_traced_source

TIMING_RING_BYTES = 1 << 18  # of a timing topic: some 6500 records
TIMER_ENDPOINT_PREFIX = "@"


class StageTracer:
    """Tells of each message that a stage handles: when it was published, taken, and done with (tracking.md).

    While a message is handled, the thread has its origin: what is published meanwhile inherits it. Afterwards a record
    goes to the topic ``timing:STAGE:ENDPOINT``, for `msgq stages` and the recorder. It waits for nobody, and nobody
    need listen.

    One thread at a time handles messages with a tracer; another one gets `ConcurrentUseError`. The origin is the
    thread's, not the task's: across an ``await`` give `origin_time` to what you publish with. One tracer at a time
    reports a stage and an endpoint: when another one begins to, this one continues without reports.

    Attributes
    ----------
    stage, prefix : as they were given; "" is no prefix.
    closed : whether it is.
    """

    def __init__(self, stage: str, *, prefix: str | None = None) -> None:
        """Be a stage.

        Parameters
        ----------
        stage : its name, one for each tracer that is in use.
        prefix : that the timing topics live in, instead of OPENPILOT_PREFIX; "" for none.

        Raises
        ------
        EndpointNameError : no topic can have such a name.
        InvalidValueError : it is empty.
        TypeError : it is no str.
        """
        if not isinstance(stage, str):
            raise TypeError(f"a stage is a str, not {type(stage).__name__}")
        naming.validate_endpoint_name(make_timing_topic(stage, "x"))
        if not stage:
            raise InvalidValueError("a stage needs a name")
        self.stage = stage
        self.prefix = settings.resolve_prefix(prefix)
        self.closed = False
        self._module = backends.current_backend()
        clock = find_stamp_clock(self._module)
        self._span_stack = SpanStack(stage, None if isinstance(clock, HostStampClock) else clock.time_ns)
        self._timing_publishers: dict[str, Any] = {}

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._timing_publishers)} timing topics"
        return f"<msgq StageTracer {self.stage!r}, {state}>"

    def trace_messages(self, source: Any, timeout: float | None = None) -> Iterator[Any]:
        """Return an iterator over the messages of a source, each of which is handled until the next one is asked for.

        ::

            for order in tracer.trace_messages(orders):
                fills.produce(filled(order))

        Parameters
        ----------
        source : a RecordQueue, which gives its records one by one; a SubSocket, one of a tracked topic gives `Tracked`;
            a channel's Subscriber; a MessageQueue; a SeqlockVector or Seqlock, which gives its `Changes`. Several of
            them, in a list or a Poller, give pairs: the source, and its message.
        timeout : seconds to wait for a message; when they are over, the iteration ends. None waits for ever, but for
            SubSockets as long as their own time-out says.

        Raises
        ------
        TypeError : it is no source.
        EndpointClosedError : the tracer is closed.
        InvalidValueError : a time-out that is not possible.
        ConcurrentUseError : see above; while iterating, also all that the source raises.

        Notes
        -----
        Leaving the loop, by ``break`` or an exception, ends the span as its end does. Some 120 ns a message.
        """
        self._check_not_closed()
        timeout_ns(timeout)
        if hasattr(source, "poll") or isinstance(source, (list, tuple)):
            return self._trace_sources(source, timeout)
        return self._trace_source(source, timeout)

    def _trace_source(self, source: Any, timeout: float | None) -> TracedMessageIterator:
        traced = resolve_traced_source(source, timeout, self._module)
        waits = False if hasattr(source, "setTimeout") else timeout
        return TracedMessageIterator(
            traced.take_message,
            waits,
            traced.read_stamps,
            self._make_span(traced.endpoint, traced.subscriber),
            traced.wait_for_reader,
        )

    def _trace_sources(self, sources: Any, timeout: float | None) -> Iterator[Any]:
        """Yield pairs; of those that are ready together each one's next message."""
        poller = sources
        if not hasattr(sources, "poll"):
            poller = self._module.Poller()
            for source in sources:
                poller.registerSocket(source)
        patience = -1 if timeout is None else -(timeout_ns(timeout) // -NS_PER_MS)
        spans: dict[int, TracedMessageIterator] = {}
        while ready := poller.poll(timeout_ms(patience)):
            for item in ready:
                source = item[0] if isinstance(item, tuple) else item
                if id(source) not in spans:
                    spans[id(source)] = self._trace_source(source, 0.0)
                message = next(spans[id(source)], None)
                if message is None:  # another reader was faster
                    continue
                try:
                    yield source, message
                finally:
                    spans[id(source)].end_span()

    def span(self, message: Any = None, *, endpoint: str) -> Span:
        """Return a context manager for a message that was taken elsewhere: in a callback, for instance.

        ::

            with tracer.span(message, endpoint="orders"):
                ...

        Parameters
        ----------
        message : what has stamps: a Message or Job, a ChannelMessage (``subscriber.last``), a Sample, a Tracked, a
            record of a tracked dtype. Others have none, and None neither.
        endpoint : whose message it is, as `msgq list` has it.

        Raises
        ------
        EndpointClosedError : the tracer is closed.
        EndpointNameError : no timing topic can have such a name.
        On entering: ConcurrentUseError.
        """
        self._check_not_closed()
        return self._make_span(endpoint).set_stamps(*read_stamps(message))

    def timer(self, name: str) -> Span:
        """Return a context manager that times a block: its records go to ``timing:STAGE:@NAME``.

        The origin stays what it is. The errors are those of `span`.
        """
        self._check_not_closed()
        return self._make_span(TIMER_ENDPOINT_PREFIX + name).set_stamps(-1, -1)

    def _make_span(self, endpoint: str, reader: Any = None) -> Span:
        publisher = self._timing_publishers.get(endpoint) or self._connect_timing_publisher(endpoint)
        return Span(self._span_stack, publisher.send, reader)

    def _connect_timing_publisher(self, endpoint: str) -> Any:
        topic = make_timing_topic(self.stage, endpoint)
        publisher = self._module.PubSocket()
        with settings.overrides(in_prefix=self.prefix):
            try:
                publisher.connect(backends.context, topic, TIMING_RING_BYTES, schema=TIMING_SCHEMA)
            except SegmentSizeError:  # exists with another size
                publisher.connect(backends.context, topic, schema=TIMING_SCHEMA)
        self._timing_publishers[endpoint] = publisher
        return publisher

    def _check_not_closed(self) -> None:
        if self.closed:
            raise EndpointClosedError("the tracer is closed; make another one", self.stage)

    def close(self) -> None:
        """Tell no more. What is being handled is handled untold. Closing twice does nothing."""
        self.closed = True
        for publisher in self._timing_publishers.values():
            publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
