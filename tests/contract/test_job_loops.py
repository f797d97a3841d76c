"""`for job in queue.jobs()`, and `loan[:] = data`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msgq.errors import InvalidTypeError, InvalidValueError, StateError
from tests.cases import each_case
from tests.contract.conftest import Channels, Queues
from tests.support import Task


def test_loop_acknowledges_each_job_and_ends_at_the_timeout(queues: Queues) -> None:
    queue = queues.open()
    queue.send_many([b"1", b"2", b"3"])
    seen = []
    for job in queue.jobs(timeout=0):
        seen.append(job.data)
        assert queue.in_flight == 1
    assert seen == [b"1", b"2", b"3"]
    assert (queue.current_messages, queue.in_flight) == (0, 0)


def test_job_returns_to_the_queue_if_the_body_raises(queues: Queues) -> None:
    queue = queues.open()
    queue.send_many([b"1", b"2"])

    def fail() -> None:
        for _ in queue.jobs(timeout=0):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (queue.current_messages, queue.in_flight) == (2, 0)
    assert [(job.data, job.deliveries) for job in queue.jobs(timeout=0)] == [(b"1", 2), (b"2", 1)]


def test_job_returns_to_the_queue_after_a_break_unless_acknowledged(queues: Queues) -> None:
    queue = queues.open()
    queue.send_many([b"1", b"2", b"3"])
    for job in queue.jobs(timeout=0):
        job.ack()
        break
    assert (queue.current_messages, queue.in_flight) == (2, 0)
    for job in queue.jobs(timeout=0):
        assert job.data == b"2"
        break
    assert (queue.current_messages, queue.in_flight) == (2, 0)


def test_job_ended_in_the_body_is_not_acknowledged_again(queues: Queues) -> None:
    queue = queues.open()
    queue.send_many([b"1", b"2"])
    for number, job in enumerate(queue.jobs(timeout=0)):
        if number == 0:
            job.nack()
    assert [number, queue.current_messages] == [2, 0]  # the first message came twice


def test_closed_iterator_returns_its_job(queues: Queues) -> None:
    queue = queues.open()
    queue.send(b"1")
    jobs = queue.jobs()
    assert next(jobs).data == b"1"
    jobs.close()
    assert (queue.current_messages, queue.in_flight) == (1, 0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": -1}, InvalidValueError),
        ({"timeout": "1"}, InvalidTypeError),
        ({"lease": 0}, InvalidValueError),
    ],
)
def test_invalid_arguments_raise_at_the_call(queues: Queues, options: Any, error: type[Exception]) -> None:
    queue = queues.open()
    queue.send(b"1")
    with pytest.raises(error):
        queue.jobs(**options)
    assert queue.in_flight == 0


@pytest.mark.needs("threads")
def test_loop_waits_for_a_later_job(queues: Queues) -> None:
    queue, sender = queues.open(), queues.open()
    task = Task(lambda: next(queue.jobs()).data)
    task.wait_asleep()
    sender.send(b"1")
    assert task.result() == b"1"


DATA: list[Any] = [bytes(range(16)), bytearray(range(16)), memoryview(bytes(range(16))), np.arange(16, dtype="u1")]


@pytest.mark.parametrize(
    "data", [*DATA, np.frombuffer(bytes(range(16)), "<f8"), np.arange(16, dtype="u1").reshape(4, 4)]
)
def test_loan_is_written_by_a_slice(channels: Channels, data: Any) -> None:
    publisher, subscriber = channels.pair()
    with publisher.loan(16) as loan:
        loan[:] = data
    assert subscriber.receive(0) == bytes(range(16))


def test_loan_is_written_by_parts(channels: Channels) -> None:
    publisher, subscriber = channels.pair()
    with publisher.loan(4) as loan:
        loan[:] = bytes(4)
        loan[0] = 7
        loan[2:] = b"ab"
        loan[-3:-2] = b"x"
        loan[4:] = b""
    assert subscriber.receive(0) == b"\7xab"


def test_loan_is_written_in_steps(channels: Channels) -> None:
    publisher, subscriber = channels.pair()
    with publisher.loan(4) as loan:
        loan[:] = b"abcd"
        loan[::2] = b"AC"
        loan[::-3] = b"DA"
    assert subscriber.receive(0) == b"AbCD"


@each_case(
    "index, data, error",
    [
        (slice(None), b"short", InvalidValueError),
        (slice(0, 2), b"long", InvalidValueError),
        (slice(8, 100), b"more than 8", InvalidValueError),
        (slice(None, None, 0), bytes(16), ValueError),
        (slice("a", None), bytes(16), TypeError),
        (slice(None), "text of 16 chars", InvalidTypeError),
        (slice(None), np.zeros((2, 16), "u1")[:, ::2], InvalidTypeError),
        (slice(None), np.zeros(2, "M8[ns]"), InvalidTypeError),
        (0, 256, InvalidValueError),
        (0, b"a", InvalidValueError),
        (16, 1, IndexError),
    ],
    reset="channels.close",
)
def test_wrong_assignment_raises_and_keeps_the_loan_usable(
    channels: Channels, index: Any, data: Any, error: type[Exception]
) -> None:
    publisher, subscriber = channels.pair()
    with publisher.loan(16) as loan:
        with pytest.raises(error):
            loan[index] = data
        loan[:] = bytes(range(16))
    assert subscriber.receive(0) == bytes(range(16))


def test_ended_loan_refuses_an_assignment(channels: Channels) -> None:
    publisher, _ = channels.pair()
    loan = publisher.loan(4)
    loan.discard()
    with pytest.raises(StateError, match="already published or discarded"):
        loan[:] = bytes(4)
