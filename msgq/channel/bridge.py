"""Forwarding of channels: to the ZMQ topic of the same name, and from a ZMQ topic into a channel.

A channel has many publishers. The node name of a message's publisher shows whether a bridge forwarded the message.
"""

from __future__ import annotations

import errno
import logging
from typing import Any

from msgq.channel.names import KIND
from msgq.common import settings
from msgq.errors import (
    InvalidValueError,
    IpcError,
    MessageTooLargeError,
    PoolExhaustedError,
    SegmentError,
    SegmentSizeError,
)
from msgq.impl.channel import ChannelFile, open_channel_file, open_publisher, open_subscriber
from msgq.kinds.bridge import BATCH_MESSAGES, FORWARDING_STATE, BridgeLoop, IncomingLink, KindBridge, OutgoingLink
from msgq.kinds.snapshots import list_inodes

BRIDGE_NODE_NAME = "msgq bridge"  # name of a bridge's own publishers; other bridges ignore their messages
POOL_BYTES_MAX = 1 << 30  # default of `Channel.publisher`

_OUT_OF_RESOURCE_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # errors that last until resources are free

_logger = logging.getLogger(__name__)


class OutgoingChannelLink(OutgoingLink):
    """Forwards a channel to ZMQ: the messages of all publishers, in the channel's order.

    The link is a passive subscriber, and takes no subscriber row.
    """

    name_prefix = KIND.name_prefix

    _channel_file: ChannelFile | None = None
    _receive_error: SegmentError | None = None

    def __init__(self, loop: BridgeLoop, topic: str, zmq_names: dict[str, str]) -> None:
        super().__init__(loop, topic, zmq_names)
        self._received: list[bytes | None] = []  # the last message, until its publisher is known

    def _open_subscriber(self) -> Any:
        channel_file = self._channel_file = open_channel_file(self._zmq_endpoint, settings.get_prefix())
        history, most_views, conflate, newest, raises, own = 0, 1, False, False, False, True
        return open_subscriber(channel_file, BRIDGE_NODE_NAME, history, most_views, conflate, newest, raises, own, None)

    def poll(self, state: Any) -> None:
        """Start forwarding, and start again if the channel was created again."""
        inode = state
        if inode is None:
            return  # the channel was removed; a new channel is found later
        if self._channel_file is not None and self._pub is not None and self._channel_file.inode != inode:
            self.forward()  # the remaining messages of the removed channel
            self.close()  # keeps the counts
        if self._pub is None:
            self._open_sockets()

    def forward(self) -> None:
        """Forward waiting messages, up to the batch limit."""
        self._take_batch()
        self._update_lost_count()
        self._send_taken()
        if self._receive_error is not None:
            self.close()  # the next update opens the channel again
            self._set_state(str(self._receive_error))

    def _take_batch(self) -> None:
        """Take up to a batch of messages that no bridge forwarded.

        `_receive_error`: error that ended the batch, or None.
        """
        self._receive_error = None
        for _ in range(BATCH_MESSAGES):
            try:
                if not self._received:  # else the exception of a signal handler left one
                    self._received.extend(map(self._sub.receive, (0,)))
            except SegmentError as error:
                if isinstance(error, SegmentSizeError) or error.errno in _OUT_OF_RESOURCE_ERRNOS:
                    self._receive_error = error
                    break
                _logger.warning("%s", error)  # the next call continues after the message
                continue
            message = self._received[0]
            if message is not None and self._sub.last.publisher.name != BRIDGE_NODE_NAME:
                self._taken += (message,)  # without a call, after which a signal handler could raise
            del self._received[0]
            if message is None:
                break

    def close(self) -> None:
        """Close both sockets, and free the name on ZMQ. The counters stay."""
        super().close()
        self._received.clear()


class IncomingChannelLink(IncomingLink):
    """Forwards from ZMQ to a channel, as a publisher of the node BRIDGE_NODE_NAME."""

    name_prefix = KIND.name_prefix

    _channel_file: ChannelFile | None = None

    def poll(self, state: Any) -> None:
        """Join or create the channel. If the channel was removed, join again."""
        if self._channel_file is not None and self._channel_file.inode != state:
            self._leave_channel()
        if self._pub is not None:
            return
        try:
            self._channel_file = open_channel_file(
                self._zmq_endpoint, settings.get_prefix(), None, writable=True, creator=BRIDGE_NODE_NAME
            )
            self._pub = open_publisher(self._channel_file, BRIDGE_NODE_NAME, None, None, POOL_BYTES_MAX)
        except InvalidValueError:
            raise
        except IpcError as error:
            self._leave_channel()
            self._set_state(f"not published here: {error}")
            return
        self._set_state(FORWARDING_STATE)

    def _publish_message(self, message: bytes) -> bool:
        try:
            self._pub.send(message)
        except (PoolExhaustedError, MessageTooLargeError) as error:
            _logger.warning("dropped: %s", error)
        except IpcError as error:  # the channel was removed, or has too many publishers; the next update joins again
            self._leave_channel()
            self._set_state(f"not published here: {error}")
        else:
            return True
        return False

    def _leave_channel(self) -> None:
        self._close_publisher()
        channel_file, self._channel_file = self._channel_file, None
        if channel_file is not None:
            channel_file.close()

    def close(self) -> None:
        """Close both sockets. The counters stay."""
        super().close()
        self._leave_channel()


def _find_channel_inodes() -> dict[str, int]:
    return {KIND.endpoint(name): inode for name, inode in list_inodes(KIND).items()}


BRIDGE = KindBridge(
    find_endpoint_states=_find_channel_inodes,
    open_outgoing_link=OutgoingChannelLink,
    open_incoming_link=lambda loop, channel, host, _: IncomingChannelLink(loop, channel, host),
)
