"""The state of the bus that the page shows."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

import msgq
from msgq.cli.serve.bus_monitor import BusSampler
from msgq.monitor.endpoint_selection import EndpointSelection
from tests.command import start
from tests.serve.foxglove_client import Server, connect, watch_states
from tests.support import wait_until


def take_endpoints(sampler: BusSampler) -> dict[str, dict[str, Any]]:
    """Return the endpoints of a new sample by name."""
    return {row["endpoint"]: row for row in sampler.take_sample()["endpoints"]}


def test_sample_has_participants_and_backlog_of_each_kind(prefix: str) -> None:
    me = [os.getpid()]
    with (
        msgq.pub_sock("pose") as pub,
        msgq.sub_sock("pose"),
        msgq.MessageQueue("jobs") as jobs,
        msgq.Node("node") as node,
        msgq.pub_sock("unread"),
    ):
        alerts = node.advertise("alerts")
        with node.subscribe("alerts"):
            pub.send(bytes(100))
            alerts.send(b"1")
            alerts.send(b"2")
            jobs.send(b"job")
            rows = take_endpoints(BusSampler(EndpointSelection([], prefix)))
            for name in ("pose", "channel/alerts"):
                assert [sender["pid"] for sender in rows[name]["senders"]] == me
                assert [receiver["pid"] for receiver in rows[name]["receivers"]] == me
            assert [sender["pid"] for sender in rows["queue/jobs"]["senders"]] == me
            assert rows["pose"]["backlog"].unit == "bytes"
            assert rows["pose"]["backlog"].amount >= 100
            assert tuple(rows["channel/alerts"]["backlog"]) == (2, "messages")
            assert tuple(rows["queue/jobs"]["backlog"]) == (1, "messages")
            assert rows["unread"]["backlog"] is None
        jobs.unlink()


def test_sample_has_rates_after_second_poll(prefix: str) -> None:
    with msgq.pub_sock("pose") as pub:
        sampler = BusSampler(EndpointSelection([], prefix))
        assert take_endpoints(sampler)["pose"]["rate"] is None
        pub.send(b"x")
        assert take_endpoints(sampler)["pose"]["rate"] > 0


def test_sample_has_stages_of_selected_endpoints(prefix: str) -> None:
    quotes = msgq.RecordQueue("quotes", msgq.tracked("f8"))
    sampler = BusSampler(EndpointSelection(["quotes"], prefix))
    other = BusSampler(EndpointSelection(["other"], prefix))
    other.take_sample()
    with msgq.StageTracer("planner") as planner:

        def measure_stage() -> dict[str, Any] | None:
            """Handle a message. The first sample after the creation of the timing topic has no message."""
            quotes.produce([1.0])
            for _ in planner.trace_messages(quotes, timeout=0):
                pass
            return next((stage for stage in sampler.take_sample()["stages"] if stage["messages"]), None)

        stage = wait_until(measure_stage, "a stage is measured")
    assert (stage["stage"], stage["endpoint"]) == ("planner", "quotes")
    assert stage["pids"] == [os.getpid()]
    assert stage["queue_time"]["count"] == stage["messages"]
    assert stage["queue_time"]["p50"] > 0
    assert other.take_sample()["stages"] == []
    quotes.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_unreadable_endpoint_is_listed_with_reason_and_others_are_shown(prefix: str) -> None:
    async def use(server: Server) -> None:
        async with connect(server) as client, watch_states(server) as states:
            state = await anext(states)
            assert "belongs to user 54321" in state["refused"]["a"]
            assert [row["endpoint"] for row in state["endpoints"]] == ["b"]
            await client.wait_for(lambda: [*client.channels] == ["b"])
            os.chown(path, 0, 0)
            await client.wait_for(lambda: "a" in client.channels)
            async for state in states:
                if not state["refused"]:
                    break
            assert len(state["endpoints"]) == 2

    with msgq.pub_sock("a"), msgq.pub_sock("b"):
        path = f"/dev/shm/msgq_{prefix}/a"
        os.chown(path, 54321, 0)
        with Server(start("serve", "a", "b", "--port", "0", "--json", "--interval", "0.05")) as server:
            asyncio.run(use(server))


def test_viewers_share_samples_and_unwatched_server_maps_nothing(prefix: str) -> None:
    async def use(server: Server) -> None:
        async with watch_states(server) as first, watch_states(server) as second:
            times = [{(await anext(states))["time_ns"] for _ in range(20)} for states in (first, second)]
            assert len(times[0] & times[1]) > 10

    with msgq.pub_sock("pose"), Server() as server:
        maps = f"/proc/{server.process.pid}/maps"
        asyncio.run(use(server))

        def is_mapped() -> bool:
            with open(maps) as lines:
                return f"msgq_{prefix}" in lines.read()

        wait_until(lambda: not is_mapped(), "the server closed the topic")
