"""Takers that are killed at each step, in a queue with events: what they and the survivors tell, and the books."""

from __future__ import annotations

import os
import signal
import struct
from collections import Counter
from typing import Any

from msgq import stats
from msgq.channel import Channel
from msgq.common.naming import events_channel
from msgq.common.queue_events import EVENT_HEAD_FORMAT, Event
from msgq.impl.base.clock import time_ns
from tests.crash.harness import Step, at_each_step
from tests.crash.queues import QueuePlace

VICTIM = "join ready arm take:2 ack"
SENT = range(1, 5)


def heard(sub: Any) -> list[tuple[Any, ...]]:
    """Return the events that were published, each as the fields of its head."""
    return [struct.unpack(EVENT_HEAD_FORMAT, data) for data in sub.receive_many()]


def kill_taker(endpoint: str, step: Step) -> list[str]:
    """Have a taker killed at a step, or live; return what it said."""
    name = f"{endpoint}-{step.at}"
    with (
        QueuePlace(name, events=True) as trial,
        Channel(events_channel(name)) as channel,
        channel.subscriber() as sub,
    ):
        victim = trial.driver(VICTIM, at=step.at)
        victim.wait_until_ready()
        trial.send(*SENT)
        for job in [trial.queue.take(0) for _ in SENT]:
            job.nack()  # so that each was taken before
        heard(sub)
        before, since = stats.queue(name), time_ns()
        victim.proceed()
        lines = victim.end(-signal.SIGKILL if step.at else 0)
        left = stats.queue(name)
        got = trial.look_and_drain()
        found, events = stats.queue(name), heard(sub)
        told = Counter(Event(event) for event, *_, pid in events if pid == os.getpid())
        own = Counter(Event(event) for event, *_, pid in events if pid == victim.pid)
        back = [one for one in events if one[0] == Event.RETURNED]
        assert told[Event.RETURNED] == left.in_flight == found.returned - before.returned
        assert len({one[4] for one in back}) == len(back), "each came back once"
        assert all(one[7] == 0 or since <= one[7] <= one[5] for one in back), "not when a former one took it"
        assert told + own == Counter(Event(event) for event, *_ in events)
        assert before.sent == found.sent == len(SENT)
        assert told[Event.RECEIVED] == len(got) == found.received - left.received
        assert told[Event.RECEIVED] == found.acknowledged - left.acknowledged
        assert set(told) <= {Event.RETURNED, Event.RECEIVED}
        assert set(own) <= {Event.TAKEN, Event.ACKNOWLEDGED}
        assert own[Event.ACKNOWLEDGED] <= left.acknowledged - before.acknowledged
        assert step.at or [*own.values()] == [2, 2]
        assert found.events_lost == 0
    return lines


def test_consumer_killed_before_event_publication_leaves_consistent_events(endpoint: str) -> None:
    """What: the victim takes two messages and acknowledges them, and dies at each of its points in turn.

    Why: there is always a moment between an exchange and its event.

    Failure would mean: what came back is told twice or not at all, or by the dead; or the counts cannot tell how many
    events are missing.
    """
    steps = (
        "mq_queue_take_message: exchanged &h->parts.slot_states[best.slot]",
        "mq_queue_free_taken_slot: exchanged &h->parts.slot_states[delivery->slot]",
    )
    at_each_step(lambda step: kill_taker(endpoint, step), steps)
