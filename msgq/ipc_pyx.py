"""Objects of `msgq` under the module name of stock's extension module."""

from msgq.errors import IpcError, MultiplePublishersError
from msgq.impl import backend
from msgq.topic.fake_events import (
    Event,
    SocketEventHandle,
    delete_fake_prefix,
    get_fake_prefix,
    set_fake_prefix,
    toggle_fake_events,
    wait_for_one_event,
)

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from msgq.topic.api import Context, Poller, PubSocket, SubSocket
else:
    __getattr__, __dir__ = backend.make_lazy_attributes(globals())

__all__ = [
    "Context",
    "Event",
    "IpcError",
    "MultiplePublishersError",
    "Poller",
    "PubSocket",
    "SocketEventHandle",
    "SubSocket",
    "delete_fake_prefix",
    "get_fake_prefix",
    "set_fake_prefix",
    "toggle_fake_events",
    "wait_for_one_event",
]
