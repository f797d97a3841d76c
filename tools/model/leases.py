"""The leases of visionipc's frames (visionipc/impl/leases.h): a server that renders, clients that hold."""

from random import Random
from typing import Any

from . import addresses as at
from .machine import Machine
from .memory import RELEASE, SEQ_CST
from .ops import fence, is_alive, load, pause, store, until
from .rules import Rules
from .scheduler import Schedule
from .task import Steps, Task
from .truth import Violation

PIXELS = range(2)


class Stream:
    """What a server and its clients share besides the memory, and what is really so.

    Attributes
    ----------
    packets : (buffer, generation) of the published frames. The topic orders more than this list does.
    rendering : the buffer that the server writes into, or -1.
    """

    def __init__(self, rules: Rules, buffers: int, rows: int) -> None:
        self.rules = rules
        self.buffers, self.rows = range(buffers), range(rows)
        self.packets: list[tuple[int, int]] = []
        self.rendering = -1
        self.clients: list[FrameClient] = []

    def initial(self) -> dict[str, Any]:
        """The words, all 0."""
        words = [at.pixel(buffer, i) for buffer in self.buffers for i in PIXELS]
        words += [at.generation(buffer) for buffer in self.buffers] + [at.left(row) for row in self.rows]
        pairs = [(row, buffer) for row in self.rows for buffer in self.buffers]
        words += [name(*pair) for pair in pairs for name in (at.lease, at.looked)]
        return dict.fromkeys(words, 0)

    def check(self) -> None:
        """To be asked whenever somebody gets a buffer."""
        for client in self.clients:
            if self.rendering in client.held and not client.task.dead:
                raise Violation("held", f"{client.task.name} holds buffer {self.rendering}, which is being written")


class FrameServer:
    """Takes buffers that nobody holds in turn, renders, publishes; gives rows to clients."""

    def __init__(self, stream: Stream, machine: Machine) -> None:
        self.stream, self.machine = stream, machine
        self.tenants: dict[int, FrameClient] = {}
        self.generations = dict.fromkeys(stream.buffers, 0)

    def serve(self, frames: int) -> Steps[None]:
        """Publish so many frames, fewer if clients hold all buffers."""
        last = -1
        for generation in range(1, frames + 1):
            yield from self.admit()
            for step in self.stream.buffers:
                buffer = (last + 1 + step) % len(self.stream.buffers)
                if (yield from self.take(buffer)):
                    last, self.generations[buffer] = buffer, 0
                    yield from self.render(buffer, generation)
                    break
            else:
                yield pause()

    def render(self, buffer: int, generation: int) -> Steps[None]:
        """Write a frame into a buffer that was taken, and publish it."""
        self.stream.rendering = buffer
        self.stream.check()
        for row in self.stream.rows:
            looked = yield load(at.looked(row, buffer))
            if looked != self.machine.newest(at.looked(row, buffer)):
                raise Violation("held", f"row {row} looked at buffer {buffer} after the server began to write there")
        for i in PIXELS:
            yield store(at.pixel(buffer, i), generation)
        self.stream.rendering = -1
        self.generations[buffer] = generation
        yield store(at.generation(buffer), generation, self.stream.rules.frame_store)  # EDGE frame: release
        self.stream.packets.append((buffer, generation))

    def take(self, buffer: int) -> Steps[bool]:
        """Make a buffer the server's, also from dead clients."""
        rules = self.stream.rules
        while True:
            holder = yield from self.holder(buffer)
            if holder is None:
                yield store(at.generation(buffer), 0, RELEASE)
                yield fence(rules.claim_fence)  # EDGE claim: the generation is gone, then the leases are looked at
                if not rules.leases_looked_at_again or (holder := (yield from self.holder(buffer))) is None:
                    return True
                yield store(at.generation(buffer), self.generations[buffer], RELEASE)
            if rules.death_asked and (yield is_alive(self.tenants[holder].task)):
                return False
            yield from self.reset(holder)

    def holder(self, buffer: int) -> Steps[int | None]:
        """The first row that holds what is in it. Another generation's lease is of one who just gives way."""
        generation = self.generations[buffer]
        for row in self.stream.rows:
            if generation and (yield load(at.lease(row, buffer), self.stream.rules.lease_load)) == generation:
                return row  # EDGE lease: acquire
        return None

    def admit(self) -> Steps[None]:
        """Give free rows to clients that wait for one."""
        waiting = [client for client in self.stream.clients if client.row is None]
        for row in self.stream.rows:
            if waiting and (yield from self.is_free(row)):
                yield from self.reset(row)
                self.tenants[row] = waiting[0]
                yield fence(SEQ_CST)  # what a message through a socket is
                waiting.pop(0).row = row

    def is_free(self, row: int) -> Steps[bool]:
        """Nobody's, a dead client's, or of one that left and lets go of the last frame."""
        tenant, rules = self.tenants.get(row), self.stream.rules
        if tenant is None or tenant.task.dead:
            return tenant is None or not (yield is_alive(tenant.task))
        if not (yield load(at.left(row), rules.leave_load)):  # EDGE leave: acquire
            return False
        for buffer, generation in self.generations.items():
            lease = yield load(at.lease(row, buffer), rules.lease_load)
            if generation and lease == generation and rules.left_may_hold:
                return False
        return True

    def reset(self, row: int) -> Steps[None]:
        """Free what it holds, and itself."""
        for buffer in self.stream.buffers:
            yield store(at.lease(row, buffer), 0, RELEASE)
        yield store(at.left(row), 0, RELEASE)


class FrameClient:
    """Takes frames, looks at them for a while, gives them back; leaves with some of them still held."""

    task: Task

    def __init__(self, stream: Stream, rng: Random) -> None:
        self.stream, self.rng = stream, rng
        self.row: int | None = None
        self.held: dict[int, int] = {}  # buffer -> generation
        stream.clients.append(self)

    def live(self, looks: int) -> Steps[None]:
        """Look for frames so many times."""
        yield until(lambda: self.row is not None)
        patience = int(self.rng.random() * 3)
        for _ in range(looks):
            if not self.stream.packets:
                yield pause()
            else:
                back = 1 + int(self.rng.random() * min(2, len(self.stream.packets)))
                yield from self.take(*self.stream.packets[-back])
            while len(self.held) > patience:
                yield pause()
                yield from self.give_back(next(iter(self.held)))
        # EDGE leave: release. There is no mutation of it: the fences behind the leases (EDGE claim) would do.
        yield store(at.left(self.row or 0), 1, RELEASE)
        while self.held:
            yield pause()
            yield from self.give_back(next(iter(self.held)))

    def take(self, buffer: int, generation: int) -> Steps[None]:
        """Hold a frame, if it is still there."""
        if buffer in self.held or self.row is None:
            return
        rules, lease = self.stream.rules, at.lease(self.row, buffer)
        if rules.lease_before_look:
            yield store(lease, generation, RELEASE)
            yield fence(rules.claim_fence_client)  # EDGE claim: the lease is there, then the generation is looked at
        found = yield load(at.generation(buffer), rules.frame_load)  # EDGE frame: acquire
        if found != generation and rules.generation_looked_at:
            yield store(lease, 0, RELEASE)
            return
        self.held[buffer] = generation
        self.stream.check()
        if not rules.lease_before_look:
            yield store(lease, generation, RELEASE)
        yield from self.look(buffer)

    def look(self, buffer: int) -> Steps[None]:
        """The frame must be whole and the one that was announced."""
        for i in PIXELS:
            pixel = yield load(at.pixel(buffer, i))
            if pixel != self.held[buffer]:
                raise Violation("torn", f"{self.task.name} sees frame {pixel} in one that is {self.held[buffer]}")

    def give_back(self, buffer: int) -> Steps[None]:
        """Look a last time, and let go."""
        yield from self.look(buffer)
        assert self.row is not None
        # In place of the loads, which this memory does not delay: the store must be seen before the buffer is written.
        yield store(at.looked(self.row, buffer), self.held.pop(buffer))
        yield store(at.lease(self.row, buffer), 0, self.stream.rules.lease_store)  # EDGE lease: release


class Frames:
    """One schedule of one scenario of frames, ready to run."""

    def __init__(self, rng: Random, rules: Rules, traced: bool, *, rows: int, clients: int) -> None:
        self.stream = Stream(rules, 2, rows)
        machine = Machine(self.stream.initial(), rng, (0.0, 0.3, 0.6)[int(rng.random() * 3)])
        self.schedule = Schedule(rng, machine, traced)
        killed = 150 if rng.random() < 0.2 else 0
        server = FrameServer(self.stream, machine)
        self.schedule.spawn("server", server.serve(6 + int(rng.random() * 6)), killed).is_writer = True
        for i in range(clients):
            client = FrameClient(self.stream, rng)
            killed = 60 if rng.random() < 0.3 else 0
            client.task = self.schedule.spawn(f"client {i}", client.live(1 + int(rng.random() * 6)), killed)

    def run(self) -> None:
        """Raises Violation."""
        self.schedule.run()
