"""Warnings about calls that are valid, but probably a mistake: wrong units, and waiting in an event loop."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import msgq
from msgq.errors import MsgqWarning, MultiplePublishersError
from msgq.topic import api
from tests.contract import children
from tests.contract.conftest import Backend
from tests.support import DEADLINE_MS, Child

SUSPECT_MS = [0.5, 1.0, 2.5, 9.999]
PLAUSIBLE_MS = [0, 1, 5, -1, 10.0, 1.23456, 3.0000001]
SUSPECT_S = [1000, 1500, 10_000.0, 60_000]
PLAUSIBLE_S = [999, 1800, 3600, 86_400.0, 1234.5, 1001]


def count_warnings(call: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return caught


@pytest.mark.parametrize("timeout", SUSPECT_MS)
def test_milliseconds_that_look_like_seconds_warn_at_the_callers_line(
    backend: Backend, endpoint: str, timeout: float
) -> None:
    sub = backend.sub(endpoint)
    (warning,) = count_warnings(lambda: sub.setTimeout(timeout))
    assert warning.category is MsgqWarning
    assert warning.filename == __file__
    assert "milliseconds" in str(warning.message)


@pytest.mark.parametrize("timeout", PLAUSIBLE_MS)
def test_plausible_milliseconds_do_not_warn(backend: Backend, endpoint: str, timeout: float) -> None:
    sub = backend.sub(endpoint)
    assert not count_warnings(lambda: sub.setTimeout(timeout))


def test_sub_sock_and_poller_warn_about_fractions_of_milliseconds(backend: Backend, endpoint: str) -> None:
    with pytest.warns(MsgqWarning, match="milliseconds"):
        sub = api.sub_sock(endpoint, timeout=0.5, backend=backend.name)
    with pytest.warns(MsgqWarning, match="milliseconds"):
        backend.poller(sub).poll(0.5)
    sub.close()


@pytest.mark.parametrize("timeout", SUSPECT_S)
def test_seconds_that_look_like_milliseconds_warn(backend: Backend, endpoint: str, timeout: float) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"one")
    (warning,) = count_warnings(lambda: sub.receive(timeout=timeout))
    assert warning.category is MsgqWarning
    assert warning.filename == __file__
    assert "seconds" in str(warning.message)


@pytest.mark.parametrize("timeout", PLAUSIBLE_S)
def test_plausible_seconds_do_not_warn(backend: Backend, endpoint: str, timeout: float) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"one")
    assert not count_warnings(lambda: sub.receive(timeout=timeout))


def test_wait_for_readers_warns_about_milliseconds(backend: Backend, endpoint: str) -> None:
    pub, _ = backend.pair(endpoint)
    with pytest.warns(MsgqWarning, match="seconds"):
        pub.wait_for_readers(timeout=1000, n=1)


def test_queue_receive_warns_about_milliseconds(queues: Any) -> None:
    queue = queues.open()
    queue.send(b"job")
    with pytest.warns(MsgqWarning, match="seconds"):
        queue.receive(timeout=1000)


def test_warning_is_shown_once_per_line(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for timeout in (0.5, 0.25, 0.125):
            sub.setTimeout(timeout)
    assert len(caught) == 1


def wait_in_loop(call: Callable[[], Any]) -> list[warnings.WarningMessage]:
    async def run() -> Any:
        return call()

    return count_warnings(lambda: asyncio.run(run()))


def assert_loop_warning(caught: list[warnings.WarningMessage]) -> None:
    (warning,) = caught
    assert warning.category is MsgqWarning
    assert warning.filename == __file__
    assert "areceive" in str(warning.message)


def test_topic_wait_in_an_event_loop_warns(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint)
    assert_loop_warning(wait_in_loop(lambda: sub.receive(timeout=0.001)))
    assert_loop_warning(wait_in_loop(lambda: backend.poller(sub).poll(1)))


def test_calls_that_do_not_wait_in_an_event_loop_do_not_warn(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    assert not wait_in_loop(lambda: (sub.receive(True), sub.receive(timeout=0), backend.poller(sub).poll(0)))
    pub.send(b"one")
    assert backend.poller(sub).poll(DEADLINE_MS)  # ZeroMQ delivers later
    assert not wait_in_loop(lambda: sub.receive())
    assert not count_warnings(lambda: sub.receive(timeout=0.001))


def test_areceive_in_an_event_loop_does_not_warn(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)

    async def receive_later() -> bytes:
        asyncio.get_running_loop().call_later(0.001, pub.send, b"one")
        message: bytes = await sub.areceive()
        return message

    assert not count_warnings(lambda: asyncio.run(receive_later()))


def test_channel_wait_in_an_event_loop_warns(channels: Any) -> None:
    _, sub = channels.pair()
    assert_loop_warning(wait_in_loop(lambda: sub.receive(0.001)))


def test_queue_wait_in_an_event_loop_warns(queues: Any) -> None:
    queue = queues.open()
    assert_loop_warning(wait_in_loop(lambda: queue.receive(0.001)))


def test_record_wait_in_an_event_loop_warns(records: Any) -> None:
    vector = records.vector("f8", 1)
    assert_loop_warning(wait_in_loop(lambda: vector.receive(0.001)))


@pytest.mark.parametrize(("arguments", "options"), [(("x",), {}), ((5,), {}), ((), {"name": "x"})])
def test_constructors_refuse_arguments(backend: Backend, arguments: Any, options: Any) -> None:
    for kind in (backend.Context, backend.PubSocket, backend.SubSocket, backend.Poller):
        with pytest.raises(TypeError, match="argument"):
            kind(*arguments, **options)


@pytest.mark.needs("takeover")
def test_replaced_publisher_learns_who_took_over_and_the_cure(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    backend.pub(endpoint)
    with pytest.raises(MultiplePublishersError, match=rf"this process \({os.getpid()}\).*pub_sock\('{endpoint}'\)"):
        pub.send(b"one")


def test_replaced_publisher_learns_the_process_that_took_over(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, Child(children.publisher, "msgq", endpoint) as child:
        child.hear()
        with pytest.raises(MultiplePublishersError, match=rf"process {child.pid} \(.+\); nothing was sent"):
            pub.send(b"one")
        child.say(None)
