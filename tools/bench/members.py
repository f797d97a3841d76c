"""Roles of a bus: processes that publish at rates, and sleep until a message of another process arrives; see `roles`.

Topic t belongs to member t modulo the number of members, and the members after its owner subscribe to it. Each message
begins with the time of its send. The first process stores the begin of a slice in the control word `control.TOTAL`, and
all processes count what they spend between the same two moments, after a warm-up.
"""

import heapq
import resource
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from tools.bench import control
from tools.bench.adapters import FLOOR, OURS, adapter
from tools.bench.adapters.base import SERVICE_RATES, Call, Publisher, Unsupported
from tools.bench.cases import Case
from tools.bench.crowd import share_queue
from tools.bench.floor import build
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.machine import cores
from tools.bench.roles import Result, Role, in_slices, open_publisher, open_subscriber
from tools.bench.works import make_once

START_NS = 20_000_000  # time for all processes to see the begin
SECOND_NS = 1_000_000_000
GOLDEN = 0.618034  # part of a period between the first messages of two topics, which spreads them evenly
#: Publishes and receives until a time. Returns the ages of the received messages, and the number of messages sent.
Run = Callable[[int], tuple[Sequence[int], int]]


# ---------------------------------------------------------------------------------------------------------------- costs


def join(parts: Sequence[Result], copies: int) -> Result:
    """Return what all processes together spent on each delivery. `copies`: deliveries of each message."""
    deliveries, sent = (sum(part[name] for part in parts) for name in ("deliveries", "sent"))
    processes = sum(part["processes"] for part in parts)
    late = copies * processes  # messages that may arrive after the end, and are not lost
    return {
        "lost": max(0, sent * copies - deliveries - late),
        "value": sum(part["cpu_ns"] for part in parts) / deliveries,
        "samples": [age for part in parts for age in part["samples"]],
        "costs": {
            "switches": sum(part["switches"] for part in parts) / deliveries,
            "private": sum(part["private"] for part in parts) / processes,
            "shared": sum(part["shared"] for part in parts) / processes,
        },
    }


def _count(job: Job, words: memoryview, run: Run) -> Result:
    """Return what this process spends in the time that all processes count."""
    control.wait_until(lambda: words[control.TOTAL])
    measured_ns = int(job.case.seconds * SECOND_NS)
    warm_until = words[control.TOTAL] + measured_ns // 4
    run(warm_until)
    cpu_ns, switches = _read_use()
    ages, sent = run(warm_until + measured_ns)
    cpu_after_ns, switches_after = _read_use()
    use = {"cpu_ns": cpu_after_ns - cpu_ns, "switches": switches_after - switches}
    return {"processes": 1, "deliveries": len(ages), "sent": sent, "samples": ages, **use, **_read_memory()}


def _read_use() -> tuple[int, int]:
    """Return the processor time of this process in ns, and the number of its context switches."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.process_time_ns(), usage.ru_nvcsw + usage.ru_nivcsw


def _read_memory() -> Result:
    """Return the private and the shared resident memory of this process in bytes."""
    sizes: Result = {"private": 0, "shared": 0}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        kind, *rest = line.split()
        name = kind.partition("_")[0].lower()
        if name in sizes and kind.rstrip(":").endswith(("_Clean", "_Dirty")):
            sizes[name] += int(rest[0]) << 10
    return sizes


def _begin(words: memoryview) -> None:
    words[control.TOTAL] = perf_counter_ns() + START_NS


# -------------------------------------------------------------------------------------------------------------- members


def poll_lead(job: Job) -> Role:
    """Be the first member, which begins the slices."""
    return _polls(job, 0)


def poll_member(job: Job) -> Role:
    """Publish own topics at their rates, and poll topics of others."""
    return _polls(job, job.number + 1)


def _polls(job: Job, member: int) -> Role:
    sends = _open_sends(job, member)
    calls = adapter(job.system).poll([job.system_for(topic) for topic in list_polled(job.case, member)])
    loop = compile_loop("member", job.message[8:], wait=calls.wait, take=calls.take)
    return _be_member(job, member, lambda schedule, until: loop(sends, schedule, until))


def task_lead(job: Job) -> Role:
    """Be the first member in an asyncio loop."""
    return _runs_tasks(job, 0)


def task_member(job: Job) -> Role:
    """Publish own topics at their rates in an asyncio loop, and wait for topics of others."""
    return _runs_tasks(job, job.number + 1)


def _runs_tasks(job: Job, member: int) -> Role:
    import asyncio

    ages: list[int] = []
    sends, rest = _open_sends(job, member), job.message[8:]
    loop = asyncio.new_event_loop()

    def take(message: Any) -> None:
        ages.append(perf_counter_ns() - int.from_bytes(message[:8], "little"))

    async def watch() -> None:
        for topic in list_polled(job.case, member):
            job.system_for(topic).watch(take)

    async def publish(schedule: list[tuple[int, int, int]], until: int) -> int:
        sent = 0
        while (now := perf_counter_ns()) < until:
            due, number, period = schedule[0]
            if now < due:
                await asyncio.sleep((min(due, until) - now) / SECOND_NS)
                continue
            sends[number](now.to_bytes(8, "little") + rest)
            heapq.heapreplace(schedule, (due + period, number, period))
            sent += 1
        return sent

    def run(schedule: list[tuple[int, int, int]], until: int) -> tuple[list[int], int]:
        ages.clear()
        sent = loop.run_until_complete(publish(schedule, until))
        return ages.copy(), sent

    loop.run_until_complete(watch())
    return _be_member(job, member, run)


def _be_member(job: Job, member: int, run: Callable[[Any, int], tuple[Sequence[int], int]]) -> Role:
    """Be the role that follows a schedule: a heap of the time of the next message, the sender, and the period."""

    def once(words: memoryview) -> Result:
        if member == 0:
            _begin(words)
        control.wait_until(lambda: words[control.TOTAL])
        never = 1 << 63
        schedule = [(never, 0, never)]
        for number, topic in enumerate(list_owned(job.case, member)):
            period = int(SECOND_NS / _rate(job.case, topic))
            heapq.heappush(schedule, (words[control.TOTAL] + int(period * (topic * GOLDEN % 1)), number, period))
        return _count(job, words, lambda until: run(schedule, until))

    return in_slices(job, once)


def _open_sends(job: Job, member: int) -> list[Callable[[bytes], Any]]:
    return [_sending(open_publisher(job, str(topic))).function for topic in list_owned(job.case, member)]


def _sending(pub: Publisher) -> Call:
    return pub.wake or pub.send


def _count_members(case: Case) -> int:
    in_c = max(case.endpoints, 1 + case.subscribers)  # one program runs all members
    return 1 + len(case.crew) if case.crew else in_c


def list_owned(case: Case, member: int) -> range:
    """Return the topics that a member publishes."""
    return range(member, case.endpoints, _count_members(case))


def list_polled(case: Case, member: int) -> list[str]:
    """Return the names of the topics that a member subscribes to."""
    count = _count_members(case)
    return [str(topic) for topic in range(case.endpoints) if 0 < (member - topic) % count <= case.subscribers]


def _rate(case: Case, topic: int) -> float:
    return case.rate or SERVICE_RATES[topic % len(SERVICE_RATES)]


# -------------------------------------------------------------------------------------------------------- one publisher


def pace(job: Job) -> Role:
    """Publish messages or frames at a rate, until each subscriber has counted its last message."""
    pub = open_publisher(job)
    return _paces(job, _sending(pub), job.case.subscribers, pub)


def be_woken(job: Job) -> Role:
    """Sleep until each message or frame arrives."""
    return _is_woken(job, open_subscriber(job).block)


def pace_jobs(job: Job) -> Role:
    """Send messages to workers at a rate."""
    return _paces(job, share_queue(job).send, len(job.case.crew))


def take_jobs(job: Job) -> Role:
    """Be a worker that sleeps until it gets a message."""
    queue = share_queue(job)
    take = queue.receive
    if isinstance(queue.end, tuple):
        take = Call(take.function, take.arguments, "CALL(ARGUMENTS)[0]")  # without the priority
    return _is_woken(job, take)


def _paces(job: Job, send: Call, takers: int, pub: Publisher | None = None) -> Role:
    rest = job.message[8 : 64 if job.case.frames else None]  # a rendered frame is only announced
    loop = compile_loop("send_at_rate", rest, send=send)
    period = int(SECOND_NS / job.case.rate)

    def once(words: memoryview) -> Result:
        _begin(words)
        due = words[control.TOTAL]

        def run(until: int) -> tuple[list[int], int]:
            nonlocal due
            sent, due = loop(words, due, period, until)
            return [], sent

        result = _count(job, words, run)
        while not all(words[control.OWN : control.OWN + takers]):
            run(due + period)
        return result

    return in_slices(job, once, pub)


def _is_woken(job: Job, take: Call) -> Role:
    loop = compile_loop("woken_by_frame" if job.case.frames else "woken", None, take=take)

    def once(words: memoryview) -> Result:
        result = _count(job, words, lambda until: (loop(words, until), 0))
        words[control.OWN + job.number] = 1
        return result

    return in_slices(job, once)


# ----------------------------------------------------------------------------------------------------------------- in C


def c_bus(job: Job) -> Role:
    """Run the program with all members."""
    if job.system not in (OURS, FLOOR):
        raise Unsupported("no program in C")
    case, include = job.case, None  # the path tells the programs of two checkouts apart
    if job.system == OURS:
        import msgq  # late, because other systems are measured without it

        include = Path(msgq.get_include())
    program = f"bus-{zlib.crc32(str(include).encode())}"
    make_once(job, program, lambda path: build.build_bus(path, include))
    places = (*cores(), _count_members(case), case.endpoints, case.subscribers, case.rate, case.size)

    def once(words: memoryview) -> Result:
        return build.run_program(job.folder, program, f"{job.name}-data", case.seconds, *places)

    return in_slices(job, once)
