"""Playback of topics: one publisher for each recorded schema, one after the other, and a sufficiently large ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq.common import settings
from msgq.errors import MessageTooLargeError, MultiplePublishersError, SegmentSizeError, WaitTimeoutError
from msgq.impl import backend as backends
from msgq.kinds.playback import (
    EndpointSpec,
    EndpointWriter,
    KindPlayback,
    PlaybackMessage,
    PlaybackTarget,
    UnplayableError,
    make_usable_schema,
)
from msgq.kinds.snapshots import read
from msgq.topic.names import KIND
from msgq.topic.stats import describe_publisher, may_have_publisher, read_topic

if TYPE_CHECKING:
    from msgq.common.schema import Schema
    from msgq.impl.ring import PubSocket

DEFAULT_RING_BYTES = 1 << 20  # size of a new ring that needs no more


def compute_ring_bytes(largest: int) -> int:
    """Return the bytes of a ring for messages of `largest` bytes. A message may take a third of the ring."""
    return 3 * (largest + 64)


class TopicWriter(EndpointWriter):
    """Publishes on a topic. See `EndpointWriter`.

    Attributes:
        socket: the publisher.
    """

    def __init__(self, spec: EndpointSpec, target: PlaybackTarget) -> None:
        super().__init__(spec)
        self._target, self._schema = target, spec.schema
        with settings.overrides(target.prefix):
            self._check_no_publisher()
            self.socket: PubSocket = self._connect_publisher()

    def _check_no_publisher(self) -> None:
        """Raise an error if the topic may have a publisher. A takeover would end its publishing."""
        name, target = self.spec.endpoint, self._target
        if target.backend != "msgq" or target.take_over:
            return
        topic = read_topic(name, target.prefix)
        if topic is not None and may_have_publisher(topic):
            text = f"{describe_publisher(topic)} publishes this topic, and playing would replace it"
            text = f"{text}; remap the endpoint, choose another prefix, or give take_over"
            raise MultiplePublishersError(f"{text} (--remap {name}:=NEW, --prefix NAME, --take-over)", name)

    def _connect_publisher(self) -> PubSocket:
        name, target, needed_bytes = self.spec.endpoint, self._target, compute_ring_bytes(self.spec.max_message_bytes)
        socket: PubSocket = target.backend_module.PubSocket()
        context = target.backend_module.Context()
        options: dict[str, Any] = {"schema": make_usable_schema(self._schema)}
        if self.spec.tracked and target.backend != "zmq":
            options["tracked"] = True
        try:
            socket.connect(
                context, name, target.segment_size or max(DEFAULT_RING_BYTES, needed_bytes + 4095 & ~4095), **options
            )
        except SegmentSizeError:  # it exists; its subscribers decided
            socket.connect(context, name, **options)
        ring_data_bytes = read(KIND, name, target.prefix).data_bytes if target.backend == "msgq" else needed_bytes
        if ring_data_bytes < needed_bytes:
            socket.close()
            size = self.spec.max_message_bytes
            text = f"ring has {ring_data_bytes} bytes, but a message of {size} bytes needs {needed_bytes}"
            raise SegmentSizeError(
                f"{text}; stop the processes of the topic and remove the topic (msgq clean), choose another prefix, "
                "or remap the topic",
                name,
            )
        return socket

    def send(self, message: PlaybackMessage) -> None:
        """See `EndpointWriter`."""
        if message.schema not in (None, self._schema) and self._target.backend != "zmq":  # ZMQ sends no schemas
            self._change_schema(message.schema)
        try:
            if message.age_ns is None or not self.socket.tracked:
                self.socket.send(message.data)
            else:
                self.socket.send(message.data, origin_time=self._target.compute_origin_time(message.age_ns))
        except MessageTooLargeError as error:
            raise UnplayableError(str(error)) from None

    def _change_schema(self, schema: Schema | None) -> None:
        """Replace the publisher, as in the recording: a publisher has one schema."""
        if make_usable_schema(schema) is None:
            raise UnplayableError("the schema of some messages is too large or has no name, and other messages differ")
        self.socket.close()
        self._schema = schema
        with settings.overrides(self._target.prefix):
            self.socket = self._connect_publisher()

    @property
    def ring_socket(self) -> PubSocket | None:
        """See `EndpointWriter`."""
        return None if self.spec.changes_schema and self._target.backend != "zmq" else self.socket

    def wait_for_readers(self, timeout: float) -> bool:
        """See `EndpointWriter`."""
        try:
            self.socket.wait_for_readers(timeout=timeout, n=1)
        except WaitTimeoutError:
            return False
        return True

    def close(self) -> None:
        """See `EndpointWriter`."""
        self.socket.close()


class _TopicPlayback(KindPlayback):
    is_carried_by_zmq = True

    def make_valid_name(self, name: str) -> str:
        return name.strip("/").replace("/", ".")

    def create_endpoint(self, spec: EndpointSpec) -> bool:
        """Create a ring if the default size is too small. The first socket of a topic determines the size."""
        needed_bytes = compute_ring_bytes(spec.max_message_bytes)
        if needed_bytes > DEFAULT_RING_BYTES:
            socket = backends.current_backend().PubSocket()
            socket.connect(backends.current_backend().Context(), spec.endpoint, needed_bytes)
            socket.close()
        return True


PLAYBACK = _TopicPlayback(TopicWriter)
