"""Publisher of many topics."""

from __future__ import annotations

from msgq.common.closing import ClosingContext
from msgq.common.texts import join_first_texts
from msgq.impl import backend
from msgq.topic import api
from msgq.topic.masters.topic_names import (
    EMPTY_MAPPING,
    TopicDict,
    TopicErrors,
    check_callables,
    parse_topic_rates,
)

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any


class PubMaster(ClosingContext):
    """Publishes on many topics.

    One thread at a time may use a topic. Different threads may send on different topics. After a fork, a topic belongs
    to the process that sent last. The other process gets `MultiplePublishersError`.

    Args:
        topics: one name or several. The dictionary of a `SubMaster` is accepted, too.
        encoders: by topic, a callable that converts data to bytes. None or missing: data is bytes.
        segment_sizes: by topic, bytes of the ring, as in `pub_sock`.
        prefix: prefix of the topics, "" for none; None: OPENPILOT_PREFIX.

    Raises:
        UnknownTopicError: `encoders` or `segment_sizes` contain a topic that is not in `topics`.
        TypeError: a value has a wrong type; the text names the topic.
        IpcError: see `PubSocket.connect`. All sockets are closed again.
    """

    def __init__(
        self,
        topics: str | Iterable[str],
        *,
        encoders: Mapping[str, Callable[[Any], Any] | None] = EMPTY_MAPPING,
        segment_sizes: Mapping[str, int] = EMPTY_MAPPING,
        prefix: str | None = None,
    ) -> None:
        names = parse_topic_rates(topics)
        for topics_by_option in (encoders, segment_sizes):
            names.select_topics(topics_by_option)
        check_callables(encoders, "an encoder")
        self._encoders = dict(encoders)
        self._sockets: TopicDict[api.PubSocket] = TopicDict()
        try:
            for name in names:
                with TopicErrors(name):
                    self._sockets[name] = api.pub_sock(name, segment_sizes.get(name, 0), prefix=prefix)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<msgq PubMaster of {join_first_texts(map(repr, self._sockets)) or 'no topics'}>"

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._sockets)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the topics."""
        return iter(self._sockets)

    def send(self, topic: str, data: Any) -> None:
        """Encode and publish one message.

        Args:
            topic: name of the topic.
            data: argument of the encoder, or bytes.

        Raises:
            UnknownTopicError: the name is not a topic of this master.
            TypeError: the encoder or the socket refused the data; the text names the topic.
            IpcError: see `PubSocket.send`.

        Notes:
            Other exceptions of the encoder pass through. After an exception, the message was not sent.
        """
        socket = self._sockets[topic]
        encoder = self._encoders.get(topic)
        try:
            socket.send(encoder(data) if encoder else data)
        except TypeError as error:  # not by in_topic, which costs
            raise TypeError(f"{topic!r}: {error}") from error

    def wait_for_readers(
        self, topics: str | Iterable[str] | None = None, timeout: float | None = 1.0, n: int | None = None
    ) -> None:
        """Wait until each topic has subscribers, or its subscribers have read all messages.

        Args:
            topics: one name or several; None: all topics. With an empty list, the call does not wait.
            timeout: seconds for all topics together; None waits without limit.
            n: number of subscribers per topic to wait for, regardless of unread messages; None: wait for
                `all_readers_updated`.

        Raises:
            UnknownTopicError: a name is not a topic of this master.
            WaitTimeoutError: the time-out passed; the text names the topic. Also a TimeoutError.
            InvalidValueError: `timeout` or `n` is negative.
        """
        for name in self._sockets.select_topics(self._sockets if topics is None else topics):
            started = backend.monotonic()
            self._sockets[name].wait_for_readers(timeout, n=n)
            if timeout is not None:
                timeout = max(0.0, timeout - (backend.monotonic() - started))

    def all_readers_updated(self, topic: str) -> bool:
        """Return True if every living subscriber of a topic has read all messages; False if no subscriber exists.

        Raises:
            UnknownTopicError: the name is not a topic of this master.
        """
        return self._sockets[topic].all_readers_updated()

    def close(self) -> None:
        """Close the sockets. Published messages stay readable. A second close has no effect.

        Raises:
            ConcurrentUseError: another thread is sending. Close again afterwards.
        """
        for socket in self._sockets.values():
            socket.close()
