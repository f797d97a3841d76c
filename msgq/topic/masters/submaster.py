"""Subscriber of many topics with checks of their rates."""

from __future__ import annotations

from msgq.common.closing import ClosingContext
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.errors import EndpointClosedError
from msgq.topic import api
from msgq.topic.masters.rate_check import make_rate_check
from msgq.topic.masters.topic_names import (
    EMPTY_MAPPING,
    TopicDict,
    TopicErrors,
    check_callables,
    check_rate,
    parse_topic_rates,
)
from msgq.topic.masters.topic_receiver import MasterTopic, RateCheck, TopicReceiver

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any


class SubMaster(ClosingContext):
    """Subscribes to many topics, and reports new messages, rates and validity by topic.

    Each `update` takes the arrived messages and sets these dictionaries by topic:

    ==============  ===================================================================================================
    `updated`       True if the latest update took a message
    `seen`          True if any update took a message
    `data`          newest message, decoded; None before the first. ``sm[topic]`` is short for ``sm.data[topic]``
    `messages`      all messages of the latest update, decoded, oldest first. At most one if the topic conflates
    `recv_time`     seconds of the clock when `data` was taken; 0.0 before the first
    `recv_frame`    number of that update; 0 before the first
    `alive`         True if `data` is younger than 10 periods of the topic's own rate; exactly 10 is too old
    `freq_ok`       True if the average rate is 0.8 to 1.2 times the expected rate, over 10 s' worth of messages or over
                    the newest tenth of them. False until the second message
    `valid`         True if the newest message was decoded, and its validator accepted it; False before the first
    `lost`          number of skipped messages, by conflation or a slow subscriber, as in `SubSocket.lost`
    `decode_errors` number of messages that could not be decoded
    ==============  ===================================================================================================

    Read these dictionaries, and do not replace them or their entries: an update sets only the entries that can have
    changed.

    `frame` is the number of the latest update, from 1. A topic with a rate of None or 0 is alive after its first
    message, and its rate is always right.

    The expected rate of a topic depends on the loop:

    - Topics in `keep_all`: the topic's own rate.
    - Conflating topics: the lower of the topic's own rate and the rate of the updates, because an update takes one
      message. The rate of the updates is `frequency`. Without `frequency`, the rate of the updates is the highest rate
      in `poll`, and the upper limit follows from the topic's own rate.
    - Sampled topics: the loop does not wait for the topic, or has a `frequency` and no `poll`. If the two rates differ
      by less than a factor of 2, half of the lower limit is allowed. The two clocks drift, so an update sometimes finds
      two messages and sometimes none.

    `msgq.topic.masters.topic_receiver.RateCheck` describes the windows and the effect of silence.

    If the decoder or the validator raises an `Exception`, the message is skipped: `valid` is False until the next good
    message, and `decode_errors` counts the message. The first such exception of each topic is logged with its
    traceback. `update` raises no error, so one bad publisher does not stop the loop.

    One thread at a time may use the object. `close` may come from another thread and ends an `update` that waits. After
    a fork, the child's object continues independently.

    Args:
        topics: names of the topics with their publishing rates in Hz, 0 to 1e6; or one name or several without rates.
        poll: topics that `update` waits for, one name or several. `update` checks the other topics without waiting.
            None: all. With an empty list, `update` does not wait.
        ignore_alive: topics that `all_alive` and `all_freq_ok` skip. One name or several; default: none.
        ignore_avg_freq: topics that `all_freq_ok` skips. One name or several; default: none.
        ignore_valid: topics that `all_valid` skips. One name or several; default: none.
        addr: host of the publishers; used by the ZMQ backend only.
        frequency: rate of the calls of `update` in Hz, if the loop has its own rate.
        decoders: by topic, a callable that converts the bytes of a message to data. None or missing: data is bytes.
        validators: by topic, a callable that returns True for valid data. None or missing: all data is valid.
        keep_all: topics without conflation, one name or several: `update` takes and decodes every message. Default:
            none.
        segment_sizes: by topic, bytes of the ring, as in `sub_sock`.
        clock: callable that returns seconds and never goes back; None: `time.monotonic`, also if a simulation has
            patched `time`.
        connect: False creates no sockets, for replay and tests. In this case, use `update_msgs`.
        prefix: prefix of the topics, "" for none; None: OPENPILOT_PREFIX.

    Raises:
        UnknownTopicError: an argument contains a topic that is not in `topics`.
        InvalidValueError: a rate or `frequency` is out of range.
        TypeError: a value has a wrong type; the text names the topic.
        IpcError: see `SubSocket.connect`. All sockets are closed again.
    """

    def __init__(
        self,
        topics: Mapping[str, float | None] | str | Iterable[str],
        poll: str | Iterable[str] | None = None,
        ignore_alive: str | Iterable[str] = (),
        ignore_avg_freq: str | Iterable[str] = (),
        ignore_valid: str | Iterable[str] = (),
        addr: str = "127.0.0.1",
        frequency: float | None = None,
        *,
        decoders: Mapping[str, Callable[[bytes], Any] | None] = EMPTY_MAPPING,
        validators: Mapping[str, Callable[[Any], Any] | None] = EMPTY_MAPPING,
        keep_all: str | Iterable[str] = (),
        segment_sizes: Mapping[str, int] = EMPTY_MAPPING,
        clock: Callable[[], float] | None = None,
        connect: bool = True,
        prefix: str | None = None,
    ) -> None:
        rates = parse_topic_rates(topics)
        for topics_by_option in (decoders, validators, segment_sizes):
            rates.select_topics(topics_by_option)
        check_callables(decoders, "a decoder")
        check_callables(validators, "a validator")
        polled_topics, keep_all_topics = (
            set(rates.select_topics(names)) for names in (rates if poll is None else poll, keep_all)
        )
        rate_checks = _make_rate_checks(
            rates, polled_topics, keep_all_topics, frequency or None, sampled=poll is None and bool(frequency)
        )
        self._topics: TopicDict[MasterTopic] = TopicDict()
        for name, rate_check in rate_checks.items():
            decoder, validator = decoders.get(name), validators.get(name)
            self._topics[name] = MasterTopic(
                name, rate_check, name in polled_topics, name in keep_all_topics, decoder, validator
            )
        self._topics_needing_alive = set(rates) - set(rates.select_topics(ignore_alive))
        self._topics_needing_freq = self._topics_needing_alive - set(rates.select_topics(ignore_avg_freq))
        self._topics_needing_valid = set(rates) - set(rates.select_topics(ignore_valid))
        self._clock = clock

        self.frame = 0
        self.updated: dict[str, bool] = TopicDict.fromkeys(rates, False)
        self.seen: dict[str, bool] = TopicDict.fromkeys(rates, False)
        self.alive: dict[str, bool] = TopicDict.fromkeys(rates, False)
        self.freq_ok: dict[str, bool] = TopicDict(
            (name, rate_check is None) for name, rate_check in rate_checks.items()
        )
        self.valid: dict[str, bool] = TopicDict.fromkeys(rates, False)
        self.recv_time: dict[str, float] = TopicDict.fromkeys(rates, 0.0)
        self.recv_frame: dict[str, int] = TopicDict.fromkeys(rates, 0)
        self.data: dict[str, Any] = TopicDict.fromkeys(rates)
        self.messages: dict[str, list[Any]] = TopicDict((name, []) for name in rates)
        self.decode_errors: dict[str, int] = TopicDict.fromkeys(rates, 0)
        self._receiver = TopicReceiver(self, self._topics)
        self._connect_sockets(self._topics.values() if connect else (), addr, segment_sizes, prefix)

    def _connect_sockets(
        self, topics: Iterable[MasterTopic], addr: str, segment_sizes: Mapping[str, int], prefix: str | None
    ) -> None:
        self._sockets: TopicDict[api.SubSocket] = TopicDict()
        self._poller = api.Poller()
        try:
            for topic in topics:
                size = segment_sizes.get(topic.name, 0)
                with TopicErrors(topic.name):
                    newest = not topic.keep_all
                    socket = api.sub_sock(topic.name, None, addr, newest, segment_size=size, prefix=prefix)
                self._sockets[topic.name] = socket
                self._receiver.add_socket(topic, socket)
                if topic.is_polled:
                    self._poller.registerSocket(socket)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        seen = f"{sum(self.seen.values())} of {format_count_noun(len(self._topics), 'topic')} seen"
        return f"<msgq SubMaster of {join_first_texts(map(repr, self._topics)) or 'no topics'}: {seen}>"

    def __getitem__(self, topic: str) -> Any:
        """Return the newest data of a topic; None before the first message."""
        return self.data[topic]

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._topics)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the topics."""
        return iter(self._topics)

    @property
    def lost(self) -> dict[str, int | None]:
        """Number of messages, by topic, that were published since construction and skipped; None: unknown."""
        return TopicDict((name, self._sockets[name].lost if self._sockets else 0) for name in self._topics)

    def update(self, timeout: float = 100) -> None:
        """Wait for messages of the topics in `poll`, then take the arrived messages of all topics.

        Args:
            timeout: milliseconds (compatibility: stock's unit), 0 to 2**31 - 1; -1 waits without limit. After the
                time-out, `update` continues without an awaited message. With an empty `poll`, the call does not wait.

        Raises:
            InvalidValueError: the time-out is out of range, or the clock went back.
            EndpointClosedError: the object is closed, or has no sockets.
            IpcError: see `SubSocket.receive`; the text names the topic. Messages of other topics are in place.
        """
        if not self._sockets:
            raise EndpointClosedError("SubMaster has no sockets; call update_msgs, or create it with sockets")
        ready = self._poller.poll(timeout)
        try:
            self._receiver.update(ready, self._clock)
        finally:
            self.frame = self._receiver.frame

    def update_msgs(self, now: float, messages: Iterable[tuple[str, Any]]) -> None:
        """Update from given messages instead of sockets. The sockets stay untouched.

        Args:
            now: seconds of the clock, not before the previous update.
            messages: pairs of topic and encoded message, in the order of arrival. For a conflating topic, the last one
                is taken.

        Raises:
            UnknownTopicError: a topic is not a topic of this master. Nothing was updated.
            InvalidValueError: `now` is before the previous update. Nothing was updated.
        """
        try:
            self._receiver.update_msgs(now, messages)
        finally:
            self.frame = self._receiver.frame

    def all_alive(self, topics: str | Iterable[str] | None = None) -> bool:
        """Return True if all topics, or all named topics, are alive. Skips the topics in `ignore_alive`.

        Args:
            topics: one name or several; None: all topics. An empty list holds no topic that could fail.

        Raises:
            UnknownTopicError: a name is not a topic of this master.
        """
        return self._all_hold(self.alive, self._topics_needing_alive, topics)

    def all_freq_ok(self, topics: str | Iterable[str] | None = None) -> bool:
        """Return True if all topics, or all named topics, have their expected rate.

        Skips the topics in `ignore_avg_freq` and in `ignore_alive`.

        Args:
            topics: one name, several or None, as for `all_alive`.

        Raises:
            UnknownTopicError: a name is not a topic of this master.
        """
        return self._all_hold(self.freq_ok, self._topics_needing_freq, topics)

    def all_valid(self, topics: str | Iterable[str] | None = None) -> bool:
        """Return True if all topics, or all named topics, are valid. Skips the topics in `ignore_valid`.

        Args:
            topics: one name, several or None, as for `all_alive`.

        Raises:
            UnknownTopicError: a name is not a topic of this master.
        """
        return self._all_hold(self.valid, self._topics_needing_valid, topics)

    def all_checks(self, topics: str | Iterable[str] | None = None) -> bool:
        """Return True if `all_alive`, `all_freq_ok` and `all_valid` return True.

        Args:
            topics: one name, several or None, as for `all_alive`.

        Raises:
            UnknownTopicError: a name is not a topic of this master.
        """
        names = None if topics is None else self._topics.select_topics(topics)
        return self.all_alive(names) and self.all_freq_ok(names) and self.all_valid(names)

    def _all_hold(self, values: dict[str, bool], needed: set[str], topics: str | Iterable[str] | None) -> bool:
        if topics is None:
            return all(values[name] for name in needed)
        return all(values[name] for name in self._topics.select_topics(topics) if name in needed)

    def close(self) -> None:
        """Close the sockets. The received data stays. A second close has no effect."""
        for socket in self._sockets.values():
            socket.close()


def _make_rate_checks(
    rates: TopicDict[float | None],
    polled_topics: set[str],
    keep_all_topics: set[str],
    frequency: float | None,
    sampled: bool,
) -> dict[str, RateCheck | None]:
    """Return the rate check of each topic.

    `sampled`: True if the loop has its own frequency, and does not wait for topics.
    """
    check_rate(frequency)
    awaited = max((rates[name] or 0.0 for name in polled_topics), default=0.0)
    update_rate = frequency or awaited or None
    rate_checks: dict[str, RateCheck | None] = {}
    for name, rate in rates.items():
        if rate is None:
            rate_checks[name] = None
        elif name in keep_all_topics:
            rate_checks[name] = make_rate_check(rate, None, is_update_rate_declared=False, is_waited_for=True)
        else:
            is_waited_for = name in polled_topics and not sampled
            rate_checks[name] = make_rate_check(
                rate, update_rate, is_update_rate_declared=frequency is not None, is_waited_for=is_waited_for
            )
    return rate_checks
