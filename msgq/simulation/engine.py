"""Bus and scheduler of a simulation: possible events, the choice between them, and the time.

All events that are possible at one time form one choice: the next message of each subscriber, and each node whose wait
has ended. If no event is possible, the time advances to the next possible event. Played messages are sent first.
"""

from __future__ import annotations

import heapq
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import Any

from msgq.common import settings
from msgq.common.message_source import MessageSource
from msgq.common.units import NS_PER_S
from msgq.errors import ConcurrentUseError, DeadlockError, InvalidValueError, StateError
from msgq.impl.fake.endpoint_state import (
    BusMessage,
    EndpointState,
    Inbox,
    MessageId,
    PendingDelivery,
    SimulationBus,
)
from msgq.kinds import kind_of
from msgq.kinds.opening import open_writer
from msgq.kinds.playback import EndpointSpec, EndpointWriter, PlaybackMessage, PlaybackTarget, UnplayableError
from msgq.kinds.simulation import FaultKind, KindSimulation, SentMessage
from msgq.simulation.choices import ChoiceSequence
from msgq.simulation.faults import FaultInjector
from msgq.simulation.nodes import FunctionNode, GeneratorNode, NodeWait, SimulatedNode, SimulatedProgram
from msgq.simulation.trace import Trace

#: A message of a recording, or nanoseconds, endpoint, bytes.
PlaybackInput = PlaybackMessage | tuple[int, str, bytes]


class SimulationEngine(SimulationBus):
    """Bus and scheduler of a simulation; see the module."""

    def __init__(self, order: ChoiceSequence, injector: FaultInjector) -> None:
        super().__init__()
        self.clock.now_ns = 0  # the times of inputs, faults and limits count from the start of the simulation
        self.sent_messages: list[SentMessage] = []
        self._kind_simulations: dict[str, KindSimulation] = {}  # simulations by endpoint
        self.main_node = self._current_node = SimulatedNode("main")
        self._main_thread_id = threading.get_ident()
        self._choice_sequence, self._fault_injector = order, injector
        self.trace = Trace(order)
        self._programs: list[SimulatedProgram] = []
        self._handlers: dict[Inbox, FunctionNode] = {}
        self._player_node = SimulatedNode("play")
        self._playback_writers: dict[str, EndpointWriter] = {}
        self._shared_writer_state: dict[str, Any] = {}
        self._playback_inputs: list[
            tuple[int, int, PlaybackInput, Iterator[PlaybackInput]]
        ] = []  # a heap: time, number of the recording
        self._recordings = 0
        self._busy_inboxes: list[Inbox] = []  # have something coming; in the order in which it was sent
        self._skipped_inboxes: list[Inbox] = []  # see _deliver_next
        self._restarting_programs: list[SimulatedProgram] = []
        self._is_ended = False

    # ---- handles ----

    def on_opened(self, handle: Any) -> None:
        """Store the node that opened the handle."""
        self._current_node.handles.append(weakref.ref(handle))
        handle._enter_simulation(self)

    def on_closed(self, handle: Any) -> None:
        """Let the handle leave the simulation."""
        handle._leave_simulation()

    def on_published(self, handle: Any) -> None:
        """Take over the messages that a publisher has sent."""
        for message in handle._read_published():
            handle._state.publish(handle, message)

    def run_notification(self, handle: Any, call: Callable[[], object]) -> None:
        """Call the function in the name of the handle's node. Does nothing after the end of the simulation."""
        if not self._is_ended:
            self._run_as_node(next((node for node in self._programs if node.owns(handle)), self.main_node), call)

    @property
    def node_name(self) -> str:
        """See `SimulationBus`."""
        return self._current_node.name

    def can_wait(self) -> bool:
        """See `SimulationBus`."""
        return self._current_node is self.main_node or self._current_node.can_block

    def check_descriptor_allowed(self, endpoint: str) -> None:
        """Refuse waits by asyncio or select. Such waits take real time, in which no other node runs."""
        text = (
            f"node {self._current_node.name!r} waits for the socket by asyncio or by its descriptor. "
            "This wait takes real time, so it would never"
        )
        raise DeadlockError(f"{text} end; call receive or poll, or write the node as a generator", endpoint)

    def refuse_real_socket(self, endpoint: str) -> None:
        """Refuse sockets of other buses in a node. Other threads of the process may connect them."""
        if threading.get_ident() != self._main_thread_id and not self._current_node.owns_current_thread():
            return
        text = (
            f"node {self._current_node.name!r} connects a socket that does not belong to the simulation and waits in "
            "real time"
        )
        advice = "write msgq.SubSocket instead of a name imported earlier, or start with MSGQ_BACKEND=fake"
        raise StateError(f"{text}; {advice}. Connect real sockets before the simulation starts", endpoint)

    def add_message_handler(self, endpoint: str, name: str, function: Callable[[Any], object]) -> None:
        """Call a function for the messages of this endpoint."""
        bare_name, simulated = kind_of(endpoint).bare_name(endpoint), self._find_kind_simulation(endpoint)
        subscribe, follow = simulated.open_subscriber, simulated.follow_endpoint
        if subscribe is None:
            if follow is not None:
                self.start_program(GeneratorNode(name, partial(follow, bare_name, function), self.clock.time_ns))
            return
        node = FunctionNode(name, function)
        self._run_as_node(node, lambda: node.set_subscriber(subscribe(bare_name, name)))
        self._handlers[node.get_inbox()] = node

    def _find_kind_simulation(self, endpoint: str) -> KindSimulation:
        """Return the simulation part of an endpoint's kind. The result is cached."""
        kind_simulation = self._kind_simulations.get(endpoint)
        if kind_simulation is None:
            kind_simulation = self._kind_simulations[endpoint] = kind_of(endpoint).simulation
        return kind_simulation

    def start_program(self, program: SimulatedProgram) -> None:
        """Start a program, and run it to its first wait."""
        self._programs.append(program)
        self._run_as_node(program, program.run_to_first_wait)

    def add_recording(self, recording: Iterator[PlaybackInput]) -> None:
        """Send the messages of a recording at their times. The recording is read as needed."""
        self._recordings += 1
        self._take_next_playback(recording, self._recordings, self.clock.now_ns)

    def prepare_endpoint(self, spec: EndpointSpec) -> None:
        """Create an endpoint for a recording."""
        self._run_as_node(self._player_node, partial(self._open_writer, spec))

    def _open_writer(self, spec: EndpointSpec) -> None:
        target = PlaybackTarget("fake", settings.get_prefix(), shared=self._shared_writer_state)
        self._playback_writers[spec.endpoint] = open_writer(spec, target)

    def close(self) -> None:
        """End all programs, and close all sockets."""
        self._is_ended = True
        with ExitStack() as stack:  # does all of it, whatever their ends raise
            for node in (*self._programs, *self._handlers.values(), self._player_node, self.main_node):
                stack.callback(node.close_handles)
            for program in reversed(self._programs):
                stack.callback(self._run_as_node, program, program.end_program)
            self.end()

    # ---- messages ----

    def deliver_message(self, state: EndpointState[Any], message: BusMessage) -> None:
        """See `SimulationBus`. Faults decide what becomes of the message."""
        message_id = self._record_sent(state, message)
        if not (state.is_shared or self._fault_injector.has_faults):  # the steps below would do nothing else
            for inbox in state.inboxes:
                self._apply_faults({}, inbox, message, message_id)
            return
        possible = self._find_kind_simulation(state.endpoint).fault_kinds
        if state.restarts_consumer:
            possible = tuple(kind for kind in possible if kind != "restart")
        number, now_ns = state.published_count, self.clock.now_ns
        scheduled = self._fault_injector.find_scheduled_faults(state.endpoint, number, now_ns, possible)
        for inbox in [state.find_inbox(message)] if state.is_shared else state.inboxes:
            random = {} if state.reports_queue_events else self._fault_injector.choose_random_faults(restart=False)
            faults = {kind: delay_ns for kind, delay_ns in {**random, **scheduled}.items() if kind in possible}
            self._record_faults(faults, inbox, message_id)
            if state.is_shared and faults.keys() <= {"restart"} and not inbox.undelivered:
                self._let_arrive(inbox, message, message_id)
            else:
                self._apply_faults(faults, inbox, message, message_id)
        if not state.restarts_consumer:
            self._restart_sender(state, scheduled)

    def _record_sent(self, state: EndpointState[Any], message: BusMessage) -> MessageId:
        """List a sent message, and return its number in the trace."""
        node, list_messages = self._current_node.name, self._find_kind_simulation(state.endpoint).list_sent_messages
        messages = [*list_messages(self.clock.now_ns, node, state, message)]
        if not state.reports_queue_events:  # events repeat sent messages, and contain ids of this process
            self.sent_messages += messages
        message_id = state.endpoint, state.published_count
        self.trace.add_message(message_id, messages)
        if not (state.inboxes or state.is_shared):
            self.trace.add_event(self.clock.now_ns, "unheard", node, message_id)
        return message_id

    def _record_faults(self, faults: Collection[FaultKind], inbox: Inbox, message_id: MessageId) -> None:
        for kind in faults:
            if kind != "restart":  # recorded when the node restarts
                self.trace.add_event(self.clock.now_ns, kind, inbox.receiver, message_id)

    def _let_arrive(self, inbox: Inbox, message: BusMessage, message_id: MessageId) -> None:
        self.trace.add_event(self.clock.now_ns, "arrive", inbox.receiver, message_id)
        inbox.deliver(message)

    def _apply_faults(
        self, faults: dict[FaultKind, int], inbox: Inbox, message: BusMessage, message_id: MessageId
    ) -> None:
        """Drop the message, or send it on its way. A lap then overwrites it."""
        if "drop" in faults:
            inbox.drop_message(message)
        else:
            due_ns = self.clock.now_ns + faults.get("delay", 0)
            delivery = PendingDelivery(due_ns, "reorder" in faults, message, message_id)
            inbox.add_undelivered(message)
            inbox.undelivered.extend([delivery] * (2 if "duplicate" in faults else 1))
            if inbox not in self._busy_inboxes:
                self._busy_inboxes.append(inbox)
        if "lap" in faults:
            inbox.overwrite_unread()

    def on_message_taken(self, state: EndpointState[Any], number: int) -> None:
        """Restart the consumer of a queue's message if a fault requires it. See `SimulationBus`."""
        self.trace.add_event(self.clock.now_ns, "take", self._current_node.name, (state.endpoint, number))
        scheduled = self._fault_injector.find_scheduled_faults(state.endpoint, number, self.clock.now_ns, ("restart",))
        if not scheduled and not self._fault_injector.choose_random_faults(restart=True):
            return
        taker = self._current_node
        if not isinstance(taker, SimulatedProgram):
            if scheduled:
                text = (
                    f"node {taker.name!r} receives the message and cannot be restarted; "
                    "only nodes added with Simulation.add can"
                )
                raise InvalidValueError(text, state.endpoint)
            return
        if taker not in self._restarting_programs:
            self._restarting_programs.append(taker)
        taker.halt_for_restart(NodeWait(lambda: False, None, "its restart"))

    def _restart_sender(self, state: EndpointState[Any], scheduled: Collection[FaultKind]) -> None:
        """Restart the sender of the newest message if a fault requires it."""
        must = "restart" in scheduled
        if not must and (state.reports_queue_events or not self._fault_injector.choose_random_faults(restart=True)):
            return
        sender = state.last_sender
        owners = [program for program in self._programs if program.owns(sender)]
        if must and not owners:
            name = self._current_node.name
            text = (
                f"node {name!r} publishes the message and cannot be restarted; only nodes added with Simulation.add can"
            )
            raise InvalidValueError(text, state.endpoint)
        self._restarting_programs += [owner for owner in owners if owner not in self._restarting_programs]

    def _deliver_next(self, inbox: Inbox) -> None:
        """Deliver the next message.

        Two consecutive deliveries to different queues give the same result in either order, because no node runs in
        between. Therefore, after one of them, earlier inboxes in the list are not chosen. Another run chooses that
        order.
        """
        handler = self._handlers.get(inbox)
        self._skipped_inboxes = [] if handler else self._busy_inboxes[: self._busy_inboxes.index(inbox)]
        delivery = inbox.undelivered.popleft()
        if handler:
            handler.notice_laps()
        self._let_arrive(inbox, delivery.message, delivery.message_id)
        if handler:
            self._run_as_node(handler, handler.handle_delivery)

    # ---- the scheduler ----

    def wait_until(self, ready: Callable[[], bool], timeout_ns: int | None, subject: str) -> None:
        """Run other nodes until `ready` returns True, or until the time-out. See `InProcessBus.wait_until`."""
        deadline_ns = None if timeout_ns is None else self.clock.now_ns + timeout_ns
        wait = NodeWait(ready, deadline_ns, subject)
        if self._current_node is not self.main_node:
            self._current_node.block_until_over(wait)
        elif not self.run_until(ready, deadline_ns) and deadline_ns is None:
            self.main_node.current_wait = wait
            raise self.make_deadlock_error()

    def make_deadlock_error(self) -> DeadlockError:
        """Return the error that lists the waiting nodes and their reasons."""
        waits = [
            (node.name, node.current_wait)
            for node in (self.main_node, *self._programs)
            if node.current_wait is not None
        ]
        self.main_node.current_wait = None
        waiters = "; ".join(f"{name} waits for {wait.description}" for name, wait in waits) or "no node waits"
        return DeadlockError(
            f"deadlock at {self.clock.time():.9g} s of virtual time: no event can end a wait: {waiters}"
        )

    def run_until(self, until: Callable[[], object], deadline_ns: int | None) -> bool:
        """Run until `until` returns True. Return False if no event is left, or none before the deadline."""
        if self._current_node is not self.main_node:
            raise DeadlockError(
                f"node {self._current_node.name!r} cannot run the simulation from inside; "
                "call run from the main program"
            )
        if threading.get_ident() != self._main_thread_id:
            raise ConcurrentUseError("this thread is not a node of the simulation; start it with Simulation.add")
        while not until():
            if (
                self._restart_next_program()
                or self.clock.run_next_alarm(self.clock.now_ns)
                or self._send_due_playback()
            ):
                continue
            actions = self._find_possible_actions()
            if actions:
                self._run_action(actions[self._choice_sequence.choose_index(len(actions))])
                continue
            times = self._iter_next_times()
            if not times or (deadline_ns is not None and min(times) > deadline_ns):
                if deadline_ns is not None:
                    self.clock.now_ns = max(self.clock.now_ns, deadline_ns)
                return False
            self.clock.now_ns = min(times)
            self._skipped_inboxes = []
        return True

    def run_until_idle(self, idle_timeout_ns: float, max_runtime_ns: float) -> bool:
        """Run until the recordings and their effects are over. Return False if `max_runtime_ns` passed first."""
        self.run_until(lambda: not self._playback_inputs, None)
        last_ns = self.clock.now_ns + max_runtime_ns
        while True:
            count, quiet_ns = len(self.sent_messages), self.clock.now_ns + idle_timeout_ns
            end_ns = min(quiet_ns, last_ns)
            if not self.run_until(partial(self._has_sent_more_than, count), None if end_ns == inf else int(end_ns)):
                return quiet_ns <= last_ns or not self._iter_next_times()

    def _has_sent_more_than(self, count: int) -> bool:
        return len(self.sent_messages) > count

    def _find_possible_actions(self) -> list[SimulatedProgram | Inbox]:
        """Return the actions that are possible now, in an order that depends only on sent messages and added nodes."""
        now_ns = self.clock.now_ns
        self._busy_inboxes = [inbox for inbox in self._busy_inboxes if inbox.undelivered]
        due = [inbox for inbox in self._busy_inboxes if inbox.undelivered[0].due_ns <= now_ns]
        first = [inbox for inbox in due if not inbox.undelivered[0].runs_last]
        actions: list[SimulatedProgram | Inbox] = [node for node in self._programs if node.is_runnable(now_ns)]
        skipped = self._skipped_inboxes
        actions += [inbox for inbox in first if inbox not in skipped] if skipped else first
        return actions or [*(first or due)]

    def _iter_next_times(self) -> list[int]:
        """Return all times at which an action becomes possible."""
        times = [inbox.undelivered[0].due_ns for inbox in self._busy_inboxes]
        times += [
            program.current_wait.deadline_ns
            for program in self._programs
            if program.current_wait is not None and program.current_wait.deadline_ns is not None
        ]
        times += [time_ns for time_ns, _ in self.clock.alarms.values()]
        return times + [time_ns for time_ns, *_ in self._playback_inputs[:1]]

    def _run_action(self, action: SimulatedProgram | Inbox) -> None:
        if isinstance(action, Inbox):
            self._deliver_next(action)
        else:
            self._skipped_inboxes = []
            self.trace.add_event(self.clock.now_ns, "run", action.name)
            self._run_as_node(action, action.run_to_next_wait)

    def _restart_next_program(self) -> bool:
        """Restart a program that a fault affects. Return False if no program is affected."""
        if not self._restarting_programs:
            return False
        program = self._restarting_programs.pop(0)
        self.trace.add_event(self.clock.now_ns, "restart", program.name)
        self._skipped_inboxes = []
        program.abandon_handles()
        self._run_as_node(program, program.end_killed_program)
        self._run_as_node(program, program.run_to_first_wait)
        return True

    def _run_as_node(self, node: SimulatedNode, action: Callable[[], object]) -> None:
        """Run an action in the name of a node."""
        before, self._current_node = self._current_node, node
        try:
            action()
        except BaseException as error:
            error.add_note(f"in node {node.name!r} at {self.clock.time():.9g} s")
            raise
        finally:
            self._current_node = before

    # ---- recordings ----

    def _take_next_playback(self, recording: Iterator[PlaybackInput], number: int, not_before_ns: int) -> None:
        """Take the next message of a recording."""
        message = next(recording, None)
        if message is None:
            return
        if message[0] < not_before_ns:
            text = (
                f"a recorded message at {message[0] / NS_PER_S:.9g} s follows one at {not_before_ns / NS_PER_S:.9g} s"
            )
            raise InvalidValueError(f"{text}; sort the messages by time", message[1])
        heapq.heappush(self._playback_inputs, (message[0], number, message, recording))

    def _send_due_playback(self) -> bool:
        """Send the next due message. Return False if none is due."""
        if not self._playback_inputs or self._playback_inputs[0][0] > self.clock.now_ns:
            return False
        time_ns, number, message, recording = heapq.heappop(self._playback_inputs)
        self._skipped_inboxes = []
        self._run_as_node(self._player_node, partial(self._send_playback_message, message))
        self._take_next_playback(recording, number, time_ns)
        return True

    def _encode_playback(self, time_ns: int, endpoint: str, data: bytes) -> PlaybackMessage:
        message = PlaybackMessage(time_ns, endpoint, data, source=MessageSource(kind_of(endpoint).name))
        return self._find_kind_simulation(endpoint).encode_playback(message)

    def _send_playback_message(self, item: PlaybackInput) -> None:
        message = item if isinstance(item, PlaybackMessage) else self._encode_playback(*item)
        endpoint, source = message.endpoint, message.source
        try:
            if endpoint not in self._playback_writers:
                tracked = message.age_ns is not None
                keys = (source.key,) if source.key else ()
                options = source.parse_options()
                spec = endpoint, source.kind, message.schema, options, 0, tracked
                self._open_writer(EndpointSpec(*spec, keys=keys, sample_message=message.data))
            self._playback_writers[endpoint].send(message)
        except UnplayableError as error:
            raise InvalidValueError(f"recorded message cannot be played: {error}", endpoint) from None
