"""In a simulation, each call that would wait forever raises DeadlockError. close_cases.py has the table of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import DeadlockError, MsgqError
from msgq.simulation import Simulation
from tests.contract import close_cases
from tests.contract.close_cases import TABLE, Place, Row, each_call, make_call, open_sub_socket, place_on

#: Objects of the table that no simulation has, and why.
NOT_SIMULATED = {
    close_cases.open_gated_sub_socket: "the event gates of openpilot's replay control other processes",
    close_cases.open_event: "the same",
    close_cases.open_posix_queue: "the queues of posix_ipc are in shared memory only",
    close_cases.open_full_posix_queue: "the same",
    close_cases.open_held_vector: "the table writes into a file; a stopped writer of a simulation goes on by itself",
    close_cases.open_held_seqlock: "the same",
    close_cases.open_player: "a player waits for the time of messages; a simulation plays recordings itself",
    close_cases.open_bridge: "a bridge runs in real time, between hosts",
}


@pytest.fixture
def place(prefix: str, token: str, tmp_path: Path) -> Iterator[Place]:
    with place_on("fake", token, prefix, tmp_path) as place:
        yield place


def is_simulated(row: Row) -> bool:
    return row.open not in NOT_SIMULATED


def test_each_object_that_is_not_simulated_is_in_the_table() -> None:
    assert {row.open for row in TABLE} >= NOT_SIMULATED.keys()


@each_call("waits")
def test_endless_wait_of_main_program_raises_deadlock_error(place: Place, row: Row, name: str) -> None:
    if not is_simulated(row):
        return
    with Simulation():
        one, _ = row.open(place)
        with pytest.raises(DeadlockError, match=r"main waits for \w+|node 'main' waits for the socket"):
            make_call(place, row, name, one)()
        place.close()


@each_call("waits")
def test_endless_wait_of_blocking_node_is_listed_in_deadlock_error(place: Place, row: Row, name: str) -> None:
    if not is_simulated(row) or "descriptor" in name:  # a node that waits for a descriptor is refused at once
        return
    with Simulation() as sim:
        one, _ = row.open(place)
        other = msgq.sub_sock(f"{place.name}-never")
        sim.add(make_call(place, row, name, one), name="blocked")
        with pytest.raises(DeadlockError, match=r"main waits for .*-never'; blocked waits for \w+"):
            other.receive(timeout=None)
        place.close()


@each_call("waits")
def test_endless_wait_of_function_is_refused(place: Place, row: Row, name: str) -> None:
    if not is_simulated(row):
        return
    with Simulation() as sim:
        one, _ = row.open(place)
        call = make_call(place, row, name, one)
        sim.on(f"{place.name}-start", lambda _: call(), name="caller")
        msgq.pub_sock(f"{place.name}-start").send(b"")
        with pytest.raises(DeadlockError, match=r"node 'caller' (cannot wait|waits for the socket)"):
            sim.run()
        place.close()


@each_call("tasks")
def test_asyncio_wait_in_simulation_is_refused(place: Place, row: Row, name: str) -> None:
    if not is_simulated(row):
        return

    async def wait() -> None:
        await make_call(place, row, name, one)()

    with Simulation():
        one, _ = row.open(place)
        with pytest.raises(DeadlockError, match="node 'main' waits for the socket by asyncio"):
            asyncio.run(wait())
        place.close()


def yielded_rows() -> list[Row]:
    """Return one row of each object that a generator can yield."""
    return [row for row in TABLE if row.polled and is_simulated(row) and "record_queue" not in repr(row.open)]


@pytest.mark.parametrize("polls", [False, True])
def test_endless_wait_of_generator_is_listed_in_deadlock_error(place: Place, polls: bool) -> None:
    for row in yielded_rows():
        place.renew()
        with Simulation() as sim:
            one, _ = row.open(place)

            def node(one: Any = one) -> Generator[Any, Any, None]:
                poller = place.module.Poller()
                poller.registerSocket(one)
                yield poller if polls else one

            other = msgq.sub_sock(f"{place.name}-never")
            sim.add(node, name="generator")
            with pytest.raises(DeadlockError, match=r"main waits for .*-never'; generator waits for \w+"):
                other.receive(timeout=None)
            place.close()


def test_deadlock_error_lists_each_waiting_node(place: Place) -> None:
    with Simulation() as sim:
        queue = msgq.MessageQueue(place.name, max_messages=1)
        queue.send(b"full")
        records = msgq.SeqlockVector(place.name, "f8", 4)

        def reader() -> Generator[Any, Any, None]:
            yield msgq.sub_sock(place.name)

        sim.add(lambda: queue.send(b"x"), name="sender")
        sim.add(reader)
        sim.add(lambda: records.wait(), name="watcher")
        with pytest.raises(DeadlockError) as caught:
            sim.run(until=lambda: False)
        waits = str(caught.value).partition("no event can end a wait: ")[2].split("; ")
        assert [wait.partition(" waits for ")[0] for wait in waits] == ["sender", "reader", "watcher"]


def test_closing_a_handle_that_another_node_waits_for_ends_the_wait(place: Place) -> None:
    """No wait for the end of the use: the closing node would have to let the waiting one run."""

    def check(row: Row, name: str) -> None:
        place.renew()
        ended: list[Any] = []
        with Simulation() as sim:
            one, closes = row.open(place)
            call = make_call(place, row, name, one)

            def node() -> None:
                try:
                    ended.append(call())
                except MsgqError as error:
                    ended.append(error)

            sim.add(node)
            sim.clock.sleep(1)
            assert not ended
            next(iter(closes.values()))()
            sim.run()
            assert len(ended) == 1, name
            assert sim.clock.now_ns == 10**9
            place.close()

    for row in filter(is_simulated, TABLE):
        for name in row.waits:
            check(row, name)


def test_wait_on_bus_without_simulation_raises_deadlock_error(place: Place) -> None:
    sub, _ = open_sub_socket(place)
    calls: list[Callable[[], Any]] = [sub.receive, lambda: next(sub), lambda: sub.receive_many(wait_for_one=True)]
    for call in calls:
        with pytest.raises(DeadlockError, match="no other code runs on this bus"):
            call()
