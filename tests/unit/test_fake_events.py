"""Event-gated receiving: what stock's controllers rely on, and what goes wrong with stock's."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.common.settings import get_backend_name
from msgq.errors import (
    ControllerDiedError,
    CorruptSegmentError,
    EndpointClosedError,
    EndpointNameError,
    EventError,
    EventTimeoutError,
    InvalidValueError,
    LayoutVersionError,
    MessageSizeError,
    SegmentError,
    StateError,
)
from tests.support import DEADLINE, SHM, Child, Task, wait_asleep, wait_until
from tests.unit import gate_children as children


@pytest.fixture(autouse=True)
def fake(token: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fake events are on, under an identifier of this test alone."""
    monkeypatch.setenv("CEREAL_FAKE", "")  # so that it is put back
    monkeypatch.setenv("CEREAL_FAKE_PREFIX", "")
    msgq.toggle_fake_events(True)
    msgq.set_fake_prefix(f"i{token}")
    yield
    gc.collect()  # an exception that was caught has handles in the frames of its traceback


def gate_files(token: str) -> list[str]:
    return sorted(path.name for path in SHM.iterdir() if path.name.startswith("msgqgate_") and token in path.name)


def gate_path(token: str) -> Path:
    (name,) = (name for name in gate_files(token) if not name.endswith((":called", ":ready")))
    return SHM / name


def step(handle: msgq.SocketEventHandle) -> None:
    """Let one receive through that is on its way."""
    handle.recv_called_event.wait(DEADLINE)
    assert handle.recv_called_event.clear()
    handle.recv_ready_event.set()


class TestEvent:
    def test_each_clear_of_event_cancels_one_set(self, endpoint: str) -> None:
        event = msgq.fake_event_handle(endpoint).recv_called_event
        assert not event.peek()
        assert not event.clear()
        event.set()
        event.set()
        assert event.peek()
        assert event.clear()
        assert event.peek()
        assert event.clear()
        assert not event.clear()
        assert not event.peek()

    def test_wait_for_event_does_not_clear_event(self, endpoint: str) -> None:
        event = msgq.fake_event_handle(endpoint).recv_ready_event
        event.set()
        event.wait(0)
        event.wait()
        assert event.clear()

    def test_event_outlives_its_handle(self, endpoint: str, token: str) -> None:
        event = msgq.fake_event_handle(endpoint).recv_called_event
        gc.collect()
        event.set()
        event.wait(0)
        assert gate_files(token)
        del event
        assert not gate_files(token)

    @pytest.mark.parametrize("timeout", [0, 0.03])
    def test_event_wait_timeout_raises_stock_error(self, endpoint: str, timeout: float) -> None:
        event = msgq.fake_event_handle(endpoint).recv_called_event
        started = time.monotonic()
        with pytest.raises(RuntimeError, match=f"within {timeout} s") as caught:
            event.wait(timeout)
        assert time.monotonic() - started >= timeout
        assert isinstance(caught.value, EventTimeoutError)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.endpoint == endpoint

    @pytest.mark.parametrize("timeout", [-2, -0.5, float("nan"), float("inf"), 2**31])
    def test_event_timeout_out_of_range_is_refused(self, endpoint: str, timeout: float) -> None:
        event = msgq.fake_event_handle(endpoint).recv_called_event
        event.set()
        with pytest.raises(InvalidValueError, match="timeout is"):
            event.wait(timeout)
        with pytest.raises(InvalidValueError, match="timeout is"):
            msgq.wait_for_one_event([event], timeout)

    @pytest.mark.parametrize("timeout", ["5", None])
    def test_event_timeout_of_wrong_type_is_refused(self, endpoint: str, timeout: Any) -> None:
        with pytest.raises(TypeError):
            msgq.fake_event_handle(endpoint).recv_called_event.wait(timeout)

    def test_event_can_be_set_by_another_thread(self, endpoint: str) -> None:
        event = msgq.fake_event_handle(endpoint).recv_called_event
        for _ in range(3):
            task = Task(event.wait)
            task.wait_asleep()
            event.set()
            task.result()
            assert event.clear()

    def test_event_set_wakes_all_waiting_threads(self, endpoint: str) -> None:
        event = msgq.fake_event_handle(endpoint).recv_called_event
        tasks = [Task(event.wait) for _ in range(5)]
        for task in tasks:
            task.wait_asleep()
        event.set()
        for task in tasks:
            task.result()

    def test_event_is_set_by_other_process(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        with Child(children.wait_for_event, endpoint, "recv_ready_event") as child:
            assert child.hear() == "waiting"
            wait_asleep(child.pid)
            handle.recv_ready_event.set()
            assert child.result() == "set"
        with Child(children.controller, endpoint, "recv_called_event") as child:
            assert child.hear() == "made"
            attached = msgq.fake_event_handle(endpoint, override=False)
            task = Task(attached.recv_called_event.wait)
            task.wait_asleep()
            child.say("set it")
            task.result()
            child.say()
            child.result()

    def test_ctrl_c_ends_event_wait(self, endpoint: str) -> None:
        with msgq.fake_event_handle(endpoint), Child(children.wait_for_event, endpoint, "recv_ready_event") as child:
            assert child.hear() == "waiting"
            wait_asleep(child.pid)
            child.kill(signal.SIGINT)
            assert child.result() == "interrupted"

    def test_event_in_forked_child_does_not_own_files(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        event = handle.recv_called_event
        pid = os.fork()
        if pid == 0:
            event.set()
            del event, handle
            gc.collect()
            os._exit(0)
        event.wait(DEADLINE)
        assert os.waitpid(pid, 0)[1] == 0
        assert gate_files(token)


class TestWaitForOneEvent:
    def test_wait_for_one_event_returns_first_set_event(self, prefix: str) -> None:
        handles = [msgq.fake_event_handle(name) for name in "abc"]
        events = [handle.recv_called_event for handle in handles]
        events[2].set()
        assert msgq.wait_for_one_event(events) == 2
        events[1].set()
        assert msgq.wait_for_one_event(events, 0) == 1
        assert events[1].clear()
        assert events[2].clear()
        task = Task(msgq.wait_for_one_event, events)
        task.wait_asleep()
        events[1].set()
        assert task.result() == 1

    @pytest.mark.parametrize("count", [128, 129, 300])
    def test_wait_for_one_event_accepts_many_events(self, endpoint: str, count: int) -> None:
        handle = msgq.fake_event_handle(endpoint)
        events = [handle.recv_ready_event] * (count - 1) + [handle.recv_called_event]
        task = Task(msgq.wait_for_one_event, events)
        wait_until(lambda: task.native_id)
        handle.recv_called_event.set()
        assert task.result() == count - 1

    def test_wait_for_one_event_ends_at_timeout(self, prefix: str) -> None:
        handles = [msgq.fake_event_handle(name) for name in "ab"]
        started = time.monotonic()
        with pytest.raises(RuntimeError, match="none of the 2 events"):
            msgq.wait_for_one_event([handle.recv_called_event for handle in handles], 0.02)
        assert time.monotonic() - started >= 0.02

    def test_wait_for_one_event_without_events_is_refused(self) -> None:
        with pytest.raises(InvalidValueError, match="no events"):
            msgq.wait_for_one_event([])
        with pytest.raises(TypeError):
            msgq.wait_for_one_event([None])  # type: ignore[list-item]


class TestHandle:
    def test_new_event_handle_is_disabled_and_clear(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        assert not handle.enabled
        assert not handle.recv_called_event.peek()
        assert handle.recv_called_event.fd >= 0
        assert handle.recv_ready_event.fd >= 0
        assert (handle.endpoint, handle.identifier) == (endpoint, msgq.get_fake_prefix().decode())
        handle.enabled = True
        assert msgq.fake_event_handle(endpoint, override=False).enabled

    def test_event_calls_on_endpoint_without_event_gate_are_refused(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint):
            handle = msgq.fake_event_handle(endpoint, override=False, enable=True)
        assert not handle.enabled
        assert handle.recv_called_event.fd == handle.recv_ready_event.fd == -1
        with pytest.raises(EventError, match="not managed"):
            handle.enabled = True
        for use in ("set", "clear", "wait", "peek"):
            with pytest.raises(EventError, match="not managed"):
                getattr(handle.recv_called_event, use)()

    def test_event_handle_is_unchanged_by_sockets_of_its_endpoint(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        before = handle.enabled, handle.recv_called_event.fd, handle.recv_ready_event.fd
        with msgq.pub_sock(endpoint), msgq.sub_sock(endpoint):
            assert (handle.enabled, handle.recv_called_event.fd, handle.recv_ready_event.fd) == before

    def test_event_handle_close_ends_waits_and_removes_files(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        event = handle.recv_called_event
        assert event.fd >= 0
        assert len(gate_files(token)) == 2
        attached = msgq.fake_event_handle(endpoint, override=False)
        task = Task(attached.recv_called_event.wait)
        task.wait_asleep()
        handle.close()
        handle.close()
        assert not gate_files(token)
        with pytest.raises(EventError, match="closed"):
            task.result()
        with pytest.raises(EventError, match="closed"):
            event.set()
        assert event.fd == -1
        assert not handle.enabled
        assert not attached.enabled

    def test_last_event_handle_with_override_replaces_gate(self, endpoint: str, token: str) -> None:
        first = msgq.fake_event_handle(endpoint, enable=True)
        assert first.recv_called_event.fd >= 0
        with msgq.fake_event_handle(endpoint) as second:
            assert not second.recv_called_event.peek()
            second.recv_called_event.set()
            with pytest.raises(EventError, match="replaced"):
                first.recv_called_event.set()
            first.close()
            assert len(gate_files(token)) == 1
            attached = msgq.fake_event_handle(endpoint, override=False)
            assert attached.recv_called_event.clear()

    def test_open_event_handle_is_removed_at_process_exit(self, endpoint: str, token: str) -> None:
        with Child(children.controller, endpoint, "recv_called_event") as child:
            assert child.hear() == "made"
            assert gate_files(token)
            child.say()
            child.result()
        assert not gate_files(token)

    def test_identifiers_have_separate_event_gates(self, endpoint: str) -> None:
        mine, other = msgq.fake_event_handle(endpoint), msgq.fake_event_handle(endpoint, f"other{endpoint}")
        mine.recv_called_event.set()
        assert not other.recv_called_event.peek()
        msgq.set_fake_prefix(f"other{endpoint}")
        other.recv_called_event.set()
        assert msgq.fake_event_handle(endpoint, override=False).recv_called_event.clear()
        assert not other.recv_called_event.peek()

    def test_topic_prefixes_have_separate_event_gates(self, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        handle = msgq.fake_event_handle("topic", enable=True)
        monkeypatch.setenv("OPENPILOT_PREFIX", f"{prefix}2")
        assert not msgq.fake_event_handle("topic", override=False).enabled
        assert handle.enabled

    def test_event_gate_file_names_are_unique(self, endpoint: str) -> None:
        handles = [
            msgq.fake_event_handle(endpoint, f"a:{endpoint}"),
            msgq.fake_event_handle(f"{endpoint}:{endpoint}", "a"),
            msgq.fake_event_handle(endpoint, f"a%3A{endpoint}"),
        ]
        handles[0].recv_called_event.set()
        assert [handle.recv_called_event.peek() for handle in handles] == [True, False, False]

    @pytest.mark.parametrize("bad", ["a/b", "..", "x" * 240])
    def test_event_handle_with_invalid_name_is_refused(self, endpoint: str, bad: str) -> None:
        with pytest.raises(EndpointNameError):
            msgq.fake_event_handle(bad)
        with pytest.raises(EndpointNameError):
            msgq.fake_event_handle(endpoint, bad)

    def test_event_handle_cannot_be_initialized_twice(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        with pytest.raises(StateError, match="already"):
            handle.__init__(endpoint, "", True)  # type: ignore[misc]


def test_fake_prefix_functions_set_environment(token: str) -> None:
    msgq.toggle_fake_events(False)
    assert "CEREAL_FAKE" not in os.environ
    msgq.toggle_fake_events(True)
    assert os.environ["CEREAL_FAKE"] == "1"
    msgq.set_fake_prefix("p")
    assert (msgq.get_fake_prefix(), os.environ["CEREAL_FAKE_PREFIX"]) == (b"p", "p")
    msgq.set_fake_prefix("zoë")
    msgq.set_fake_prefix(msgq.get_fake_prefix())
    assert (msgq.get_fake_prefix(), os.environ["CEREAL_FAKE_PREFIX"]) == ("zoë".encode(), "zoë")
    msgq.set_fake_prefix("")
    assert msgq.get_fake_prefix() == b""
    assert "CEREAL_FAKE_PREFIX" not in os.environ
    msgq.delete_fake_prefix()
    with pytest.raises(EndpointNameError):
        msgq.set_fake_prefix("a/b")


ONE_BY_ONE = {
    "receive": lambda sub: sub.receive(True),
    "receive_into": lambda sub: sub.receive_into(bytearray(8), True),
}
SEVERAL = {
    "receive_many": lambda sub, wait=False: sub.receive_many(wait_for_one=wait),
    "receive_array": lambda sub, wait=False: [bytes([x]) for x in sub.receive_array(np.uint8, wait_for_one=wait)],
    "drain": msgq.drain_sock_raw,
}


class TestSubscriber:
    def test_stock_controller_steps_process_in_lockstep(self, prefix: str) -> None:
        handle = msgq.fake_event_handle("state", enable=True)
        called, ready = handle.recv_called_event, handle.recv_ready_event
        with (
            msgq.pub_sock("state") as pub,
            msgq.sub_sock("answer") as sub,
            Child(children.send_numbers_of_messages, "state", "answer") as child,
        ):
            for i in range(200):
                called.wait(DEADLINE)
                called.clear()
                pub.send(b"%d" % i)
                ready.set()
                called.wait(DEADLINE)  # the step is over when the next one is asked for
                assert sub.receive(non_blocking=True) == i.to_bytes(8, "little")
            called.clear()
            pub.send(b"end")
            ready.set()
            child.result()

    @pytest.mark.parametrize("way", ONE_BY_ONE)
    def test_each_receive_call_passes_event_gate_once(self, endpoint: str, way: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            for i in range(3):
                task = Task(ONE_BY_ONE[way], sub)
                handle.recv_called_event.wait(DEADLINE)
                pub.send_many([b"x"] * 3)
                handle.recv_ready_event.set()
                assert task.result()
                assert handle.recv_called_event.clear()
                assert not handle.recv_called_event.clear(), f"call {i} went twice"
                assert not handle.recv_ready_event.peek()

    def test_subscriber_with_disabled_event_gate_does_not_stop(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            handle.enabled = True
            handle.recv_ready_event.set()
            pub.send(b"test")
            assert sub.receive() == b"test"
            assert handle.recv_called_event.clear()
            handle.enabled = False
            handle.recv_ready_event.set()
            pub.send(b"test")
            assert sub.receive() == b"test"
            assert not handle.recv_called_event.peek()

    def test_subscriber_without_fake_events_does_not_stop(self, endpoint: str) -> None:
        msgq.toggle_fake_events(False)
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.sub_sock(endpoint) as sub:
            assert sub.receive(True) is None
        assert not handle.recv_called_event.peek()

    def test_subscriber_stops_at_event_handle_created_later(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send(b"1")
            assert sub.receive() == b"1"
            with msgq.fake_event_handle(endpoint, enable=True) as handle:
                pub.send(b"2")
                handle.recv_ready_event.set()
                assert sub.receive() == b"2"
                assert handle.recv_called_event.clear()
            pub.send(b"3")
            assert sub.receive() == b"3"

    def test_subscriber_at_replaced_event_gate_moves_to_new_gate(self, endpoint: str) -> None:
        first = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            task = Task(sub.receive)
            first.recv_called_event.wait(DEADLINE)
            for _ in range(50):
                first = msgq.fake_event_handle(endpoint, enable=True)
                first.recv_called_event.wait(DEADLINE)
            pub.send(b"x")
            step(first)
            assert task.result() == b"x"

    def test_subscriber_at_closed_event_gate_continues(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            task = Task(sub.receive)
            task.wait_asleep()
            pub.send(b"x")
            handle.close()
            assert task.result() == b"x"

    def test_subscriber_at_disabled_event_gate_continues(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            for round in range(20):
                task = Task(sub.receive)
                handle.recv_called_event.wait(DEADLINE)
                if round % 2:  # else it may still spin
                    task.wait_asleep()
                pub.send(b"x")
                handle.enabled = False
                assert task.result() == b"x"
                assert handle.recv_called_event.clear()
                handle.enabled = True

    def test_fork_in_signal_handler_at_event_gate_leaves_two_receives(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, Child(children.receive_with_fork_in_handler, endpoint) as child:
            assert child.hear() == "connected"
            handle.recv_called_event.wait(DEADLINE)
            wait_asleep(child.pid)
            assert handle.recv_called_event.clear()
            child.kill(signal.SIGUSR1)
            handle.recv_called_event.wait(DEADLINE)  # the child's
            pub.send(b"x")
            handle.recv_ready_event.set()
            step(handle)
            assert child.result() == ["x", "x"]
        assert not handle.recv_called_event.peek()

    def test_error_at_event_gate_does_not_consume_step(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        assert handle.recv_ready_event.fd >= 0
        fifo = Path(f"{gate_path(token)}:ready")
        aside = fifo.rename(f"{fifo}-aside")
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send(b"x")
            handle.recv_ready_event.set()
            for _ in range(3):
                with pytest.raises(CorruptSegmentError, match="FIFO"):
                    sub.receive()
                assert handle.recv_ready_event.peek()
            aside.rename(fifo)
            assert sub.receive() == b"x"
            assert not handle.recv_ready_event.peek()
            assert not select.select([handle.recv_ready_event.fd], [], [], 0)[0]
            assert handle.recv_called_event.clear()
            assert not handle.recv_called_event.peek(), "announced once for all the tries"

    def test_each_step_lets_one_subscriber_pass_event_gate(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as one, msgq.sub_sock(endpoint) as two:
            pub.send(b"x")
            tasks = [Task(one.receive), Task(two.receive)]
            for _ in tasks:
                step(handle)
            assert [task.result() for task in tasks] == [b"x", b"x"]
            assert not handle.recv_called_event.peek()
            assert not handle.recv_ready_event.peek()

    def test_close_by_other_thread_ends_wait_at_event_gate(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        sub = msgq.sub_sock(endpoint)
        task = Task(sub.receive)
        handle.recv_called_event.wait(DEADLINE)
        task.wait_asleep()
        sub.close()
        with pytest.raises(EndpointClosedError):
            task.result()

    def test_ctrl_c_at_event_gate_signals_call_only_once(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, Child(children.receive_after_ctrl_c, endpoint) as child:
            assert child.hear() == "connected"
            handle.recv_called_event.wait(DEADLINE)
            wait_asleep(child.pid)
            child.kill(signal.SIGINT)
            assert child.hear() == "interrupted"
            pub.send(b"x")
            step(handle)
            assert child.result() == "x"
            assert not handle.recv_called_event.peek()

    def test_next_process_replaces_process_killed_at_event_gate(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub:
            with Child(children.receiver, endpoint, 1) as child:
                assert child.hear() == "connected"
                handle.recv_called_event.wait(DEADLINE)
                wait_asleep(child.pid)
                child.kill()
            assert handle.recv_called_event.clear()
            with pytest.raises(EventTimeoutError):
                handle.recv_called_event.wait(0.01)
            with Child(children.receiver, endpoint, 2) as child:
                assert child.hear() == "connected"
                pub.send_many([b"1", b"2"])
                step(handle)
                step(handle)
                assert child.result() == ["1", "2"]


def has_no_pending_event(handle: msgq.SocketEventHandle) -> bool:
    """Whether no call is announced, and none would be let through."""
    return not handle.recv_called_event.peek() and not handle.recv_ready_event.peek()


@pytest.mark.parametrize("way", SEVERAL)
class TestSeveralAtOnce:
    """What takes several messages is stock's loop of receives, each of which stops."""

    @pytest.mark.parametrize("wait", [False, True])
    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_receive_many_stops_at_event_gate_for_each_message_and_end(
        self, endpoint: str, way: str, count: int, wait: bool
    ) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            task = Task(SEVERAL[way], sub, wait)
            sent = [b"%d" % i for i in range(count)]
            for message in sent:
                handle.recv_called_event.wait(DEADLINE)
                pub.send(message)
                step(handle)
            step(handle)
            assert task.result() == sent
            assert has_no_pending_event(handle)

    def test_receive_many_without_messages_stops_at_event_gate_once(self, endpoint: str, way: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.sub_sock(endpoint, timeout=10) as sub:
            for wait in (False, True):
                task = Task(SEVERAL[way], sub, wait)
                step(handle)
                assert task.result() == []
                assert has_no_pending_event(handle)

    def test_receive_many_after_poll_does_not_stop_before_first_message(self, endpoint: str, way: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        poller = msgq.Poller()
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, poller=poller) as sub:
            pub.send_many([b"1", b"2"])
            polling = Task(poller.poll, -1)
            step(handle)
            assert polling.result() == [sub]
            task = Task(SEVERAL[way], sub)
            step(handle)
            step(handle)
            assert task.result() == [b"1", b"2"]
            assert has_no_pending_event(handle)

    def test_receive_many_takes_remaining_messages_after_event_gate_is_disabled(self, endpoint: str, way: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            task = Task(SEVERAL[way], sub)
            pub.send_many([b"1", b"2", b"3"])
            step(handle)
            handle.recv_called_event.wait(DEADLINE)
            handle.enabled = False
            assert task.result() == [b"1", b"2", b"3"]

    def test_receive_many_without_event_gate_does_not_stop(self, endpoint: str, way: str) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send_many([b"1", b"2"])
            assert SEVERAL[way](sub) == [b"1", b"2"]
            handle = msgq.fake_event_handle(endpoint)
            pub.send_many([b"3", b"4"])
            assert SEVERAL[way](sub, True) == [b"3", b"4"]
            assert has_no_pending_event(handle)

    def test_messages_taken_before_death_of_controller_are_kept(self, endpoint: str, way: str) -> None:
        with Child(children.controller, endpoint, "recv_ready_event") as owner, msgq.pub_sock(endpoint) as pub:
            assert owner.hear() == "made"
            attached = msgq.fake_event_handle(endpoint, override=False)
            with msgq.sub_sock(endpoint) as sub:
                pub.send_many([b"1", b"2"])
                task = Task(SEVERAL[way], sub)
                step(attached)
                attached.recv_called_event.wait(DEADLINE)
                owner.kill()
                assert task.result() == [b"1"]
                with pytest.raises(ControllerDiedError):
                    SEVERAL[way](sub)
                assert sub.stats().received == 1
            msgq.fake_event_handle(endpoint).close()


class TestLoops:
    def test_receive_many_ends_at_limit_without_stop_at_event_gate(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send_many([b"1", b"2", b"3"])
            assert sub.receive_many(0) == []
            task = Task(sub.receive_many, 2)
            step(handle)
            step(handle)
            assert task.result() == [b"1", b"2"]
            assert has_no_pending_event(handle)

    def test_receive_array_at_event_gate_ends_before_different_size(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
            pub.send_many([b"12", b"34", b"other"])
            task = Task(sub.receive_array, "S2")
            for _ in range(3):
                step(handle)
            assert task.result().tolist() == [b"12", b"34"]
            task = Task(sub.receive_array, "S2")
            step(handle)
            with pytest.raises(MessageSizeError, match="5 bytes"):
                task.result()
            assert has_no_pending_event(handle)

    def test_messages_discarded_by_signal_handler_are_counted(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        with msgq.pub_sock(endpoint) as pub, Child(children.thrown_away, endpoint) as child:
            assert child.hear() == "connected"
            pub.send_many([b"1", b"2", b"3"])
            step(handle)
            step(handle)
            handle.recv_called_event.wait(DEADLINE)
            wait_asleep(child.pid)
            child.kill(signal.SIGINT)
            assert child.hear() == "interrupted"
            step(handle)
            step(handle)
            assert child.result() == [["3"], 1, 2]
            assert has_no_pending_event(handle)


class TestProcessReplay:
    """What openpilot's process_replay does in one step with a process, and what it counts on."""

    @staticmethod
    def unlock(handles: list[msgq.SocketEventHandle]) -> None:
        called = [handle.recv_called_event for handle in handles]
        for _ in handles:
            i = msgq.wait_for_one_event(called, DEADLINE)
            called[i].clear()
            handles[i].recv_ready_event.set()

    def test_process_that_reads_until_empty_gets_one_message_per_step(self, prefix: str) -> None:
        """The second time it is let through is for the empty receive that ends the loop."""
        handle = msgq.fake_event_handle("can", enable=True)
        called, ready = handle.recv_called_event, handle.recv_ready_event
        cycles = []
        with (
            msgq.pub_sock("can") as pub,
            msgq.sub_sock("cycle", timeout=0) as sub,
            Child(children.drain_in_cycles, "can", "cycle") as child,
        ):
            for i in range(6):
                called.wait(DEADLINE)
                pub.send(b"%d" % i)
                self.unlock([handle])
                called.wait(DEADLINE)
                called.clear()
                ready.set()
                called.wait(DEADLINE)
                cycles += sub.receive_many()
            handle.enabled = False
            pub.send(b"end")
            assert child.result() == 7
        assert cycles == [b"0", b"1", b"2", b"3", b"4", b"5"]

    def test_submaster_stops_at_event_gate_once_per_topic(self, prefix: str) -> None:
        names = ["a", "b", "c", "d"]
        handles = [msgq.fake_event_handle(name, enable=True) for name in names]
        pubs = [msgq.pub_sock(name) for name in names]
        with Child(children.submaster, names, 5) as child:
            for i in range(5):
                handles[0].recv_called_event.wait(DEADLINE)
                for pub in pubs[i % 2 :]:
                    pub.send(b"%d" % i)
                self.unlock(handles)
            assert child.result() == [names[i % 2 :] for i in range(5)]
        assert all(has_no_pending_event(handle) for handle in handles)


class TestController:
    def test_subscriber_at_event_gate_of_killed_controller_raises(self, endpoint: str, token: str) -> None:
        with Child(children.controller, endpoint, "recv_ready_event") as owner:
            assert owner.hear() == "made"
            with Child(children.receive_after_kill_of_controller, endpoint) as child:
                assert child.hear() == "connected"
                attached = msgq.fake_event_handle(endpoint, override=False)
                attached.recv_called_event.wait(DEADLINE)
                owner.kill()
                assert f"process {owner.pid}" in child.hear()
                assert gate_files(token), "it could not remove them"
                with msgq.fake_event_handle(endpoint, enable=True) as handle:
                    child.say("once more")
                    step(handle)
                    assert child.result() == "None"
        assert not gate_files(token)

    def test_wait_for_event_of_killed_controller_ends(self, endpoint: str) -> None:
        with Child(children.controller, endpoint, "recv_ready_event") as owner:
            assert owner.hear() == "made"
            handle = msgq.fake_event_handle(endpoint, override=False)
            task = Task(msgq.wait_for_one_event, [handle.recv_called_event, handle.recv_ready_event])
            task.wait_asleep()
            owner.kill()
            with pytest.raises(ControllerDiedError, match=f"process {owner.pid}") as caught:
                task.result()
            assert caught.value.endpoint == endpoint
            msgq.fake_event_handle(endpoint).close()

    @pytest.mark.parametrize("delay", range(12))
    def test_event_handle_can_be_created_after_kill_during_creation(self, endpoint: str, delay: int) -> None:
        with Child(children.create_and_close_handles, endpoint) as child:
            assert child.hear() == "making"
            time.sleep(delay / 4000)  # not to let things settle: to hit another place each time
            child.kill()
        with msgq.fake_event_handle(endpoint, enable=True) as handle:
            handle.recv_called_event.set()
            assert select.select([handle.recv_called_event.fd], [], [], 0)[0]
            assert handle.recv_called_event.clear()


class TestPoller:
    def test_event_gates_are_passed_in_registration_order(self, prefix: str) -> None:
        names = ["c", "a", "b"]
        handles = {name: msgq.fake_event_handle(name, enable=True) for name in names}
        pubs = {name: msgq.pub_sock(name) for name in names}
        with Child(children.poller, names, 3) as child:
            assert child.hear() == "connected"
            expected = []
            for ready in (["a"], ["b", "c"], []):
                handles[names[0]].recv_called_event.wait(DEADLINE)  # now the step before is over
                for name in ready:
                    pubs[name].send(name.encode())
                for name in names:
                    called = [handle.recv_called_event for handle in handles.values()]
                    assert names[msgq.wait_for_one_event(called, DEADLINE)] == name
                    assert sum(event.peek() for event in called) == 1
                    step(handles[name])
                expected.append([[name, name] for name in names if name in ready])
            assert child.result() == expected
        assert not any(handle.recv_called_event.peek() for handle in handles.values())

    def test_first_receive_after_poll_does_not_stop_at_event_gate(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        poller = msgq.Poller()
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, poller=poller) as sub:
            pub.send_many([b"1", b"2"])
            for _ in range(2):  # two polls are two calls, but one credit
                handle.recv_ready_event.set()
                assert poller.poll(-1) == [sub]
                assert handle.recv_called_event.clear()
            assert sub.receive() == b"1"
            assert not handle.recv_called_event.peek()
            handle.recv_ready_event.set()
            assert sub.receive() == b"2"
            assert handle.recv_called_event.clear()

    def test_poll_of_sockets_without_event_gate_waits_for_message(self, endpoint: str) -> None:
        poller = msgq.Poller()
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, poller=poller) as sub:
            task = Task(poller.poll, -1)
            task.wait_asleep()
            pub.send(b"x")
            assert task.result() == [sub]


class TestDescriptor:
    def test_event_descriptor_is_readable_while_event_is_set(self, endpoint: str) -> None:
        event = msgq.fake_event_handle(endpoint).recv_called_event

        def readable() -> bool:
            return bool(select.select([event.fd], [], [], 0)[0])

        event.set()
        assert readable(), "it was set before anybody asked for the descriptor"
        event.set()
        assert event.clear()
        assert readable()
        assert event.clear()
        assert not readable()
        event.set()
        assert readable()

    def test_event_descriptor_is_constant_while_event_exists(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        event = handle.recv_called_event
        fd = event.fd
        assert handle.recv_called_event.fd == fd != handle.recv_ready_event.fd
        del handle
        gc.collect()
        os.fstat(fd)
        del event
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)

    def test_event_descriptor_wakes_unrelated_process_in_epoll(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        with Child(children.wait_for_event_by_epoll, endpoint) as child:
            assert child.hear() == "watching"
            for count in (1, 3, 1, 2):
                for _ in range(count):
                    handle.recv_called_event.set()
                child.say(count)
                assert child.hear() == 0, "readable although nothing is set"
            child.say()
            assert child.result() == [1, 3, 1, 2]

    def test_event_descriptor_is_correct_after_concurrent_sets_and_clears(self, endpoint: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        event = handle.recv_called_event
        fd = event.fd
        processes = [Child(children.set_and_clear_event, endpoint, "recv_called_event", 20000) for _ in range(3)]
        left = sum(child.result() for child in processes)
        for child in processes:
            child.__exit__()
        for _ in range(left):
            assert select.select([fd], [], [], 0)[0]
            assert event.clear()
        assert not event.peek()
        assert not select.select([fd], [], [], 0)[0]

    def test_event_without_fifo_raises(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        assert handle.recv_called_event.fd >= 0
        fifo = Path(f"{gate_path(token)}:called")
        fifo.unlink()
        attached = msgq.fake_event_handle(endpoint, override=False)
        with pytest.raises(CorruptSegmentError, match="FIFO"):
            attached.recv_called_event.set()
        fifo.write_bytes(b"")
        with pytest.raises(CorruptSegmentError, match="FIFO"):
            _ = attached.recv_called_event.fd


class TestHostileBytes:
    def test_override_replaces_invalid_event_gate_file(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        path = gate_path(token)
        good = path.read_bytes()
        handle.close()
        for data, kind in {
            b"": CorruptSegmentError,
            b"x": CorruptSegmentError,
            good + b"x": CorruptSegmentError,
            bytes(192): CorruptSegmentError,
            good[:8] + struct.pack("<Q", 2) + good[16:]: LayoutVersionError,
            good[:16] + struct.pack("<Q", 191) + good[24:]: CorruptSegmentError,
        }.items():
            path.write_bytes(data)
            with pytest.raises(kind) as caught:
                msgq.fake_event_handle(endpoint, override=False)
            assert caught.value.path == str(path)
            with msgq.sub_sock(endpoint) as sub, pytest.raises(kind):
                sub.receive(True)
            with msgq.fake_event_handle(endpoint) as fresh:
                assert not fresh.enabled
                assert path.stat().st_size == 192

    def test_event_gate_with_invalid_owner_has_dead_owner(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        path = gate_path(token)
        for pid in (0, 2**31, 2**64 - 1):
            words = bytearray(path.read_bytes())
            struct.pack_into("<Q", words, 24, pid)
            path.write_bytes(words)
            attached = msgq.fake_event_handle(endpoint, override=False)
            with pytest.raises(ControllerDiedError):
                attached.recv_ready_event.wait()
        handle.close()

    def test_event_with_arbitrary_stored_count_works(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        event = handle.recv_called_event
        with gate_path(token).open("r+b") as file:
            file.seek(64)
            file.write(b"\xff" * 4)
        event.wait(0)
        assert event.clear()
        event.set()
        event.set()  # more sets than can be counted
        assert event.peek()
        assert event.clear()

    def test_event_gate_file_with_random_bytes_does_not_crash_subscriber(
        self, endpoint: str, token: str, seed: int
    ) -> None:
        dice = random.Random(seed)
        with msgq.fake_event_handle(endpoint, enable=True) as handle:
            good, path = gate_path(token).read_bytes(), gate_path(token)
            for start in (0, 8, 24, 48, 56, 64, 72, 128, 136, 192):  # so far it is a gate
                for length in (192 - start, 4, 0):
                    end = min(start + length, 192)
                    path.write_bytes(good[:start] + dice.randbytes(end - start) + good[end:] * (length > 0))
                    try:
                        children.use_any_gate(endpoint)
                    finally:
                        path.write_bytes(good)
            assert handle.enabled

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_event_gate_of_another_user_is_refused(self, endpoint: str, token: str) -> None:
        handle = msgq.fake_event_handle(endpoint, enable=True)
        os.chown(gate_path(token), 12345, -1)
        try:
            for override in (True, False):
                with pytest.raises(SegmentError, match="belongs to user 12345"):
                    msgq.fake_event_handle(endpoint, override=override)
            with msgq.sub_sock(endpoint) as sub, pytest.raises(SegmentError, match="belongs to user 12345"):
                sub.receive()
        finally:
            os.chown(gate_path(token), os.geteuid(), -1)
            handle.close()

    @pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
    def test_event_gate_path_of_another_file_type_is_refused(self, endpoint: str, token: str, kind: str) -> None:
        handle = msgq.fake_event_handle(endpoint)
        path = gate_path(token)
        handle.close()
        ways: dict[str, Callable[[], object]] = {
            "link": lambda: path.symlink_to("/etc/passwd"),
            "directory": path.mkdir,
            "fifo": lambda: os.mkfifo(path),
        }
        ways[kind]()
        try:
            for override in (True, False):
                with pytest.raises(SegmentError) as caught:
                    msgq.fake_event_handle(endpoint, override=override)
                assert caught.value.path == str(path)
        finally:
            path.rmdir() if kind == "directory" else path.unlink()


def test_event_gate_does_not_delay_process_without_fake_events(endpoint: str) -> None:
    msgq.toggle_fake_events(False)
    with (
        msgq.fake_event_handle(endpoint, enable=True),
        msgq.pub_sock(endpoint) as pub,
        Child(children.receiver, endpoint, 1) as child,
    ):
        assert child.hear() == "connected"
        pub.send(b"x")
        assert child.result() == ["x"]


@pytest.mark.parametrize(("variable", "value"), [("MSGQ_BACKEND", "zmq"), ("ZMQ", "1"), ("MSGQ_BACKEND", "fake")])
def test_backends_without_event_gates_ignore_fake_event_setting(
    variable: str, value: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    msgq.toggle_fake_events(False)
    monkeypatch.delenv("MSGQ_BACKEND", raising=False)
    monkeypatch.setenv(variable, value)
    msgq.toggle_fake_events(True)
    assert os.environ["CEREAL_FAKE"] == "1"
    handle = msgq.fake_event_handle(endpoint, enable=True)
    with msgq.sub_sock(endpoint, backend=get_backend_name()) as sub:
        assert sub.receive(True) is None
    assert has_no_pending_event(handle)
