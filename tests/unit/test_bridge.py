"""The bridge's rules: what goes out, what comes in, what never goes round, and what is counted."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.bridge import FORWARDING_STATE, Bridge, FlowStats
from msgq.common import settings
from msgq.errors import EndpointNameError, InvalidValueError, SegmentError
from msgq.impl import backend
from msgq.impl.base.process import process_name
from msgq.impl.ring.core import TopicObserver
from msgq.kinds.bridge import BridgeLoop, open_socket
from msgq.topic import bridge as topics
from tests.support import DEADLINE, SHM, Child, Task, wait_until
from tests.unit import children
from tests.unit.ringfile import STRANGER_UID, RingFile

TOPIC = "state"


class Host:
    """A prefix that stands for a host: its own rings, and ZMQ addresses that all hosts share."""

    def __init__(self, prefix: str, stack: ExitStack) -> None:
        self.prefix, self._stack = prefix, stack

    def socket(self, backend_name: str, kind: str, *arguments: Any, for_bridge: bool = False) -> Any:
        module = backend.load_backend(backend_name)
        socket = self._stack.enter_context(getattr(module, kind)())
        if for_bridge:
            socket._for_bridge = True
        with settings.overrides(self.prefix):
            socket.connect(module.Context(), *arguments)
        return socket

    def pub(self, topic: str = TOPIC, segment_size: int = 0) -> Any:
        return self.socket("msgq", "PubSocket", topic, segment_size)

    def sub(self, topic: str = TOPIC) -> Any:
        return self.socket("msgq", "SubSocket", topic)

    def bridge(self, *out: str, into: dict[str, str] | None = None, segment_size: int = 0) -> Crossing:
        with settings.overrides(self.prefix):
            made = self._stack.enter_context(Bridge(out, into, segment_size))
        return Crossing(self, made)


class Crossing:
    """A bridge of one host."""

    def __init__(self, host: Host, made: Bridge) -> None:
        self.made, self._host = made, host

    def step(self) -> None:
        """Look, and carry a batch of what is there."""
        self.made._next_poll_s = 0  # simulates a second without a poll
        with settings.overrides(self._host.prefix):
            self.made.run(0.002)

    def flow(self, topic: str = TOPIC) -> FlowStats:
        return {flow.topic: flow for flow in self.made.flows()}[topic]

    def topics(self) -> list[str]:
        return [flow.topic for flow in self.made.flows()]


def run_bridges_until(condition: Callable[[], Any], *crossings: Crossing) -> Any:
    """Let the bridges work until the condition is true."""

    def stepped() -> Any:
        for crossing in crossings:
            crossing.step()
        return condition()

    return wait_until(stepped)


@pytest.fixture
def hosts(token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Host]]:
    """Two hosts, with `TOPIC`, "other" and "command" at addresses that are the same for both."""
    prefixes = [f"pa{token}", f"pb{token}"]
    lines = [
        f'"{prefix}/{topic}" = "ipc://{tmp_path}/{topic}"'
        for prefix in prefixes
        for topic in (TOPIC, "other", "command")
    ]
    (tmp_path / "map.toml").write_text("\n".join(lines))
    monkeypatch.setenv("MSGQ_ZMQ_MAP", str(tmp_path / "map.toml"))
    with ExitStack() as stack:
        yield [Host(prefix, stack) for prefix in prefixes]
    for prefix in prefixes:
        for kind in ("msgq_", "msgqside_", "msgqchan_", "msgqpool_"):
            shutil.rmtree(SHM / f"{kind}{prefix}", ignore_errors=True)


@pytest.fixture
def here(hosts: list[Host]) -> Host:
    return hosts[0]


def attached_plain(here: Host, crossing: Crossing, topic: str = TOPIC) -> Any:
    """A ZMQ subscriber that the bridge's publisher knows of."""
    sub = here.socket("zmq", "SubSocket", topic)
    run_bridges_until(
        lambda: topic in crossing.topics() and crossing.made._links[topic]._pub._count_readers()[0], crossing
    )
    return sub


def is_bridged(host: Host, topic: str = TOPIC) -> bool:
    """Return what other bridges think of a topic's publisher."""
    return TopicObserver(topic, host.prefix).is_bridged()


class TestWrongArguments:
    def test_bridge_refuses_topic_in_both_directions(self) -> None:
        with pytest.raises(InvalidValueError, match="state"):
            Bridge([TOPIC], {TOPIC: "127.0.0.1"})

    def test_bridge_refuses_invalid_pattern(self) -> None:
        with pytest.raises(InvalidValueError, match=r"'\('"):
            Bridge(["("])

    def test_bridge_refuses_unresolvable_host(self) -> None:
        with pytest.raises(InvalidValueError):
            Bridge((), {TOPIC: "no host"})

    def test_bridge_does_not_resolve_unused_hosts(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A map names other hosts, and socket files need none."""
        (tmp_path / "map.toml").write_text(f'{TOPIC} = "tcp://127.0.0.1:9001"')
        monkeypatch.delenv("OPENPILOT_PREFIX", raising=False)
        monkeypatch.setenv("MSGQ_ZMQ_MAP", str(tmp_path / "map.toml"))
        Bridge((), {TOPIC: "nowhere.invalid"}).close()
        monkeypatch.delenv("MSGQ_ZMQ_MAP")
        monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
        monkeypatch.setenv("MSGQ_ZMQ_BIND", "nowhere.invalid")
        Bridge((), {TOPIC: "nowhere.invalid"}).close()

    @pytest.mark.parametrize("host", ["*", "127.0.0.1", "localhost", "127.0.0.9"])
    def test_bridge_accepts_bind_host_of_this_machine(self, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_BIND", host)
        Bridge([TOPIC]).close()

    def test_bridge_refuses_invalid_endpoint_name(self) -> None:
        with pytest.raises(EndpointNameError):
            Bridge((), {"a/b": "127.0.0.1"})


class TestOut:
    def test_outgoing_bridge_forwards_and_counts_messages(self, here: Host) -> None:
        pub, crossing = here.pub(), here.bridge(TOPIC)
        sub = attached_plain(here, crossing)
        pub.send_many([b"one", b"", b"three"])
        run_bridges_until(lambda: crossing.flow().messages == 3, crossing)
        sub.setTimeout(DEADLINE * 1000)
        assert [sub.receive() for _ in range(3)] == [b"one", b"", b"three"]
        assert crossing.flow() == FlowStats(TOPIC, "out", "", 3, 8, 0, 0, FORWARDING_STATE)

    def test_outgoing_bridge_pattern_matches_whole_names_and_later_topics(self, here: Host) -> None:
        here.pub("other")
        crossing = here.bridge("st.*", "othe")
        crossing.step()
        assert crossing.topics() == []
        here.pub()
        crossing.step()
        assert crossing.topics() == [TOPIC]

    def test_outgoing_bridge_forwards_topic_with_pattern_characters_in_name(self, here: Host) -> None:
        here.pub("a+b")
        crossing = here.bridge("a+b")
        crossing.step()
        assert crossing.topics() == ["a+b"]

    def test_outgoing_bridge_pattern_excludes_incoming_topics(self, here: Host) -> None:
        here.pub("other")
        crossing = here.bridge(".*", into={TOPIC: "127.0.0.1"})
        crossing.step()
        assert {flow.topic: flow.direction for flow in crossing.made.flows()} == {TOPIC: "in", "other": "out"}

    def test_outgoing_bridge_creates_no_topic(self, here: Host) -> None:
        here.bridge(TOPIC).step()
        assert stats.topics(here.prefix) == []

    def test_outgoing_bridge_counts_overwritten_messages_exactly(self, here: Host) -> None:
        pub, crossing = here.pub(segment_size=10_000), here.bridge(TOPIC)
        crossing.step()
        pub.send_many([bytes(100)] * 1000)
        run_bridges_until(lambda: crossing.flow().lost, crossing)
        pub.send(b"after")
        run_bridges_until(lambda: crossing.flow().messages + (crossing.flow().lost or 0) == 1001, crossing)

    @pytest.mark.needs_shm(20 << 20)
    def test_outgoing_bridge_counts_messages_dropped_by_full_zmq_queue(self, here: Host) -> None:
        pub, crossing = here.pub(segment_size=1 << 24), here.bridge(TOPIC)
        attached_plain(here, crossing)  # and reads nothing
        sent = 0
        while not crossing.flow().dropped:
            sent += pub.send_many([bytes(10_000)] * 100)
            crossing.step()
            assert sent < 100_000
        assert crossing.flow().messages <= sent

    def test_outgoing_bridge_counts_and_logs_messages_too_large_for_zmq(
        self, here: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_MAX_BYTES", "1000")
        pub, crossing = here.pub(), here.bridge(TOPIC)
        sub = attached_plain(here, crossing)
        with caplog.at_level(logging.WARNING):
            pub.send_many([b"a", bytes(1001), b"b"])
            run_bridges_until(lambda: crossing.flow().messages == 2, crossing)
        assert crossing.flow() == FlowStats(TOPIC, "out", "", 2, 2, 0, 1, FORWARDING_STATE)
        assert "MSGQ_ZMQ_MAX_BYTES" in caplog.text
        sub.setTimeout(DEADLINE * 1000)
        assert [sub.receive(), sub.receive()] == [b"a", b"b"]

    def test_outgoing_bridge_retries_port_in_use(self, hosts: list[Host]) -> None:
        first, second = hosts
        rival = first.socket("zmq", "PubSocket", TOPIC)
        second.pub()
        crossing = second.bridge(TOPIC)
        crossing.step()
        assert "publishes" in crossing.flow().state
        rival.close()
        run_bridges_until(lambda: crossing.flow().state == FORWARDING_STATE, crossing)


class TestIn:
    def test_incoming_bridge_publishes_and_counts_messages(self, here: Host) -> None:
        plain, sub = here.socket("zmq", "PubSocket", TOPIC), here.sub()
        crossing = here.bridge(into={TOPIC: "127.0.0.1"})
        plain.wait_for_readers(DEADLINE, n=1)
        plain.send_many([b"one", b"two"])
        run_bridges_until(lambda: crossing.flow().messages == 2, crossing)
        assert sub.receive_many() == [b"one", b"two"]
        assert crossing.flow() == FlowStats(TOPIC, "in", "127.0.0.1", 2, 6, None, 0, FORWARDING_STATE)

    def test_incoming_bridge_counts_and_logs_messages_too_large_for_ring(
        self, here: Host, caplog: pytest.LogCaptureFixture
    ) -> None:
        plain, sub = here.socket("zmq", "PubSocket", TOPIC), here.sub()
        crossing = here.bridge(into={TOPIC: "127.0.0.1"})
        plain.wait_for_readers(DEADLINE, n=1)
        with caplog.at_level(logging.WARNING):
            plain.send_many([b"a", bytes(1 << 20), b"b"])
            run_bridges_until(lambda: crossing.flow().messages == 2, crossing)
        assert crossing.flow().dropped == 1
        assert "does not fit" in caplog.text
        assert sub.receive_many() == [b"a", b"b"]

    def test_incoming_bridge_counts_and_logs_messages_without_memory(
        self, here: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def send(pub: Any, message: bytes) -> None:
            if message == b"a":
                raise SegmentError("cannot send: no space left", TOPIC, errno=errno.ENOSPC)
            pub.send(message)

        def opened(module: str, kind: str, *arguments: Any) -> Any:
            socket = open_socket(module, kind, *arguments)
            if (module, kind) != ("msgq", "PubSocket"):
                return socket
            return SimpleNamespace(send=partial(send, socket), close=socket.close)

        plain, sub = here.socket("zmq", "PubSocket", TOPIC), here.sub()
        monkeypatch.setattr(sys.modules["msgq.topic.bridge"], "open_socket", opened)
        crossing = here.bridge(into={TOPIC: "127.0.0.1"})
        plain.wait_for_readers(DEADLINE, n=1)
        with caplog.at_level(logging.WARNING):
            plain.send_many([b"a", b"b"])
            run_bridges_until(lambda: crossing.flow().messages == 1, crossing)
        assert crossing.flow().dropped == 1
        assert "no space left" in caplog.text
        assert sub.receive_many() == [b"b"]

    def test_incoming_bridge_creates_ring_with_given_segment_size(self, here: Host) -> None:
        here.bridge(into={TOPIC: "127.0.0.1"}, segment_size=1 << 16).step()
        assert stats.topic(TOPIC, here.prefix).data_bytes == 1 << 16

    def test_incoming_bridge_does_not_replace_local_publisher(self, here: Host) -> None:
        plain, mine = here.socket("zmq", "PubSocket", TOPIC), here.pub()
        crossing = here.bridge(into={TOPIC: "127.0.0.1"})
        plain.wait_for_readers(DEADLINE, n=1)
        plain.send(b"from outside")
        run_bridges_until(lambda: crossing.flow().dropped == 1, crossing)
        assert f"{os.getpid()} is its publisher" in crossing.flow().state
        mine.send(b"still mine")
        mine.close()
        run_bridges_until(lambda: crossing.flow().state == FORWARDING_STATE, crossing)

    def test_incoming_bridge_does_not_replace_stock_publisher(self, here: Host) -> None:
        here.pub().close()
        with RingFile(f"{here.prefix}/{TOPIC}") as ring:
            ring.start_stranger()
            crossing = here.bridge(into={TOPIC: "127.0.0.1"})
            crossing.step()
            assert crossing.flow().state == "not published here: a stock process is its publisher"
            assert ring.write_uid == STRANGER_UID

    def test_incoming_bridge_pauses_while_local_publisher_exists(self, here: Host) -> None:
        plain, crossing = here.socket("zmq", "PubSocket", TOPIC), here.bridge(into={TOPIC: "127.0.0.1"})
        plain.wait_for_readers(DEADLINE, n=1)
        run_bridges_until(lambda: crossing.flow().state == FORWARDING_STATE, crossing)
        mine = here.pub()
        plain.send(b"too late")
        run_bridges_until(lambda: crossing.flow().dropped == 1, crossing)
        assert crossing.flow().state != FORWARDING_STATE
        mine.send(b"mine")
        mine.close()
        run_bridges_until(lambda: crossing.flow().state == FORWARDING_STATE, crossing)
        plain.send(b"again")
        run_bridges_until(lambda: crossing.flow().messages == 1, crossing)


class TestNoLoops:
    def test_outgoing_bridge_does_not_forward_messages_of_incoming_bridge(self, here: Host) -> None:
        coming, going = here.bridge(into={TOPIC: "127.0.0.1"}), here.bridge(".*")
        coming.step()
        going.step()
        assert f"msgq bridge {os.getpid()}" in going.flow().state
        assert stats.topic(TOPIC, here.prefix).subscribers == ()

    def test_outgoing_bridge_detects_new_incoming_bridge_of_idle_topic(self, here: Host) -> None:
        here.pub().close()
        going = here.bridge(TOPIC)
        going.step()
        assert going.flow().state == FORWARDING_STATE
        echo = here.socket("msgq", "PubSocket", TOPIC, for_bridge=True)
        echo.send(b"from elsewhere")
        link: Any = going.made._links[TOPIC]
        link._publisher_checked_s = 0  # simulates an idle link
        with settings.overrides(here.prefix):
            link.forward()
        assert going.flow().messages == 0
        assert "another bridge" in going.flow().state

    def test_outgoing_bridge_forwards_local_publisher_after_takeover(self, here: Host) -> None:
        coming, going = here.bridge(into={TOPIC: "127.0.0.1"}), here.bridge(TOPIC)
        coming.step()
        going.step()
        pub = here.pub()
        going.step()
        pub.send(b"mine")
        run_bridges_until(lambda: going.flow().messages == 1, going)

    def test_circle_of_bridges_forwards_each_message_once(self, hosts: list[Host], tmp_path: Path) -> None:
        """Both hosts take the topic out and let it in. What is published on one comes to the other, and ends there."""
        one, other = hosts
        self.addresses(tmp_path, one, "there")
        out_of_one = one.bridge(TOPIC)
        pub, sub = one.pub(), other.sub()
        out_of_one.step()
        self.addresses(tmp_path, other, "there")
        into_other = other.bridge(into={TOPIC: "127.0.0.1"})
        self.addresses(tmp_path, other, "back")
        out_of_other = other.bridge(TOPIC)
        self.addresses(tmp_path, one, "back")
        into_one = one.bridge(into={TOPIC: "127.0.0.1"})
        everybody = (into_other, out_of_other, into_one, out_of_one)
        link: Any = out_of_one.made._links[TOPIC]
        run_bridges_until(lambda: link._pub._count_readers()[0], *everybody)
        for i in range(50):
            pub.send(b"%d" % i)
            run_bridges_until(partial(lambda sent: into_other.flow().messages > sent, i), *everybody)
        assert sub.receive_many() == [b"%d" % i for i in range(50)]
        assert [crossing.flow().messages for crossing in everybody] == [50, 0, 0, 50]

    @staticmethod
    def addresses(tmp_path: Path, host: Host, name: str) -> None:
        """From now on sockets of this host connect to this address for the topic."""
        (tmp_path / "map.toml").write_text(f'"{host.prefix}/{TOPIC}" = "ipc://{tmp_path}/{name}"')

    def test_topic_of_killed_bridge_is_not_bridged(self, here: Host) -> None:
        with Child(children.bridge_publisher, here.prefix, TOPIC) as child:
            assert child.hear() == "connected"
            assert is_bridged(here)
            child.kill()
        assert not is_bridged(here)

    def test_publisher_of_another_thread_does_not_count_as_bridge(
        self, here: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its topic went nowhere: it was taken for the bridge's, for as long as the socket lived."""
        coming, going = here.bridge(into={TOPIC: "127.0.0.1"}), here.bridge("other")
        opened: list[Any] = []

        def beside(backend_name: str, kind: str, *arguments: Any) -> Any:
            if (backend_name, kind) == ("msgq", "PubSocket"):
                opened.append(Task(here.pub, "other").result())
            return open_socket(backend_name, kind, *arguments)

        monkeypatch.setattr(topics, "open_socket", beside)
        coming.step()
        assert coming.flow().state == FORWARDING_STATE
        going.step()
        assert going.flow("other").state == FORWARDING_STATE
        assert len(opened) == 1
        assert [is_bridged(here, topic) for topic in (TOPIC, "other")] == [True, False]


def test_bridge_stop_ends_waiting_run_call(here: Host) -> None:
    made = here.bridge(TOPIC).made
    task = Task(made.run)
    task.wait_asleep()
    made.stop()
    assert task.result() is False
    assert made.run() is False


def test_bridge_run_returns_at_its_timeout(here: Host) -> None:
    assert here.bridge(TOPIC).made.run(0.001) is True


def test_bridge_counts_are_kept_after_close(here: Host) -> None:
    pub, crossing = here.pub(), here.bridge(TOPIC)
    crossing.step()
    pub.send(b"x")
    run_bridges_until(lambda: crossing.flow().messages == 1, crossing)
    crossing.made.close()
    crossing.made.close()
    assert crossing.flow().messages == 1


class HandlerError(Exception):
    """Raised by a signal handler."""


def interrupt_second_send(crossing: Crossing, topic: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Let a signal handler raise before the second message is sent. Return the list of sent messages."""
    link = crossing.made._links[topic]
    publisher, sent = link._pub, list[bytes]()

    def send(message: bytes) -> None:
        if len(sent) == 1:
            sent.append(b"interrupted")
            raise HandlerError
        publisher.send(message)
        sent.append(message)

    stand_in = SimpleNamespace(send=send, stats=getattr(publisher, "stats", None), close=publisher.close)
    monkeypatch.setattr(link, "_pub", stand_in)
    return sent


@pytest.mark.parametrize("topic", [TOPIC, f"channel/{TOPIC}"])
def test_outgoing_bridge_after_exception_of_handler_sends_rest_first(
    here: Host, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    pub: Any = msgq.Channel(TOPIC, prefix=here.prefix).publisher() if "/" in topic else here.pub()
    crossing = here.bridge(topic)
    run_bridges_until(lambda: topic in crossing.topics() and crossing.made._links[topic]._pub, crossing)
    sent = interrupt_second_send(crossing, topic, monkeypatch)
    for number in range(5):
        pub.send(b"%d" % number)
    with pytest.raises(HandlerError):
        run_bridges_until(lambda: False, crossing)
    assert (crossing.flow(topic).messages, crossing.flow(topic).dropped) == (1, 0)
    run_bridges_until(lambda: len(sent) == 6, crossing)
    assert sent == [b"0", b"interrupted", b"1", b"2", b"3", b"4"]
    assert (crossing.flow(topic).messages, crossing.flow(topic).bytes, crossing.flow(topic).lost) == (5, 5, 0)


def test_closed_bridge_counts_rest_after_exception_of_handler_as_dropped(
    here: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    pub, crossing = here.pub(), here.bridge(TOPIC)
    run_bridges_until(lambda: TOPIC in crossing.topics() and crossing.made._links[TOPIC]._pub, crossing)
    interrupt_second_send(crossing, TOPIC, monkeypatch)
    pub.send_many([b"0", b"1", b"2", b"3"])
    with pytest.raises(HandlerError):
        run_bridges_until(lambda: False, crossing)
    crossing.made.close()
    assert (crossing.flow().messages, crossing.flow().dropped) == (1, 3)


def test_incoming_bridge_after_exception_of_handler_publishes_rest_first(
    here: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    pub, crossing = here.socket("zmq", "PubSocket", TOPIC), here.bridge(into={TOPIC: "127.0.0.1"})
    run_bridges_until(lambda: crossing.made._links[TOPIC]._pub and pub._count_readers()[0], crossing)
    sent = interrupt_second_send(crossing, TOPIC, monkeypatch)
    for number in range(3):
        pub.send(b"%d" % number)
    with pytest.raises(HandlerError):
        run_bridges_until(lambda: False, crossing)
    run_bridges_until(lambda: len(sent) == 4, crossing)
    assert sent == [b"0", b"interrupted", b"1", b"2"]
    assert (crossing.flow().messages, crossing.flow().bytes, crossing.flow().dropped) == (3, 3, 0)


def test_handler_can_close_bridge_during_close() -> None:
    """The handler runs in the thread that closes, so it cannot wait for that."""
    bridge, closed = Bridge(), []

    def close() -> None:
        bridge.close()
        closed.append(TOPIC)

    bridge._links[TOPIC] = SimpleNamespace(close=close)  # type: ignore[assignment]
    Task(bridge.close).result()
    assert closed == [TOPIC]


def test_bridge_does_not_change_process_name(here: Host) -> None:
    here.bridge(into={TOPIC: "127.0.0.1"}).step()
    here.pub("other")
    publisher = stats.topic("other", here.prefix).publisher
    assert publisher is not None
    assert publisher.name == process_name()


def test_second_close_of_link_keeps_descriptor_of_another_link() -> None:
    """The kernel gives the number of a closed descriptor to the next one."""
    loop, descriptor = BridgeLoop(), os.eventfd(1)
    closed, other = (topics.RingToZmqLink(loop, name, {}) for name in ("closed", "other"))
    closed._sub = other._sub = SimpleNamespace(fileno=lambda: descriptor, close=lambda: None)
    closed._register_subscriber()
    closed.close()
    other._register_subscriber()
    closed.close()
    assert loop.wait_for_links(0) == [other]
    other.close()
    loop.close()
    os.close(descriptor)
