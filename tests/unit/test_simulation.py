"""Simulations: nodes of every kind, virtual time among them, and what goes wrong in them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

import msgq
from msgq.errors import (
    ConcurrentUseError,
    DeadlockError,
    EndpointClosedError,
    InvalidTypeError,
    InvalidValueError,
    StateError,
    WaitTimeoutError,
)
from msgq.impl import backend
from msgq.simulation import SentMessage, Simulation
from msgq.topic import api
from tests.support import SHM, Task

S = 10**9


def echo_blocking(source: str, target: str) -> None:
    sub, pub = msgq.sub_sock(source), msgq.pub_sock(target)
    while True:
        message = sub.receive()
        assert message is not None
        pub.send(message + b"!")


def echo_generator(source: str, target: str) -> Generator[Any, Any, None]:
    sub, pub = msgq.sub_sock(source), msgq.pub_sock(target)
    while True:
        message = yield sub
        pub.send(message + b"!")


def echo_poller(source: str, target: str) -> Generator[Any, Any, None]:
    poller = msgq.Poller()
    msgq.sub_sock(source, poller)
    pub = msgq.pub_sock(target)
    while True:
        for sub in (yield poller):
            pub.send(sub.receive() + b"!")


def add_echo(sim: Simulation, kind: str, source: str, target: str) -> None:
    if kind == "function":
        pub = msgq.pub_sock(target)
        sim.on(source, lambda message: pub.send(message + b"!"), name="echo")
    else:
        programs: dict[str, Any] = {
            "blocking": echo_blocking,
            "generator": echo_generator,
            "poller": echo_poller,
        }
        sim.add(programs[kind], source, target, name="echo")


KINDS = ["function", "blocking", "generator", "poller"]


class TestNodes:
    @pytest.mark.parametrize("first", KINDS)
    @pytest.mark.parametrize("second", KINDS)
    def test_function_generator_and_blocking_nodes_exchange_messages(self, first: str, second: str) -> None:
        with Simulation() as sim:
            add_echo(sim, first, "a", "b")
            add_echo(sim, second, "b", "c")
            sim.play([(0.25 * i, "a", b"%d" % i) for i in range(4)])
            sim.run()
            assert sim.sent_on("c") == [b"0!!", b"1!!", b"2!!", b"3!!"]
            assert sim.clock.now_ns == S * 3 // 4

    def test_sent_messages_have_their_time_and_node(self) -> None:
        with Simulation() as sim:
            add_echo(sim, "blocking", "a", "b")
            sim.play([(0.5, "a", b"x")])
            sim.run(until=2)
            msgq.pub_sock("c").send(b"y")
            assert sim.sent_messages == [
                SentMessage(S // 2, "play", "a", b"x"),
                SentMessage(S // 2, "echo", "b", b"x!"),
                SentMessage(2 * S, "main", "c", b"y"),
            ]

    def test_nodes_with_same_name_get_separate_names(self) -> None:
        with Simulation() as sim:
            for i in range(3):
                sim.add(lambda endpoint: msgq.pub_sock(endpoint).send(b"x"), f"e{i}", name="same")
            assert [sent.node for sent in sim.sent_messages] == ["same", "same-2", "same-3"]

    def test_generator_node_can_wait_for_seconds_and_timeouts(self) -> None:
        seen = []

        def node() -> Generator[Any, Any, None]:
            sub = msgq.sub_sock("a", timeout=250)
            for wait in (1.5, sub, 0):
                seen.append(((yield wait), sim.clock.now_ns))

        with Simulation() as sim:
            sim.add(node)
            sim.run()
        assert seen == [(None, S * 3 // 2), (None, S * 7 // 4), (None, S * 7 // 4)]

    def test_generator_node_can_handle_close_of_its_socket(self) -> None:
        seen = []

        def node() -> Generator[Any, Any, None]:
            sub = msgq.sub_sock("a")
            subs.append(sub)
            try:
                yield sub
            except EndpointClosedError as error:
                seen.append(error.endpoint)

        subs: list[Any] = []
        with Simulation() as sim:
            sim.add(node)
            subs[0].close()
            sim.run()
        assert seen == ["a"]

    @pytest.mark.parametrize("wrong", [None, "a", -1, b"x"])
    def test_generator_node_yielding_another_object_raises(self, wrong: Any) -> None:
        def node() -> Generator[Any, Any, None]:
            yield wrong

        with Simulation() as sim, pytest.raises(TypeError, match="'node' yielded"):
            sim.add(node)

    def test_blocking_node_gets_its_arguments_and_virtual_time(self) -> None:
        seen: list[float] = []

        def node(*waits: float) -> None:
            for wait in waits:
                sim.clock.sleep(wait)
                seen.append(sim.clock.monotonic())

        with Simulation() as sim:
            sim.add(node, 1.0, 0.5, 0)
            sim.run()
        assert seen == [1.0, 1.5, 1.5]

    def test_patch_time_gives_virtual_time_to_time_module(self) -> None:
        def node() -> None:
            started = time.monotonic()
            time.sleep(5)
            msgq.pub_sock("a").send(b"%d" % (time.monotonic() - started))

        with Simulation() as sim, sim.clock.patch_time():
            sim.add(node)
            sim.run()
            assert sim.sent_messages == [SentMessage(5 * S, "node", "a", b"5")]

    def test_only_one_node_runs_at_a_time(self) -> None:
        running: list[str] = []

        def node(name: str) -> None:
            for _ in range(20):
                assert not running
                running.append(name)
                for _ in range(1000):
                    pass
                running.remove(name)
                sim.clock.sleep(0)

        with Simulation() as sim:
            for name in "abc":
                sim.add(node, name)
            sim.run()

    def test_node_can_add_another_node(self) -> None:
        def parent() -> None:
            sim.add(echo_blocking, "a", "b")
            sim.clock.sleep(1)
            msgq.pub_sock("a").send(b"x")

        with Simulation() as sim:
            sim.add(parent)
            sim.run()
            assert sim.sent_on("b") == [b"x!"]

    def test_socket_awaited_by_node_refuses_other_calls(self) -> None:
        subs: list[Any] = []

        def node() -> None:
            subs.append(msgq.sub_sock("a"))
            subs[0].receive()

        with Simulation() as sim:
            sim.add(node)
            for call in (subs[0].receive, lambda: subs[0].receive(True), subs[0].receive_many):
                with pytest.raises(ConcurrentUseError, match="'a'"):
                    call()

    @pytest.mark.parametrize("again", [False, True])
    def test_socket_close_ends_wait_of_its_node(self, again: bool) -> None:
        subs: list[Any] = []
        seen = []

        def node() -> None:
            subs.append(msgq.sub_sock("a"))
            try:
                subs[0].receive()
            except EndpointClosedError:
                seen.append("closed")

        with Simulation() as sim:
            sim.add(node)
            subs[0].close()
            if again:
                subs[0].connect(msgq.context, "a")
            sim.run()
            assert subs[0].closed != again
            if again:
                msgq.pub_sock("a").send(b"x")
                assert subs[0].receive() == b"x"
        assert seen == ["closed"]

    def test_publisher_node_waits_for_later_readers(self) -> None:
        def late() -> None:
            sim.clock.sleep(0.5)
            subs.append(msgq.sub_sock("a"))
            sim.clock.sleep(0.5)
            assert subs[0].receive() == b"x"

        subs: list[Any] = []
        with Simulation() as sim:
            sim.add(late)
            pub = msgq.pub_sock("a")
            pub.wait_for_readers(n=1)
            assert sim.clock.time() == 0.5
            pub.send(b"x")
            assert not pub.all_readers_updated()
            pub.wait_for_readers()
            assert sim.clock.time() == 1.0
            with pytest.raises(WaitTimeoutError):
                pub.wait_for_readers(0.25, n=2)
            assert sim.clock.time() == 1.25


class TestMain:
    def test_main_node_wait_lets_other_nodes_run(self) -> None:
        with Simulation() as sim:
            add_echo(sim, "blocking", "a", "b")
            pub, sub = msgq.pub_sock("a"), msgq.sub_sock("b")
            for text in (b"1", b"2"):
                pub.send(text)
                assert sub.receive() == text + b"!"

    def test_main_node_receives_nothing_before_first_wait(self) -> None:
        with Simulation():
            pub, sub = msgq.pub_sock("a"), msgq.sub_sock("a")
            pub.send(b"x")
            assert sub.receive(non_blocking=True) is None
            assert not pub.all_readers_updated()
            assert sub.receive() == b"x"
            assert pub.all_readers_updated()

    def test_main_node_timeouts_end_on_time(self) -> None:
        with Simulation() as sim:
            sim.play([(0.1, "other", b""), (7.0, "a", b"late")])
            sub = msgq.sub_sock("a", timeout=2000)
            assert sub.receive() is None
            assert sim.clock.time() == 2.0
            sub.setTimeout(5000)
            assert sub.receive() == b"late"
            assert sim.clock.time() == 7.0

    def test_endless_wait_of_main_node_raises_with_names_of_waiting_nodes(self) -> None:
        with Simulation() as sim:
            sim.add(echo_blocking, "a", "b")
            sim.add(echo_generator, "b", "a")
            sub = msgq.sub_sock("c")
            with pytest.raises(DeadlockError) as caught:
                sub.receive()
        text = str(caught.value)
        assert "main waits for a message on 'c'" in text
        assert "echo_blocking waits for a message on 'a'" in text
        assert "echo_generator waits for a message on 'b'" in text


class TestRun:
    def test_run_until_time_executes_all_earlier_events(self) -> None:
        with Simulation() as sim:
            sim.play([(float(i), "a", b"%d" % i) for i in range(10)])
            sim.run(until=3)
            assert sim.sent_on("a") == [b"0", b"1", b"2", b"3"]
            sim.run(until=3.5)
            assert sim.clock.time() == 3.5
            sim.run()
            assert len(sim.sent_messages) == 10

    def test_run_until_condition_ends_when_condition_is_true(self) -> None:
        with Simulation() as sim:
            sim.play([(float(i), "a", b"") for i in range(10)])
            sim.run(until=lambda: len(sim.sent_messages) == 4)
            assert sim.clock.time() == 3.0

    def test_run_until_condition_that_never_holds_raises(self) -> None:
        with Simulation() as sim:
            sim.add(echo_blocking, "a", "b")
            with pytest.raises(DeadlockError, match="echo_blocking waits for a message on 'a'"):
                sim.run(until=lambda: sim.sent_messages)

    def test_simulation_times_are_seconds_or_integer_nanoseconds(self) -> None:
        exact = 1_700_000_000_123_456_789
        with Simulation() as sim:
            sim.play([(1.5, "a", b""), (exact, "a", b"")])
            sim.run()
            assert [sent.time_ns for sent in sim.sent_messages] == [S * 3 // 2, exact]

    def test_play_merges_two_recordings(self) -> None:
        with Simulation() as sim:
            sim.play((float(i), "even", b"%d" % i) for i in (0, 2, 4))
            sim.play((float(i), "odd", b"%d" % i) for i in (1, 3, 5))
            sim.run()
            assert [sent.data for sent in sim.sent_messages] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    def test_play_of_decreasing_times_is_refused(self) -> None:
        with Simulation() as sim:
            sim.play([(2.0, "a", b""), (1.0, "a", b"")])
            with pytest.raises(InvalidValueError, match="sort the messages by time"):
                sim.run()

    def test_play_reads_recording_lazily(self) -> None:
        def endless() -> Generator[tuple[float, str, bytes], None, None]:
            time = 0.0
            while True:
                yield time, "a", b""
                time += 1

        with Simulation() as sim:
            sim.play(endless())
            sim.run(until=5)
            assert len(sim.sent_messages) == 6


class TestErrors:
    @pytest.mark.parametrize("kind", ["function", "blocking", "generator"])
    def test_error_of_node_contains_node_name_and_seed(self, kind: str) -> None:
        def fails(message: bytes) -> None:
            raise KeyError(message)

        def blocking() -> None:
            fails(msgq.sub_sock("a").receive() or b"")

        def generator() -> Generator[Any, Any, None]:
            fails((yield msgq.sub_sock("a")))

        def scenario(sim: Simulation) -> None:
            if kind == "function":
                sim.on("a", fails, name="culprit")
            else:
                sim.add(blocking if kind == "blocking" else generator, name="culprit")
            sim.play([(1.5, "a", b"x")])
            sim.run()

        with pytest.raises(KeyError) as caught, Simulation(seed=41) as sim:
            scenario(sim)
        last = "last events:\n1.5 s: a #1 arrives at culprit: b'x'" + (
            "" if kind == "function" else "\n1.5 s: culprit runs"
        )
        assert caught.value.__notes__ == ["in node 'culprit' at 1.5 s", "the same run again: Simulation(seed=41)", last]

    @pytest.mark.parametrize("kind", ["function", "generator"])
    def test_blocking_call_in_function_or_generator_raises(self, kind: str) -> None:
        def node(_: bytes) -> None:
            msgq.sub_sock("b").receive()

        def generator() -> Generator[Any, Any, None]:
            node((yield msgq.sub_sock("a")))

        with Simulation() as sim:
            if kind == "function":
                sim.on("a", node)
            else:
                sim.add(generator, name="node")
            msgq.pub_sock("a").send(b"")
            with pytest.raises(DeadlockError, match="node 'node' cannot wait"):
                sim.run()

    def test_node_cannot_run_its_simulation(self) -> None:
        with Simulation() as sim, pytest.raises(DeadlockError, match="'node' cannot run"):
            sim.add(lambda: sim.run(), name="node")

    def test_thread_outside_of_simulation_nodes_cannot_wait(self) -> None:
        def node() -> None:
            task = Task(lambda: msgq.sub_sock("a").receive())
            with pytest.raises(ConcurrentUseError, match="not a node of the simulation"):
                task.result()

        with Simulation() as sim:
            sim.add(node)
            node()

    def test_inactive_simulation_refuses_nodes(self) -> None:
        sim = Simulation()
        with pytest.raises(StateError, match="with Simulation"):
            sim.add(echo_blocking, "a", "b")

    def test_active_simulation_cannot_be_entered_again(self) -> None:
        with Simulation() as sim, pytest.raises(StateError, match="was entered before"), sim:
            pass


class TestEnd:
    def test_end_of_simulation_ends_threads_and_closes_sockets(self) -> None:
        before = threading.active_count()
        ended = []

        def node() -> None:
            try:
                msgq.sub_sock("a").receive()
            finally:
                ended.append("blocking")

        def generator() -> Generator[Any, Any, None]:
            try:
                yield msgq.sub_sock("a")
            finally:
                ended.append("generator")

        with Simulation() as sim:
            sim.add(node)
            sim.add(generator)
            sub = msgq.sub_sock("a")
            assert threading.active_count() == before + 1
        assert threading.active_count() == before
        assert ended == ["blocking", "generator"]
        assert sub.closed

    def test_node_exception_at_end_ends_all_other_nodes(self) -> None:
        before = threading.active_count()

        def bad() -> None:
            try:
                msgq.sub_sock("a").receive()
            finally:
                raise KeyError

        def scenario(sim: Simulation) -> None:
            sim.add(bad)
            sim.add(echo_blocking, "b", "c")
            subs.append(msgq.sub_sock("a"))

        subs: list[Any] = []
        with pytest.raises(KeyError), Simulation() as sim:
            scenario(sim)
        assert subs[0].closed
        assert threading.active_count() == before

    def test_node_waiting_at_end_is_ended(self) -> None:
        def stubborn() -> None:
            try:
                msgq.sub_sock("a").receive()
            finally:
                sim.clock.sleep(1)

        with Simulation() as sim:
            sim.add(stubborn)
        assert sim.clock.time() == 0

    def test_simulation_replaces_and_restores_socket_classes(self) -> None:
        before = msgq.PubSocket, msgq.SubSocket, msgq.Poller
        with Simulation():
            from msgq import PubSocket  # import inside of a node

            assert PubSocket is msgq.PubSocket
            assert "fake" in PubSocket.__module__
            assert api.SubSocket is msgq.SubSocket
        assert (msgq.PubSocket, msgq.SubSocket, msgq.Poller) == before
        assert (api.PubSocket, api.SubSocket, api.Poller) == before

    def test_simulation_has_its_own_topics(self) -> None:
        with Simulation() as outer:
            sub = msgq.sub_sock("a", timeout=0)
            with Simulation() as inner:
                msgq.pub_sock("a").send(b"x")
                assert (len(inner.sent_messages), len(outer.sent_messages)) == (1, 0)
            outer.run()
            assert sub.receive() is None


async def run_async(*_: object) -> Any:
    raise AssertionError("the simulation cannot run this function")


async def run_async_generator(*_: object) -> Any:
    yield await run_async()


def wait_once(*_: object) -> Generator[float, None, None]:
    yield 0.1


class AsyncProgram:
    async def __call__(self, *_: object) -> None:
        await run_async()


@pytest.mark.parametrize(
    "function", [run_async, run_async_generator, AsyncProgram(), lambda *_: run_async(), lambda *_: wait_once()]
)
def test_function_whose_code_nobody_would_run_raises(function: Any) -> None:
    """A coroutine that nobody awaits would let the test pass without any check."""
    with Simulation() as sim:
        with pytest.raises(InvalidTypeError, match=r"node 'mine' returned a .*, which the simulation does not run"):
            sim.add(function, name="mine")
        sim.on("speed", function, name="handler")
        msgq.pub_sock("speed").send(b"1")
        with pytest.raises(InvalidTypeError, match="node 'handler' returned a "):
            sim.run()


def test_submaster_in_simulation_uses_virtual_time() -> None:
    """Inside `patched` the default clock is the simulation's: ten messages a second are in their rate."""

    def controller() -> None:
        master, out = msgq.SubMaster({"state": 10}, poll="state"), msgq.PubMaster(["command"])
        while True:
            master.update()
            if master.updated["state"]:
                out.send("command", b"go" if master.all_checks() else b"stop")

    with Simulation() as sim, sim.clock.patch_time():
        sim.add(controller)
        sim.play([(i / 10, "state", b"x") for i in range(5)])
        sim.run(until=1.0)
        assert sim.sent_on("command") == [b"stop"] + [b"go"] * 4


class TestRealTime:
    """What would wait in real time while all others stand still says so at once."""

    def test_asyncio_wait_in_node_raises(self) -> None:
        async def arecv() -> None:
            await msgq.sub_sock("a").arecv()

        async def apoll() -> None:
            poller = msgq.Poller()
            msgq.sub_sock("a", poller)
            await poller.apoll(1000)

        for wait in (arecv, apoll):
            with Simulation() as sim, pytest.raises(DeadlockError, match=r"^'a': node 'listener' waits .* receive"):
                sim.add(lambda wait=wait: asyncio.run(wait()), name="listener")

    def test_fileno_of_socket_in_main_node_raises(self) -> None:
        with Simulation(), pytest.raises(DeadlockError, match="node 'main'"):
            msgq.sub_sock("a").fileno()

    def test_asyncio_receive_returns_available_message(self) -> None:
        with Simulation() as sim:
            sub, pub = msgq.sub_sock("a"), msgq.pub_sock("a")
            pub.send(b"x")
            sim.run()
            assert asyncio.run(sub.arecv()) == b"x"

    @pytest.mark.parametrize("backend_name", ["msgq", "zmq"])
    @pytest.mark.parametrize("kind", ["PubSocket", "SubSocket"])
    def test_node_with_real_socket_raises(self, backend_name: str, kind: str, prefix: str) -> None:
        socket = getattr(backend.load_backend(backend_name), kind)()  # same class as after an import by its name
        with Simulation() as sim:
            with pytest.raises(StateError, match=r"^'a': node 'old' connects .* msgq.SubSocket"):
                sim.add(lambda: socket.connect(msgq.context, "a"), name="old")
            with pytest.raises(StateError, match="node 'main'"):
                socket.connect(msgq.context, "a")
        assert socket.closed
        assert not any(SHM.glob(f"msgq*{prefix}*"))

    def test_threads_outside_simulation_can_connect_real_sockets(self, prefix: str) -> None:
        real = backend.load_backend("msgq").PubSocket
        with real() as before, real() as beside, real() as after:
            before.connect(msgq.context, "before")
            with Simulation():
                before.send(b"x")
                Task(beside.connect, msgq.context, "beside").result()
            after.connect(msgq.context, "after")
