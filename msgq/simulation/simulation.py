"""The face: several nodes on one bus, in virtual time, in an order that a seed decides."""

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
from msgq.impl.fake.bus import activate_bus, restore_previous_bus
from msgq.impl.fake.clock import VirtualClock
from msgq.kinds.playback import EndpointSpec, PlaybackMessage
from msgq.kinds.simulation import SentMessage
from msgq.simulation.choices import ChoiceSequence
from msgq.simulation.engine import PlaybackInput, SimulationEngine
from msgq.simulation.faults import Fault, FaultInjector, Faults
from msgq.simulation.nodes import BlockingNode, GeneratorNode


class Simulation:
    """Several nodes on one bus inside this process: ``with Simulation(seed=7) as sim: ...``.

    Inside the block `msgq` makes its sockets (``msgq.pub_sock``, ``msgq.SubSocket`` and so on) on this simulation's
    bus, whatever MSGQ_BACKEND says. A class imported by its name before stays what it was; a node (the code in the
    block included) that connects a socket of the ring or of ZMQ gets `StateError`. No time passes but virtual time, and
    everything that happens depends only on the arguments here and on what the nodes do.

    One node runs at any time. The code in the block is the node "main": when it waits (in `run`, ``receive``,
    ``poll``, ``clock.sleep``) the others go on. At the end of the block all nodes are ended and all sockets closed;
    an exception that leaves it says how to have the same run again.

    Parameters
    ----------
    seed : decides the order of what happens at the same time, and the faults; any integer.
    faults : what goes wrong by chance; None: nothing.
    fault_schedule : faults that occur at given messages or times.
    choices : decide the order by these instead of the seed, and take the first possibility when they are used up; see
        `explore`.

    Attributes
    ----------
    clock : the virtual time: `time`, `monotonic`, `sleep`, `now_ns`, and `patched` for code that uses `time`.
    sent : all that was sent, in the order of sending, recordings included.
    """

    def __init__(
        self,
        seed: int = 0,
        faults: Faults | None = None,
        fault_schedule: Sequence[Fault] = (),
        choices: Sequence[int] | None = None,
    ) -> None:
        self.seed = seed
        self._choice_sequence = ChoiceSequence(seed, choices)
        self._by_choices = choices is not None
        self._engine = SimulationEngine(self._choice_sequence, FaultInjector(faults or Faults(), fault_schedule, seed))
        self._node_names: list[str] = ["main", "play"]
        self._is_active = False

    def __repr__(self) -> str:
        if self._by_choices:
            return f"Simulation(choices={[choice for choice, _ in self.decisions]})"
        return f"Simulation(seed={self.seed})"

    @property
    def clock(self) -> VirtualClock:
        """The virtual time of all nodes."""
        return self._engine.clock

    @property
    def sent_messages(self) -> list[SentMessage]:
        """All that was sent so far; see `SentMessage`."""
        return self._engine.sent_messages

    @property
    def decisions(self) -> list[tuple[int, int]]:
        """What was chosen so far, and of how many, when `choices` decide; with a seed, nothing is kept."""
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
        if error is not None:
            error.add_note(f"the same run again: {self!r}")
        try:
            self._engine.close()
        finally:
            watch_connects(self._former_watcher)
            restore_previous_bus(self._engine)
            backend.set_backend(self._former_backend)

    # ---- nodes ----

    def on(self, endpoint: str, function: Callable[[Any], object], *, name: str | None = None) -> None:
        """Call a function once for each message of an endpoint, as it arrives.

        Parameters
        ----------
        endpoint : subscribed from now on. Of vectors and boards, which must be there, what changed.
        function : takes the message; of a vector `Changes`, of a board a dict of `Value` by key. It may send, but not
            wait.
        name : of the node; None takes the function's.
        """
        self._engine.add_message_handler(endpoint, self._make_node_name(name, function), function)

    def add(self, function: Callable[..., Any], *args: Any, name: str | None = None) -> None:
        """Add a program as a node, and run it to its first wait.

        Parameters
        ----------
        function : a generator function, which yields what it waits for: a `SubSocket` (and is sent its message, or None
            when its time-out is over), a `Poller` (and is sent the sockets that are ready), or seconds. Or any other
            function, which just calls ``receive``, ``poll``, ``clock.sleep``: it gets a thread, but never runs beside
            another node.
        args : what it is called with.
        name : of the node; None takes the function's.

        Raises
        ------
        StateError : the simulation is not active.
        What the function raises before its first wait; what it raises later comes out of `run`.
        """
        label = self._make_node_name(name, function)
        if inspect.isgeneratorfunction(function):
            self._engine.start_program(GeneratorNode(label, partial(function, *args), self.clock.time_ns))
        else:
            self._engine.start_program(BlockingNode(label, partial(function, *args)))

    def _make_node_name(self, name: str | None, function: Callable[..., Any]) -> str:
        """Return a name that no other node has."""
        if not self._is_active:
            raise StateError("the simulation is not active; enter it with `with Simulation() as sim:`")
        wanted = name or str(getattr(function, "__name__", type(function).__name__))
        used = sum(other == wanted or other.startswith(f"{wanted}-") for other in self._node_names)
        self._node_names.append(f"{wanted}-{used + 1}" if used else wanted)
        return self._node_names[-1]

    def play(self, recording: Iterable[PlaybackMessage | tuple[float, str, bytes]]) -> None:
        """Send recorded messages at their times, as the node "play".

        Parameters
        ----------
        recording : (time, endpoint, data), by time; the time is a float in seconds or an int in nanoseconds. Read as
            needed, so it may be long. Messages of the same time are sent together, and may arrive in any order. Data of
            a work queue are the message, of a vector a change as `msgq.common.record_changes` has it, of a board
            the key, a zero byte, and the value; the vector or board is there by then. Or `PlaybackMessage`, as
            `msgq.recording.playback_messages` gives them, with publishers, keys and priorities, and the options of
            endpoints that do not exist yet.

        Raises
        ------
        InvalidValueError : a time before the present, or before the one that precedes it; also out of `run`.
        """
        self._engine.add_recording(_convert_to_ns(recording))

    def prepare(self, wanted: EndpointSpec) -> None:
        """Make an endpoint as it was recorded, before something is played to it, as the node "play".

        Raises
        ------
        UnplayableError : it cannot be made.
        """
        self._engine.prepare_endpoint(wanted)

    def run(self, until: float | Callable[[], object] | None = None) -> None:
        """Let things happen.

        Parameters
        ----------
        until : seconds of virtual time: everything up to then, which is the time afterwards. A function: until it
            returns something true; it is asked after each step. None: until nothing can happen any more, because all
            nodes have ended or wait for ever (one that wakes up again and again has no such end: see `run_until_idle`).

        Raises
        ------
        DeadlockError : the function can never become true, as nothing can happen any more.
        What a node raises, with a note that names the node.
        """
        if callable(until):
            if not self._engine.run_until(until, None):
                raise self._engine.make_deadlock_error()
        else:
            self._engine.run_until(lambda: False, None if until is None else round(until * NS_PER_S))

    def run_until_idle(self, idle_timeout: float = 10.0, max_runtime: float = 60.0) -> bool:
        """Let things happen until what is played is over, and what it set off; programs may wait again and again.

        That is when all is played, and either nothing can happen any more, or nothing was sent for some time.

        Parameters
        ----------
        idle_timeout : seconds of virtual time without a message. The run ends then.
        max_runtime : seconds of virtual time after the last played message. The run ends then even if programs still
            send.

        Returns
        -------
        Whether it was over by then.

        Raises
        ------
        InvalidValueError : a time is below 0.
        What a node raises, with a note that names the node.
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
