"""The bridge itself: which endpoints cross, and the loop that forwards them (docs/guides/bridge.md).

An endpoint goes one hop: no bridge takes out again what a bridge publishes here. A bridge says beside the ring that
it is one, for as long as it is the publisher, and in a channel by the name of its node. So there are no loops, however
bridges are put together, and nothing is added to the messages: plain ZMQ programs can be on the other side.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Self

from msgq.bridge.checks import check_bind_host, check_source
from msgq.common.selection import EndpointPattern, SelectedEndpoints, parse_pattern
from msgq.errors import InvalidValueError
from msgq.kinds import Kind, kind_of, list_stored_kinds, validate_endpoint
from msgq.kinds.bridge import BridgeLink, BridgeLoop, FlowStats

POLL_PERIOD_S = 1.0  # between two looks at what there is, and who publishes it


class Bridge:
    """Forwards topics and channels out of this host and into it, until it is told to stop.

    A channel is called channel/NAME here, and is the topic NAME for ZMQ. Rings and channels are those of the prefix in
    force, and ZMQ's addresses follow the rules of the ZMQ backend. It survives the end and the return of everybody
    else. Where it cannot forward a topic at present (a publisher of this host has the
    topic that should come in; the port is taken) the flow's `state` says why, and it tries again every second.

    One thread at a time may use a bridge; any thread, and signal handlers, may call `stop` and `close`.
    """

    def __init__(
        self, out: Iterable[EndpointPattern] = (), into: Mapping[str, str] | None = None, segment_size: int = 0
    ) -> None:
        """Subscribe to what comes in; nothing is forwarded before `run`.

        Parameters
        ----------
        out : names, and patterns for whole names, as `msgq.common.selection.parse_pattern` takes them. Topics and
            channels that appear later are taken, too; those in `into` are not.
        into : topic -> host of its ZMQ publisher; channel/NAME: what comes as the topic NAME goes into the channel.
        segment_size : bytes of the rings to publish on, as in `PubSocket.connect`. A message may take a third of it.

        Raises
        ------
        InvalidValueError : a name is in both, a topic and a channel of one name are to go out, something else than a
            topic or a channel is to cross, a regular expression makes no sense, a host cannot be resolved, or the one
            to bind (MSGQ_ZMQ_BIND) is not of this machine.
        EndpointNameError : a name in `into` cannot be an endpoint.
        BackendNotAvailableError : there is no pyzmq.
        """
        wanted, sources = list(out), dict(into or {})
        if both := sorted(sources.keys() & set(wanted)):
            raise InvalidValueError(f"cannot go out and come in through the same bridge: {', '.join(both)}")
        check_bind_host()
        _check_names(wanted)
        self._out = SelectedEndpoints([parse_pattern(name) if isinstance(name, str) else name for name in wanted])
        self._loop = BridgeLoop()
        self._segment_size = segment_size
        self._links: dict[str, BridgeLink] = {}
        self._zmq_names: dict[str, str] = {}  # names of ZMQ -> endpoints that go out by them
        self._next_poll_s = 0.0
        # A signal handler that calls `close` may be on top of `run`, or of another `close`, in the same thread.
        self._running, self._runner = threading.RLock(), 0  # `_runner`: the thread in `run`
        self._closing = self._closed = False
        try:
            for topic, host in sources.items():
                self._links[topic] = self._make_incoming_link(topic, host)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, seconds: float | None = None) -> bool:
        """Forward messages until `stop`.

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
        with self._running:
            self._runner = threading.get_ident()
            try:
                return self._forward_until(math.inf if seconds is None else time.monotonic() + seconds)
            finally:
                self._runner = 0
                if self._closing:
                    self._close_when_stopped()

    def _forward_until(self, end_s: float) -> bool:
        while not self._loop.stopped:
            now_s = time.monotonic()
            if now_s >= self._next_poll_s:
                self._poll_links()
                self._next_poll_s = now_s + POLL_PERIOD_S
            if now_s >= end_s:
                return True
            for link in self._loop.wait_for_links(min(end_s, self._next_poll_s) - now_s):
                link.forward()
        return False

    def stop(self) -> None:
        """Let `run` return, now and from now on."""
        self._loop.stop()

    def flows(self) -> list[FlowStats]:
        """Return the counts of each topic that is or should be forwarded, sorted by name. Also after `close`."""
        return [self._links[topic].get_flow_stats() for topic in sorted(self._links)]

    def close(self) -> None:
        """End `run` if another thread is in it, and close all sockets. Closing twice does nothing."""
        self._closing = True
        self._loop.stop()
        if self._runner == threading.get_ident():  # a signal handler, on top of `run`, which closes them then
            return
        self._close_when_stopped()

    def _close_when_stopped(self) -> None:
        with self._running:
            if self._closed:
                return
            self._closed = True
            self._close_sockets()

    def _close_sockets(self) -> None:
        for link in self._links.values():
            link.close()
        self._loop.close()

    def _make_incoming_link(self, topic: str, host: str) -> BridgeLink:
        kind = kind_of(validate_endpoint(topic))
        if not kind.crosses_bridges:
            raise InvalidValueError(f"{topic} cannot come in: only {_name_bridged_kinds()} cross a bridge")
        check_source(kind.bare_name(topic), host)
        return kind.bridge.open_incoming_link(self._loop, topic, host, self._segment_size)

    def _poll_links(self) -> None:
        """See what there is and who publishes it; begin and end what follows from that."""
        states: dict[str, Any] = {}
        for kind in _list_bridged_kinds():  # topics first: a topic has its own name
            found = kind.bridge.find_endpoint_states()
            for name in found:
                if name not in self._links and name in self._out:
                    self._links[name] = kind.bridge.open_outgoing_link(self._loop, name, self._zmq_names)
            states |= found
        for name, link in self._links.items():
            link.poll(states.get(name))


def _list_bridged_kinds() -> list[Kind]:
    return [kind for kind in list_stored_kinds() if kind.crosses_bridges]


def _name_bridged_kinds() -> str:
    return " and ".join(kind.plural_name for kind in _list_bridged_kinds())


def _check_names(out: Iterable[EndpointPattern]) -> None:
    """Two endpoints that are named must not be one for ZMQ."""
    names: dict[str, str] = {}
    for name in (name for name in out if isinstance(name, str)):
        kind = kind_of(name)
        if not kind.crosses_bridges:
            raise InvalidValueError(f"{name} cannot go out: only {_name_bridged_kinds()} cross a bridge")
        other = names.setdefault(kind.bare_name(name), name)
        if other != name:
            raise InvalidValueError(f"{other} and {name} cannot both go out: both are {kind.bare_name(name)!r} for ZMQ")
