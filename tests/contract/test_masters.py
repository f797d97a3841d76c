"""SubMaster and PubMaster over real sockets. Their rules are in tests/unit/test_masters.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from msgq import PubMaster, SubMaster, stats
from msgq.errors import (
    EndpointClosedError,
    EndpointNameError,
    MessageTooLargeError,
    MultiplePublishersError,
    UnknownTopicError,
    WaitTimeoutError,
)
from msgq.impl import backend as backends
from tests.contract import children
from tests.contract.conftest import Backend
from tests.support import DEADLINE, DEADLINE_MS, Child, Task

_M = TypeVar("_M", SubMaster, PubMaster)


@pytest.fixture
def opened(backend: Backend, prefix: str) -> Iterator[Callable[[_M], _M]]:
    """Choose the backend of the test, and close its masters when it ends."""
    former = backends.set_backend(backends.load_backend(backend.name))
    masters: list[Any] = []

    def remember(master: _M) -> _M:
        masters.append(master)
        return master

    yield remember
    for master in masters:
        master.close()
    backends.set_backend(former)


@pytest.fixture
def pair(opened: Callable[[Any], Any]) -> Callable[..., tuple[PubMaster, SubMaster]]:
    """Make two masters of the same topics, of which the subscriber gets all that is sent from now on."""

    def make(topics: Any, encoders: Any = (), **options: Any) -> tuple[PubMaster, SubMaster]:
        pm, sm = opened(PubMaster(topics, encoders=dict(encoders))), opened(SubMaster(topics, **options))
        pm.wait_for_readers(timeout=DEADLINE, n=1)
        return pm, sm

    return make


def test_submaster_receives_message_with_its_metadata(pair: Any) -> None:
    pm, sm = pair(["a", "b"], {"a": lambda data: json.dumps(data).encode()}, decoders={"a": json.loads})
    before = time.monotonic()
    pm.send("a", {"x": 1})
    sm.update(DEADLINE_MS)
    assert (sm.data, sm.updated) == ({"a": {"x": 1}, "b": None}, {"a": True, "b": False})
    assert before < sm.recv_time["a"] < time.monotonic()
    pm.send("b", b"raw")
    sm.update(DEADLINE_MS)
    assert (sm["b"], sm.updated, sm.frame) == (b"raw", {"a": False, "b": True}, 2)


def test_submaster_uses_its_clock_argument(pair: Any) -> None:
    pm, sm = pair(["a"], clock=lambda: 1234.5)
    pm.send("a", b"x")
    sm.update(DEADLINE_MS)
    assert sm.recv_time["a"] == 1234.5


@pytest.mark.needs("threads")
def test_submaster_update_waits_for_any_topic(pair: Any) -> None:
    pm, sm = pair(["a", "b"])
    for topic in ("a", "b"):
        task = Task(sm.update, -1)
        task.wait_asleep()
        pm.send(topic, b"x")
        task.result()
        assert sm.updated[topic]


def test_submaster_update_without_messages_waits_the_whole_timeout(backend: Backend, pair: Any) -> None:
    _, sm = pair(["a"])
    started_ns = backend.monotonic_ns()
    sm.update(60)
    assert backend.monotonic_ns() - started_ns >= 60_000_000
    assert (sm.frame, sm.updated) == (1, {"a": False})


def test_submaster_update_does_not_wait_for_unpolled_topics(backend: Backend, pair: Any) -> None:
    pm, sm = pair(["a", "b"], poll="b")
    pm.send("a", b"1")
    started_ns = backend.monotonic_ns()
    sm.update(60)
    assert backend.monotonic_ns() - started_ns >= 60_000_000
    assert (sm["a"], sm.updated) == (b"1", {"a": True, "b": False})
    pm.send("a", b"2")
    pm.send("b", b"3")
    sm.update(DEADLINE_MS)
    assert sm.data == {"a": b"2", "b": b"3"}


def test_submaster_update_without_polled_topics_does_not_wait(backend: Backend, pair: Any) -> None:
    pm, sm = pair(["a"], poll=[])
    pm.send("a", b"1")
    backend.settle()
    sm.update(-1)
    assert sm["a"] == b"1"
    sm.update(-1)
    assert not sm.updated["a"]


@pytest.mark.needs("lost")
def test_submaster_conflates_topics_that_are_not_in_keep_all(pair: Any) -> None:
    pm, sm = pair(["a", "b", "c"], keep_all=["b", "c"], poll=["a", "b"])
    for i in range(5):
        for topic in ("a", "b", "c"):
            pm.send(topic, b"%d" % i)
    sm.update(DEADLINE_MS)
    everything = [b"%d" % i for i in range(5)]
    assert sm.messages == {"a": [b"4"], "b": everything, "c": everything}
    assert sm.lost == {"a": 4, "b": 0, "c": 0}


@pytest.mark.needs("threads")
def test_submaster_close_ends_update_and_keeps_received_data(pair: Any) -> None:
    pm, sm = pair(["a", "b"])
    pm.send("a", b"x")
    sm.update(DEADLINE_MS)
    task = Task(sm.update, -1)
    task.wait_asleep()
    sm.close()
    with pytest.raises(EndpointClosedError):
        task.result()
    with pytest.raises(EndpointClosedError):
        sm.update(0)
    sm.close()
    assert (sm["a"], sm.lost) == (b"x", {"a": 0, "b": 0})


@pytest.mark.parametrize("poll", [None, []])
def test_closed_master_error_says_closed(opened: Any, poll: Any) -> None:
    with opened(SubMaster(["a", "b"], poll=poll)) as sm:
        pass
    with pytest.raises(EndpointClosedError, match="'a'"):
        sm.update(0)
    with opened(PubMaster(["a"])) as pm:
        pass
    with pytest.raises(EndpointClosedError, match="'a'"):
        pm.send("a", b"x")


@pytest.mark.needs("stats")
@pytest.mark.parametrize("kind", [SubMaster, PubMaster])
def test_failed_submaster_open_closes_all_topics(opened: Any, kind: Any) -> None:
    with pytest.raises(EndpointNameError, match="b/c") as caught:
        kind(["a", "b/c"])
    assert caught.traceback  # it holds what was half made, so that nobody deletes it
    found = stats.topic("a")
    assert (found.publisher, found.subscribers) == (None, ())


@pytest.mark.needs("segment")
def test_submaster_segment_sizes_apply_to_named_topics(opened: Any) -> None:
    sizes = {"large": 4 << 20}
    opened(SubMaster(["large", "usual"], segment_sizes=sizes))
    pm = opened(PubMaster(["large", "usual"], segment_sizes=sizes))
    pm.send("large", bytes(1 << 20))
    with pytest.raises(MessageTooLargeError, match="'usual'"):
        pm.send("usual", bytes(1 << 20))


# PubMaster.


def test_submaster_error_names_unknown_topic(opened: Any) -> None:
    pm = opened(PubMaster(["a"]))
    for call in (
        lambda: pm.send("typo", b""),
        lambda: pm.all_readers_updated("typo"),
        lambda: pm.wait_for_readers("typo", 0),
        lambda: pm.wait_for_readers(["a", "typo"], 0),
        lambda: PubMaster(["b"], encoders={"typo": str.encode}),
    ):
        with pytest.raises(UnknownTopicError, match="'typo'"):
            call()


def test_masters_take_single_name_as_one_topic(pair: Any) -> None:
    pm, sm = pair("carState", poll="carState")
    assert list(pm) == list(sm) == ["carState"]


def test_pubmaster_encoder_error_is_raised_and_nothing_is_sent(pair: Any) -> None:
    pm, sm = pair(["a"], {"a": str.encode})
    with pytest.raises(TypeError):
        pm.send("a", 5)
    pm.send("a", "text")
    sm.update(DEADLINE_MS)
    assert sm["a"] == b"text"


@pytest.mark.needs("read")
def test_pubmaster_wait_for_readers_error_names_topic_without_reader(backend: Backend, opened: Any) -> None:
    pm = opened(PubMaster(["a", "b"]))
    sm = opened(SubMaster(["a"]))
    pm.wait_for_readers("a", DEADLINE, n=1)
    started_ns = backend.monotonic_ns()
    with pytest.raises(WaitTimeoutError, match="'b'"):
        pm.wait_for_readers(timeout=0.05, n=1)
    assert backend.monotonic_ns() - started_ns >= 50_000_000
    opened(SubMaster(["b"]))
    pm.wait_for_readers(timeout=None, n=1)
    with pytest.raises(WaitTimeoutError, match="2"):
        pm.wait_for_readers(timeout=0, n=2)
    pm.send("a", b"x")
    assert not pm.all_readers_updated("a")
    with pytest.raises(WaitTimeoutError, match="'a'"):
        pm.wait_for_readers(["a"], timeout=0)
    sm.update(DEADLINE_MS)
    pm.wait_for_readers("a", DEADLINE)
    assert pm.all_readers_updated("a")
    with pytest.raises(ValueError, match="-1"):
        pm.wait_for_readers(timeout=-1)


@pytest.mark.needs("takeover")
def test_pubmaster_topic_is_taken_over_by_another_publisher(pair: Any, opened: Any) -> None:
    pm, sm = pair(["a", "b"])
    rival = opened(PubMaster(["a"]))
    with pytest.raises(MultiplePublishersError, match="'a'"):
        pm.send("a", b"x")
    pm.send("b", b"mine")
    rival.send("a", b"theirs")
    sm.update(DEADLINE_MS)
    sm.update(0)
    assert sm.data == {"a": b"theirs", "b": b"mine"}


# Two processes.


@pytest.mark.needs("processes", "read")
def test_pubmaster_sends_to_submaster_in_another_process(backend: Backend, prefix: str) -> None:
    env = {"MSGQ_BACKEND": backend.name}
    with Child(children.pub_master, env=env) as publisher, Child(children.sub_master, env=env) as subscriber:
        assert publisher.hear() == "connected"
        assert subscriber.hear() == "connected"
        for i in range(3):
            publisher.say({"state": {"number": i}, "log": f"line {i}"})
            assert publisher.hear() == "read"
            assert subscriber.hear() == {"state": {"number": i}, "log": [f"line {i}"]}
        publisher.kill()
        subscriber.say()
        assert subscriber.result() == {"alive": {"state": False, "log": True}, "lost": {"state": 0, "log": 0}}
