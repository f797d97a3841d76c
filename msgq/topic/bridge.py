"""Forwarding of topics from a ring to ZMQ, and from ZMQ to a ring."""

from __future__ import annotations

import logging
import time
from typing import Any

from msgq.common import settings
from msgq.errors import (
    CorruptSegmentError,
    InvalidValueError,
    IpcError,
    MessageSizeError,
    MultiplePublishersError,
    SegmentError,
    SegmentSizeError,
)
from msgq.impl.ring.core import TopicObserver
from msgq.kinds.bridge import (
    FORWARDING_STATE,
    BridgeLoop,
    IncomingLink,
    KindBridge,
    OutgoingLink,
    open_socket,
)
from msgq.kinds.snapshots import read_all
from msgq.topic.names import KIND
from msgq.topic.stats import describe_publisher, may_have_publisher

PUBLISHER_CHECK_SECONDS = 0.1  # a check of a topic's publisher serves for so long

_logger = logging.getLogger(__name__)


class RingToZmqLink(OutgoingLink):
    """Forwards from the ring to ZMQ.

    The link is a normal subscriber of the ring, so it sleeps until a message arrives. A passive subscriber would poll.
    """

    def __init__(self, loop: BridgeLoop, topic: str, zmq_names: dict[str, str]) -> None:
        super().__init__(loop, topic, zmq_names)
        self._publisher_checked_s = 0.0  # time of the last check that the publisher is no bridge

    def _open_subscriber(self) -> Any:
        return open_socket("msgq", "SubSocket", self._topic)

    def poll(self, state: Any) -> None:
        """Start or stop forwarding, according to the topic's publisher."""
        if state is not None:  # None: the topic was removed; a new topic is found later
            self._check_publisher()

    def _check_publisher(self) -> None:
        bridge = _find_bridge(self._topic)
        if bridge:
            self._taken.clear()  # messages of that bridge
            self.close()
            self._set_state(f"not published on ZMQ: another bridge publishes it here, {bridge}")
            return
        self._publisher_checked_s = time.monotonic()
        if self._pub is None:
            self._open_sockets()

    def forward(self) -> None:
        """Forward waiting messages, up to the batch limit."""
        try:
            self._take_batch()
        except CorruptSegmentError as error:  # the next call continues after the message
            _logger.warning("%s", error)
            return
        except SegmentSizeError as error:  # the next update connects again
            self.close()
            self._set_state(str(error))
            return
        self._update_lost_count()
        if time.monotonic() - self._publisher_checked_s > PUBLISHER_CHECK_SECONDS:
            self._check_publisher()
            if self._pub is None:
                return
        self._send_taken()


class ZmqToRingLink(IncomingLink):
    """Forwards from ZMQ to the ring."""

    def __init__(self, loop: BridgeLoop, topic: str, host: str, segment_size: int) -> None:
        super().__init__(loop, topic, host)
        self._segment_size = segment_size

    def poll(self, state: Any) -> None:
        """Become the ring's publisher if it has none. The link never takes a topic over."""
        if self._pub is not None:
            return
        topic = state
        if topic is not None and may_have_publisher(topic):
            self._set_state(f"not published here: {describe_publisher(topic)} is its publisher")
            return
        try:
            self._pub = open_socket("msgq", "PubSocket", self._topic, self._segment_size)
        except InvalidValueError:
            raise
        except IpcError as error:
            self._set_state(f"cannot come in: {error}")
            return
        self._set_state(FORWARDING_STATE)

    def _publish_message(self, message: bytes) -> bool:
        try:
            self._pub.send(message)
        except (MultiplePublishersError, SegmentSizeError) as error:
            self._close_publisher()
            self._set_state(f"cannot come in: {error}")
        except (MessageSizeError, SegmentError) as error:  # the latter where there is no memory for it
            _logger.warning("dropped: %s", error)
        else:
            return True
        return False


def _find_bridge(topic: str) -> str:
    """Return the living bridge that publishes a topic on this host, as text; "": none, or the topic is unreadable."""
    try:
        observer = TopicObserver(topic, settings.get_prefix())
        return describe_publisher(observer.stats()) if observer.is_bridged() else ""
    except SegmentError:
        return ""


BRIDGE = KindBridge(
    find_endpoint_states=lambda: {topic.endpoint: topic for topic in read_all(KIND)},
    open_outgoing_link=RingToZmqLink,
    open_incoming_link=ZmqToRingLink,
)
