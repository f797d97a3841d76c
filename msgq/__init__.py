"""Publish and subscribe between the processes of one machine, through shared memory."""

from msgq import errors, stats
from msgq.api import (
    NO_TRAVERSAL_LIMIT,
    Context,
    Poller,
    PubSocket,
    SubSocket,
    context,
    drain_sock_raw,
    pub_sock,
    sub_sock,
    zeromq_address,
)
from msgq.errors import Again, IpcError, MultiplePublishersError
from msgq.fake_events import (
    Event,
    SocketEventHandle,
    delete_fake_prefix,
    fake_event_handle,
    get_fake_prefix,
    set_fake_prefix,
    toggle_fake_events,
    wait_for_one_event,
)
from msgq.impl.habits import NOBLOCK, POLLERR, POLLIN, POLLOUT
from msgq.masters import PubMaster, SubMaster
from msgq.schema import Schema

__version__ = "0.1.0"

__all__ = [
    "NOBLOCK",
    "NO_TRAVERSAL_LIMIT",
    "POLLERR",
    "POLLIN",
    "POLLOUT",
    "Again",
    "Context",
    "Event",
    "IpcError",
    "MultiplePublishersError",
    "Poller",
    "PubMaster",
    "PubSocket",
    "Schema",
    "SocketEventHandle",
    "SubMaster",
    "SubSocket",
    "__version__",
    "context",
    "delete_fake_prefix",
    "drain_sock_raw",
    "errors",
    "fake_event_handle",
    "get_fake_prefix",
    "pub_sock",
    "set_fake_prefix",
    "stats",
    "sub_sock",
    "toggle_fake_events",
    "wait_for_one_event",
    "zeromq_address",
]
