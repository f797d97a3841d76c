"""Simulation of several nodes on one bus in virtual time. A seed decides the order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import isinf
from operator import index
from types import TracebackType
from typing import Any, Self

from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError, StateError
from msgq.impl import backend, fake
from msgq.impl.base.core import watch_connects
from msgq.impl.fake.bus import activate_bus, current_bus, restore_previous_bus
from msgq.impl.fake.clock import VirtualClock
from msgq.kinds.playback import EndpointSpec, PlaybackMessage
from msgq.kinds.simulation import SentMessage
from msgq.simulation.choices import ChoiceSequence
from msgq.simulation.engine import PlaybackInput, SimulationEngine
from msgq.simulation.faults import Fault, FaultInjector, Faults
from msgq.simulation.nodes import BlockingNode, GeneratorNode
from msgq.simulation.trace import Trace

_NOTE_EVENTS_MAX = 20  # events in the note of an exception


class Simulation:
    """Several nodes on one bus inside this process: ``with Simulation(seed=7) as sim: ...``.

    Inside the block, `msgq` creates sockets (``msgq.pub_sock``, ``msgq.SubSocket`` and so on) on the bus of this
    simulation, regardless of MSGQ_BACKEND. Classes that were imported by name before the block keep their backend. If a
    node (or code in the block) connects a socket of the ring or of ZMQ, the call raises `StateError`. Only virtual time
    passes. All events depend only on the arguments and on the nodes.

    One node runs at a time. Code in the block is the node "main". When this code waits (in `run`, ``receive``,
    ``poll``, ``clock.sleep``), other nodes run. The end of the block ends all nodes and closes all sockets. An
    exception that leaves the block has a note that explains how to repeat the run. With a seed, a second note lists the
    last 20 events.

    Args:
        seed: any integer. Decides the order of simultaneous events, and the faults.
        faults: probabilities of random faults; None: no random faults.
        fault_schedule: faults of given messages or times.
        choices: choices instead of the seed; see `explore`. After the last choice, the first possibility counts.
        segment_size: data bytes of topics that are opened without a size; 0: 1 MiB. A topic takes this memory during
            its first lap, as in shared memory.

    Attributes:
        clock: virtual time: `time`, `monotonic`, `sleep`, `now_ns`, and `patched` for code that uses `time`.
        sent_messages: all sent messages in order, including those of recordings.
    """

    def __init__(
        self,
        seed: int = 0,
        faults: Faults | None = None,
        fault_schedule: Sequence[Fault] = (),
        choices: Sequence[int] | None = None,
        segment_size: int = 0,
    ) -> None:
        self.seed = seed
        self._choice_sequence = ChoiceSequence(seed, choices)
        self._by_choices = choices is not None
        self._engine = SimulationEngine(self._choice_sequence, FaultInjector(faults or Faults(), fault_schedule, seed))
        self._engine.segment_size = segment_size
        self._node_names: list[str] = ["main", "play"]
        self._is_active = False

    def __repr__(self) -> str:
        return self.trace.simulation

    @property
    def clock(self) -> VirtualClock:
        """Virtual time of all nodes."""
        return self._engine.clock

    @property
    def sent_messages(self) -> list[SentMessage]:
        """Messages sent up to now; see `SentMessage`."""
        return self._engine.sent_messages

    @property
    def trace(self) -> Trace:
        """Events up to now; see `Trace`."""
        return self._engine.trace

    @property
    def decisions(self) -> list[tuple[int, int]]:
        """Pairs of choice and number of possibilities up to now. Empty if a seed decides."""
        return self._choice_sequence.decisions

    def sent_on(self, endpoint: str) -> list[bytes]:
        """Return the messages that were sent on one endpoint, oldest first."""
        return [message.data for message in self.sent_messages if message.endpoint == endpoint]

    # ---- coming and going ----

    def __enter__(self) -> Self:
        if self._is_active:
            raise StateError("the simulation was entered before; create another Simulation")
        self._is_active = True
        self._former_backend = backend.set_backend(fake)
        activate_bus(self._engine)
        self._former_watcher = watch_connects(self._engine.refuse_real_socket)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if current_bus() is not self._engine:
            raise StateError("another simulation was entered after this one and is still active; leave that one first")
        if error is not None:
            error.add_note(f"the same run again: {self!r}")
            if not self._by_choices and (events := str(self.trace.select_last(_NOTE_EVENTS_MAX))):
                error.add_note(f"last events:\n{events}")  # with choices, `explore` compares the events of two runs
        try:
            self._engine.close()
        finally:
            watch_connects(self._former_watcher)
            restore_previous_bus(self._engine)
            backend.set_backend(self._former_backend)

    # ---- nodes ----

    def on(self, endpoint: str, function: Callable[[Any], object], *, name: str | None = None) -> None:
        """Call a function once for each message of an endpoint, on arrival.

        Args:
            endpoint: endpoint to subscribe to, from now on. For vectors and boards, which must exist, the function gets
                changes.
            function: gets the message; for a vector `Changes`, for a board a dict of `Value` by key. The function may
                send, but must not wait. From an asynchronous function, `run` raises InvalidTypeError.
            name: name of the node; None: the name of the function.
        """
        self._engine.add_message_handler(endpoint, self._make_node_name(name, function), function)

    def add(self, function: Callable[..., Any], *args: Any, name: str | None = None) -> None:
        """Add a program as a node, and run it to its first wait.

        Args:
            function: a generator function that yields its waits, or any other function. Waits are a `SubSocket` (the
                generator gets its message, or None after the time-out), a `Poller` (the generator gets the ready
                sockets), or seconds. Other functions call ``receive``, ``poll`` or ``clock.sleep``. Such functions get
                a thread, and never run at the same time as another node.
            args: arguments of the function.
            name: name of the node; None: the name of the function.

        Raises:
            StateError: the simulation is not active.
            InvalidTypeError: the function is asynchronous, or returns a generator instead of being a generator
                function.
            Exception: exceptions of the function before its first wait pass through. Later exceptions leave `run`.
        """
        label = self._make_node_name(name, function)
        if inspect.isgeneratorfunction(function):
            self._engine.start_program(GeneratorNode(label, partial(function, *args), self.clock.time_ns))
        else:
            self._engine.start_program(BlockingNode(label, partial(function, *args)))

    def _make_node_name(self, name: str | None, function: Callable[..., Any]) -> str:
        """Return a unique name for a node."""
        if not self._is_active:
            raise StateError("the simulation is not active; enter it with `with Simulation() as sim:`")
        base_name = name or str(getattr(function, "__name__", type(function).__name__))
        used = sum(other == base_name or other.startswith(f"{base_name}-") for other in self._node_names)
        self._node_names.append(f"{base_name}-{used + 1}" if used else base_name)
        return self._node_names[-1]

    def play(self, recording: Iterable[PlaybackMessage | tuple[float, str, bytes]]) -> None:
        """Send recorded messages at their times, as the node "play".

        Args:
            recording: tuples (time, endpoint, data) in the order of time, or `PlaybackMessage` objects of
                `msgq.recording.playback_messages`. The time is a float in seconds or an int in nanoseconds. Messages of
                one time are sent together, and may arrive in any order. The data is the message of a work queue, a
                change of a vector (see `msgq.common.record_changes`), or the key, a zero byte and the value of a board.
                Vectors and boards must exist. `PlaybackMessage` also carries publishers, keys, priorities, and the
                options of endpoints to create. The recording is read as needed, so it may be long.

        Raises:
            InvalidValueError: a time is before the current time, or before the previous message. `run` raises this
                error, too.
        """
        self._engine.add_recording(_convert_to_ns(recording))

    def prepare(self, spec: EndpointSpec) -> None:
        """Create an endpoint as recorded, before playback, as the node "play".

        Raises:
            UnplayableError: the endpoint cannot be created.
        """
        self._engine.prepare_endpoint(spec)

    def run(self, until: float | Callable[[], object] | None = None) -> None:
        """Run the nodes.

        Args:
            until: seconds of virtual time: run up to this time, which is the current time afterwards. A function: run
                until the function returns True; it is called after each step. None: run until no event is left, because
                all nodes have ended or wait without limit. A node that wakes up again and again has no such end; use
                `run_until_idle`.

        Raises:
            DeadlockError: the function can never return True, because no event is left.
            Exception: exceptions of a node pass through, with a note that names the node.
        """
        if callable(until):
            if not self._engine.run_until(until, None):
                raise self._engine.make_deadlock_error()
        else:
            self._engine.run_until(lambda: False, None if until is None else round(until * NS_PER_S))

    def run_until_idle(self, idle_timeout: float = 10.0, max_runtime: float = 60.0) -> bool:
        """Run until the played messages and their effects are over. Programs may wake up again and again.

        The effects are over when no event is left, or when no message was sent for `idle_timeout`.

        Args:
            idle_timeout: seconds of virtual time without a message. The run ends then.
            max_runtime: seconds of virtual time after the last played message. The run ends then, even if programs
                still send.

        Returns:
            True if the effects were over before `max_runtime`.

        Raises:
            InvalidValueError: a time is negative.
            Exception: exceptions of a node pass through, with a note that names the node.
        """
        if not (idle_timeout >= 0 and max_runtime >= 0):
            raise InvalidValueError(
                f"idle_timeout={idle_timeout} s or max_runtime={max_runtime} s is negative; use 0 or more"
            )
        spans = (time if isinf(time) else round(time * NS_PER_S) for time in (idle_timeout, max_runtime))
        return self._engine.run_until_idle(*spans)


def _convert_to_ns(recording: Iterable[PlaybackMessage | tuple[float, str, bytes]]) -> Iterator[PlaybackInput]:
    for message in recording:
        if isinstance(message, PlaybackMessage):
            yield message
            continue
        time, endpoint, data = message
        yield round(time * NS_PER_S) if isinstance(time, float) else index(time), endpoint, data
