"""Random programs for work queues."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

from msgq.common.schema import Schema
from msgq.errors import MsgqError
from msgq.impl.backend import load_backend_class
from msgq.impl.workqueue.options import O_CREAT, O_CREX, O_NONBLOCK
from tests.contract.random_programs import Kind, Machine


class QueueMachine(Machine):
    """Handles of two queues, and the jobs that they take."""

    def __init__(self, backend: str, token: str) -> None:
        super().__init__(backend, token)
        self._queue_class = load_backend_class("MessageQueue", self.backend)
        self._queues: list[Any] = []

    def queue(self, name: str, flags: int | None = None, **options: Any) -> Any:
        if options.get("schema"):
            options["schema"] = Schema(options["schema"], "text")
        self._queues.append(queue := self._queue_class(self._token + name, flags, **options))
        return queue

    def unlink(self, name: str) -> None:
        self._queue_class.unlink_name(self._token + name)

    def copy(self, queue: Any) -> Any:
        with pickle.loads(pickle.dumps(queue)) as copied:
            return self._seen(copied)

    def block(self, queue: Any, value: bool) -> None:
        queue.block = value

    def shown(self, messages: Any) -> Any:
        if isinstance(messages, list):
            return [self.shown(each) for each in messages]
        return messages and (messages.data, messages.priority, messages.deliveries, messages.origin_time)

    def into(self, queue: Any, size: int) -> Any:
        buffer = bytearray(size)
        return queue.receive_into(buffer, 0), buffer

    def work(self, queue: Any, fails: bool) -> Any:
        job = queue.take(0)
        if job is None:
            return None
        with contextlib.suppress(ZeroDivisionError), job:
            if fails:
                raise ZeroDivisionError
        return self.shown(job)

    def _seen(self, handle: Any) -> Any:
        if handle is None:
            return None
        if hasattr(handle, "ack"):
            return self.shown(handle)
        if handle.closed:
            return "closed"
        counts = handle.current_messages, handle.in_flight, handle.delayed_messages
        return counts, handle.max_messages, handle.max_message_size, handle.block

    def _end(self) -> None:
        self._names.clear()  # a job that nobody has returns its message
        for queue in self._queues:
            queue.close()
        for name in "ab":
            with contextlib.suppress(MsgqError):
                self.unlink(name)


QUEUES = Kind(
    machine=QueueMachine,
    operations={
        "queue = queue({name}, {flags}, max_messages={most}, max_message_size={bytes})": 3,
        "queue = queue({name}, read={flag}, write={flag})": 1,
        "queue = queue({name}, create={choice}, schema={schema}, spin_us={limit})": 1,
        "copy({queue})": 1,
        "{queue}.close()": 1,
        "{queue}.unlink()": 1,
        "unlink({name})": 1,
        "block({queue}, {flag})": 1,
        "{queue}.stats()": 3,
        "{queue}.schema": 1,
        "{queue}.send(message({number}, {size}), {priority}, timeout=0)": 12,
        "{queue}.send(message({number}, {size}), origin_time={origin}, deadline=-1.0)": 3,
        "{queue}.send(message({number}, {size}), {priority}, timeout=0, delay={later})": 1,
        "{queue}.send_many(messages({number}, {size}, {count}), {priority}, timeout=0)": 4,
        "{queue}.wait_space(0)": 2,
        "shown({queue}.receive(0))": 6,
        "shown({queue}.receive(deadline=-1.0))": 2,
        "shown({queue}.receive_many({limit}))": 3,
        "into({queue}, {room})": 2,
        "shown({queue}.peek({limit}))": 3,
        "poll({queue})": 2,
        "poll({queue}, {queue})": 1,
        "job = {queue}.take(0)": 5,
        "job = {queue}.take(0, lease={later})": 3,
        "{job}.ack()": 4,
        "{job}.nack()": 3,
        "{job}.nack({later})": 1,
        "work({queue}, {flag})": 3,
    },
    values={
        "name": ["a", "a", "a", "b"],
        "flags": [None, None, None, None, 0, O_CREAT, O_CREX, O_NONBLOCK, O_CREAT | O_NONBLOCK],
        "most": [None, None, 1, 3, 70],
        "MOST": [None, 1, 2, 5, 40],
        "bytes": [None, None, 64],
        "flag": [False, True],
        "choice": [None, None, False, True],
        "schema": [None, "one", "two"],
        "size": [0, 1, 8, 8, 8, 63, 64, 65],
        "priority": [0, 0, 0, 1, 2, 32767, -1],
        "count": [0, 1, 3, 10, 40],
        "limit": [None, None, 0, 1, 5],
        "room": [0, 8, 100],
        "origin": [0, 5, 17],
        "later": [1000.0],
    },
    start=["queue = queue('a', max_messages={MOST}, max_message_size={bytes})", "queue = queue('a')"],
)
