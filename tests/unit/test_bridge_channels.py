"""Channels across a bridge: out as the topic of the same name, in as one more publisher, and what is counted."""

from __future__ import annotations

import errno
import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from msgq import stats
from msgq.bridge import FORWARDING_STATE, Bridge, FlowStats
from msgq.channel import Channel
from msgq.channel import bridge as channels
from msgq.common import settings
from msgq.errors import EndpointNameError, InvalidValueError, SegmentError
from tests.command import Process, start
from tests.support import DEADLINE, Child, wait_until
from tests.unit import children
from tests.unit.test_bridge import TOPIC, Crossing, Host, attached_plain, hosts, run_bridges_until

__all__ = ["hosts"]
CHANNEL = f"channel/{TOPIC}"


@pytest.fixture
def here(hosts: list[Host]) -> Host:
    return hosts[0]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def channel(host: Host, node: str = "test", **options: Any) -> Channel:
    return Channel(TOPIC, node=node, prefix=host.prefix, **options)


def connected_zmq_subscriber(host: Host, crossing: Crossing) -> Any:
    """A ZMQ subscriber that the bridge's publisher knows of."""
    sub = host.socket("zmq", "SubSocket", TOPIC)
    run_bridges_until(
        lambda: CHANNEL in crossing.topics() and crossing.made._links[CHANNEL]._pub._count_readers()[0], crossing
    )
    sub.setTimeout(DEADLINE * 1000)
    return sub


class TestWrongArguments:
    @pytest.mark.parametrize("name", ["queue/jobs", "records/state"])
    def test_bridge_refuses_queues_and_records(self, name: str) -> None:
        with pytest.raises(InvalidValueError, match=f"{name} cannot be bridged"):
            Bridge([name])
        with pytest.raises(InvalidValueError, match=f"{name} cannot be bridged"):
            Bridge((), {name: "127.0.0.1"})

    def test_bridge_refuses_topic_and_channel_with_same_name(self) -> None:
        with pytest.raises(InvalidValueError, match=f"{TOPIC} and {CHANNEL} have the same ZMQ name"):
            Bridge([TOPIC, CHANNEL])

    def test_bridge_refuses_channel_in_both_directions(self) -> None:
        with pytest.raises(InvalidValueError, match=CHANNEL):
            Bridge([CHANNEL], {CHANNEL: "127.0.0.1"})

    def test_bridge_refuses_channel_without_name(self) -> None:
        with pytest.raises(EndpointNameError):
            Bridge((), {"channel/": "127.0.0.1"})


class TestOut:
    def test_outgoing_bridge_keeps_order_of_all_channel_publishers(self, here: Host) -> None:
        with channel(here) as made, made.publisher() as one, made.publisher() as other:
            crossing = here.bridge(CHANNEL)
            sub = connected_zmq_subscriber(here, crossing)
            for publisher, message in ((one, b"1"), (other, b"2"), (one, b""), (other, b"4")):
                publisher.send(message)
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 4, crossing)
            assert [sub.receive() for _ in range(4)] == [b"1", b"2", b"", b"4"]
            assert crossing.flow(CHANNEL) == FlowStats(CHANNEL, "out", "", 4, 3, 0, 0, FORWARDING_STATE)

    def test_outgoing_bridge_is_not_channel_participant(self, here: Host) -> None:
        with channel(here) as made, made.publisher() as publisher:
            crossing = here.bridge(CHANNEL)
            crossing.step()
            publisher.send(b"x")
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 1, crossing)
            assert [role for role, _ in made.diagnose().participants] == ["publisher"]

    def test_outgoing_bridge_detects_later_channel_publisher(self, here: Host) -> None:
        """A channel without a publisher has no capacity so far."""
        with channel(here) as made:
            crossing = here.bridge("channel/st.*")
            crossing.step()
            assert crossing.flow(CHANNEL).state == FORWARDING_STATE
            with made.publisher() as publisher:
                publisher.send(b"x")
                run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 1, crossing)
            with made.publisher() as publisher:
                publisher.send(b"y")
                run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 2, crossing)

    def test_outgoing_bridge_counts_evicted_messages_exactly(self, here: Host) -> None:
        with channel(here, capacity=16) as made, made.publisher() as publisher:
            crossing = here.bridge(CHANNEL)
            crossing.step()
            publisher.send_many([b"x"] * 1000)
            run_bridges_until(
                lambda: crossing.flow(CHANNEL).messages + (crossing.flow(CHANNEL).lost or 0) == 1000, crossing
            )
            assert crossing.flow(CHANNEL).lost

    def test_outgoing_bridge_keeps_counts_of_recreated_channel(self, here: Host) -> None:
        first = channel(here, capacity=16)
        with first, first.publisher() as publisher:
            crossing = here.bridge(CHANNEL)
            crossing.step()
            publisher.send_many([b"x"] * 100)
            run_bridges_until(lambda: crossing.flow(CHANNEL).lost, crossing)
            before = crossing.flow(CHANNEL)
            first.unlink()
        crossing.step()
        with channel(here) as made, made.publisher() as publisher:
            crossing.step()
            publisher.send(b"y")
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == before.messages + 1, crossing)
            assert crossing.flow(CHANNEL).lost == before.lost

    def test_outgoing_bridge_survives_killed_and_new_publisher(self, here: Host) -> None:
        with channel(here) as made:
            crossing = here.bridge(CHANNEL)
            sub = connected_zmq_subscriber(here, crossing)
            newest: dict[int, int] = {}
            for _ in range(2):
                with Child(children.channel_publisher, here.prefix, TOPIC) as child:
                    assert child.hear() == "publishes"
                    before = crossing.flow(CHANNEL).messages
                    run_bridges_until(lambda: crossing.flow(CHANNEL).messages > before + 100, crossing)  # noqa: B023 in the loop
                    child.kill()
            run_bridges_until(
                lambda: crossing.flow(CHANNEL).messages + (crossing.flow(CHANNEL).lost or 0) == made.messages, crossing
            )
            sub.setTimeout(100)
            while (message := sub.receive()) is not None:
                pid, number = (int(word) for word in message.split())
                assert number > newest.get(pid, -1), "out of order, or twice"
                newest[pid] = number
            assert len(newest) == 2

    def test_outgoing_bridge_reopens_unreadable_channel(self, here: Host) -> None:
        class NoDescriptors:
            def __init__(self, real: Any) -> None:
                self.lost, self.close = 0, real.close

            def receive(self, _: float) -> bytes:
                raise SegmentError("cannot open the pool", TOPIC, "pool", errno.EMFILE)

        with channel(here) as made, made.publisher() as publisher:
            crossing = here.bridge(CHANNEL)
            crossing.step()
            link: Any = crossing.made._links[CHANNEL]
            link._sub = NoDescriptors(link._sub)
            with settings.overrides(here.prefix):
                link.forward()
            assert "cannot open the pool" in crossing.flow(CHANNEL).state
            crossing.step()
            assert crossing.flow(CHANNEL).state == FORWARDING_STATE
            publisher.send(b"x")
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 1, crossing)

    def test_outgoing_bridge_counts_channel_messages_too_large_for_zmq(
        self, here: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MSGQ_ZMQ_MAX_BYTES", "1000")
        with channel(here) as made, made.publisher() as publisher:
            crossing = here.bridge(CHANNEL)
            crossing.step()
            publisher.send_many([b"a", bytes(1001), b"b"])
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 2, crossing)
            assert crossing.flow(CHANNEL).dropped == 1

    def test_outgoing_bridge_prefers_topic_to_channel_with_same_name(self, here: Host) -> None:
        with channel(here) as made, made.publisher() as publisher:
            pub, crossing = here.pub(), here.bridge(f".*{TOPIC}")
            sub = attached_plain(here, crossing)
            assert f"{TOPIC} is published as '{TOPIC}' already" in crossing.flow(CHANNEL).state
            publisher.send(b"of the channel")
            pub.send(b"of the topic")
            run_bridges_until(lambda: crossing.flow(TOPIC).messages == 1, crossing)
            sub.setTimeout(DEADLINE * 1000)
            assert sub.receive() == b"of the topic"
            assert crossing.flow(CHANNEL).messages == 0

    def test_outgoing_bridge_forwards_channel_after_end_of_same_named_topic(self, here: Host) -> None:
        with channel(here) as made, made.publisher() as publisher:
            here.pub()
            crossing = here.bridge(f".*{TOPIC}")
            crossing.step()
            assert [crossing.flow(name).state == FORWARDING_STATE for name in (TOPIC, CHANNEL)] == [True, False]
            here.socket("msgq", "PubSocket", TOPIC, 0, for_bridge=True)  # takes over from the publisher above
            run_bridges_until(lambda: crossing.flow(CHANNEL).state == FORWARDING_STATE, crossing)
            assert "another bridge publishes it here" in crossing.flow(TOPIC).state
            publisher.send(b"x")
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 1, crossing)

    @pytest.mark.parametrize("backend_name", ["zmq", "msgq"])
    def test_bridge_forwards_channel_with_each_selected_backend(
        self, here: Host, backend_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with channel(here) as made, made.publisher() as publisher:
            monkeypatch.setenv("MSGQ_BACKEND", backend_name)
            crossing = here.bridge(CHANNEL)
            crossing.step()
            publisher.send(b"x")
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 1, crossing)


class TestIn:
    def test_incoming_bridge_publishes_in_addition_to_local_publishers(self, here: Host) -> None:
        plain = here.socket("zmq", "PubSocket", TOPIC)
        with channel(here) as made, made.publisher() as publisher, made.subscriber() as sub:
            crossing = here.bridge(into={CHANNEL: "127.0.0.1"})
            crossing.step()
            plain.wait_for_readers(DEADLINE, n=1)
            plain.send_many([b"one", b"two"])
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 2, crossing)
            publisher.send(b"mine")
            got = [(sub.receive(0), sub.last.publisher.name) for _ in range(3) if sub]  # type: ignore[union-attr]
            assert got == [(b"one", "msgq bridge"), (b"two", "msgq bridge"), (b"mine", "test")]
            assert crossing.flow(CHANNEL) == FlowStats(CHANNEL, "in", "127.0.0.1", 2, 6, None, 0, FORWARDING_STATE)

    def test_incoming_bridge_creates_missing_channel(self, here: Host) -> None:
        here.bridge(into={CHANNEL: "127.0.0.1"}).step()
        assert [one.name for one in stats.channels(here.prefix)] == [TOPIC]

    def test_incoming_bridge_creates_removed_channel_again(self, here: Host) -> None:
        plain, crossing = here.socket("zmq", "PubSocket", TOPIC), here.bridge(into={CHANNEL: "127.0.0.1"})
        crossing.step()
        channel(here).unlink()
        crossing.step()
        plain.wait_for_readers(DEADLINE, n=1)
        with channel(here, create=False) as made, made.subscriber() as sub:
            plain.send(b"x")
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 1, crossing)
            assert sub.receive(0) == b"x"

    def test_incoming_bridge_counts_and_logs_messages_too_large_for_channel(
        self, here: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(channels, "POOL_BYTES_MAX", 1 << 20)
        plain, crossing = here.socket("zmq", "PubSocket", TOPIC), here.bridge(into={CHANNEL: "127.0.0.1"})
        crossing.step()
        plain.wait_for_readers(DEADLINE, n=1)
        with caplog.at_level(logging.WARNING):
            plain.send_many([b"a", bytes(1 << 20), b"b"])
            run_bridges_until(lambda: crossing.flow(CHANNEL).messages == 2, crossing)
        assert crossing.flow(CHANNEL).dropped == 1
        assert "dropped" in caplog.text

    def test_incoming_bridge_reports_full_channel_until_publisher_leaves(self, here: Host) -> None:
        with channel(here, publishers=1) as made:
            publisher = made.publisher()
            crossing = here.bridge(into={CHANNEL: "127.0.0.1"})
            crossing.step()
            assert "not published here" in crossing.flow(CHANNEL).state
            publisher.close()
            run_bridges_until(lambda: crossing.flow(CHANNEL).state == FORWARDING_STATE, crossing)


def test_outgoing_bridge_forwards_only_local_channel_messages(here: Host, tmp_path: Path) -> None:
    """Per message: a channel has publishers of the host beside the bridge's."""
    coming = here.bridge(into={CHANNEL: "127.0.0.1"})
    coming.step()
    (tmp_path / "map.toml").write_text(f'"{here.prefix}/{TOPIC}" = "ipc://{tmp_path}/elsewhere"')
    going = here.bridge(CHANNEL)
    going.step()
    link: Any = coming.made._links[CHANNEL]
    with channel(here) as made, made.publisher() as publisher:
        link._pub.send(b"from elsewhere")
        publisher.send(b"mine")
        run_bridges_until(lambda: going.flow(CHANNEL).messages, coming, going)
        assert (going.flow(CHANNEL).messages, going.flow(CHANNEL).bytes) == (1, 4)


@pytest.mark.usefixtures("hosts")
@pytest.mark.needs_shm(48 << 20)
def test_bridge_command_forwards_a_channel_between_hosts(hosts: list[Host], stack: ExitStack) -> None:
    """Real processes: two bridges, a publisher that is killed and one that follows; nothing is uncounted."""
    here, there = hosts
    received: list[bytes] = []
    out = stack.enter_context(start("bridge", "--json", "--out", CHANNEL, "--prefix", here.prefix))
    into = stack.enter_context(start("bridge", "--json", "--in", CHANNEL, "--prefix", there.prefix))
    far = stack.enter_context(channel(there, capacity=8192))
    sub = stack.enter_context(far.subscriber())

    def heard(count: int) -> bool:
        received.extend(sub.receive_many())
        return len(received) > count

    for _ in range(2):
        with Child(children.channel_publisher, here.prefix, TOPIC) as child:
            assert child.hear() == "publishes"
            before = len(received)
            wait_until(lambda: heard(before + 100), "messages come over")  # noqa: B023 within the loop
            child.kill()
    sent, came = (end_and_read_totals(process) for process in (out, into))
    received.extend(sub.receive_many())
    assert came["messages"] == len(received) == sub.received
    assert sent["messages"] >= came["messages"]
    assert stats.channel(TOPIC, here.prefix).messages >= sent["messages"] + sent["lost"]
    words = [[int(word) for word in message.split()] for message in received]
    for pid in {pid for pid, _ in words}:
        numbers = [number for of, number in words if of == pid]
        assert numbers == sorted(set(numbers)), "out of order, or twice"
    assert len({pid for pid, _ in words}) == 2


def end_and_read_totals(process: Process) -> Any:
    """End a command, and return its totals."""
    (*_, last), said = process.end(signal.SIGTERM)
    assert (last["final"], last["topic"]) == (True, CHANNEL)
    assert said in ("", f"msgq: no endpoint matches {CHANNEL} yet; waiting\n")
    return last


def test_bridge_finds_only_channels_of_current_prefix(hosts: list[Host]) -> None:
    here, there = hosts
    with channel(there), settings.overrides(here.prefix):
        crossing = here.bridge("channel/.*")
        crossing.step()
        assert crossing.topics() == []
