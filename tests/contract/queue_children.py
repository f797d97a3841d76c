"""What the contract tests of work queues run in other processes, by name."""

from __future__ import annotations

import base64
import pickle
import signal
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from tests.support import DEADLINE, hear, say

#: Backend: where its work queues are.
MODULES = {"msgq": "msgq.impl.workqueue", "fake": "msgq.impl.fake.workqueue"}


def opened(backend: str, name: str, *args: Any, **options: Any) -> Any:
    """Open a queue of a backend."""
    return import_module(MODULES[backend]).MessageQueue(name, *args, **options)


def take_without_ack(backend: str, name: str) -> None:
    """Take a job, say what it is, and end without having acknowledged it."""
    job = opened(backend, name).take(DEADLINE)
    say(job.data.decode())
    hear()


def sender(backend: str, name: str, messages: list[str], priority: int) -> None:
    """Send texts."""
    with opened(backend, name, 0) as queue:
        for message in messages:
            queue.send(message.encode(), priority, timeout=DEADLINE)


def consumer(backend: str, name: str) -> list[str]:
    """Receive until an empty message comes, and return what that was."""
    queue = opened(backend, name)
    say("ready")
    got = []
    while (message := queue.receive(timeout=DEADLINE)) is not None and message.data:
        got.append(message.data.decode())
    return got


def waiting_call(queue: Any, call: str, data: bytes) -> Callable[[], Any]:
    """Return a function that makes a call of a queue and waits for its end; what it takes, it acknowledges."""
    if call == "take":
        return lambda: queue.take().ack()
    arguments: dict[str, Any] = {"send": data, "send_many": [data], "receive_into": bytearray(8)}
    method = getattr(queue, call)
    return partial(method, arguments[call]) if call in arguments else partial(method)


def waits_again(backend: str, name: str, call: str, number: int) -> None:
    """Make a call again and again, and say in another queue each time that it is over."""
    act = waiting_call(opened(backend, name), call, b"%d" % number)
    served = opened(backend, f"{name}served")
    say("ready")
    while True:
        act()
        served.send(b"%d" % number)


def unpickled(data: str) -> str:
    """Receive with a handle that was pickled elsewhere."""
    with pickle.loads(base64.b64decode(data)) as queue:
        return str(queue.receive(timeout=DEADLINE).data.decode())


def interrupted(backend: str, name: str, call: str) -> str:
    """Wait until Ctrl-C, and then use the handle."""
    queue = opened(backend, name)
    args = {"send": (b"",)}.get(call, ())
    say("waits")
    try:
        getattr(queue, call)(*args)
    except KeyboardInterrupt:
        say("interrupted")
    hear()
    return str(queue.receive(timeout=DEADLINE).data.decode())


def notified_by_signal(backend: str, name: str, number: int) -> int:
    """Ask for a signal, and return it when it has come."""
    came = threading.Event()
    signal.signal(number, lambda *_: came.set())
    queue = opened(backend, name)
    queue.notify(number)
    say("ready")
    while not came.wait(0.01):
        pass
    return int(queue.current_messages)
