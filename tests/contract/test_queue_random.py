"""The same random program on work queues in shared memory and on a model: all that can be seen of it is the same."""

from __future__ import annotations

import contextlib
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from msgq.errors import MsgqError
from msgq.impl.workqueue.options import O_CREAT, O_CREX, O_NONBLOCK
from tests.contract.conftest import Queues, queues_of
from tests.contract.queue_model import Model

SEEDS = pytest.mark.seeds(2, 6, 50)
STEPS = 600
PRIORITIES = [0, 0, 0, 1, 2, 32767]
SIZES = [0, 1, 8, 8, 8, 63, 64, 65]
DELAYS = [None] * 19 + [1000.0]
PASSED = -1.0  # a deadline on every clock
AT_ONCE: list[dict[str, float]] = [{"timeout": 0}, {"deadline": PASSED}]


class Failed(Exception):
    """What a block with a job raises."""


class Program:
    """Handles that come and go, and what is done with them."""

    def __init__(self, open: Callable[..., Any], unlink: Callable[[str], None], copies: bool) -> None:
        self.open, self.unlink_name, self.copies = open, unlink, copies
        self.handles: list[Any] = []
        self.jobs: list[Any] = []
        self.number = 0

    def do(self, rng: random.Random, steps: list[str]) -> Any:
        """Do something, and return all that can be seen of it."""
        step = rng.choice(steps)
        state = rng.getstate()
        try:
            result: Any = getattr(self, f"_{step}")(rng)
        except (MsgqError, Failed) as error:
            result = type(error).__name__, getattr(error, "errno", None)
        rng.setstate(state)  # an error in the middle must not leave them apart
        rng.random()
        return step, result, [self.seen(handle) for handle in self.handles]

    def seen(self, handle: Any) -> Any:
        if handle.closed:
            return None
        counts = handle.current_messages, handle.in_flight, handle.delayed_messages
        return counts, handle.max_messages, handle.max_message_size, handle.block

    def message(self, rng: random.Random) -> bytes:
        self.number += 1
        size = rng.choice(SIZES)
        return self.number.to_bytes(8, "little").ljust(size, b".")[:size]

    def handle(self, rng: random.Random) -> Any:
        if not self.handles:
            self.handles.append(self.open(name=rng.choice("ab")))
        return rng.choice(self.handles)

    # ---- coming and going ----

    def _open(self, rng: random.Random) -> None:
        if len(self.handles) > 8:
            self.handles.pop(0).close()
        flags = rng.choice([None, None, None, 0, O_CREAT, O_CREX, O_NONBLOCK, O_CREAT | O_NONBLOCK])
        options: dict[str, Any] = {
            "max_messages": rng.choice([None, None, 1, 3, 70]),
            "max_message_size": rng.choice([None, None, 64]),
            "read": rng.random() < 0.9,
        }
        options["write"] = rng.random() < 0.9 or not options["read"]
        self.handles.append(self.open(flags, name=rng.choice("ab"), **options))

    def _copy(self, rng: random.Random) -> None:
        handle = self.handle(rng)
        if self.copies and not handle.closed:
            pickle.loads(pickle.dumps(handle)).close()
        elif not handle.closed:
            self.open(0, name=handle.name).close()

    def _close(self, rng: random.Random) -> None:
        self.handle(rng).close()

    def _leave(self, rng: random.Random) -> None:
        self.handle(rng)
        self.handles.pop(rng.randrange(len(self.handles))).close()

    def _unlink(self, rng: random.Random) -> None:
        if rng.random() < 0.5:
            self.handle(rng).unlink()
        else:
            self.unlink_name(rng.choice("ab"))

    def _block(self, rng: random.Random) -> None:
        self.handle(rng).block = rng.random() < 0.5

    # ---- messages ----

    def _send(self, rng: random.Random) -> None:
        message, wait, delay = self.message(rng), rng.choice(AT_ONCE), rng.choice(DELAYS)
        self.handle(rng).send(message, rng.choice(PRIORITIES), origin_time=rng.randrange(9), delay=delay, **wait)

    def _send_many(self, rng: random.Random) -> int:
        messages = [self.message(rng) for _ in range(rng.randrange(30))]
        return int(self.handle(rng).send_many(messages, rng.choice(PRIORITIES), timeout=0))

    def _receive(self, rng: random.Random) -> Any:
        handle = self.handle(rng)
        return shown(handle.receive(deadline=PASSED) if rng.random() < 0.3 else handle.receive(0))

    def _receive_many(self, rng: random.Random) -> Any:
        return [shown(message) for message in self.handle(rng).receive_many(rng.choice([None, 0, 1, 5]))]

    def _receive_into(self, rng: random.Random) -> Any:
        buffer = bytearray(rng.choice([0, 8, 100]))
        return self.handle(rng).receive_into(buffer, 0), bytes(buffer)

    def _peek(self, rng: random.Random) -> Any:
        return [shown(message) for message in self.handle(rng).peek(rng.choice([None, None, 0, 3]))]

    def _wait_space(self, rng: random.Random) -> bool:
        return bool(self.handle(rng).wait_space(0))

    # ---- jobs ----

    def _take(self, rng: random.Random) -> Any:
        job = self.handle(rng).take(0, lease=rng.choice([None, 1000.0]))
        if job is not None:
            self.jobs.append(job)
        return shown(job)

    def _end(self, rng: random.Random) -> None:
        if not self.jobs:
            return
        job = rng.choice(self.jobs)
        what, delay = rng.choice(["ack", "ack", "nack"]), rng.choice(DELAYS)
        if rng.random() < 0.8:
            self.jobs.remove(job)  # also when it raises
        job.ack() if what == "ack" else job.nack(delay)

    def _forget(self, rng: random.Random) -> None:
        if self.jobs:
            job = self.jobs.pop(rng.randrange(len(self.jobs)))
            if hasattr(job, "forget"):  # a job of the model; other jobs are garbage now
                job.forget()

    def _work(self, rng: random.Random) -> Any:
        job = self.handle(rng).take(0)
        if job is None:
            return None
        with job:
            if rng.random() < 0.4:
                raise Failed
        return shown(job)

    def close(self) -> None:
        self.jobs.clear()
        for handle in self.handles:
            handle.close()


def shown(message: Any) -> Any:
    if message is None:
        return None
    return message.data, message.priority, message.deliveries, message.origin_time


MESSAGES = ["send"] * 6 + ["receive"] * 4 + ["send_many", "receive_many", "receive_into", "peek", "wait_space"]
JOBS = ["take"] * 4 + ["end"] * 4 + ["work"] * 2 + ["forget"]
HANDLES = ["open", "open", "copy", "leave", "block"]
KINDS = {
    "messages": MESSAGES + HANDLES,
    "jobs": MESSAGES + HANDLES + JOBS * 3,
    "full": MESSAGES + ["send"] * 12 + HANDLES + JOBS,
    "handles": MESSAGES + JOBS + HANDLES * 4 + ["close"] * 2,
    "removed": MESSAGES + JOBS + HANDLES * 3 + ["unlink"] * 3,
}


def queues_program(queues: Queues) -> Program:
    def unlink(name: str) -> None:
        queues.MessageQueue.unlink_name(queues.name + name)

    return Program(queues.open, unlink, True)


@contextmanager
def program(name: str, token: str) -> Iterator[Program]:
    with contextlib.ExitStack() as stack:
        if name == "model":
            model = Model()
            running = Program(model.open, model.unlink, False)
        else:
            chosen = stack.enter_context(contextlib.closing(queues_of(name, token)))  # type: ignore[type-var]
            running = queues_program(next(chosen))
        stack.callback(running.close)
        yield running


@pytest.mark.needs_shm(32 << 20)
@pytest.mark.parametrize("kind", KINDS)
@SEEDS
def test_random_queue_program_has_equal_results_in_shared_memory_and_model(token: str, seed: int, kind: str) -> None:
    transcripts = {}
    for name in ("model", "msgq"):
        rng = random.Random(f"{kind} {seed}")
        with program(name, token) as running:
            transcripts[name] = [running.do(rng, KINDS[kind]) for _ in range(STEPS)]
    for step, (expected, seen) in enumerate(zip(*transcripts.values(), strict=True)):
        assert seen == expected, f"step {step}"
    assert {step for step, *_ in transcripts["model"]} == set(KINDS[kind])
