"""Rounds of a stage: it handles one message, and says how long that took. What `msgq.Tracker` is made of.

Not to be used by itself. A desk and what was made for it serve one thread at a time, another one gets
`ConcurrentUseError`.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class Desk:
    """The rounds that a tracker has open, so that the origin of the one before is there again after each."""

    def __new__(cls, name: str, now: Callable[[], int] | None) -> Self:
        """Have none. `name` is for errors; `now` tells the time, ns; None: the host's clock."""

@disjoint_base
class Round:
    """One message at a time, from a ``with`` to its end. Leaving tells of it, also when the block raised.

    Then it may be entered again; within its block that is a `ConcurrentUseError`.

    Attributes
    ----------
    untold : whether nobody is told any more: the timing topic is another's, or closed.
    """

    untold: bool

    def __new__(cls, desk: Desk, send: Callable[[bytes], object], reader: object = None) -> Self:
        """Have no message so far. `send` publishes a record; `reader` is a subscriber that knows the stamps."""

    def of(self, published: int, origin_time: int) -> Self:
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
class Rounds:
    """A round for each message that is taken: an iterator, which ends a round before it takes the next message."""

    def __new__(
        cls,
        take: Callable[[Any], Any] | None,
        timeout: object,
        stamps: Callable[[Any], tuple[int, int]] | None,
        this: Round,
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
        """End the round that is open, if one is."""
