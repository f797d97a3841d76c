"""Publishing on channels from the command line."""

from __future__ import annotations

from msgq.channel.stats import count_readers
from msgq.common import settings
from msgq.impl.channel import open_channel_file, open_publisher
from msgq.impl.sockets.publishing import wait_for_readers
from msgq.kinds.opening import read_existing_schema
from msgq.kinds.publish import PUB_NODE_NAME, KindPublish, PublishOptions, PublishTarget

_POOL_BYTES_MAX = 1 << 30
_POLL_INTERVAL_S = 0.02  # time between two checks for subscribers


class ChannelPublishTarget(PublishTarget):
    """A channel in shared memory, for any chosen backend. Created if necessary."""

    def __init__(self, options: PublishOptions) -> None:
        super().__init__(options, read_existing_schema(options.endpoint))

    def _open_endpoint(self) -> None:
        self._channel_file = open_channel_file(
            self._name, settings.resolve_prefix(None), None, writable=True, creator=PUB_NODE_NAME
        )
        if self._new_schema is not None:
            self._channel_file.set_schema(self._new_schema, False)
        self._publisher = open_publisher(self._channel_file, PUB_NODE_NAME, None, None, _POOL_BYTES_MAX)

    def _send_message(self, data: bytes) -> None:
        self._publisher.send(data, timeout=self._options.timeout)

    def _close_endpoint(self) -> None:
        self._publisher.close()
        self._channel_file.close()

    def wait_for_readers(self, readers: int) -> None:
        """Wait until `readers` subscribers are registered; see `count_readers`."""
        wait_for_readers(
            lambda: (count_readers(self._channel_file.stats()), None),
            self._options.timeout,
            _POLL_INTERVAL_S,
            readers,
            self._options.endpoint,
        )


PUBLISH = KindPublish(ChannelPublishTarget)
