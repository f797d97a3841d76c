"""What publishers and subscribers share."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from typing_extensions import disjoint_base

_Watcher = Callable[[str], object]

def watch_connects(watcher: _Watcher | None) -> _Watcher | None:
    """Call this with the endpoint whenever a socket of the ring or of ZMQ is about to connect, in any thread.

    What it raises comes out of `connect`. None: nothing is called. Returns the former one.
    """

@disjoint_base
class Context:
    """Where sockets are made; every `connect` takes one.

    It holds nothing in this backend, and closing it closes no socket. Safe to share between threads.
    """

    def term(self) -> None:
        """Refuse new sockets from now on. Returns at once; sockets that are connected stay usable."""

    @property
    def closed(self) -> bool:
        """Whether `term` was called."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
