"""Topics: one publisher, with the recording's schema, and a ring that is large enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq import stats
from msgq.common import naming
from msgq.errors import MessageTooLargeError, MultiplePublishersError, SegmentError, SegmentSizeError, WaitTimeoutError
from msgq.outlets.base import Outlet, Place, Played, UnplayableError, Wanted, usable_schema

if TYPE_CHECKING:
    from msgq.impl.ring import PubSocket

RING_BYTES = 1 << 20  # what a new ring has unless it needs more


def ring_bytes(largest: int) -> int:
    """Return what a ring needs for messages of so many bytes: one may take a third; and there is its head."""
    return 3 * (largest + 64)


class TopicOutlet(Outlet):
    """A publisher. See `Outlet`.

    Attributes
    ----------
    socket : what publishes.
    """

    def __init__(self, wanted: Wanted, place: Place) -> None:
        super().__init__(wanted)
        self._place = place
        with naming.chosen(place.prefix):
            self._check_free()
            self.socket: PubSocket = self._connected()

    def _check_free(self) -> None:
        """Refuse to take an endpoint from a living publisher, which would be told at its next send, too late."""
        name, place = self.wanted.endpoint, self._place
        if place.backend != "msgq" or place.take_over:
            return
        try:
            publisher = stats.topic(name, place.prefix).publisher
        except SegmentError:
            return
        if publisher is not None and publisher.alive is not False:
            text = f"{publisher.name} (process {publisher.pid}) publishes it, and playing would end that"
            raise MultiplePublishersError(f"{text}; remap it, choose another prefix, or take it over", name)

    def _connected(self) -> PubSocket:
        name, place, needed = self.wanted.endpoint, self._place, ring_bytes(self.wanted.largest)
        socket: PubSocket = place.module.PubSocket()
        context = place.module.Context()
        options: dict[str, Any] = {"schema": usable_schema(self.wanted.schema)}
        if self.wanted.tracked and place.backend != "zmq":
            options["tracked"] = True
        try:
            socket.connect(context, name, place.segment_size or max(RING_BYTES, needed + 4095 & ~4095), **options)
        except SegmentSizeError:  # it exists; its subscribers decided
            socket.connect(context, name, **options)
        there = stats.topic(name, place.prefix).data_bytes if place.backend == "msgq" else needed
        if there < needed:
            socket.close()
            text = f"the ring has {there} bytes, and a message of {self.wanted.largest} bytes needs {needed}"
            raise SegmentSizeError(f"{text}; end those who use it and remove it, choose another prefix, or remap", name)
        return socket

    def send(self, message: Played) -> None:
        """See `Outlet`."""
        try:
            if message.age_ns is None or not self.socket.tracked:
                self.socket.send(message.data)
            else:
                self.socket.send(message.data, origin_time=self._place.origin(message.age_ns))
        except MessageTooLargeError as error:
            raise UnplayableError(str(error)) from None

    def wait_for_readers(self, timeout: float) -> bool:
        """See `Outlet`."""
        try:
            self.socket.wait_for_readers(timeout=timeout, n=1)
        except WaitTimeoutError:
            return False
        return True

    def close(self) -> None:
        """See `Outlet`."""
        self.socket.close()
