"""Tracers of stages: origin, waiting time and processing time of each message that a program handles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgq.common import naming, settings
from msgq.common.closing import ClosingContext
from msgq.common.timing import TIMING_SCHEMA, make_timing_topic
from msgq.common.units import NS_PER_MS
from msgq.errors import EndpointClosedError, InvalidValueError, SegmentSizeError
from msgq.impl import backend as backends
from msgq.impl.base.argument_checks import timeout_ms, timeout_ns
from msgq.impl.records.core import Span, SpanStack, TracedMessageIterator
from msgq.records.clocks import HostStampClock, find_stamp_clock
from msgq.records.traced_source import read_stamps, resolve_traced_source

TIMING_RING_BYTES = 1 << 18  # bytes of a timing topic: some 6500 records
TIMER_ENDPOINT_PREFIX = "@"


class StageTracer(ClosingContext):
    """Reports publishing time, receipt and end of each message that a stage handles (docs/guides/tracking.md).

    While a message is handled, the thread has the origin of this message. Messages that the thread publishes inherit
    the origin. Afterwards the tracer sends a record on the topic ``timing:STAGE:ENDPOINT``, for `msgq stages` and the
    recorder. The tracer never waits, and a subscriber is not necessary.

    One thread at a time may handle messages with a tracer. A second thread gets `ConcurrentUseError`. The origin
    belongs to the thread, not to the asyncio task: across an ``await``, give `origin_time` to each publishing call. One
    tracer at a time reports a stage and an endpoint. When another tracer starts to report them, the previous tracer
    continues without reports.

    Attributes:
        stage: stage given to the constructor.
        prefix: prefix given to the constructor; "" is no prefix.
        closed: True after `close`.
    """

    def __init__(self, stage: str, *, prefix: str | None = None) -> None:
        """Create a tracer for a stage.

        Args:
            stage: name of the stage, one for each tracer in use.
            prefix: prefix of the timing topics, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name does not fit a topic's name.
            InvalidValueError: the name is empty.
            TypeError: the name is not a str.
        """
        if not isinstance(stage, str):
            raise TypeError(f"stage is of type {type(stage).__name__}; give a str")
        naming.validate_endpoint_name(make_timing_topic(stage, "x"))
        if not stage:
            raise InvalidValueError("stage name is empty; give a name")
        self.stage: str = stage
        self.prefix: str = settings.resolve_prefix(prefix)
        self.closed: bool = False
        self._module = backends.current_backend()
        clock = find_stamp_clock(self._module)
        self._span_stack = SpanStack(stage, None if isinstance(clock, HostStampClock) else clock.time_ns)
        self._timing_publishers: dict[str, Any] = {}

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._timing_publishers)} timing topics"
        return f"<msgq StageTracer {self.stage!r}, {state}>"

    def trace_messages(self, source: Any, timeout: float | None = None) -> Iterator[Any]:
        """Return an iterator over the messages of a source. A message is handled until you request the next one.

        ::

            for order in tracer.trace_messages(orders):
                fills.produce(filled(order))

        Args:
            source: a RecordQueue (yields single records), a SubSocket (yields `Tracked` on a tracked topic), a
                subscriber of a channel, a MessageQueue, a SeqlockVector or Seqlock (yields `Changes`), or a
                VisionIpcClient (yields frames). A list of sources or a Poller yields pairs of source and message.
            timeout: seconds to wait for a message. The iteration ends after the time-out. None waits without limit,
                except for SubSockets, which have their own time-out.

        Raises:
            TypeError: `source` is not a source.
            EndpointClosedError: the tracer is closed.
            InvalidValueError: the time-out is invalid.
            ConcurrentUseError: another thread handles messages with the tracer. The iterator also raises the errors of
                the source.

        Notes:
            ``break`` or an exception in the loop ends the span of the message. Tracing takes about 120 ns per message.
        """
        self._check_not_closed()
        timeout_ns(timeout)
        if hasattr(source, "poll") or isinstance(source, (list, tuple)):
            return self._trace_sources(source, timeout)
        return self._trace_source(source, timeout)

    def _trace_source(self, source: Any, timeout: float | None) -> TracedMessageIterator:
        traced = resolve_traced_source(source, timeout, self._module)
        waits = timeout == 0 if hasattr(source, "setTimeout") else timeout
        return TracedMessageIterator(
            traced.take_message,
            waits,
            traced.read_stamps,
            self._make_span(traced.endpoint, traced.subscriber),
            traced.wait_for_reader,
        )

    def _trace_sources(self, sources: Any, timeout: float | None) -> Iterator[Any]:
        """Yield pairs of source and message, one message of each ready source."""
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
        """Return a context manager for a message that another call has taken, for example in a callback.

        ::

            with tracer.span(message, endpoint="orders"):
                ...

        Args:
            message: an object with timestamps: a Message or Job, a ChannelMessage (``subscriber.last``), a Sample, a
                Tracked, a frame, or a record of a tracked dtype. Other objects and None have no timestamps.
            endpoint: endpoint of the message, named as in `msgq list`.

        Raises:
            EndpointClosedError: the tracer is closed.
            EndpointNameError: the name does not fit a timing topic's name.
            ConcurrentUseError: raised on entering, if another thread handles messages with the tracer.
        """
        self._check_not_closed()
        return self._make_span(endpoint).set_stamps(*read_stamps(message))

    def timer(self, name: str) -> Span:
        """Return a context manager that measures a block. Its records go to ``timing:STAGE:@NAME``.

        The origin of the thread stays unchanged. The errors are those of `span`.
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
            raise EndpointClosedError("tracer is closed; create another one", self.stage)

    def close(self) -> None:
        """Stop reporting. Messages in progress are not reported. A second close has no effect."""
        self.closed = True
        for publisher in self._timing_publishers.values():
            publisher.close()
