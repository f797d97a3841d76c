"""Recorded messages are appended to a blob again."""

from __future__ import annotations

from msgq.kinds.playback import EndpointSpec, EndpointWriter, KindPlayback, PlaybackMessage, PlaybackTarget
from msgq_blobs.names import KIND
from msgq_blobs.stats import append


class BlobWriter(EndpointWriter):
    """Appends to a blob. See `EndpointWriter`."""

    def __init__(self, spec: EndpointSpec, target: PlaybackTarget) -> None:
        super().__init__(spec)
        self._name, self._prefix = KIND.bare_name(spec.endpoint), target.prefix

    def send(self, message: PlaybackMessage) -> None:
        """See `EndpointWriter`."""
        append(self._name, self._prefix, message.data)

    def close(self) -> None:
        """See `EndpointWriter`."""


PLAYBACK = KindPlayback(BlobWriter)
