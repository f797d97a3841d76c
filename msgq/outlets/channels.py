"""Channels: one publisher for each name that published, on a channel with the recording's options."""

from __future__ import annotations

import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgq.channel.channel import NODE_BYTES_MAX, ReservedChannel
from msgq.errors import ChannelMismatchError, MessageTooLargeError
from msgq.outlets.base import Outlet, Place, Played, UnplayableError, Wanted, as_recorded_error, usable_schema

if TYPE_CHECKING:
    from msgq.impl.channel import Publisher

_LOOK_S = 0.01
_SLOT_BYTES = 4096


class _Channel(ReservedChannel):
    """A channel of one backend, whichever was chosen; broadcasts and mailboxes too."""

    def __init__(self, backend: ModuleType, name: str, **options: Any) -> None:
        self._backend = backend
        super().__init__(name, **options)


class ChannelOutlet(Outlet):
    """A channel, and those who publish there. See `Outlet`."""

    def __init__(self, wanted: Wanted, place: Place) -> None:
        super().__init__(wanted)
        self._place = place
        self._publishers: dict[str, Publisher] = {}
        self._channel = self._opened(None)
        try:
            for name in wanted.publishers:
                self._publisher(name)
        except BaseException:
            self.close()
            raise

    def _opened(self, node: str | None) -> _Channel:
        wanted, place = self.wanted, self._place
        try:
            return _Channel(
                place.module,
                wanted.name,
                capacity=wanted.number("capacity"),
                stamps=wanted.flag("stamps"),
                schema=usable_schema(wanted.schema),
                node=node,
                prefix=place.prefix,
            )
        except ChannelMismatchError as error:
            raise as_recorded_error(error, wanted.endpoint) from None

    def _publisher(self, name: str) -> Publisher:
        """Return the publisher of this name; "": one without a name, as this process is called."""
        known = self._publishers.get(name)
        if known is None:
            node = name.replace("\0", "") if len(name.encode()) <= NODE_BYTES_MAX else ""
            slot_bytes = self.wanted.number("slot_bytes") or _SLOT_BYTES  # larger messages make the pool grow
            with self._opened(node or None) as channel:
                known = self._publishers[name] = channel.publisher(slot_bytes=slot_bytes)
        return known

    def send(self, message: Played) -> None:
        """See `Outlet`."""
        publisher = self._publisher(message.source.publisher)
        try:
            publisher.send(message.data, origin_time=self._place.origin(message.age_ns))
        except MessageTooLargeError as error:
            raise UnplayableError(str(error)) from None

    def wait_for_readers(self, timeout: float) -> bool:
        """See `Outlet`."""
        deadline = time.monotonic() + timeout
        while not (self._channel.diagnose().subscribers or self._channel.diagnose().viewers):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def close(self) -> None:
        """See `Outlet`."""
        for publisher in self._publishers.values():
            publisher.close()
        self._channel.close()
