"""What the processes of the stress tests of frames do. Every word of a frame is its number in the topic."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import msgq
from tests.stress.roles import fork, has_input
from tests.support import hear, say, wait_until
from visionipc import FrameFormat, VisionBuf, VisionIpcClient, VisionIpcServer, get_endpoint_name

BUFFERS = 6
FRAME_BYTES = 1 << 17

#: How a client takes frames.
KINDS = ("plain", "conflate", "slow")


def count_published_frames(name: str) -> int:
    """Return how many frames were announced in all lives of the server: the number of the next one."""
    found = msgq.stats.topic(get_endpoint_name(name, 0)).messages
    assert found is not None
    return found


def open_server(name: str) -> VisionIpcServer:
    """Return a server with a stream, which listens."""
    server = VisionIpcServer(name)
    server.create_buffers(0, BUFFERS, FRAME_BYTES, 1, FrameFormat.RAW)
    server.start_listener()
    return server


def publish(server: VisionIpcServer, number: int, rng: random.Random) -> bool:
    """Render a frame, in one of the ways there are; False: it was dropped."""
    if rng.random() < 0.2:
        return server.send(0, np.full(FRAME_BYTES // 8, number, np.uint64).data, number)
    with server.frame(0) as frame:
        frame.array.view(np.uint64)[:] = number
        frame.frame_id = number
    return not frame.dropped


def go_on(server: VisionIpcServer, name: str, rng: random.Random, enough: Callable[[int], bool]) -> dict[str, int]:
    """Publish, with pauses, until that is enough; return the counts."""
    number, tries = count_published_frames(name), 0
    while not enough(tries):
        number += publish(server, number, rng)
        tries += 1
        if rng.random() < 0.2:
            time.sleep(rng.random() * 0.003)  # what is fast and what is slow changes
    stats = server.stats(0)
    assert stats.published + stats.dropped == tries, f"{tries} frames were rendered: {stats}"
    return {"tries": tries, "published": stats.published, "dropped": stats.dropped}


def serve(name: str, seed: int, seconds: float) -> dict[str, int]:
    """Publish for a while; then see that nothing stays held when all clients are gone."""
    rng = random.Random(seed)
    with open_server(name) as server:
        say("ready")
        hear()
        until = time.monotonic() + seconds
        say(go_on(server, name, rng, lambda _: time.monotonic() > until))
        hear()
        wait_until(lambda: publish(server, 0, rng) and not server.stats(0).held, "every lease is given or taken back")
        stats = server.stats(0)
        assert stats.clients == []
        return {"taken_back": stats.taken_back}


class Holder:
    """A client that holds some frames for some time, and looks at every word when it gets one and lets go of it.

    Parameters
    ----------
    counted : it was there before the first frame, and knows which number comes next.
    """

    def __init__(self, name: str, kind: str, rng: random.Random, counted: bool) -> None:
        self.kind, self.rng, self.counted = kind, rng, counted
        self.client = VisionIpcClient(name, 0, kind == "conflate")
        self.client.connect(True)
        self.held: list[tuple[int, VisionBuf]] = []
        self.received, self.last = 0, -1

    def take(self, timeout_ms: int) -> bool:
        """Get a frame, if there is one, and perhaps let go of others."""
        frame = self.client.recv(timeout_ms)
        if frame is not None:
            number = int(frame.array.view(np.uint64)[0])
            self.check(number, frame)
            assert number > self.last, f"frame {number} came after {self.last}"
            expected = self.received + (self.client.lost or 0)
            assert not self.counted or number == expected, f"frame {number} came in place of {expected}"
            self.last, self.received = number, self.received + 1
            self.held.append((number, frame))
        if self.kind == "slow" and self.rng.random() < 0.1:
            time.sleep(self.rng.random() * 0.02)  # the point is to hold it meanwhile
        while self.held and (len(self.held) > 2 or self.rng.random() < 0.5):
            self.check(*self.held.pop(self.rng.randrange(len(self.held))))
        return frame is not None

    def check(self, number: int, frame: VisionBuf) -> None:
        words = frame.array.view(np.uint64)
        assert (words == number).all(), f"{self.kind}: frame {number} is torn: {np.unique(words)}"
        assert frame.frame_id == number
        assert frame.valid()

    def end(self) -> dict[str, Any]:
        while self.held:
            self.check(*self.held.pop())
        lost, connections = self.client.lost, self.client.connections
        self.client.close()
        return {"kind": self.kind, "received": self.received, "lost": lost, "connections": connections}


def hold(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Hold frames until nothing more comes."""
    holder = Holder(name, kind, random.Random(seed), counted=True)
    say("ready")
    ending = False
    while holder.take(20) or not ending:
        ending = ending or has_input()
    return holder.end()


def run_in_fork(function: Callable[..., None], *args: Any) -> int:
    """Run a function in a forked process; its exit code is 0, 1 after an exception."""
    if pid := fork():
        return pid
    try:
        function(*args)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def hold_for_ever(name: str, seed: int) -> None:
    """Connect, hold, leave, and again."""
    rng = random.Random(seed)
    while True:
        holder = Holder(name, rng.choice(KINDS), rng, counted=False)
        for _ in range(rng.randrange(100)):
            holder.take(20)
        holder.end()


def wait_for_exit(pid: int) -> int:
    """Return how a child ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def victims(name: str, seed: int) -> dict[str, int]:
    """Keep a client running that is killed at a random moment, again and again, until told to stop."""
    rng, killed, codes = random.Random(seed), 0, set()
    say("ready")
    while not has_input():
        pid = run_in_fork(hold_for_ever, name, rng.getrandbits(32))
        time.sleep(0.01 + rng.expovariate(50))  # the moment of the crime; nothing waits for it
        os.kill(pid, signal.SIGKILL)
        codes.add(wait_for_exit(pid))
        killed += 1
    assert codes == {-signal.SIGKILL}, "some ended by themselves"
    return {"killed": killed}


def live(name: str, seed: int) -> None:
    """One life of a server, closed in order."""
    rng = random.Random(seed)
    with open_server(name) as server:
        go_on(server, name, rng, lambda tries: tries >= 30)


def live_for_ever(name: str, seed: int) -> None:
    """One life of a server that is killed."""
    with open_server(name) as server:
        go_on(server, name, random.Random(seed), lambda _: False)


def lives(name: str, seed: int, times: int) -> dict[str, int]:
    """Let a server die, or close, and start anew, so many times; return how many frames there were."""
    rng, killed = random.Random(seed), 0
    say("ready")
    hear()
    for _ in range(times):
        if rng.random() < 0.5:
            assert wait_for_exit(run_in_fork(live, name, rng.getrandbits(32))) == 0
            continue
        pid = run_in_fork(live_for_ever, name, rng.getrandbits(32))
        time.sleep(rng.expovariate(30))  # the moment of the crime; nothing waits for it
        os.kill(pid, signal.SIGKILL)
        assert wait_for_exit(pid) == -signal.SIGKILL
        killed += 1
    assert wait_for_exit(run_in_fork(live, name, seed)) == 0  # which leaves no socket behind
    return {"published": count_published_frames(name), "killed": killed}


def first_life(name: str) -> None:
    """A server that clients can connect to before the first frame; ends when told."""
    with open_server(name):
        say("ready")
        hear()
