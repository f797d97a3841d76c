"""Nodes of a simulated bus: functions, generators, and blocking code. One node runs at a time."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgq.common.units import NS_PER_S
from msgq.errors import ConcurrentUseError, DeadlockError, InvalidTypeError, MsgqError
from msgq.impl.base.core import Poller, Waitable, make_wait_condition
from msgq.impl.fake.endpoint_state import Inbox

#: Target of a generator's wait: a message, any of several, or seconds.
WaitTarget = Waitable | Poller | float
WaitGenerator = Generator[WaitTarget, Any, None]


@dataclass(frozen=True, slots=True)
class NodeWait:
    """Wait of a node: its condition, and its end in virtual time; None: forever. `description` is a text about it."""

    is_over: Callable[[], bool]
    deadline_ns: int | None
    description: str


class SimulatedNode:
    """A node with a name and handles.

    This base class is for nodes that the simulation does not run (test code, recordings).

    Attributes:
        handles: handles that the node has opened.
        current_wait: current wait; None: the node does not wait, or has ended.
        can_block: a call of the node can wait.
    """

    can_block = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.current_wait: NodeWait | None = None
        self.handles: list[weakref.ref[Any]] = []

    def is_runnable(self, now_ns: int) -> bool:
        """Return True if the wait of the node is over."""
        wait = self.current_wait
        if wait is None:
            return False
        return (wait.deadline_ns is not None and wait.deadline_ns <= now_ns) or wait.is_over()

    def owns_current_thread(self) -> bool:
        """Return True if the current thread belongs to this node."""
        return False

    def block_until_over(self, wait: NodeWait) -> None:
        """Block until the wait is over. Only blocking code can do so."""
        reason = "a handler function must return, and a generator must yield the socket, poller or seconds"
        raise DeadlockError(f"node {self.name!r} cannot wait ({wait.description}): {reason}")

    def owns(self, handle: object) -> bool:
        """Return True if the node has opened the handle."""
        return any(reference() is handle for reference in self.handles)

    def abandon_handles(self) -> None:
        """End the handles as the death of a process does."""
        for handle in self._take_handles():
            handle._abandon_handle()

    def close_handles(self) -> None:
        """Close the handles that the node left open."""
        for handle in self._take_handles():
            handle.close()

    def _take_handles(self) -> list[Any]:
        handles = [handle for reference in self.handles if (handle := reference()) is not None]
        self.handles.clear()
        return handles


def refuse_unstarted_code(name: str, result: object) -> None:
    """Raise an error if a function returned code that nobody runs: a coroutine or a generator.

    Raises:
        InvalidTypeError: the result is a coroutine or generator.
    """
    if result is None:
        return
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()  # otherwise, Python warns of a coroutine that was never awaited
    elif not inspect.isasyncgen(result):
        return
    text = f"function of node {name!r} returned a {type(result).__name__}, which the simulation does not run"
    raise InvalidTypeError(f"{text}; give Simulation.add a generator function, or a function without async")


class FunctionNode(SimulatedNode):
    """A function that is called for each message."""

    _subscriber: Any

    def __init__(self, name: str, function: Callable[[bytes], object]) -> None:
        super().__init__(name)
        self._function = function

    def set_subscriber(self, subscriber: Any) -> None:
        """Set the subscriber whose messages the function gets."""
        self._subscriber = subscriber

    def get_inbox(self) -> Inbox:
        """Return the inbox of the subscriber."""
        inbox: Inbox = self._subscriber._inbox
        return inbox

    def notice_laps(self) -> None:
        """Count what was overwritten, as a subscriber that waits all the time does."""
        self._subscriber._would_receive_return()

    def handle_delivery(self) -> None:
        """Call the function with the delivered message."""
        message = self._subscriber._receive_now()
        if message is not None:
            refuse_unstarted_code(self.name, self._function(message))


class SimulatedProgram(SimulatedNode):
    """A program as a node: it starts, runs from wait to wait, and ends."""

    def run_to_first_wait(self) -> None:
        """Run from the start to the first wait."""
        raise NotImplementedError

    def run_to_next_wait(self) -> None:
        """Run from a finished wait to the next wait."""
        raise NotImplementedError

    def end_program(self) -> None:
        """End the program at its wait. Its ``finally`` blocks run, and must not wait."""
        raise NotImplementedError

    def end_killed_program(self) -> None:
        """End a program whose handles were abandoned. Its ``finally`` blocks run, and find the handles closed."""
        with suppress(MsgqError):
            self.end_program()

    def halt_for_restart(self, wait: NodeWait) -> None:
        """Stop the program for a restart. Only blocking code can stop here; a generator continues to its next wait."""


class GeneratorNode(SimulatedProgram):
    """A generator that yields its waits."""

    def __init__(self, name: str, create: Callable[[], WaitGenerator], now_ns: Callable[[], int]) -> None:
        super().__init__(name)
        self._create_generator, self._now_ns = create, now_ns
        self._generator: WaitGenerator | None = None
        self._wait_target: WaitTarget = 0.0

    def run_to_first_wait(self) -> None:
        """See `SimulatedProgram`."""
        self._generator = self._create_generator()
        self._advance_generator(partial(self._generator.send, None))

    def run_to_next_wait(self) -> None:
        """See `SimulatedProgram`."""
        self.current_wait = None
        if self._generator is None:
            return
        try:
            advance = partial(self._generator.send, self._receive_answer())
        except MsgqError as error:  # the socket was closed, say: the generator may handle it
            advance = partial(self._generator.throw, error)
        self._advance_generator(advance)

    def end_program(self) -> None:
        """See `SimulatedProgram`."""
        self.current_wait = None
        if self._generator is not None:
            self._generator.close()

    def _receive_answer(self) -> Any:
        if isinstance(self._wait_target, Waitable):
            return self._wait_target._receive_now()
        return self._wait_target.poll(0) if isinstance(self._wait_target, Poller) else None

    def _advance_generator(self, advance: Callable[[], WaitTarget]) -> None:
        try:
            self._wait_target = advance()
        except StopIteration:
            return
        if isinstance(self._wait_target, (Waitable, Poller)):
            ready, timeout_ns, label = _describe_wait(self._wait_target)
        elif isinstance(self._wait_target, (int, float)) and self._wait_target >= 0:
            ready, timeout_ns, label = (lambda: False), round(self._wait_target * NS_PER_S), "its time"
        else:
            text = (
                f"node {self.name!r} yielded {self._wait_target!r}; "
                "yield a subscriber, a Poller, or seconds (0 or more)"
            )
            raise TypeError(text)
        self.current_wait = NodeWait(ready, None if timeout_ns is None else self._now_ns() + timeout_ns, label)


def _describe_wait(target: Waitable | Poller) -> tuple[Callable[[], bool], int | None, str]:
    """Return the condition, the timeout in ns and the name of a wait for messages."""
    if isinstance(target, Waitable):
        condition, name = make_wait_condition((target,))
        return condition, target._default_timeout_ns(), name
    condition, name = make_wait_condition(target._registered_sockets())
    return condition, None, name


class _NodeEndedError(BaseException):
    """Raised in the wait of a blocking node, to end the node."""


class BlockingNode(SimulatedProgram):
    """Blocking code in its own thread. The thread runs only while the simulation hands control to it."""

    can_block = True

    def __init__(self, name: str, function: Callable[[], object]) -> None:
        super().__init__(name)
        self._function = function

    def run_to_first_wait(self) -> None:
        """See `SimulatedProgram`."""
        self._is_ending = False
        self._error: BaseException | None = None
        self._node_baton, self._engine_baton = threading.Lock(), threading.Lock()  # locked: another thread runs
        self._node_baton.acquire()
        self._engine_baton.acquire()
        self._thread = threading.Thread(target=self._run_function, name=f"msgq node {self.name}", daemon=True)
        self._thread.start()
        self._hand_over_baton()

    def run_to_next_wait(self) -> None:
        """See `SimulatedProgram`."""
        self.current_wait = None
        self._hand_over_baton()

    def end_program(self) -> None:
        """See `SimulatedProgram`."""
        if self.current_wait is not None:
            self._is_ending = True
            self.run_to_next_wait()
            self._thread.join()

    def _hand_over_baton(self) -> None:
        """Let the node run until it waits or ends."""
        self._node_baton.release()
        try:
            self._engine_baton.acquire()
        except BaseException:  # a signal handler raised: one node runs at a time, so this one first takes its turn
            self._engine_baton.acquire()
            raise
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run_function(self) -> None:
        self._node_baton.acquire()
        try:
            refuse_unstarted_code(self.name, self._function())
        except _NodeEndedError:
            pass
        except BaseException as error:
            self._error = error
        self._engine_baton.release()

    def halt_for_restart(self, wait: NodeWait) -> None:
        """See `SimulatedProgram`."""
        self.block_until_over(wait)

    def owns_current_thread(self) -> bool:
        """See `SimulatedNode`."""
        return threading.current_thread() is self._thread

    def block_until_over(self, wait: NodeWait) -> None:
        """See `SimulatedNode`."""
        if not self.owns_current_thread():
            text = f"{wait.description}: this thread is not a node of the simulation; start it with Simulation.add"
            raise ConcurrentUseError(text)
        if not self._is_ending:
            self.current_wait = wait
            self._engine_baton.release()
            self._node_baton.acquire()
        if self._is_ending:
            raise _NodeEndedError
