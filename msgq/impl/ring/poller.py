"""The poller of the msgq backend."""

from msgq.impl.base import core as base
from msgq.impl.ring.core import SubSocket
from msgq.impl.sockets.polling import PyzmqPoller

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ReadySocket = TypeVar("ReadySocket", default=SubSocket)
else:
    from msgq.impl.sockets.polling import ReadySocket


class Poller(PyzmqPoller[ReadySocket], base.Poller):
    """Waits for several subscribers (or other readers), and descriptors, at once.

    For type checkers, `Poller` is a poller of subscribers. Annotate other pollers with the results of `poll`, for
    example `Poller[tuple[Any, int]]` for pairs, as from `register`.
    """
