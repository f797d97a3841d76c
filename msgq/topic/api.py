"""Classes of the chosen backend, and the helper functions of stock msgq.

No wrapper exists: `PubSocket` is the backend's own class. msgq chooses the backend at the first use of a class, of
`context`, or of a function that creates a socket.
"""

from __future__ import annotations

from msgq.common import naming
from msgq.impl import backend as backends

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any, Literal, overload

    import numpy.typing as npt

    from msgq.common.schema import Schema
    from msgq.impl.ring import Context, Poller, PubSocket, SubSocket
    from msgq.topic.typed_publisher import TypedPublisher
    from msgq.topic.typed_subscriber import TypedSubscriber

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

#: Traversal limit for users of Cap'n Proto; stock msgq exports it, so msgq does, too.
NO_TRAVERSAL_LIMIT = 2**64 - 1


if TYPE_CHECKING:

    @overload
    def pub_sock(
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        schema: None = None,
        backend: str | None = None,
        trust: str | None = None,
        tracked: bool | None = None,
        prefix: str | None = None,
    ) -> PubSocket: ...
    @overload
    def pub_sock(
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        schema: Schema | npt.DTypeLike,
        backend: str | None = None,
        trust: str | None = None,
        tracked: bool | None = None,
        prefix: str | None = None,
    ) -> TypedPublisher: ...


def pub_sock(
    endpoint: str | bytes,
    segment_size: int = 0,
    *,
    schema: Schema | npt.DTypeLike | None = None,
    backend: str | None = None,
    trust: str | None = None,
    tracked: bool | None = None,
    prefix: str | None = None,
) -> PubSocket:
    """Create and connect a publisher.

    Args:
        endpoint: name of the topic.
        segment_size: bytes of the ring; 0 keeps the size of an existing ring, and creates a new one with 1 MiB.
        schema: description of the messages, for tools and other programs; None keeps the schema of the previous
            publisher. A NumPy dtype stands for `Schema.of(dtype, endpoint)`. With a schema of the encoding "struct" or
            "json", `send` checks and converts messages; see `TypedPublisher`. The zmq backend does not announce
            schemas.
        backend: "msgq", "zmq" or "fake", for programs with several backends; None: MSGQ_BACKEND.
        trust: users, by name or id and separated by commas, whose files are accepted besides own files and root's;
            None: MSGQ_TRUST.
        tracked: True: each message carries its publishing time and its origin. False: the topic must not be tracked.
            None: keep the topic's setting.
        prefix: prefix of the topic, "" for none; None: OPENPILOT_PREFIX.

    Raises:
        IpcError: see `PubSocket.connect`.
        InvalidValueError: the encoding of the schema is unknown, or its data is invalid. `PubSocket.connect` accepts
            such schemas.
        RecordTypeError: the dtype has no fixed size, Python objects or pointers.
        BackendNotAvailableError: the backend cannot be loaded.
    """
    module = backends.current_backend() if backend is None else backends.load_backend(backend)
    options: dict[str, Any] = {"trust": trust, "tracked": tracked, "prefix": prefix}
    if schema is not None:
        from msgq.topic.typed_publisher import connect_typed_publisher  # late, as in __init__.py

        return connect_typed_publisher(module, endpoint, segment_size, schema, options)
    socket: PubSocket = module.PubSocket()
    socket.connect(backends.context, endpoint, segment_size, **options)
    return socket


if TYPE_CHECKING:

    @overload
    def sub_sock(
        endpoint: str | bytes,
        poller: Poller | None = None,
        addr: str | bytes = "127.0.0.1",
        conflate: bool = False,
        timeout: float | None = None,
        segment_size: int = 0,
        *,
        passive: bool = False,
        latest: bool = False,
        decoded: Literal[False] | None = False,
        backend: str | None = None,
        trust: str | None = None,
        prefix: str | None = None,
    ) -> SubSocket: ...
    @overload
    def sub_sock(
        endpoint: str | bytes,
        poller: Poller | None = None,
        addr: str | bytes = "127.0.0.1",
        conflate: bool = False,
        timeout: float | None = None,
        segment_size: int = 0,
        *,
        passive: bool = False,
        latest: bool = False,
        decoded: Literal[True] | Schema | npt.DTypeLike,
        backend: str | None = None,
        trust: str | None = None,
        prefix: str | None = None,
    ) -> TypedSubscriber: ...


def sub_sock(
    endpoint: str | bytes,
    poller: Poller | None = None,
    addr: str | bytes = "127.0.0.1",
    conflate: bool = False,
    timeout: float | None = None,
    segment_size: int = 0,
    *,
    passive: bool = False,
    latest: bool = False,
    decoded: bool | Schema | npt.DTypeLike | None = False,
    backend: str | None = None,
    trust: str | None = None,
    prefix: str | None = None,
) -> SubSocket:
    """Create and connect a subscriber.

    Args:
        endpoint: name of the topic.
        poller: poller of the same backend that registers the socket; None: no poller.
        addr: host of the publisher; used by the ZMQ backend only.
        conflate: receive the newest message only. Skipped messages add to `lost`.
        timeout: milliseconds that `receive` waits (compatibility: stock's unit); None or -1: no limit. A float below
            10, which is probably meant in seconds, warns with `MsgqWarning`.
        passive: observe an existing topic read-only, without a trace; see `SubSocket.connect`. Ignored by the ZMQ
            backend.
        latest: first receive the last message that was sent before the connection, if there is one. The ZMQ backend
            raises `StateError`.
        decoded: True: receives return values instead of bytes, decoded by the schema of the publisher; see
            `TypedSubscriber`. A schema or a NumPy dtype does the same, and decodes messages without a schema. The ZMQ
            backend carries no schemas, so that True raises `StateError` there.
        segment_size: as in `pub_sock`.
        backend: as in `pub_sock`.
        trust: as in `pub_sock`.
        prefix: as in `pub_sock`.

    Raises:
        InvalidTypeError: `poller` is no poller.
        IpcError: see `SubSocket.connect`.
        InvalidValueError, RecordTypeError: `decoded` is not a valid schema; see `pub_sock`.
        BackendNotAvailableError: the backend cannot be loaded.
    """
    if poller is not None:
        _check_poller(poller)
    module = backends.current_backend() if backend is None else backends.load_backend(backend)
    socket: SubSocket
    if decoded is False or decoded is None:  # NumPy would take None as float64
        socket = module.SubSocket()
    else:
        from msgq.topic.typed_subscriber import make_typed_subscriber  # late, as in __init__.py

        socket = make_typed_subscriber(module, endpoint, decoded)
    options: dict[str, Any] = {"passive": passive, "latest": latest, "trust": trust, "prefix": prefix}
    socket.connect(backends.context, endpoint, addr, conflate, segment_size, **options)
    if timeout is not None:
        socket.setTimeout(timeout)
    if poller is not None:
        poller.registerSocket(socket)
    return socket


def _check_poller(poller: object) -> None:
    """Check the second argument of `sub_sock`.

    Raises:
        InvalidTypeError: the argument is no poller, but for example a time-out or an address.
    """
    if not hasattr(poller, "registerSocket"):
        from msgq.errors import InvalidTypeError

        text = f"poller is {poller!r:.80}, of type {type(poller).__name__}; give a msgq.Poller"
        if isinstance(poller, (int, float)):
            text += f", or timeout={poller} in milliseconds"
        elif isinstance(poller, (str, bytes)):
            text += f", or addr={poller!r:.80}"
        raise InvalidTypeError(text)


def drain_sock_raw(sock: SubSocket, wait_for_one: bool = False) -> list[bytes]:
    """Return all pending messages, oldest first (compatibility: stock's name for `receive_many`).

    Args:
        sock: a connected subscriber.
        wait_for_one: True: if no message is pending, wait for the first one, at most the socket's time-out.
    """
    return sock.receive_many(wait_for_one=wait_for_one)


def zeromq_address(endpoint: str | bytes, host: str = "127.0.0.1") -> str:
    """Return the ZMQ address of an endpoint, for example "tcp://127.0.0.1:8023".

    Subscribers of the ZMQ backend connect to this address. Other ZMQ programs can connect to the address, or bind its
    port to publish. The call creates no socket and works with any backend.

    Args:
        endpoint: name of the topic.
        host: host of the publisher, unless MSGQ_ZMQ_MAP names one. Socket files have no host.

    Raises:
        EndpointNameError: the name is invalid, or the path of the socket file is too long.
        InvalidValueError: an environment variable or the map is invalid.
        SegmentError: the directory of socket files is unusable.
        BackendNotAvailableError: pyzmq is missing.
    """
    address: str = backends.load_backend("zmq").subscriber_address(naming.validate_endpoint_name(endpoint), host).uri
    return address
