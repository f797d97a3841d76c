"""The leases of visionipc's frames (visionipc/impl/leases.h): a server that renders, clients that hold."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from . import addresses as at
from .machine import Machine
from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import fence, is_alive, load, pause, store, until
from .oracle import Violation
from .rules import Rules
from .scheduler import Schedule
from .task import Steps, Task

PIXELS = range(2)


class Stream:
    """What a server and its clients share besides the memory, and what is really so.

    Attributes
    ----------
    stock : the stock client, if there is one. It counts on the round.
    packets : (buffer, generation) of the published frames. The topic orders more than this list does.
    rendering : the buffer that the server writes into, or -1.
    """

    stock: StockFrameClient | None = None

    def __init__(self, rules: Rules, buffers: int, rows: int) -> None:
        self.rules = rules
        self.buffers, self.rows = range(buffers), range(rows)
        self.packets: list[tuple[int, int]] = []
        self.rendering = -1
        self.clients: list[FrameClient] = []

    def initial(self) -> dict[str, Any]:
        """The words, all 0."""
        words = [at.STOCK_READERS, *(at.pixel(buffer, i) for buffer in self.buffers for i in PIXELS)]
        words += [at.generation(buffer) for buffer in self.buffers]
        words += [name(row) for row in self.rows for name in (at.client_left, at.seen_generation)]
        pairs = [(row, buffer) for row in self.rows for buffer in self.buffers]
        words += [name(*pair) for pair in pairs for name in (at.lease, at.last_read)]
        return dict.fromkeys(words, 0)

    def check(self) -> None:
        """To be asked whenever somebody gets a buffer."""
        for client in self.clients:
            if self.rendering in client.held and not client.task.dead:
                raise Violation("held", f"{client.task.name} holds buffer {self.rendering}, which is being written")


class FrameServer:
    """Takes buffers that nobody holds, renders, publishes; gives rows to clients.

    Attributes
    ----------
    order : the buffers in use, the one that was published last first. Spare ones follow when clients hold all others.
    round : so many frames more go round, whoever has come to what.
    known : frames since the last client came, as it really is.
    """

    def __init__(self, stream: Stream, machine: Machine, spare: int) -> None:
        self.stream, self.machine = stream, machine
        self.clients_by_row: dict[int, FrameClient] = {}
        self.joined: dict[int, int] = {}  # row -> newest frame when its client got it
        self.generations = dict.fromkeys(stream.buffers, 0)
        self.order = list(stream.buffers)[: len(stream.buffers) - spare][::-1]
        self.newest = self.known = 0
        self.round = len(self.order)

    def serve(self, frames: int) -> Steps[None]:
        """Publish so many frames, fewer if clients hold all buffers."""
        for _ in range(frames):
            yield from self.admit()
            buffer, may_grow = None, len(self.order) < len(self.stream.buffers)
            if not self.round and not (yield from self.may_have_stock()):
                buffer = yield from self.take_mru()
            if buffer is None:
                waiting = (yield from self.count_waiting()) if may_grow else 0
                buffer = yield from self.take_oldest(waiting)
                if may_grow and buffer is not None:
                    self.check_waiting(self.generations[buffer])
            if buffer is None and may_grow:
                self.grow()
                buffer = yield from self.take_oldest()
                if buffer is None:
                    raise Violation("spare", "a spare buffer was added, and the frame is dropped")
            if buffer is None:
                yield pause()
            else:
                self.generations[buffer] = 0
                yield from self.render(buffer, self.newest + 1)

    def grow(self) -> None:
        """Add a spare buffer, which has no frame: it is the first to be tried."""
        self.order.append(len(self.order))
        if self.stream.rules.round_after_growth:
            self.round = max(self.round, len(self.order))

    def may_have_stock(self) -> Steps[bool]:
        """A stock client has the buffers, or is in the topic and may be about to ask for them."""
        rules, stock = self.stream.rules, self.stream.stock
        if stock and stock.asks and rules.stock_goes_round:
            return True
        return rules.stock_seen_in_topic and (yield load(at.STOCK_READERS)) > 0

    def count_waiting(self) -> Steps[int]:
        """How many of the newest frames a client has not come to since it got its row."""
        most = 0
        for row, joined in list(self.joined.items()) if self.stream.rules.waiting_frames_kept else ():
            passed = yield load(at.seen_generation(row), ACQUIRE)
            if not (yield load(at.client_left(row), self.stream.rules.leave_load)):
                most = max(most, self.newest - (passed or joined))
        return most

    def check_waiting(self, generation: int) -> None:
        """A spare buffer would have kept the frame for a client that has still to come to it."""
        for row, client in self.clients_by_row.items():
            seen = max(client.seen_up_to, self.joined[row])
            if generation > seen and not client.is_leaving and not client.task.dead:
                raise Violation(
                    "waiting", f"{client.task.name} (row {row}) loses frame {generation}, with a spare buffer"
                )

    def take_oldest(self, waiting: int = 0) -> Steps[int | None]:
        """None: clients hold all, or wait for the oldest of those that none holds."""
        for buffer in reversed(self.order):
            generation = self.generations[buffer]
            if generation and self.newest - generation < waiting:
                return None
            if (yield from self.take(buffer)):
                return buffer
        return None

    def take_mru(self) -> Steps[int | None]:
        """Take the newest of those that nobody holds or awaits; None: there is none, and who lags most is alive."""
        while True:
            unseen_frames, slowest = yield from self.find_slowest()
            for buffer in self.order:
                generation = self.generations[buffer]
                is_passed = not generation or self.newest - generation >= unseen_frames
                if is_passed and (yield from self.claim(buffer)) is None:
                    self.check_mru(buffer, generation)
                    return buffer
            if slowest is None or (yield is_alive(self.clients_by_row[slowest].task)):
                return None
            yield from self.reset(slowest)
            del self.clients_by_row[slowest]

    def check_mru(self, buffer: int, generation: int) -> None:
        """Nobody who is there has still to come to the frame; who counts on the round gets it."""
        for row, client in self.clients_by_row.items():
            if generation and client.seen_up_to < generation and not client.is_leaving and not client.task.dead:
                raise Violation("awaited", f"{client.task.name} (row {row}) has not come to frame {generation} so far")
        counts_on_it = self.stream.stock and generation > self.stream.stock.since
        if generation and (counts_on_it or self.known < len(self.order)):
            raise Violation("round", f"buffer {buffer} is taken before the round is over")

    def find_slowest(self) -> Steps[tuple[int, int | None]]:
        """How many of the newest frames somebody has still to come to, and who lags most."""
        most, slowest = 0, None
        for row in list(self.clients_by_row) if self.stream.rules.unseen_frames_kept else ():
            client_left = yield load(at.client_left(row), self.stream.rules.leave_load)
            passed = yield load(at.seen_generation(row), ACQUIRE)
            lag = self.newest - passed if passed else self.newest + 1
            if lag > most and not client_left:
                most, slowest = lag, row
        return most, slowest

    def render(self, buffer: int, generation: int) -> Steps[None]:
        """Write a frame into a buffer that was taken, and publish it."""
        self.stream.rendering = buffer
        self.stream.check()
        for row in self.stream.rows:
            looked = yield load(at.last_read(row, buffer))
            if looked != self.machine.newest(at.last_read(row, buffer)):
                raise Violation("held", f"row {row} looked at buffer {buffer} after the server began to write there")
        for i in PIXELS:
            yield store(at.pixel(buffer, i), generation)
        self.stream.rendering = -1
        self.generations[buffer] = self.newest = generation
        self.order.remove(buffer)
        self.order.insert(0, buffer)
        self.round -= self.round > 0
        self.known += 1
        yield store(at.generation(buffer), generation, self.stream.rules.frame_store)  # EDGE frame: release
        self.stream.packets.append((buffer, generation))
        yield fence(SEQ_CST)  # of the topic: the packet is there, then it is looked who sleeps

    def take(self, buffer: int) -> Steps[bool]:
        """Make a buffer the server's, also from dead clients."""
        while (holder := (yield from self.claim(buffer))) is not None:
            if self.stream.rules.liveness_checked and (yield is_alive(self.clients_by_row[holder].task)):
                return False
            yield from self.reset(holder)
        return True

    def claim(self, buffer: int) -> Steps[int | None]:
        """Make a buffer the server's; or the row that holds it."""
        rules, holder = self.stream.rules, (yield from self.holder(buffer))
        if holder is None:
            yield store(at.generation(buffer), 0, RELEASE)
            yield fence(rules.claim_fence)  # EDGE claim: the generation is gone, then the leases are looked at
            if not rules.leases_rechecked or (holder := (yield from self.holder(buffer))) is None:
                return None
            yield store(at.generation(buffer), self.generations[buffer], RELEASE)
        return holder

    def holder(self, buffer: int) -> Steps[int | None]:
        """The first row that holds what is in it. Another generation's lease is of one who just gives way."""
        generation = self.generations[buffer]
        for row in self.stream.rows:
            if generation and (yield load(at.lease(row, buffer), self.stream.rules.lease_load)) == generation:
                return row  # EDGE lease: acquire
        return None

    def admit(self) -> Steps[None]:
        """Give free rows to clients that wait for one."""
        rules = self.stream.rules
        waiting = [client for client in self.stream.clients if client.row is None]
        for row in self.stream.rows:
            if waiting and (yield from self.is_free(row)):
                yield from self.reset(row)
                self.clients_by_row[row], self.joined[row] = waiting[0], self.newest
                self.known = 0
                if rules.round_for_newcomers:
                    self.round = len(self.order)
                yield fence(SEQ_CST)  # what a message through a socket is
                waiting.pop(0).row = row

    def is_free(self, row: int) -> Steps[bool]:
        """Nobody's, a dead client's, or of one that left and lets go of the last frame."""
        client_row, rules = self.clients_by_row.get(row), self.stream.rules
        if client_row is None or client_row.task.dead:
            return client_row is None or not (yield is_alive(client_row.task))
        if not (yield load(at.client_left(row), rules.leave_load)):  # EDGE client-left: acquire
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
        if self.stream.rules.seen_reset:
            yield store(at.seen_generation(row), 0, RELEASE)
        yield store(at.client_left(row), 0, RELEASE)


class FrameClient:
    """Takes frames, looks at them for a while, gives them back; leaves with some of them still held.

    Attributes
    ----------
    came_to : the newest frame that it took, or found gone.
    is_leaving : it wants no more.
    """

    task: Task
    seen_up_to = 0
    is_leaving = False

    def __init__(self, stream: Stream, rng: Random) -> None:
        self.stream, self.rng = stream, rng
        self.row: int | None = None
        self.held: dict[int, int] = {}  # buffer -> generation
        stream.clients.append(self)

    def run(self, looks: int) -> Steps[None]:
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
        self.is_leaving = True
        # EDGE client-left: release. There is no mutation of it: the fences behind the leases (EDGE claim) would do.
        yield store(at.client_left(self.row or 0), 1, RELEASE)
        while self.held:
            yield pause()
            yield from self.give_back(next(iter(self.held)))

    def take(self, buffer: int, generation: int) -> Steps[None]:
        """Hold a frame, if it is still there."""
        if buffer in self.held or self.row is None or generation <= self.seen_up_to:
            return
        rules, lease = self.stream.rules, at.lease(self.row, buffer)
        if rules.seen_before_take:
            yield store(at.seen_generation(self.row), generation, RELEASE)
        if rules.lease_before_check:
            yield store(lease, generation, RELEASE)
            yield fence(rules.claim_fence_client)  # EDGE claim: the lease is there, then the generation is looked at
        current = yield load(at.generation(buffer), rules.frame_load)  # EDGE frame: acquire
        self.seen_up_to = generation
        if current != generation and rules.generation_checked:
            yield store(lease, 0, RELEASE)
            yield store(at.seen_generation(self.row), generation, RELEASE)
            return
        self.held[buffer] = generation
        self.stream.check()
        if not rules.lease_before_check:
            yield store(lease, generation, RELEASE)
        yield store(at.seen_generation(self.row), generation, RELEASE)
        yield from self.check_frame(buffer)

    def check_frame(self, buffer: int) -> Steps[None]:
        """The frame must be whole and the one that was announced."""
        for i in PIXELS:
            pixel = yield load(at.pixel(buffer, i))
            if pixel != self.held[buffer]:
                raise Violation("torn", f"{self.task.name} sees frame {pixel} in one that is {self.held[buffer]}")

    def give_back(self, buffer: int) -> Steps[None]:
        """Look a last time, and let go."""
        yield from self.check_frame(buffer)
        assert self.row is not None
        # In place of the loads, which this memory does not delay: the store must be seen before the buffer is written.
        yield store(at.last_read(self.row, buffer), self.held.pop(buffer))
        yield store(at.lease(self.row, buffer), 0, self.stream.rules.lease_store)  # EDGE lease: release


class StockFrameClient:
    """Joins the topic, asks for the buffers some time later, and may lose its place in the topic then.

    Attributes
    ----------
    since : it reads of the frames after this one.
    asks : the server has its question.
    """

    since: float = math.inf
    asks = False

    def __init__(self, stream: Stream, rng: Random) -> None:
        self.stream, self.rng = stream, rng
        stream.stock = self

    def run(self) -> Steps[None]:
        """It holds nothing and says nothing, so that is all."""
        yield from self.wait()
        yield store(at.STOCK_READERS, 1, RELEASE)
        yield fence(SEQ_CST)  # its place is taken by a compare and exchange, then it looks where the topic is
        self.since = self.stream.packets[-1][1] if self.stream.packets else 0
        yield from self.wait()
        self.asks = True
        yield fence(SEQ_CST)  # what a message through a socket is
        yield from self.wait()
        yield store(at.STOCK_READERS, 0, RELEASE)

    def wait(self) -> Steps[None]:
        """For some frames."""
        until_frame = len(self.stream.packets) + int(self.rng.random() * 4)
        for _ in range(200):
            if len(self.stream.packets) >= until_frame:
                return
            yield pause()


class FrameModel:
    """One schedule of one scenario of frames, ready to run."""

    def __init__(
        self,
        rng: Random,
        rules: Rules,
        traced: bool,
        *,
        rows: int,
        clients: int,
        buffers: int = 2,
        spare: int = 0,
        stock: bool = False,
    ) -> None:
        self.stream = Stream(rules, buffers, rows)
        machine = Machine(self.stream.initial(), rng, (0.0, 0.3, 0.6)[int(rng.random() * 3)])
        self.schedule = Schedule(rng, machine, traced)
        killed = 150 if rng.random() < 0.2 else 0
        server = FrameServer(self.stream, machine, spare)
        self.schedule.spawn("server", server.serve(6 + int(rng.random() * 6)), killed).is_writer = True
        if stock:
            self.schedule.spawn("stock", StockFrameClient(self.stream, rng).run(), 0)
        for i in range(clients):
            client = FrameClient(self.stream, rng)
            killed = 60 if rng.random() < 0.3 else 0
            client.task = self.schedule.spawn(f"client {i}", client.run(1 + int(rng.random() * 6)), killed)

    def run(self) -> None:
        """Raises Violation."""
        self.schedule.run()
