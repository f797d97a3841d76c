"""Bridge: selection of endpoints, and the forwarding loop (docs/guides/bridge.md).

An endpoint crosses one bridge only: no bridge forwards messages that a bridge published on this host. A bridge marks
itself as a bridge next to the ring while it publishes, and in a channel by the name of its node. Loops are therefore
impossible in any arrangement. Messages stay unchanged, so the other side may be a plain ZMQ program.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from msgq.bridge.host_checks import check_bind_host, check_source
from msgq.common.closing import ClosingContext
from msgq.common.selection import EndpointPattern, SelectedEndpoints, list_patterns, parse_pattern
from msgq.errors import InvalidValueError
from msgq.kinds import kind_of, list_stored_kinds, validate_endpoint
from msgq.kinds.bridge import BridgeLink, BridgeLoop, FlowStats

POLL_PERIOD_S = 1.0  # seconds between two updates of the list of endpoints and publishers


class Bridge(ClosingContext):
    """Forwards topics and channels out of this host and into it, until `stop`.

    The channel channel/NAME of this host is the topic NAME for ZMQ. Rings and channels have the current prefix, and ZMQ
    addresses follow the rules of the ZMQ backend. The bridge continues when other processes end and return. If a topic
    cannot be forwarded now (an incoming topic has a publisher on this host, or the port is in use), the flow's `state`
    has the reason, and the bridge retries every second.

    One thread at a time may use a bridge. Any thread and signal handlers may call `stop` and `close`.
    """

    def __init__(
        self,
        out: EndpointPattern | Iterable[EndpointPattern] = (),
        into: Mapping[str, str] | None = None,
        segment_size: int = 0,
    ) -> None:
        """Subscribe to incoming topics. `run` starts forwarding.

        Args:
            out: name or pattern for whole names (see `msgq.common.selection.parse_pattern`), or a list of them; empty:
                nothing goes out. Topics and channels that appear later are forwarded, too. Endpoints in `into` are not
                forwarded out.
            into: host of the ZMQ publisher, by topic. For channel/NAME, messages of the ZMQ topic NAME go into the
                channel.
            segment_size: bytes of new rings, as in `PubSocket.connect`. A message may take a third of the ring.

        Raises:
            InvalidValueError: a name is in both arguments; a topic and a channel of one name are in `out`; an endpoint
                is neither topic nor channel; a regular expression is invalid; a host cannot be resolved; or
                MSGQ_ZMQ_BIND is not a host of this machine.
            EndpointNameError: a name in `into` is invalid.
            BackendNotAvailableError: pyzmq is missing.
        """
        patterns, sources = list_patterns(out, "out", may_be_empty=True), dict(into or {})
        if both := sorted(sources.keys() & set(patterns)):
            raise InvalidValueError(
                f"{', '.join(both)}: a topic cannot be in --out and --in of the same bridge; give each topic once"
            )
        check_bind_host()
        _check_names(patterns)
        self._out = SelectedEndpoints([parse_pattern(name) if isinstance(name, str) else name for name in patterns])
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

    def run(self, seconds: float | None = None) -> bool:
        """Forward messages until `stop`.

        Args:
            seconds: seconds until the call returns, even without `stop`; None: no limit.

        Returns:
            False if the bridge was stopped. Do not call `run` again then.

        Raises:
            InvalidValueError: the environment (MSGQ_ZMQ_BIND and similar variables) or the segment size is invalid.

        Notes:
            Sleeps until a message arrives, with the GIL released. Once per second, the bridge checks the topics.
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
        if not self._loop.stopped:
            for link in self._links.values():
                link.forward_rest()
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
        """End the current `run` and all later ones."""
        self._loop.stop()

    def flows(self) -> list[FlowStats]:
        """Return the counts of each selected topic, sorted by name. Also available after `close`."""
        return [self._links[topic].get_flow_stats() for topic in sorted(self._links)]

    def close(self) -> None:
        """End a `run` of another thread, and close all sockets. A second close has no effect."""
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
        if not kind.has_part("bridge"):
            raise InvalidValueError(f"{topic} cannot be bridged (--in): only {_name_bridged_kinds()} can")
        check_source(kind.bare_name(topic), host)
        return kind.bridge.open_incoming_link(self._loop, topic, host, self._segment_size)

    def _poll_links(self) -> None:
        """Read the endpoints and their publishers, and start or end flows."""
        states: dict[str, Any] = {}
        for kind in list_stored_kinds("bridge"):  # topics first: a topic has its own name
            found = kind.bridge.find_endpoint_states()
            for name in found:
                if name not in self._links and name in self._out:
                    self._links[name] = kind.bridge.open_outgoing_link(self._loop, name, self._zmq_names)
            states |= found
        for name, link in self._links.items():
            link.poll(states.get(name))


def _name_bridged_kinds() -> str:
    return " and ".join(kind.plural_name for kind in list_stored_kinds("bridge"))


def _check_names(out: Iterable[EndpointPattern]) -> None:
    """Raise an error if two named endpoints have the same name on ZMQ."""
    names: dict[str, str] = {}
    for name in (name for name in out if isinstance(name, str)):
        kind = kind_of(name)
        if not kind.has_part("bridge"):
            raise InvalidValueError(f"{name} cannot be bridged (--out): only {_name_bridged_kinds()} can")
        other = names.setdefault(kind.bare_name(name), name)
        if other != name:
            raise InvalidValueError(
                f"{other} and {name} have the same ZMQ name {kind.bare_name(name)!r}; give --out only one of them"
            )
