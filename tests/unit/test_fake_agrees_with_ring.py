"""The same random program on the ring and on the fake backend: every result is the same, lost messages included.

Left out is where the ring itself may go either way: the newest message that a conflating subscriber gets when it was
lapped and then polled, or lapped and then the publisher was replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from msgq.errors import MessageTooLargeError
from msgq.impl import backend

SIZES = [0, 1, 8, 60, 64, 100, 200, 330, 336, 400]


class Program:
    """One publisher, and subscribers that come and go, on one backend."""

    def __init__(
        self, module: ModuleType, endpoint: str, segment_size: int, steps: list[str], tracked: bool | None = None
    ) -> None:
        self.module, self.endpoint, self.steps = module, endpoint, steps
        self.context = module.Context()
        self.pub = self._connected(module.PubSocket(), segment_size, tracked=tracked)
        self.subs: list[Any] = []
        self.number = 0

    def _connected(self, socket: Any, *args: Any, **options: Any) -> Any:
        socket.connect(self.context, self.endpoint, *args, **options)
        return socket

    def message(self, size: int) -> bytes:
        self.number += 1
        return self.number.to_bytes(8, "little").ljust(size, b".")[:size]

    def do(self, rng: random.Random) -> Any:
        """Do something, and return all that can be seen of it."""
        step = rng.choice(self.steps)
        return step, getattr(self, f"_{step}")(rng)

    def _send(self, rng: random.Random) -> Any:
        try:
            self.pub.send(self.message(rng.choice(SIZES)))
        except MessageTooLargeError as error:
            return str(error)
        return self.pub.stats(), self.pub.all_readers_updated()

    def _burst(self, rng: random.Random) -> None:
        for _ in range(rng.randrange(200)):
            self.pub.send(self.message(rng.choice(SIZES[:6])))

    def _many(self, rng: random.Random) -> int:
        return int(self.pub.send_many([self.message(rng.choice(SIZES[:4])) for _ in range(rng.randrange(80))]))

    def _restart(self, rng: random.Random) -> Any:
        if rng.random() < 0.5:  # or the newcomer takes over
            self.pub.close()
        self.pub, former = self._connected(self.module.PubSocket()), self.pub
        former.close()
        return self.pub.stats()

    def _join(self, _rng: random.Random) -> None:
        self.subs.append(self._connected(self.module.SubSocket()))

    def _join_conflating(self, _rng: random.Random) -> None:
        self.subs.append(self._connected(self.module.SubSocket(), b"", True))

    def _leave(self, rng: random.Random) -> None:
        if len(self.subs) > 1:
            self.subs.pop(rng.randrange(len(self.subs))).close()

    def _receive(self, rng: random.Random) -> Any:
        return self._seen(rng, lambda sub: sub.receive(non_blocking=True))

    def _send_with_origin(self, rng: random.Random) -> Any:
        try:
            self.pub.send(self.message(rng.choice(SIZES)), origin_time=self.number)
        except MessageTooLargeError as error:
            return str(error)
        return self.pub.stats()

    def _receive_tracked(self, rng: random.Random) -> Any:
        def receive(sub: Any) -> Any:
            found = sub.receive_tracked(non_blocking=True)
            own = found is not None and found.origin_time == found.publish_time  # by a clock of its own
            return found and (found.data, "its own" if own else found.origin_time)

        return self._seen(rng, receive)

    def _receive_into(self, rng: random.Random) -> Any:
        buffer = bytearray(500)
        return self._seen(rng, lambda sub: buffer[: sub.receive_into(buffer, non_blocking=True) or 0])

    def _receive_many(self, rng: random.Random) -> Any:
        most = rng.choice([None, 1, 5])
        return self._seen(rng, lambda sub: sub.receive_many(most))

    def _poll(self, rng: random.Random) -> Any:
        def poll_then_receive(sub: Any) -> Any:
            poller = self.module.Poller()
            poller.registerSocket(sub)
            poller.poll(0)  # what it says of one that was lapped is open, too
            return sub.receive(non_blocking=True)

        return self._seen(rng, poll_then_receive)

    def _seen(self, rng: random.Random, call: Callable[[Any], Any]) -> Any:
        if not self.subs:
            return None
        sub = rng.choice(self.subs)
        return call(sub), sub.stats(), sub.lost

    def close(self) -> None:
        for socket in (self.pub, *self.subs):
            socket.close()


STEPS = ["send"] * 8 + ["burst", "many", "join", "leave"] + ["receive"] * 3 + ["receive_into", "receive_many"]


@pytest.mark.parametrize("more", [["poll", "restart"], ["join_conflating"]], ids=["plain", "conflating"])
@pytest.mark.parametrize("segment_size", [1024, 1160, 4096, 30_000])
@pytest.mark.seeds(2, 2, 10)
def test_random_program_has_equal_results_on_fake_and_ring(
    endpoint: str, seed: int, segment_size: int, more: list[str]
) -> None:
    ring, fake = (
        Program(backend.load_backend(name), endpoint, segment_size, STEPS + more) for name in ("msgq", "fake")
    )
    rngs = random.Random(seed), random.Random(seed)
    for step in range(1000):
        assert fake.do(rngs[0]) == ring.do(rngs[1]), f"step {step}"
    assert ring.pub.stats().messages > 500
    ring.close()
    fake.close()


@pytest.mark.parametrize("more", [["poll", "restart"], ["join_conflating"]], ids=["plain", "conflating"])
@pytest.mark.parametrize("segment_size", [1024, 1168, 4096])
def test_random_program_has_equal_results_on_tracked_fake_and_ring(
    endpoint: str, segment_size: int, more: list[str]
) -> None:
    steps = [*STEPS, *more, "send_with_origin", "send_with_origin", "receive_tracked", "receive_tracked"]
    ring, fake = (Program(backend.load_backend(name), endpoint, segment_size, steps, True) for name in ("msgq", "fake"))
    rngs = random.Random(segment_size), random.Random(segment_size)
    for step in range(1000):
        assert fake.do(rngs[0]) == ring.do(rngs[1]), f"step {step}"
    assert ring.pub.stats().messages > 500
    ring.close()
    fake.close()
