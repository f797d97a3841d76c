"""What the contract tests of vectors and boards run in other processes, by name."""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import msgq
from msgq.errors import KeyTakenError, MsgqError, MultipleWritersError
from tests.support import DEADLINE, Task, hear, in_fork, say

#: Backend: where its vectors and boards are.
MODULES = {"msgq": "msgq.impl.records", "fake": "msgq.impl.fake.records"}
PAIR = np.dtype([("number", "<i8"), ("double", "<i8")])


def vector(backend: str, name: str, *args: Any, **options: Any) -> Any:
    return import_module(MODULES[backend]).SeqlockVector(name, *args, **options)


def board(backend: str, name: str, *args: Any, **options: Any) -> Any:
    return import_module(MODULES[backend]).Board(name, *args, **options)


def outcome(call: Callable[[], Any]) -> str:
    """Return "done", or the name of the error."""
    try:
        call()
    except MsgqError as error:
        return type(error).__name__
    return "done"


def write_and_wait(backend: str, name: str) -> None:
    """Write one element, and stay."""
    with vector(backend, name) as quotes:
        quotes[0] = (1, 2)
        say(os.getpid())
        hear()


def key_holder(backend: str, name: str, key: str) -> None:
    """Declare a key, write it, and stay."""
    with board(backend, name) as status:
        entry = status.declare(key)
        entry.write(b"of a process")
        say(os.getpid())
        hear()


def answer_changes(backend: str, name: str) -> None:
    """Answer each change of element 0 by one of element 1, until it is negative."""
    quotes = vector(backend, name)
    quotes.changes()
    say("ready")
    while quotes.wait(DEADLINE):
        changes = quotes.changes()
        if 0 in changes.indices:
            number = int(quotes[0]["number"])
            quotes[1] = (number, 2 * number)
            if number < 0:
                return


def write_rising_numbers(backend: str, name: str) -> None:
    """Write one number more into each element in turn, until somebody speaks."""
    numbers = vector(backend, name)
    say("ready")
    heard = Task(hear)
    number = 1
    while heard.is_alive():
        for _ in range(1000):
            numbers[number % len(numbers)] = number
            number += 1


def write_uniform_rows(backend: str, name: str, first: int) -> None:
    """Write rows, each of one byte, again and again, until somebody speaks."""
    rows = vector(backend, name)
    value = np.zeros(len(rows), rows.dtype)
    say("ready")
    heard = Task(hear)
    number = first
    while heard.is_alive():
        for _ in range(10):
            value["data"] = number % 251
            rows.write(range(len(rows)), value, timeout=DEADLINE)
            number += 2


def unpickled(data: str) -> list[Any]:
    """Use a vector that was pickled elsewhere."""
    with pickle.loads(base64.b64decode(data)) as quotes:
        return [int(quotes[0]["number"]), len(quotes)]


def forked_writer(backend: str, name: str) -> dict[str, Any]:
    """A child reads and writes with the parent's handle, beside the parent."""
    quotes = vector(backend, name, PAIR, 4)
    quotes[0] = (1, 2)
    quotes.changes()

    def child() -> None:
        assert quotes[0].tolist() == (1, 2)
        quotes[1] = (3, 6)
        assert quotes.changes().indices.tolist() == [1]

    code = in_fork(child)
    quotes[2] = (4, 8)
    return {"child": code, "changed": quotes.changes().indices.tolist(), "row": quotes[1].tolist()}


def forked_exclusive(backend: str, name: str) -> dict[str, Any]:
    """A child may not write what is the parent's, but read it."""
    quotes = vector(backend, name, PAIR, 4, exclusive=True)
    quotes[0] = (1, 2)
    seen: list[str] = []

    def child() -> None:
        seen.append(outcome(lambda: quotes.write([1], (3, 6))))
        assert seen == [MultipleWritersError.__name__]
        assert quotes[0].tolist() == (1, 2)
        quotes.close()

    code = in_fork(child)
    quotes[1] = (5, 10)
    return {"child": code, "row": quotes[1].tolist()}


def forked_board(backend: str, name: str) -> dict[str, Any]:
    """A key is the parent's in the child, too."""
    status = board(backend, name)
    entry = status.declare("parent")
    entry.write(b"before")
    observed = status.observe("parent")

    def child() -> None:
        assert observed.data() == b"before"
        assert outcome(lambda: entry.write(b"child")) == "ForkedSocketError"
        assert outcome(lambda: status.declare("parent")) == KeyTakenError.__name__
        status.declare("child").write(b"child")
        status.close()

    code = in_fork(child)
    entry.write(b"after")
    return {"child": code, "parent": status["parent"].decode(), "of the child": status["child"].decode()}


def write_in_threads(backend: str, name: str, threads: int, rounds: int) -> list[int]:
    """Threads write one element each and all one, with one handle; return how often each was written."""
    quotes = vector(backend, name, PAIR, threads + 1)

    def work(own: int) -> None:
        for number in range(rounds):
            quotes[own] = (number, 2 * number)
            quotes[threads] = (number, 2 * number)
            rows = quotes.read([own, threads])
            assert rows[0].tolist() == (number, 2 * number)
            assert rows[1]["double"] == 2 * rows[1]["number"]

    for task in [Task(work, own) for own in range(threads)]:
        task.result()
    return [int(count) for count in quotes.counts()]


def produce_all(name: str, count: int) -> None:
    """Produce records with consecutive numbers, in batches, as fast as possible."""
    rows = np.zeros(100, [("number", "<i8"), ("price", "<f8")])
    with msgq.RecordQueue(name, rows.dtype) as queue:
        say("producing")
        for first in range(0, count, len(rows)):
            rows["number"] = np.arange(first, first + len(rows))
            queue.produce(rows)
