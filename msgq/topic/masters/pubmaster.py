"""One publisher of many topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Self

from msgq.topic import api
from msgq.topic.masters.topic_names import TopicDict, check_callables, name_topic_in_errors, parse_topic_rates

_EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


class PubMaster:
    """Publishes on many topics.

    One thread at a time may use a topic; different topics may be sent by different threads. After a fork a
    topic belongs to the process that sends on it last, and the other one gets `MultiplePublishersError`.

    Parameters
    ----------
    topics : the endpoints' names. The dictionary that a `SubMaster` takes will do.
    encoders : by topic, what makes data into bytes: any callable of one argument. None or missing: data is bytes.
    segment_sizes : by topic, bytes of the ring, as in `pub_sock`.
    prefix : instead of OPENPILOT_PREFIX, "" for none.

    Raises
    ------
    UnknownTopicError : `encoders` or `segment_sizes` name a topic that is not in `topics`.
    TypeError : a value of the wrong type; names the topic.
    IpcError : as `PubSocket.connect`; nothing stays open.
    """

    def __init__(
        self,
        topics: Iterable[str],
        *,
        encoders: Mapping[str, Callable[[Any], Any] | None] = _EMPTY_MAPPING,
        segment_sizes: Mapping[str, int] = _EMPTY_MAPPING,
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
                with name_topic_in_errors(name):
                    self._sockets[name] = api.pub_sock(name, segment_sizes.get(name, 0), prefix=prefix)
        except BaseException:
            self.close()
            raise

    def send(self, topic: str, data: Any) -> None:
        """Encode and publish one message.

        Raises
        ------
        UnknownTopicError : not a topic of this one.
        IpcError and others : as `PubSocket.send`; and what the encoder raises. Nothing was sent then. A TypeError of
            either names the topic.
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
        """Wait until each topic has subscribers, or these are up to date.

        Parameters
        ----------
        topics : one name or several; None: all.
        timeout : seconds for all of them together; None waits for ever.
        n : at least so many subscribers are attached to each, whatever they have read; None: as `all_readers_updated`.

        Raises
        ------
        UnknownTopicError : not a topic of this one.
        WaitTimeoutError : it did not come about in time; names the topic. Also a TimeoutError.
        InvalidValueError : a negative time-out or `n`.
        """
        for name in self._sockets.select_topics(self._sockets if topics is None else topics):
            started = time.monotonic()
            self._sockets[name].wait_for_readers(timeout, n=n)
            if timeout is not None:
                timeout = max(0.0, timeout - (time.monotonic() - started))

    def all_readers_updated(self, topic: str) -> bool:
        """Tell whether every living subscriber of a topic has read all that was published. False when there is none.

        Raises
        ------
        UnknownTopicError : not a topic of this one.
        """
        return self._sockets[topic].all_readers_updated()

    def close(self) -> None:
        """Close the sockets; what was published stays readable. Closing twice does nothing.

        Raises
        ------
        ConcurrentUseError : another thread is in the middle of a send. Close again after it.
        """
        for socket in self._sockets.values():
            socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
