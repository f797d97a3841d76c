"""The chosen backend's own classes, and the helper functions that stock msgq has.

There is no wrapper: `PubSocket` *is* the backend's class, so a send is one call into it. The backend is chosen when one
of the classes, `context` or a function that makes a socket is used first.
"""

from __future__ import annotations

from msgq.common import naming
from msgq.impl import backend as backends

TYPE_CHECKING = False  # as in __init__.py
if TYPE_CHECKING:
    from msgq.impl.ring import Context, Poller, PubSocket, SubSocket

    context: Context
else:
    __getattr__, __dir__ = backends.make_lazy_attributes(globals())

__all__ = [
    "NO_TRAVERSAL_LIMIT",
    "Context",
    "Poller",
    "PubSocket",
    "SubSocket",
    "context",
    "drain_sock_raw",
    "pub_sock",
    "sub_sock",
    "zeromq_address",
]

#: What users of Cap'n Proto pass as its traversal limit; stock msgq exports it, so we do.
NO_TRAVERSAL_LIMIT = 2**64 - 1


def pub_sock(
    endpoint: str | bytes,
    segment_size: int = 0,
    *,
    backend: str | None = None,
    trust: str | None = None,
    tracked: bool | None = None,
    prefix: str | None = None,
) -> PubSocket:
    """Return a connected publisher.

    Parameters
    ----------
    endpoint : the topic's name.
    segment_size : bytes of the ring; 0 takes it as it is, or 1 MiB for a new one.
    backend : "msgq", "zmq" or "fake", for programs that mix them; None: the one that MSGQ_BACKEND names.
    trust : users, by name or id, with commas, whose files are used as one's own and root's are; None: MSGQ_TRUST.
    tracked : True: each message carries when it was published and what it comes from; None: as the topic is.
    prefix : instead of OPENPILOT_PREFIX, "" for none.

    Raises
    ------
    IpcError : as `PubSocket.connect`; BackendNotAvailableError: it cannot be loaded.
    """
    module = backends.current_backend() if backend is None else backends.load_backend(backend)
    socket: PubSocket = module.PubSocket()
    socket.connect(backends.context, endpoint, segment_size, trust=trust, tracked=tracked, prefix=prefix)
    return socket


def sub_sock(
    endpoint: str | bytes,
    poller: Poller | None = None,
    addr: str | bytes = "127.0.0.1",
    conflate: bool = False,
    timeout: float | None = None,
    segment_size: int = 0,
    *,
    backend: str | None = None,
    trust: str | None = None,
    prefix: str | None = None,
) -> SubSocket:
    """Return a connected subscriber.

    Parameters
    ----------
    endpoint : the topic's name.
    poller : register it there; it must be of the same backend.
    addr : the publisher's host; only the ZMQ backend uses it.
    conflate : receive the newest message only; what is passed over adds to `lost`.
    timeout : milliseconds that `receive` waits (compatibility: stock's unit); None or -1: for ever.
    segment_size, backend, trust, prefix : as in `pub_sock`.

    Raises
    ------
    IpcError : as `SubSocket.connect`; BackendNotAvailableError: the backend cannot be loaded.
    """
    module = backends.current_backend() if backend is None else backends.load_backend(backend)
    socket: SubSocket = module.SubSocket()
    socket.connect(backends.context, endpoint, addr, conflate, segment_size, trust=trust, prefix=prefix)
    if timeout is not None:
        socket.setTimeout(timeout)
    if poller is not None:
        poller.registerSocket(socket)
    return socket


def drain_sock_raw(sock: SubSocket, wait_for_one: bool = False) -> list[bytes]:
    """Return all pending messages, oldest first (compatibility: stock's name for `receive_many`).

    Parameters
    ----------
    sock : a connected subscriber.
    wait_for_one : with nothing pending, wait for the first message, as long as the socket's time-out says.
    """
    return sock.receive_many(wait_for_one=wait_for_one)


def zeromq_address(endpoint: str | bytes, host: str = "127.0.0.1") -> str:
    """Return where ZeroMQ programs find an endpoint, as their `connect` takes it: "tcp://127.0.0.1:8023".

    It is where the zmq backend's subscribers connect, whichever backend is in force; no socket is made. A program that
    publishes binds the same port.

    Parameters
    ----------
    endpoint : the topic's name.
    host : the publisher's, unless MSGQ_ZMQ_MAP names one; socket files have none.

    Raises
    ------
    EndpointNameError : the name cannot be an endpoint, or its socket file would have too long a path.
    InvalidValueError : an environment variable or the map makes no sense.
    SegmentError : the directory for socket files is not fit.
    BackendNotAvailableError : there is no pyzmq.
    """
    address: str = backends.load_backend("zmq").subscriber_address(naming.validate_endpoint_name(endpoint), host).uri
    return address
