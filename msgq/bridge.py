"""Carrying topics between this host's rings and ZMQ, so that a bus reaches other hosts (docs/bridge.md).

A topic goes one hop: no bridge takes out again a topic that a bridge publishes here. A bridge says beside the ring that
it is one, for as long as it is the publisher. So there are no loops, however bridges are put together, and nothing is
added to the messages: plain ZMQ programs can be on the other side.
"""

from __future__ import annotations

import logging
import math
import os
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from msgq import backend, naming, stats
from msgq.errors import (
    CorruptSegmentError,
    InvalidValueError,
    IpcError,
    MessageSizeError,
    MultiplePublishersError,
    SegmentError,
    SegmentSizeError,
)
from msgq.impl.ring.snapshot import TopicWatch
from msgq.selection import Choice, Selection, chosen

CARRYING = "carrying"
LOOK_SECONDS = 1.0  # between two looks at what topics there are, and who publishes them
TRUST_SECONDS = 0.1  # for so long what is known of a topic's publisher is good enough to take its messages out
BATCH = 256  # messages; then the other topics have their turn. Well below what a ZMQ queue holds (1000)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flow:
    """What one topic's way through a bridge has come to, since the bridge was made.

    Attributes
    ----------
    topic : the endpoint.
    direction : "out", from the ring to ZMQ, or "in".
    host : the publisher's, for "in"; "" for "out".
    messages, bytes : handed on. Outwards they count also when nobody subscribes, or some subscriber's queue was full.
    lost : messages that were overwritten in the ring before the bridge read them. None: unknown, which it always is
        inwards, because ZMQ tells nobody what did not arrive.
    dropped : messages that the bridge had, but could not hand on. Outwards: a subscriber's queue was full (as
        `PublisherStats.dropped`), or the message is larger than MSGQ_ZMQ_MAX_BYTES. Inwards: too large for the ring, or
        the topic has another publisher here.
    state : "carrying", or why not.
    """

    topic: str
    direction: str
    host: str
    messages: int
    bytes: int
    lost: int | None
    dropped: int
    state: str


class Bridge:
    """Carries topics out of this host and into it, until it is told to stop.

    The rings are those of the prefix in force, and ZMQ's addresses follow the rules of the ZMQ backend. It survives the
    end and the return of everybody else. Where it cannot carry a topic at present (a publisher of this host has the
    topic that should come in; the port is taken) the flow's `state` says why, and it tries again every second.

    One thread at a time may use a bridge; `stop` may be called from any thread, and from signal handlers.
    """

    def __init__(
        self, out: Iterable[Choice] = (), into: Mapping[str, str] | None = None, segment_size: int = 0
    ) -> None:
        """Subscribe to what comes in; nothing is carried before `run`.

        Parameters
        ----------
        out : names, and patterns for whole names, as `msgq.selection.chosen` takes them. Topics that appear later are
            taken, too; those in `into` are not.
        into : topic -> host of its ZMQ publisher.
        segment_size : bytes of the rings to publish on, as in `PubSocket.connect`. A message may take a third of it.

        Raises
        ------
        InvalidValueError : a name is in both, a regular expression makes no sense, a host cannot be resolved, or the
            one to bind (MSGQ_ZMQ_BIND) is not of this machine.
        EndpointNameError : a name in `into` cannot be an endpoint.
        BackendNotAvailableError : there is no pyzmq.
        """
        wanted, sources = list(out), dict(into or {})
        if both := sorted(sources.keys() & set(wanted)):
            raise InvalidValueError(f"cannot go out and come in through the same bridge: {', '.join(both)}")
        _check_bind_host()
        self._out = Selection([chosen(one) if isinstance(one, str) else one for one in wanted])
        self._loop = _Loop()
        self._segment_size = segment_size
        self._links: dict[str, _Link] = {}
        self._look_at_s = 0.0
        try:
            for topic, host in sources.items():
                self._links[topic] = _In(self._loop, topic, host, segment_size)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, seconds: float | None = None) -> bool:
        """Carry messages until `stop`.

        Parameters
        ----------
        seconds : return after so long, all the same; None: never.

        Returns
        -------
        False when it was stopped, so that there is no use in running on.

        Raises
        ------
        InvalidValueError : the environment (MSGQ_ZMQ_BIND and the like) or the segment size makes no sense.

        Notes
        -----
        Sleeps, with the GIL released, until a message comes; once a second it looks at the topics.
        """
        end_s = math.inf if seconds is None else time.monotonic() + seconds
        while not self._loop.stopped:
            now_s = time.monotonic()
            if now_s >= self._look_at_s:
                self._look()
                self._look_at_s = now_s + LOOK_SECONDS
            if now_s >= end_s:
                return True
            for link in self._loop.ready(min(end_s, self._look_at_s) - now_s):
                link.carry()
        return False

    def stop(self) -> None:
        """Let `run` return, now and from now on."""
        self._loop.stop()

    def flows(self) -> list[Flow]:
        """Return the counts of each topic that was carried or should be, sorted by name. Also after `close`."""
        return [self._links[topic].flow() for topic in sorted(self._links)]

    def close(self) -> None:
        """Close all sockets. Closing twice does nothing."""
        for link in self._links.values():
            link.close()
        self._loop.close()

    def _look(self) -> None:
        """See what topics there are and who publishes them; begin and end what follows from that."""
        present = {topic.endpoint: topic for topic in stats.topics()}
        for name in present.keys() - self._links.keys():
            if name in self._out:
                self._links[name] = _Out(self._loop, name)
        for name, link in self._links.items():
            link.look(present.get(name))


class _Loop:
    """The descriptors of all the bridge's subscribers, waited for together."""

    def __init__(self) -> None:
        self.stopped = False
        self._epoll, self._wake = select.epoll(), os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._links: dict[int, _Link] = {}

    def add(self, fd: int, link: _Link) -> None:
        self._links[fd] = link
        self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        if self._links.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def ready(self, seconds: float) -> list[_Link]:
        """Wait, and return whose subscriber has something."""
        events = self._epoll.poll(None if seconds == math.inf else max(seconds, 0))
        return [self._links[fd] for fd, _ in events if fd in self._links]

    def stop(self) -> None:
        self.stopped = True
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        if self._wake >= 0:
            self._epoll.close()
            os.close(self._wake)
            self._wake = -1


class _Link(ABC):
    """One topic: a subscriber on one side, a publisher on the other, and what is counted.

    Sockets are None while they are not open. They are of two backends, so type checkers know nothing of them.
    """

    direction = ""

    def __init__(self, loop: _Loop, topic: str, host: str) -> None:
        self._loop, self._topic, self._host = loop, topic, host
        self._sub: Any = None
        self._pub: Any = None
        self._messages = self._bytes = self._dropped = 0
        self._lost: int | None = 0
        self._state = ""
        self._fd = -1

    @abstractmethod
    def look(self, topic: stats.TopicStats | None) -> None:
        """Once a second: begin or end, as the ring's publisher demands. None: there is no ring."""

    @abstractmethod
    def carry(self) -> None:
        """Hand on what there is, up to a batch."""

    def flow(self) -> Flow:
        """Return what the topic has come to."""
        counts = (self._messages, self._bytes, self._lost, self._dropped)
        return Flow(self._topic, self.direction, self._host, *counts, self._state)

    def _say(self, state: str) -> None:
        if state != self._state and state != CARRYING:
            _log.warning("%s: %s", self._topic, state)
        self._state = state

    def _wait_for_sub(self) -> None:
        self._fd = self._sub.fileno()
        self._loop.add(self._fd, self)

    def _close_pub(self) -> None:
        pub, self._pub = self._pub, None
        if pub is not None:
            pub.close()

    def _close_sub(self) -> None:
        self._loop.remove(self._fd)
        sub, self._sub = self._sub, None
        if sub is not None:
            sub.close()

    def close(self) -> None:
        """Close both sockets; the counts stay."""
        self._close_sub()
        self._close_pub()


class _Out(_Link):
    """From the ring to ZMQ.

    An ordinary subscriber of the ring: it sleeps until something is published, where a passive one would have to look.
    """

    direction = "out"

    def __init__(self, loop: _Loop, topic: str) -> None:
        super().__init__(loop, topic, "")
        self._known_s = 0.0  # when it was seen last that the publisher is no bridge
        self._lost_before: int | None = 0
        self._dropped_before = 0

    def look(self, topic: stats.TopicStats | None) -> None:
        """Begin or end, as the topic's publisher demands."""
        if topic is None:
            return  # it was removed; whoever makes it anew is found
        if _is_bridged(self._topic):
            self.close()
            self._say(f"not taken out: it comes from another bridge, {_who(topic.publisher)}")
            return
        self._known_s = time.monotonic()
        if self._pub is None:
            self._open()

    def _open(self) -> None:
        try:
            self._sub = _open("msgq", "SubSocket", self._topic)
            self._pub = _open("zmq", "PubSocket", self._topic)
            self._wait_for_sub()
        except InvalidValueError:
            raise
        except IpcError as error:
            self.close()
            self._say(f"cannot be taken out: {error}")
            return
        self._lost_before, self._dropped_before = self._lost, self._dropped
        self._say(CARRYING)

    def carry(self) -> None:
        """Hand on what there is, up to a batch."""
        try:
            messages = self._sub.receive_many(BATCH)
        except CorruptSegmentError as error:  # the next call goes on behind it
            _log.warning("%s", error)
            return
        except SegmentSizeError as error:  # the next look connects again
            self.close()
            self._say(str(error))
            return
        self._lost = _sum(self._lost_before, self._sub.lost)
        if time.monotonic() - self._known_s > TRUST_SECONDS:
            self.look(_topic(self._topic))
            if self._pub is None:
                return
        for message in messages:
            try:
                self._pub.send(message)
            except MessageSizeError as error:
                self._dropped_before += 1
                _log.warning("dropped: %s", error)
            else:
                self._messages += 1
                self._bytes += len(message)
        self._dropped = self._dropped_before + self._pub.stats().dropped


class _In(_Link):
    """From ZMQ to the ring."""

    direction = "in"

    def __init__(self, loop: _Loop, topic: str, host: str, segment_size: int) -> None:
        super().__init__(loop, topic, host)
        self._segment_size = segment_size
        self._lost = None
        _check_source(topic, host)
        self._sub = _open("zmq", "SubSocket", topic, host)
        self._wait_for_sub()

    def look(self, topic: stats.TopicStats | None) -> None:
        """Become the ring's publisher when it has none: nobody who publishes here is ever pushed aside."""
        if self._pub is not None:
            return
        if topic is not None and _has_publisher(topic):
            self._say(f"cannot come in: {_who(topic.publisher)} publishes it here")
            return
        try:
            self._pub = _open("msgq", "PubSocket", self._topic, self._segment_size)
        except InvalidValueError:
            raise
        except IpcError as error:
            self._say(f"cannot come in: {error}")
            return
        self._say(CARRYING)

    def carry(self) -> None:
        """Hand on what there is, up to a batch."""
        for message in self._sub.receive_many(BATCH):
            if self._pub is None or not self._published(message):
                self._dropped += 1
            else:
                self._messages += 1
                self._bytes += len(message)

    def _published(self, message: bytes) -> bool:
        try:
            self._pub.send(message)
        except (MultiplePublishersError, SegmentSizeError) as error:
            self._close_pub()
            self._say(f"cannot come in: {error}")
        except MessageSizeError as error:
            _log.warning("dropped: %s", error)
        else:
            return True
        return False


def _check_bind_host() -> None:
    """Find out now whether a publisher can bind there, not when the first topic goes out."""
    host = naming.zmq_bind_host()
    if naming.zmq_transport("") == "ipc":
        return
    try:
        addresses = socket.getaddrinfo(
            None if host == "*" else host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = addresses[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        text = f"cannot bind {host!r} (--bind, MSGQ_ZMQ_BIND): {error}; give an address of this machine, or * for all"
        raise InvalidValueError(text) from error


def _check_source(topic: str, host: str) -> None:
    """Find out now whether the publisher's host can be found; ZMQ would look for it for ever, in silence."""
    address = backend.load("zmq").subscriber_address(naming.endpoint_name(topic), host)
    if address.path:
        return
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = f"{address.host!r} is no host to come in from: {error}; give a name that resolves, or a number"
        raise InvalidValueError(text, topic) from error


def _topic(name: str) -> stats.TopicStats | None:
    try:
        return stats.topic(name)
    except SegmentError:
        return None


def _open(backend_name: str, kind: str, topic: str, *arguments: Any) -> Any:
    """Return a connected socket of a backend. One of the ring says there that it is a bridge's."""
    module = backend.load(backend_name)
    socket = getattr(module, kind)()
    if backend_name == "msgq":
        socket._for_bridge = True
    socket.connect(module.Context(), topic, *arguments)
    return socket


def _is_bridged(topic: str) -> bool:
    """Whether another bridge publishes a topic here. Not one that is dead: whoever comes next is looked at again."""
    try:
        return TopicWatch(topic, naming.prefix()).bridged()
    except SegmentError:
        return False


def _has_publisher(topic: stats.TopicStats) -> bool:
    """Whether somebody may publish it. Of stock publishers nobody knows whether they live."""
    if topic.publisher is None:
        return topic.publisher_kind != "none"
    return topic.publisher.alive is not False


def _who(publisher: stats.Participant | None) -> str:
    return "a stock process" if publisher is None else f"{publisher.name} {publisher.pid}"


def _sum(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else before + now
