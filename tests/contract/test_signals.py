"""Signals: Ctrl-C ends a wait, handlers of the application run during it, and none of them is replaced."""

from __future__ import annotations

import signal

import pytest

from tests.contract import children
from tests.contract.conftest import Backend
from tests.support import DEADLINE, Child, wait_asleep, wait_until

pytestmark = pytest.mark.needs("processes")
both_ways = pytest.mark.parametrize("how", ["receive", "poll"])


@both_ways
def test_ctrl_c_ends_the_wait_and_keeps_the_socket_usable(backend: Backend, endpoint: str, how: str) -> None:
    pub = backend.pub(endpoint)
    with Child(children.interrupted, backend.name, endpoint, how) as child:
        assert child.hear() == "blocking"
        pub.wait_for_readers(DEADLINE, n=1)
        wait_asleep(child.pid)
        child.kill(signal.SIGINT)
        assert child.hear() == "interrupted"
        wait_asleep(child.pid)
        pub.send(b"afterwards")
        assert child.result() == "afterwards"


@both_ways
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM])
def test_signal_handler_runs_during_a_wait_and_the_wait_continues(
    backend: Backend, endpoint: str, how: str, number: signal.Signals
) -> None:
    pub = backend.pub(endpoint)
    with Child(children.with_handler, backend.name, endpoint, how, number) as child:
        assert child.hear() == "blocking"
        pub.wait_for_readers(DEADLINE, n=1)
        for _ in range(3):
            wait_asleep(child.pid)
            child.kill(number)
            assert child.hear() == "handled"
        wait_asleep(child.pid)
        pub.send(b"x")
        assert child.result() == "x"


@both_ways
def test_signals_do_not_extend_the_timeout(backend: Backend, endpoint: str, how: str) -> None:
    with Child(children.under_fire, backend.name, endpoint, how, 100) as child:
        assert child.result() >= 0.1


@both_ways
def test_signal_handler_may_close_the_waiting_socket(backend: Backend, endpoint: str, how: str) -> None:
    pub = backend.pub(endpoint)
    with Child(children.closing_handler, backend.name, endpoint, how) as child:
        assert child.hear() == "blocking"
        pub.wait_for_readers(DEADLINE, n=1)
        wait_asleep(child.pid)
        child.kill(signal.SIGUSR1)
        assert child.result() == "closed"
    wait_until(lambda: not pub.all_readers_updated(), "the subscriber has left")
    with pytest.raises(TimeoutError):
        pub.wait_for_readers(0, n=1)


def test_msgq_installs_no_sigusr2_handler(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    with Child(children.usr2_untouched, backend.name, endpoint) as child:
        assert child.hear() == "blocking"
        pub.wait_for_readers(DEADLINE, n=1)
        wait_asleep(child.pid)
        pub.send(b"x")
        before, after = (int(mask, 16) for mask in child.result())
        sigbus = 1 << signal.SIGBUS - 1  # the one exception: docs/internals/common-protocol.md, "Truncated files"
        assert after & ~sigbus == before & ~sigbus
