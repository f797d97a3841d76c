"""Where a player sends: a publisher for each endpoint of a log, with its schema, and a ring that is large enough."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgq import backend as backends
from msgq import naming, stats
from msgq.errors import InvalidValueError, MultiplePublishersError, RecordingError, SegmentError, SegmentSizeError
from msgq.impl.fake.bus import current_bus
from msgq.impl.ground import clock
from msgq.recording.player.schedule import new_name
from msgq.recording.reader.message import EndpointInfo
from msgq.schema import Schema

if TYPE_CHECKING:
    from msgq.impl.ring import PubSocket

RING_BYTES = 1 << 20  # what a new ring has unless it needs more
_CLOCK_SCHEMA = Schema("time_ns", "struct", b'"<u8"')


class Outlets:
    """The publishers of a player.

    Attributes
    ----------
    sockets : by the new name of the endpoint.
    skipped : endpoints of the log whose names cannot be endpoints here, and which were not remapped.
    closed : whether they were closed.
    """

    def __init__(
        self,
        infos: Mapping[str, EndpointInfo],
        remap: Mapping[str, str],
        clock_endpoint: str | None,
        backend: str | None,
        prefix: str | None,
        segment_size: int,
        take_over: bool,
    ) -> None:
        """Connect them all, or none; the parameters are those of `Player`."""
        self._name = backend or naming.backend_name()
        self._backend = backends.load(self._name)
        self._prefix = naming.checked_prefix(prefix)
        self._segment_size, self._take_over = segment_size, take_over
        self._time_ns = current_bus().clock.time_ns if self._name == "fake" else clock.time_ns
        self.sockets: dict[str, PubSocket] = {}
        self.closed = False
        names = _names(infos, remap)
        self.skipped = tuple(sorted(set(infos) - set(names.values())))
        wanted = {
            name: (_schema(infos[old].schema), infos[old].largest, infos[old].tracked) for name, old in names.items()
        }
        if clock_endpoint in wanted:
            raise InvalidValueError("the clock's endpoint is one that is played; give another one", str(clock_endpoint))
        if clock_endpoint is not None:
            wanted[clock_endpoint] = (_CLOCK_SCHEMA, 8, False)
        with ExitStack() as stack, naming.chosen(self._prefix):
            stack.callback(self.close)
            for name in wanted:
                self._check_free(name)
            for name, (schema, largest, tracked) in wanted.items():
                self.sockets[name] = self._connected(name, schema, largest, tracked)
            stack.pop_all()

    def _check_free(self, name: str) -> None:
        """Refuse to take an endpoint from a living publisher, which would be told at its next send, too late."""
        if self._name != "msgq" or self._take_over:
            return
        try:
            publisher = stats.topic(name, self._prefix).publisher
        except SegmentError:
            return
        if publisher is not None and publisher.alive is not False:
            text = f"{publisher.name} (process {publisher.pid}) publishes it, and playing would end that"
            raise MultiplePublishersError(f"{text}; remap it, choose another prefix, or take it over", name)

    def _connected(self, name: str, schema: Schema | None, largest: int, tracked: bool) -> PubSocket:
        needed = 3 * (largest + 64)  # a message may take a third of a ring; and there is its head
        socket: PubSocket = self._backend.PubSocket()
        context = self._backend.Context()
        options: dict[str, Any] = {"schema": schema}
        if tracked and self._name != "zmq":
            options["tracked"] = True
        try:
            socket.connect(context, name, self._segment_size or max(RING_BYTES, needed + 4095 & ~4095), **options)
        except SegmentSizeError:  # it exists; its subscribers decided
            socket.connect(context, name, **options)
        there = stats.topic(name, self._prefix).data_bytes if self._name == "msgq" else needed
        if there < needed:
            socket.close()
            text = f"the ring has {there} bytes, and a message of {largest} bytes needs {needed}"
            raise SegmentSizeError(f"{text}; end those who use it and remove it, choose another prefix, or remap", name)
        return socket

    def send(self, name: str, data: bytes, age_ns: int | None) -> None:
        """Publish a message. age_ns : how long ago that was what it comes from, on a tracked topic; None: unknown."""
        socket = self.sockets[name]
        if age_ns is None or not socket.tracked:
            socket.send(data)
        else:
            socket.send(data, origin_time=max(1, self._time_ns() - age_ns))

    def close(self) -> None:
        """Close them all. Twice does nothing more."""
        self.closed = True
        for socket in self.sockets.values():
            socket.close()


def _names(infos: Mapping[str, EndpointInfo], remap: Mapping[str, str]) -> dict[str, str]:
    """Return the old names by the new ones."""
    if unknown := set(remap) - set(infos):
        raise InvalidValueError(f"{', '.join(sorted(unknown))} cannot be remapped: it is not played")
    names: dict[str, str] = {}
    for old in infos:
        new = new_name(old, remap)
        if new is None:
            continue
        if new in names:
            raise InvalidValueError(f"both {names[new]!r} and {old!r} would be played there; remap one of them", new)
        names[new] = old
    if not names:
        text = f"none of {', '.join(map(repr, infos))} can be the name of an endpoint; remap what is to be played"
        raise RecordingError(f"there is nothing to play: {text}")
    return names


def _schema(schema: Schema | None) -> Schema | None:
    """Return a schema that an endpoint can have: those of foreign files may be too large, or have no name."""
    try:
        return schema and Schema(schema.name, schema.encoding, schema.data)
    except ValueError:
        return None
