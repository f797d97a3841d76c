"""Publishing on topics from the command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgq.common.schema import Schema
from msgq.impl import backend as backends
from msgq.impl.ring import PubSocket
from msgq.kinds.publish import KindPublish, PublishOptions, PublishRefusedError, PublishTarget
from msgq.topic.stats import describe_publisher, may_have_publisher, read_topic


class TopicPublishTarget(PublishTarget):
    """A topic in shared memory, for any chosen backend. A living publisher is an error."""

    def __init__(self, options: PublishOptions) -> None:
        super().__init__(options, _read_free_topic_schema(options.endpoint, options.force))
        backends.current_backend()  # an error if MSGQ_BACKEND names none that is available
        self._socket = PubSocket()

    def _open_endpoint(self) -> None:
        self._socket.connect(backends.context, self._name, schema=self._new_schema)

    def _send_message(self, data: bytes) -> None:
        self._socket.send(data)

    def _close_endpoint(self) -> None:
        self._socket.close()

    def wait_for_readers(self, readers: int) -> None:
        """Wait until `readers` subscribers exist."""
        self._socket.wait_for_readers(self._options.timeout, n=readers)

    def summarize_messages(self) -> dict[str, Any]:
        """Return the totals of published messages, including those of previous publishers."""
        return asdict(self._socket.stats())


def _read_free_topic_schema(endpoint: str, force: bool) -> Schema | None:
    """Return the schema of a topic. Raises an error if a process may publish on the topic."""
    topic = read_topic(endpoint)
    if topic is None:
        return None
    if may_have_publisher(topic) and not force:
        text = f"{endpoint} is published by {describe_publisher(topic)}, which pub would replace"
        raise PublishRefusedError(f"{text}; to replace the publisher, give --force")
    return topic.schema


PUBLISH = KindPublish(TopicPublishTarget, frozenset({"force"}))
