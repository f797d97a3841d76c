"""Who sleeps until something changes, when those die, or stop, who should wake it, and beside dead sleepers."""

from __future__ import annotations

import signal
import time
from functools import partial
from typing import Any

import pytest

from msgq import Poller
from tests.crash.harness import WRITES, at_each_step
from tests.crash.records import RecordPlace, key_name, values
from tests.crash.test_queue_sleepers import Lateness
from tests.support import Task, wait_asleep

PATIENCE = 20.0  # seconds
TURNED = "mq_cell_commit_*: [es]* version"  # exchanged, or stored


def wait(handle: Any) -> float:
    """Wait for a change; return when it came."""
    assert handle.wait(PATIENCE)
    return time.monotonic()


def poll(handle: Any) -> float:
    """The same by a descriptor, which a thread of the library's watches."""
    poller = Poller()
    poller.registerSocket(handle)
    assert poller.poll(int(PATIENCE * 1000)) == [handle]
    return time.monotonic()


WAYS = {"wait": wait, "poll": poll}


def sleeper(way: str, handle: Any) -> Task:
    task = Task(WAYS[way], handle)
    task.wait_asleep()
    return task


def begin(where: RecordPlace, number: int, at: int = 1, point: str = TURNED) -> Any:
    """Have a writer that is about to write."""
    operations = "join declare:0 ready arm put:0:1" if where.of == "board" else "join ready arm write:0:1"
    victim = where.driver(operations, point, at, number)
    victim.wait_until_ready()
    return victim


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_next_write_wakes_sleeper_of_dead_or_stopped_writer(place: RecordPlace, number: int, way: str) -> None:
    """What: one writes, and dies or stops before it wakes who sleeps; at each step; then somebody else writes.

    Failure would mean: a sleeper is woken for no write any more, as somebody has taken that upon itself.
    """
    writer = place.handle()
    writer.claim()
    steps = place.points("join lie arm write:0:1")
    first = steps.index("mq_cell_commit_write: exchanged version") + 1
    for at in range(first, len(steps)):
        place.reader.changes()
        task = sleeper(way, place.reader)
        victim = begin(place, number, at, WRITES)
        victim.proceed()
        assert victim.stops() == (number == signal.SIGSTOP)
        sleeps = task.sleeps()  # None: the victim has woken it
        writer.write([1], values(at), timeout=0)
        assert sleeps is None or task.sleeps() != sleeps, f"after {steps[at - 1]} the reader sleeps until it polls"
        task.result()
        victim.kill()


@pytest.mark.parametrize("kind", ["shared", "board"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_record_sleeper_without_wake_finds_value_by_polling(endpoint: str, kind: str, number: int) -> None:
    """What: the same, and nobody writes any more.

    Why: sleepers look once a second, for exactly that.

    Failure would mean: somebody sleeps beside a change until the next one comes.
    """
    with RecordPlace(endpoint, kind) as where, Lateness() as lateness:
        handles = [where.handle(), where.handle()]
        if kind == "board":
            handles.append(where.handle().observe(key_name(0)))
        victim = begin(where, number)
        tasks = [sleeper(way, handle) for way, handle in zip(("wait", "poll", "wait"), handles, strict=False)]
        since = time.monotonic()
        victim.proceed()
        assert victim.stops() == (number == signal.SIGSTOP)
        waited = max(task.result() for task in tasks) - since
    assert lateness.allows(waited), "a look each second"


def test_dead_and_stopped_sleepers_do_not_delay_wake_of_third_sleeper(place: RecordPlace) -> None:
    """What: three sleep; one is killed, one stopped; a write wakes the third, and the next write, too.

    Failure would mean: a wake is used up by one who does not live to see it.
    """
    others = [place.driver("ready wait:30000", "*never*") for _ in range(2)]
    for other in others:
        other.wait_until_ready()
        other.proceed()
        wait_asleep(other.pid)
    writer = place.handle()
    task = sleeper("wait", place.reader)
    others[0].kill()
    others[1].process.send_signal(signal.SIGSTOP)
    others[1].stops()
    for number in range(2):
        assert task.is_woken_by(partial(writer.__setitem__, number, (1, 1, 1)))
        task.result()
        place.reader.changes()
        task = sleeper("wait", place.reader)
    writer[3] = (1, 1, 1)
    task.result()
    others[1].go_on()
    assert others[1].end() == ["changed"]


def test_writer_notifies_of_first_element_before_waiting_for_second_element(place: RecordPlace) -> None:
    """What: the victim has written one of two, and waits for the other, which a stopped one has; it is killed there.

    Failure would mean: a change that nobody was told of, for as long as the other one is stopped.
    """
    writer = place.handle()
    writer.claim()
    holder = place.waiting("join hold:1")

    def play(step: Any) -> list[str]:
        place.reader.changes()
        task = sleeper("wait", place.reader)
        victim = place.driver("join ready patience:1 arm many:2:7", WRITES, step.at, signal.SIGKILL)
        victim.wait_until_ready()
        victim.proceed()
        lines = victim.end(0, -signal.SIGKILL)
        if not place.reader.wait(0):
            writer.write([0], values(1), timeout=0)
        task.result()
        return lines

    at_each_step(play, often=1)
    holder.kill()
