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
)
from msgq.errors import Again, IpcError, MultiplePublishersError
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
    "IpcError",
    "MultiplePublishersError",
    "Poller",
    "PubMaster",
    "PubSocket",
    "Schema",
    "SubMaster",
    "SubSocket",
    "__version__",
    "context",
    "drain_sock_raw",
    "errors",
    "pub_sock",
    "stats",
    "sub_sock",
]
