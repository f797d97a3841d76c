"""Exceptions of signal handlers at many moments of a call: nothing is lost, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import msgq
from msgq.workqueue import Worker
from tests.support import DEADLINE, Task, wait_until
from visionipc import FrameFormat, VisionIpcClient, VisionIpcServer


class InterruptionError(Exception):
    """Raised by the signal handler."""


@pytest.fixture
def interrupt_call() -> Iterator[Callable[..., bool]]:
    """A function that interrupts a call so many microseconds after its start. It returns True if the call raised."""
    armed: list[bool] = []

    def interrupt(*_: object) -> None:
        if armed:
            armed.clear()
            raise InterruptionError

    def call_and_interrupt(call: Callable[[], object], microseconds: int) -> bool:
        try:
            armed.append(True)
            signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
            call()
        except InterruptionError:
            return True
        finally:
            armed.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    before = signal.signal(signal.SIGALRM, interrupt)
    yield call_and_interrupt
    signal.signal(signal.SIGALRM, before)


def do_waiting_jobs(queue: msgq.MessageQueue) -> None:
    Worker(queue, lambda message: message.data).run(0)


def test_interrupted_result_loses_no_reply(endpoint: str, interrupt_call: Callable[..., bool]) -> None:
    with msgq.MessageQueue(endpoint) as queue, msgq.JobClient(queue, max_pending=2) as client:
        interruptions = 0
        for number in range(600):
            first, second = client.submit(b"%d" % number), client.submit(b"second")
            do_waiting_jobs(queue)
            interruptions += interrupt_call(lambda first=first: first.result(DEADLINE), number % 100 + 1)
            assert (first.result(0), second.result(0)) == (b"%d" % number, b"second")
            assert not client._pending_numbers
        assert interruptions


def test_interrupted_result_leaves_no_other_thread_waiting(endpoint: str, interrupt_call: Callable[..., bool]) -> None:
    with msgq.MessageQueue(endpoint) as queue, msgq.JobClient(queue) as client:
        for number in range(100):
            first, second = client.submit(b"first"), client.submit(b"second")
            waiting = Task(second.result)
            interrupt_call(lambda first=first: first.result(DEADLINE), number * 5 + 1)
            do_waiting_jobs(queue)
            assert waiting.result() == b"second"
            assert first.result(DEADLINE) == b"first"


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets
def test_interrupted_frame_client_leaves_no_descriptor_and_no_row(
    endpoint: str, prefix: str, interrupt_call: Callable[..., bool]
) -> None:
    with VisionIpcServer(endpoint) as server:
        server.create_buffers(0, 8, 8, 8, FrameFormat.GRAY8)
        server.start_listener()
        interruptions = 0
        with VisionIpcClient(endpoint, 0, False) as client:
            assert client.connect(True)
            before = count_descriptors()
            for number in range(400):
                interruptions += interrupt_call(lambda: client.connect(True), 20 * (number % 60) + 1)
            assert client.connect(True)
            # the server's thread has some for a moment, perhaps already at the first count
            wait_until(lambda: count_descriptors() <= before)
        assert interruptions
        wait_until(lambda: server.stats(0).clients == [])


FIRST_USE = """
import os, sys, msgq
class InterruptionError(Exception): pass
def interrupt(frame, event, argument):
    if frame.f_code.co_name == "__set_name__":  # as if a signal handler ran in this call
        sys.settrace(None)
        raise InterruptionError
for name in msgq.__all__:
    if (pid := os.fork()) == 0:
        sys.settrace(interrupt)
        try:
            getattr(msgq, name)
        except InterruptionError:
            pass
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, name
"""


def test_handler_exception_during_first_use_of_name_arrives_unchanged() -> None:
    """Python 3.11 turns an exception in `__set_name__` into a RuntimeError."""
    subprocess.run([sys.executable, "-c", FIRST_USE], check=True, timeout=DEADLINE)
