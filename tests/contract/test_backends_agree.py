"""The same random program on every backend: after each step that receives, all subscribers saw the same.

A program keeps to what all backends promise. A topic has one publisher at a time, which waits for its subscribers
before it sends; nobody is too slow (a whole program sends fewer messages than ZMQ's queues hold); and what was sent
has arrived before anybody looks. Left out is what a subscriber missed: ZMQ does not know it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from msgq.errors import MessageTooLargeError, WaitTimeoutError
from tests.contract.conftest import BACKENDS, Backend
from tests.support import LONGER, wait_until

STEPS = 40
MANY = 20  # messages at most by one step: 800 by a program, of the 1000 that fit into a queue
WAIT_MS = 1  # arrived messages need no wait

TOPICS = st.sampled_from(["left", "right"])
SIZES = st.sampled_from([0, 1, 8, 100, 5000])

_programs = itertools.count()


class Subscriber:
    """One subscriber on each backend."""

    def __init__(self, topic: str, sockets: dict[str, Any]) -> None:
        self.topic, self.sockets = topic, sockets

    def __repr__(self) -> str:
        return f"<subscriber of {self.topic}>"


class Program(RuleBasedStateMachine):
    """A random program. Each rule is a step, done on all backends before the next."""

    subscribers: Bundle[Subscriber] = Bundle("subscribers")

    def __init__(self) -> None:
        super().__init__()
        self._number = next(_programs)  # topics of its own: they outlive their sockets on the ring
        self._backends = [Backend(name) for name in BACKENDS]
        self._publishers: dict[str, dict[str, Any]] = {}
        self._attached: list[Subscriber] = []
        self._sent = 0
        self._settled = True

    def teardown(self) -> None:
        for backend in self._backends:
            backend.close()

    # ---- coming and going ----

    @initialize(conflate=st.booleans(), target=subscribers)
    def begin(self, conflate: bool) -> Subscriber:
        """Have something to look at from the start; programs without would be many."""
        self.publish("left")
        made = self.subscribe("left", conflate)
        assert isinstance(made, Subscriber)
        return made

    @rule(topic=TOPICS)
    def publish(self, topic: str) -> None:
        if topic not in self._publishers:
            self._publishers[topic] = self._on_each(lambda backend: backend.pub(self._endpoint(topic)))
            self._await_subscribers(topic)

    @precondition(lambda self: self._publishers)
    @rule(data=st.data())
    def stop_publishing(self, data: st.DataObject) -> None:
        publisher = self._publishers.pop(self._some_published(data))
        self._settle()
        self._on_each(lambda backend: publisher[backend.name].close())

    @precondition(lambda self: self._publishers)
    @rule(data=st.data())
    def restart_publisher(self, data: st.DataObject) -> None:
        topic = self._some_published(data)
        publisher = self._publishers[topic]
        self._settle()
        self._on_each(lambda backend: publisher[backend.name].close())
        self._on_each(lambda backend: publisher[backend.name].connect(backend.context, self._endpoint(topic)))
        self._await_subscribers(topic)

    @rule(target=subscribers, topic=TOPICS, conflate=st.booleans())
    def subscribe(self, topic: str, conflate: bool) -> Subscriber:
        endpoint = self._endpoint(topic)
        sockets = self._on_each(lambda backend: backend.sub(endpoint, timeout=WAIT_MS, conflate=conflate))
        self._attached.append(subscriber := Subscriber(topic, sockets))
        self._await_subscribers(topic)
        return subscriber

    @rule(subscriber=consumes(subscribers))
    def leave(self, subscriber: Subscriber) -> None:
        self._attached.remove(subscriber)
        self._on_each(lambda backend: subscriber.sockets[backend.name].close())
        self._settled = False

    @rule(subscriber=subscribers, topic=TOPICS, conflate=st.booleans())
    def subscribe_again(self, subscriber: Subscriber, topic: str, conflate: bool) -> None:
        self._on_each(lambda backend: subscriber.sockets[backend.name].close())
        self._settled = False
        endpoint = self._endpoint(topic)
        self._on_each(
            lambda backend: subscriber.sockets[backend.name].connect(backend.context, endpoint, conflate=conflate)
        )
        subscriber.topic = topic
        self._await_subscribers(topic)

    # ---- sending ----

    @precondition(lambda self: self._publishers)
    @rule(data=st.data(), size=SIZES)
    def send(self, data: st.DataObject, size: int) -> None:
        publisher, message = self._publishers[self._some_published(data)], self._message(size)
        self._on_each(lambda backend: publisher[backend.name].send(message))
        self._settled = False

    @precondition(lambda self: self._publishers)
    @rule(data=st.data(), sizes=st.lists(SIZES, max_size=MANY))
    def send_many(self, data: st.DataObject, sizes: list[int]) -> None:
        publisher, messages = self._publishers[self._some_published(data)], [self._message(size) for size in sizes]
        self._same(lambda backend: publisher[backend.name].send_many(messages))
        self._settled = False

    # ---- receiving ----

    @rule(subscriber=subscribers, non_blocking=st.booleans())
    def receive(self, subscriber: Subscriber, non_blocking: bool) -> None:
        self._same_received(subscriber, lambda socket: socket.receive(non_blocking))

    @rule(subscriber=subscribers, most=st.none() | st.integers(0, 5), wait=st.booleans())
    def receive_many(self, subscriber: Subscriber, most: int | None, wait: bool) -> None:
        self._same_received(subscriber, lambda socket: socket.receive_many(most, wait_for_one=wait))

    @rule(subscriber=subscribers, room=SIZES, non_blocking=st.booleans())
    def receive_into(self, subscriber: Subscriber, room: int, non_blocking: bool) -> None:
        def received(socket: Any) -> Any:
            buffer = bytearray(room)
            try:
                return socket.receive_into(buffer, non_blocking), bytes(buffer)
            except MessageTooLargeError as error:
                return str(error)

        self._same_received(subscriber, received)

    @precondition(lambda self: self._attached)
    @rule(data=st.data(), timeout_ms=st.sampled_from([0, WAIT_MS]))
    def poll(self, data: st.DataObject, timeout_ms: int) -> None:
        polled = data.draw(st.lists(st.sampled_from(self._attached), min_size=1), "subscribers")

        def ready(backend: Backend) -> list[int]:
            sockets = [subscriber.sockets[backend.name] for subscriber in polled]
            return [sockets.index(socket) for socket in backend.poller(*sockets).poll(timeout_ms)]

        self._settle()
        self._same(ready)

    # ---- on all backends ----

    def _on_each(self, step: Callable[[Backend], Any]) -> dict[str, Any]:
        return {backend.name: step(backend) for backend in self._backends}

    def _same(self, step: Callable[[Backend], Any]) -> None:
        seen = self._on_each(step)
        assert all(value == seen["msgq"] for value in seen.values()), seen

    def _same_received(self, subscriber: Subscriber, receive: Callable[[Any], Any]) -> None:
        self._settle()
        sockets = subscriber.sockets
        self._same(lambda backend: (receive(sockets[backend.name]), sockets[backend.name].stats().received))

    def _settle(self) -> None:
        """Return when what was sent has arrived, and who left is gone."""
        if not self._settled:
            self._on_each(Backend.settle)
            self._settled = True

    def _await_subscribers(self, topic: str) -> None:
        """Return when the topic's publisher, if there is one, knows all its subscribers."""
        if topic not in self._publishers:
            return
        self._settle()  # or it counts who left just now in place of who came
        publisher = self._publishers[topic]
        subscribers = [subscriber.sockets for subscriber in self._attached if subscriber.topic == topic]

        def attached(backend: Backend) -> bool:
            # A subscriber of ZMQ that lost its publisher subscribes with the next one when it looks for messages.
            backend.poller(*(sockets[backend.name] for sockets in subscribers)).poll(0)
            try:
                publisher[backend.name].wait_for_readers(0, n=len(subscribers))
            except WaitTimeoutError:
                return False
            return True

        self._on_each(lambda backend: wait_until(lambda: attached(backend), "every subscriber is attached"))

    # ---- operations of a program ----

    def _endpoint(self, topic: str) -> str:
        return f"{topic}{self._number}"

    def _some_published(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self._publishers)), "topic")

    def _message(self, size: int) -> bytes:
        self._sent += 1
        return self._sent.to_bytes(2, "little").ljust(size, b".")[:size]


@pytest.mark.watchdog(600)  # shrinking what fails takes up to five minutes
@pytest.mark.ci
def test_random_program_has_equal_results_on_all_backends(
    prefix: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")  # no ports to share with tests that run side by side
    chosen = settings(max_examples=int(40 * LONGER), stateful_step_count=STEPS, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(seeded(seed)(Program), settings=chosen)
