"""Playback of channels: one publisher for each recorded publisher name, and the recorded options."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgq.channel.channel import NODE_NAME_BYTES_MAX, ReservedChannel
from msgq.channel.names import KIND
from msgq.channel.stats import count_readers
from msgq.errors import ChannelMismatchError, MessageTooLargeError
from msgq.kinds.playback import (
    EndpointSpec,
    EndpointWriter,
    KindPlayback,
    PlaybackMessage,
    PlaybackTarget,
    UnplayableError,
    make_mismatch_error,
    make_usable_schema,
)

if TYPE_CHECKING:
    from msgq.impl.channel import Publisher

_DEFAULT_SLOT_BYTES = 4096


class _PlaybackChannel(ReservedChannel):
    """A channel of a given backend, including broadcasts and mailboxes."""

    def __init__(self, backend: ModuleType, name: str, **options: Any) -> None:
        self._backend_module = backend
        super().__init__(name, **options)


class ChannelPlaybackWriter(EndpointWriter):
    """A channel and its publishers. See `EndpointWriter`."""

    def __init__(self, spec: EndpointSpec, target: PlaybackTarget) -> None:
        super().__init__(spec)
        self._target = target
        self._publishers: dict[str, Publisher] = {}
        self._channel = self._open_channel(None)
        try:
            for name in spec.publishers:
                self._get_publisher(name)
        except BaseException:
            self.close()
            raise

    def _open_channel(self, node: str | None) -> _PlaybackChannel:
        spec, target = self.spec, self._target
        try:
            return _PlaybackChannel(
                target.backend_module,
                KIND.bare_name(spec.endpoint),
                capacity=spec.get_positive_option("capacity"),
                stamps=spec.get_flag_option("stamps"),
                schema=make_usable_schema(spec.schema),
                node=node,
                prefix=target.prefix,
            )
        except ChannelMismatchError as error:
            raise make_mismatch_error(error, spec.endpoint) from None

    def _get_publisher(self, name: str) -> Publisher:
        """Return the publisher with this name; "": the name of this process."""
        publisher = self._publishers.get(name)
        if publisher is None:
            node = name.replace("\0", "") if len(name.encode()) <= NODE_NAME_BYTES_MAX else ""
            slot_bytes = (
                self.spec.get_positive_option("slot_bytes") or _DEFAULT_SLOT_BYTES
            )  # larger messages make the pool grow
            with self._open_channel(node or None) as channel:
                publisher = self._publishers[name] = channel.publisher(slot_bytes=slot_bytes)
        return publisher

    def send(self, message: PlaybackMessage) -> None:
        """See `EndpointWriter`."""
        publisher = self._get_publisher(message.source.publisher)
        try:
            publisher.send(message.data, origin_time=self._target.compute_origin_time(message.age_ns))
        except MessageTooLargeError as error:
            raise UnplayableError(str(error)) from None

    def wait_for_readers(self, timeout: float) -> bool:
        """See `EndpointWriter`."""
        return self._target.wait_for_reader(lambda: count_readers(self._channel.stats()), timeout, self.spec.endpoint)

    def close(self) -> None:
        """See `EndpointWriter`."""
        for publisher in self._publishers.values():
            publisher.close()
        self._channel.close()


PLAYBACK = KindPlayback(ChannelPlaybackWriter)
