"""Spans of a stage: the handling times of single messages. `msgq.StageTracer` is made of them.

Internal. A span stack and its spans serve one thread at a time; another thread gets `ConcurrentUseError`.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class SpanStack:
    """The open spans of a tracer. When a span ends, the origin of the span below it is restored."""

    def __new__(cls, name: str, now: Callable[[], int] | None) -> Self:
        """Start empty. `name` is for errors; `now` returns the time in ns; None: the host's clock."""

@disjoint_base
class Span:
    """The handling of one message, from a ``with`` to its end, which publishes the times, also when the block raised.

    Then it may be entered again; within its block that is a `ConcurrentUseError`.

    Attributes
    ----------
    untold : whether the times are published no more: another process publishes the timing topic, or it is closed.
    """

    superseded: bool

    def __new__(cls, stack: SpanStack, send: Callable[[bytes], object], reader: object = None) -> Self:
        """Start without a message. `send` publishes a record; `reader` is a subscriber that has the timestamps."""

    def with_stamps(self, published: int, origin_time: int) -> Self:
        """Let the next message have these stamps, nanoseconds of the host's clock.

        Parameters
        ----------
        published : when it was published; 0: nobody said. -1: it begins when it is taken.
        origin_time : its origin; 0 and -1 as for `published`.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class Spans:
    """An iterator with a span for each message. It ends a span before it receives the next message."""

    def __new__(
        cls,
        take: Callable[[Any], Any] | None,
        timeout: object,
        stamps: Callable[[Any], tuple[int, int]] | None,
        span: Span,
        later: Callable[[], tuple[Callable[[Any], Any], Callable[[Any], tuple[int, int]] | None] | None] | None = None,
    ) -> Self:
        """Take messages by calling with `timeout`; None ends it.

        Parameters
        ----------
        stamps : tells those of a message; None: the reader does, if there is one.
        later : instead of `take`: waits for the first message, and returns `take` and `stamps`; None: there was none.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def end(self) -> None:
        """End the open span, if there is one."""
