"""Statistics and readers of tools on a bus: the same functions as on shared memory, for each kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import pytest

import msgq
from msgq import stats
from msgq.common import settings, shm_paths
from msgq.errors import BackendNotAvailableError, SegmentNotFoundError, StateError
from msgq.impl import backend as backends
from msgq.impl.base.files import read_file_status
from msgq.impl.channel.pool_files import list_pools
from msgq.impl.fake.bus import current_bus
from msgq.impl.meter import run_meters
from msgq.kinds import find_carrier_endpoint, kind_of, opening
from msgq.kinds.playback import EndpointSpec, PlaybackMessage, PlaybackTarget
from msgq.kinds.stats import read_file_access
from msgq.monitor import doctor
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoint, LiveEndpoints
from msgq.recording import Recorder
from msgq.records import RecordQueue
from msgq.simulation import Simulation

DATA = b"8 bytes."
PRODUCERS: list[Any] = ["single", "multiple"]


class OpenEndpoint(NamedTuple):
    """An open endpoint, a function that sends DATA, and its handles."""

    endpoint: str
    send: Callable[[], object]
    handles: list[Any]

    def close(self) -> None:
        for handle in self.handles:
            handle.close()


def open_topic(name: str, prefix: str | None = None) -> OpenEndpoint:
    pub = msgq.PubSocket()
    with settings.overrides(prefix):
        pub.connect(msgq.context, name, tracked=True)
    return OpenEndpoint(name, lambda: pub.send(DATA), [pub])


def open_channel(name: str, prefix: str | None = None) -> OpenEndpoint:
    channel = msgq.Channel(name, prefix=prefix)
    pub = channel.publisher()
    return OpenEndpoint(f"channel/{name}", lambda: pub.send(DATA), [pub, channel])


def open_queue(name: str, prefix: str | None = None, events: Literal[True] | None = None) -> OpenEndpoint:
    queue = msgq.MessageQueue(name, events=events, prefix=prefix)
    return OpenEndpoint(f"queue/{name}", lambda: queue.send(DATA), [queue])


def open_queue_with_events(name: str, prefix: str | None = None) -> OpenEndpoint:
    return open_queue(name, prefix, events=True)


def open_vector(name: str, prefix: str | None = None) -> OpenEndpoint:
    vector = msgq.SeqlockVector(name, "S8", 3, prefix=prefix)
    return OpenEndpoint(f"records/{name}", lambda: vector.__setitem__(1, DATA), [vector])


def open_board(name: str, prefix: str | None = None) -> OpenEndpoint:
    board = msgq.Board(name, prefix=prefix)
    entry = board.declare("key")
    return OpenEndpoint(f"records/{name}", lambda: entry.write(DATA), [board])


OPENERS = [open_topic, open_channel, open_queue, open_queue_with_events, open_vector, open_board]
each_kind = pytest.mark.parametrize("open_kind", OPENERS)


@pytest.fixture(params=["bus of the process", "simulation"])
def bus(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The current bus of the test."""
    if request.param == "simulation":
        with Simulation():
            yield current_bus()
        return
    before = backends.set_backend(backends.load_backend("fake"))
    yield current_bus()
    backends.set_backend(before)


def list_endpoints(name: str, prefix: str | None = None) -> list[str]:
    return [each for each in stats.endpoint_inodes(prefix) if each.endswith(name)]


class TestStats:
    @each_kind
    def test_stats_of_each_prefix_are_those_of_the_bus(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint)
        opened.send()
        for prefix in (None, "", bus.prefix):
            found = stats.endpoint(opened.endpoint, prefix)
            assert (found.messages, found.path.partition("/")[0]) == (1, bus.prefix)
            assert list_endpoints(endpoint, prefix) == [opened.endpoint]
            assert opened.endpoint in [each.endpoint for each in stats.endpoints(prefix)]
        assert getattr(found.stats, "prefix", "") == ""
        assert list_endpoints(endpoint, "other") == []
        with pytest.raises(SegmentNotFoundError):
            stats.endpoint(opened.endpoint, "other")
        opened.close()

    @each_kind
    def test_given_prefix_separates_endpoints_of_a_bus(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint, "inside")
        opened.send()
        for prefix in ("inside", f"{bus.prefix}/inside"):
            assert stats.endpoint(opened.endpoint, prefix).messages == 1
            assert list_endpoints(endpoint, prefix) == [opened.endpoint]
        assert list_endpoints(endpoint) == []
        opened.close()

    @each_kind
    def test_file_of_a_bus_has_owner_mode_and_number(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint)
        found = stats.endpoint(opened.endpoint)
        assert read_file_access(found.path) == (os.geteuid(), "600")
        status = read_file_status(found.path)
        assert status is not None
        assert (status.number, status.bytes > 0) == (stats.endpoint_inodes()[opened.endpoint], True)
        opened.close()

    def test_queue_messages_are_those_of_the_bus(self, bus: Any, endpoint: str) -> None:
        opened = open_queue(endpoint)
        opened.send()
        assert [message.data for message in stats.queue_messages(endpoint)] == [DATA]
        assert [message.sent_time for message in stats.queue_messages(endpoint, "")] == [bus.clock.now_ns]
        opened.close()

    def test_bus_of_an_outer_simulation_is_read_by_its_prefix(self, endpoint: str) -> None:
        with Simulation():
            open_topic(endpoint).send()
            outer = current_bus().prefix
            with Simulation():
                assert list_endpoints(endpoint) == []
                assert stats.endpoint(endpoint, outer).messages == 1

    @each_kind
    def test_handle_of_another_bus_is_refused(self, endpoint: str, open_kind: Any) -> None:
        with Simulation():
            outer = current_bus().prefix
            with Simulation(), pytest.raises(StateError, match="not that of the current bus"):
                open_kind(endpoint, outer)


class TestReaders:
    @each_kind
    def test_feed_shows_new_messages(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint)
        feed = opening.open_feed(opened.endpoint)
        opened.send()
        assert [item.data for item in feed.take_items()] == [DATA]
        assert feed.lost in (0, None)
        opened.close()

    @pytest.mark.parametrize("open_kind", [each for each in OPENERS if each is not open_queue])
    def test_source_reads_the_file_of_its_endpoint(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint)
        opened.send()
        source = opening.open_source(opened.endpoint, "", whole=True)
        assert source.inode == stats.endpoint_inodes()[find_carrier_endpoint(opened.endpoint)]
        assert source.prefix == bus.prefix
        source.close()
        opened.close()

    @each_kind
    def test_meter_measures_virtual_time(self, endpoint: str, open_kind: Any) -> None:
        with Simulation() as simulation:
            opened = open_kind(endpoint)
            meter = opening.open_meter(opened.endpoint)

            def send() -> Iterator[float]:
                for _ in range(5):
                    yield 0.5
                    opened.send()

            simulation.add(send)
            run_meters([meter], 2.25)
            reading = meter.take_reading()
            assert (reading.messages, reading.seconds) == (4, 2.25)
            assert simulation.clock.now_ns == 2_250_000_000
            if reading.periods_us is not None:
                assert reading.periods_us.mean == 500_000
            meter.close()

    @each_kind
    def test_live_endpoint_counts_messages(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint)
        live = LiveEndpoint(opened.endpoint, backends.resolve_prefix())
        opened.send()
        assert live.poll(fresh=True).stats.path.startswith(bus.prefix)
        rows = LiveEndpoints(EndpointSelection([opened.endpoint], None)).poll()
        assert [row.endpoint for row in rows] == [opened.endpoint]
        opened.close()

    def test_writer_of_a_player_sends_on_the_bus(self, bus: Any, endpoint: str) -> None:
        writer = opening.open_writer(EndpointSpec(endpoint), PlaybackTarget("fake"))
        sub = msgq.sub_sock(endpoint)
        writer.send(PlaybackMessage(0, endpoint, DATA))
        assert sub.receive() == DATA
        writer.close()

    def test_recorder_is_refused(self, bus: Any, tmp_path: Any) -> None:
        with pytest.raises(BackendNotAvailableError, match=r"msgq\.recording\.Writer"):
            Recorder(tmp_path / "recording")
        assert list(tmp_path.iterdir()) == []


class TestCleanup:
    @each_kind
    def test_endpoint_in_use_stays_and_unused_one_is_removed(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint)
        opened.send()
        kind = kind_of(opened.endpoint)

        def remove() -> list[tuple[str, str, bool]]:
            removals = kind.cleanup.remove_unused([endpoint], backends.resolve_prefix(), remove=True, force=False)
            return [(each.endpoint, each.prefix, each.removed) for each in removals]

        assert remove() == [(opened.endpoint, "", False)]
        opened.close()
        assert remove() == [(opened.endpoint, "", True)]
        assert list_endpoints(endpoint) == []
        with pytest.raises(SegmentNotFoundError):
            stats.endpoint(opened.endpoint)

    @each_kind
    def test_doctor_reads_the_endpoints_of_the_bus(self, bus: Any, endpoint: str, open_kind: Any) -> None:
        opened = open_kind(endpoint)
        where = backends.resolve_prefix()
        assert doctor.check_round_trip().status == "ok"
        assert doctor.check_segments(where).status == "ok"
        assert doctor.check_files(where).status == "ok"
        (check,) = [
            each for each in doctor.check_endpoints(where) if each.check == kind_of(opened.endpoint).plural_name
        ]
        assert check.text.startswith(f"{len(stats_of_kind(opened.endpoint))} ")
        assert doctor.repair_endpoints(where).status == "ok"
        assert [name for name in stats.endpoint_inodes() if name.startswith("doctor-")] == []
        opened.close()

    def test_pools_of_a_bus_are_listed_until_their_channel_is_removed(self, bus: Any, endpoint: str) -> None:
        opened, cleanup, where = open_channel(endpoint), kind_of("channel/x").cleanup, backends.resolve_prefix()
        opened.send()
        (uid,) = [number for name, number in list_pools(where) if name == endpoint]
        (publisher,) = stats.channel(endpoint).publishers
        assert shm_paths.pool_path(endpoint, where, uid) == publisher.path
        assert (cleanup.find_orphans(where), list(cleanup.remove_orphans(where, True))) == ([], [])
        msgq.Channel.unlink_name(endpoint)
        assert endpoint not in dict(list_pools(where))
        opened.close()

    @pytest.mark.parametrize("prefix", [None, "", "inside", "bus"])
    def test_unlink_name_removes_the_endpoint_of_the_bus(self, bus: Any, endpoint: str, prefix: str | None) -> None:
        given = bus.prefix if prefix == "bus" else prefix
        handles: list[Any] = [
            open_channel(endpoint, given),
            open_queue(f"{endpoint}-queue", given),
            open_vector(f"{endpoint}-vector", given),
            open_board(f"{endpoint}-board", given),
        ]
        queues = [RecordQueue(f"{endpoint}-{each}", "i8", producers=each, prefix=given) for each in PRODUCERS]
        before = stats.endpoint_inodes(given)
        msgq.Channel.unlink_name(endpoint, given)
        msgq.MessageQueue.unlink_name(f"{endpoint}-queue", given)
        msgq.SeqlockVector.unlink_name(f"{endpoint}-vector", given)
        msgq.Board.unlink_name(f"{endpoint}-board", given)
        for producers in PRODUCERS:
            RecordQueue.unlink_name(f"{endpoint}-{producers}", given, producers=producers)
        assert len([name for name in before if endpoint in name]) == 6
        assert [name for name in stats.endpoint_inodes(given) if endpoint in name] == []
        for each in (*handles, *queues):
            each.close()


def stats_of_kind(endpoint: str) -> list[Any]:
    return [each for each in stats.endpoints() if kind_of(each.endpoint) == kind_of(endpoint)]
