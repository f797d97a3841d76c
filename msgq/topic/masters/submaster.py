"""One subscriber of many topics, which knows how often each should come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from msgq.errors import EndpointClosedError, InvalidValueError
from msgq.topic import api
from msgq.topic.masters.rate_check import RateCheck, make_rate_check
from msgq.topic.masters.topic_names import (
    TopicDict,
    check_callables,
    check_rate,
    name_topic_in_errors,
    parse_topic_rates,
)

_logger = logging.getLogger(__name__)
_EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class _TopicOptions:
    """How to take the messages of one topic. `rate_check` is None when no rate is expected."""

    name: str
    rate_check: RateCheck | None
    is_polled: bool
    keep_all: bool
    decoder: Callable[[Any], Any] | None
    validator: Callable[[Any], Any] | None


class SubMaster:
    """Subscribes to many topics, and tells which of them have news, come at their rate, and are valid.

    Each `update` takes what has arrived, and by it sets these, all of them dictionaries by topic:

    ==============  ===================================================================================================
    `updated`       a message was taken in the latest update
    `seen`          a message was taken, ever
    `data`          the newest message, decoded; None before the first. ``sm[topic]`` is short for ``sm.data[topic]``
    `messages`      all messages of the latest update, decoded, oldest first: at most one where the topic conflates
    `recv_time`     the clock's seconds when `data` was taken; 0.0 before
    `recv_frame`    the number of that update; 0 before
    `alive`         `data` is younger than 10 periods of the topic's own rate; exactly 10 is too old
    `freq_ok`       the messages come at 0.8 to 1.2 times the rate that is expected, by their average over 10 s' worth
                    of messages or over the newest tenth of those. False until the second message
    `valid`         the newest message could be decoded, and its validator agreed; False before the first
    `lost`          messages that were passed over, by conflating or by being too slow, as `SubSocket.lost`
    `decode_errors` messages that could not be decoded
    ==============  ===================================================================================================

    `frame` counts the updates; the first one is 1. What is expected of a topic with a rate of None or 0 is nothing: it
    is alive as soon as it was seen, and its frequency is always right.

    Which rate is expected follows from two: of a topic that conflates, an update takes one message, so it is the lower
    one of its own and that at which `update` is called. The latter is `frequency`; without it, the highest rate among
    the topics that `update` waits for, and the topic's own rate sets the upper limit, since waiting for several topics
    means to update more often. A topic that is sampled (not waited for, or by a loop with a `frequency` of its own
    while `poll` is None) at nearly its rate, less than a factor of 2 apart, may come at half the lower limit, because
    two clocks that drift make an update find two messages, the next one none. Of a topic in `keep_all`, its own rate
    is expected. The windows, their borders, and what silence does: see
    `msgq.topic.masters.rate_check.RateCheck`.

    A message that cannot be decoded (the decoder or the validator raises an `Exception`) is as if it had not come, but
    that `valid` is False until the next good one, and that `decode_errors` counts it. The first one of each topic is
    logged, with its traceback. Nothing is raised, so that one bad publisher does not stop a loop of many topics.

    One thread at a time may use it; `close` may come from another one, and ends an `update` that waits. After a fork
    the child's goes on by itself.

    Parameters
    ----------
    topics : the endpoints' names and the rate in Hz at which each is published, 0 to 1e6; or names only.
    poll : topics that `update` waits for, one name or several; the others are looked at without waiting. None: all.
    ignore_alive, ignore_avg_freq, ignore_valid : topics that `all_alive`, `all_freq_ok` and `all_valid` leave out. One
        that need not be alive need not have a rate either.
    addr : the publishers' host; only the ZMQ backend uses it.
    frequency : Hz at which `update` is called, if the loop has a pace of its own.
    decoders : by topic, what makes a message's bytes into data: any callable of one argument. None or missing: bytes.
    validators : by topic, what tells by the decoded data whether it is valid. None or missing: all is.
    keep_all : topics that do not conflate: every message is taken and decoded.
    segment_sizes : by topic, bytes of the ring, as in `sub_sock`.
    clock : seconds that never go back; None: `time.monotonic`, also when a simulation has patched it.
    connect : False makes no sockets, for replay and tests: only `update_msgs` works then.
    prefix : instead of OPENPILOT_PREFIX, "" for none.

    Raises
    ------
    UnknownTopicError : an argument names a topic that is not in `topics`.
    InvalidValueError : a rate or `frequency` that is not possible.
    TypeError : a value of the wrong type; names the topic.
    IpcError : as `SubSocket.connect`; nothing stays open.
    """

    def __init__(
        self,
        topics: Mapping[str, float | None] | Iterable[str],
        poll: str | Iterable[str] | None = None,
        ignore_alive: Iterable[str] = (),
        ignore_avg_freq: Iterable[str] = (),
        ignore_valid: Iterable[str] = (),
        addr: str = "127.0.0.1",
        frequency: float | None = None,
        *,
        decoders: Mapping[str, Callable[[bytes], Any] | None] = _EMPTY_MAPPING,
        validators: Mapping[str, Callable[[Any], Any] | None] = _EMPTY_MAPPING,
        keep_all: Iterable[str] = (),
        segment_sizes: Mapping[str, int] = _EMPTY_MAPPING,
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
        self._topics: TopicDict[_TopicOptions] = TopicDict()
        for name, rate_check in rate_checks.items():
            decoder, validator = decoders.get(name), validators.get(name)
            self._topics[name] = _TopicOptions(
                name, rate_check, name in polled_topics, name in keep_all_topics, decoder, validator
            )
        self._rated_topics = [(name, rate_check) for name, rate_check in rate_checks.items() if rate_check is not None]
        self._topics_needing_alive = set(rates) - set(rates.select_topics(ignore_alive))
        self._topics_needing_freq = self._topics_needing_alive - set(rates.select_topics(ignore_avg_freq))
        self._topics_needing_valid = set(rates) - set(rates.select_topics(ignore_valid))
        self._clock = clock or (lambda: time.monotonic())  # looked up at each call: simulations patch it
        self._last_update_s = float("-inf")
        self._updated_topics: list[str] = []

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
        self._connect_sockets(self._topics.values() if connect else (), addr, segment_sizes, prefix)

    def _connect_sockets(
        self, topics: Iterable[_TopicOptions], addr: str, segment_sizes: Mapping[str, int], prefix: str | None
    ) -> None:
        self._sockets: TopicDict[api.SubSocket] = TopicDict()
        self._poller = api.Poller()
        self._polled_topics: dict[api.SubSocket, _TopicOptions] = {}
        self._drained_sockets: list[tuple[api.SubSocket, _TopicOptions]] = []
        try:
            for topic in topics:
                size = segment_sizes.get(topic.name, 0)
                with name_topic_in_errors(topic.name):
                    newest = not topic.keep_all
                    socket = api.sub_sock(topic.name, None, addr, newest, segment_size=size, prefix=prefix)
                self._sockets[topic.name] = socket
                if topic.is_polled:
                    self._poller.registerSocket(socket)
                    self._polled_topics[socket] = topic
                else:
                    self._drained_sockets.append((socket, topic))
        except BaseException:
            self.close()
            raise

    def __getitem__(self, topic: str) -> Any:
        """Return the newest data of a topic; None before the first message."""
        return self.data[topic]

    @property
    def lost(self) -> dict[str, int | None]:
        """Messages that were published since this was made and passed over, by topic; None where unknown."""
        return TopicDict((name, self._sockets[name].lost if self._sockets else 0) for name in self._topics)

    def update(self, timeout: float = 100) -> None:
        """Wait for news of the topics in `poll`, then take all that has arrived on any topic.

        Parameters
        ----------
        timeout : milliseconds to wait (compatibility: stock's unit), 0 to 2**31 - 1; -1 waits for ever. When the time
            is up, this is an update without news. With no topic to wait for it does not wait.

        Raises
        ------
        InvalidValueError : any other time-out, or the clock went back.
        EndpointClosedError : this is closed, or was made without sockets.
        IpcError : as `SubSocket.receive`, with the topic's name. What was taken of other topics is in place.
        """
        if not self._sockets:
            raise EndpointClosedError("this SubMaster has no sockets: use update_msgs, or make one that connects")
        messages: list[tuple[str, bytes]] = []
        ready = self._poller.poll(timeout)
        try:
            for socket in ready:
                _receive_topic(socket, self._polled_topics[socket], messages)
            for socket, topic in self._drained_sockets:
                _receive_topic(socket, topic, messages)
        finally:  # what was taken from a socket is nowhere else any more
            self.update_msgs(self._clock(), messages)

    def update_msgs(self, now: float, messages: Iterable[tuple[str, Any]]) -> None:
        """Update by messages of the caller's, as `update` does by those of the sockets, which this does not touch.

        Parameters
        ----------
        now : the clock's seconds; not before those of the former update.
        messages : topics and messages, to be decoded, in the order of their arrival. Of a topic that conflates, the
            last one is taken, as from a socket.

        Raises
        ------
        UnknownTopicError : a message is of a topic that is not here. Nothing was updated.
        InvalidValueError : `now` went back. Nothing was updated.
        """
        if not now >= self._last_update_s:
            raise InvalidValueError(f"now={now!r} is before the former update, at {self._last_update_s!r}")
        pending: dict[str, list[Any]] = {}
        for name, message in messages:
            if self._topics[name].keep_all:
                pending.setdefault(name, []).append(message)
            else:
                pending[name] = [message]
        for name in self._updated_topics:
            self.updated[name] = False
            self.messages[name] = []
        self._updated_topics = list(pending)
        self._last_update_s = now
        self.frame += 1
        for name, raw in pending.items():
            for message in raw:
                self._store_message(self._topics[name], message)
        for name, rate_check in self._rated_topics:
            self.alive[name] = now < rate_check.alive_until_s
            self.freq_ok[name] = now <= rate_check.rate_ok_until_s

    def _store_message(self, topic: _TopicOptions, message: Any) -> None:
        name = topic.name
        try:
            data = topic.decoder(message) if topic.decoder else message
            valid = bool(topic.validator(data)) if topic.validator else True
        except Exception as error:
            self.valid[name] = False
            self.decode_errors[name] += 1
            if self.decode_errors[name] == 1:
                _logger.warning("%r: a message could not be decoded: %r", name, error, exc_info=True)
            return
        self.data[name] = data
        self.messages[name].append(data)
        self.valid[name] = valid
        self.updated[name] = self.seen[name] = True
        self.recv_time[name] = self._last_update_s
        self.recv_frame[name] = self.frame
        if topic.rate_check:
            topic.rate_check.add_receipt(self._last_update_s)
        else:
            self.alive[name] = True

    def all_alive(self, topics: Iterable[str] | None = None) -> bool:
        """Tell whether all topics are alive, or all of those named, without the ones in `ignore_alive`."""
        return self._all_hold(self.alive, self._topics_needing_alive, topics)

    def all_freq_ok(self, topics: Iterable[str] | None = None) -> bool:
        """Tell the same of `freq_ok`, without the topics in `ignore_avg_freq` and in `ignore_alive`."""
        return self._all_hold(self.freq_ok, self._topics_needing_freq, topics)

    def all_valid(self, topics: Iterable[str] | None = None) -> bool:
        """Tell the same of `valid`, without the topics in `ignore_valid`."""
        return self._all_hold(self.valid, self._topics_needing_valid, topics)

    def all_checks(self, topics: Iterable[str] | None = None) -> bool:
        """Tell whether all three hold.

        Raises
        ------
        UnknownTopicError : this one and the three raise it when a topic is named that is not here.
        """
        names = None if topics is None else self._topics.select_topics(topics)
        return self.all_alive(names) and self.all_freq_ok(names) and self.all_valid(names)

    def _all_hold(self, values: dict[str, bool], needed: set[str], topics: Iterable[str] | None) -> bool:
        if topics is None:
            return all(values[name] for name in needed)
        return all(values[name] for name in self._topics.select_topics(topics) if name in needed)

    def close(self) -> None:
        """Close the sockets; what was taken stays. Closing twice does nothing."""
        for socket in self._sockets.values():
            socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_rate_checks(
    rates: TopicDict[float | None],
    polled_topics: set[str],
    keep_all_topics: set[str],
    frequency: float | None,
    sampled: bool,
) -> dict[str, RateCheck | None]:
    """Return what is expected of each topic. `sampled`: the loop's own frequency decides, not what it waits for."""
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


def _receive_topic(socket: api.SubSocket, topic: _TopicOptions, messages: list[tuple[str, bytes]]) -> None:
    """Take what is there, without waiting: everything, or of a topic that conflates the newest message."""
    if topic.keep_all:
        messages.extend((topic.name, message) for message in socket.receive_many())
    elif (message := socket.receive(True)) is not None:
        messages.append((topic.name, message))
