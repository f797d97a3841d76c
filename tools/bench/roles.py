"""What the work of all measured processes shares. The roles are in the modules that `worker` lists.

Each role is a generator with the name of the role: it prepares, yields None when it is ready, and then one result each
time it is resumed, which is a slice of the measurement. The control words are 0 at the start of a slice.

Times are in nanoseconds. The result of the publisher's side has ``value``, the figure of the slice, and what belongs to
it; ``samples`` are single latencies, which the runner pools.
"""

from collections.abc import Callable, Generator, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

from tools.bench import control, numbers
from tools.bench.adapters.base import Publisher, Subscriber, Unsupported
from tools.bench.job import Job

Result = dict[str, Any]
Role = Generator[Result | None, None, None]
T = TypeVar("T")

CHUNK_NS = 2_000_000
FIRST_TURNS = 64


def open_publisher(job: Job, topic: str = "data") -> Publisher:
    """Return the publisher of messages or frames."""
    system = job.system_for(topic)
    return system.frame_publisher() if job.case.frames else system.publisher()


def open_subscriber(job: Job, topic: str = "data") -> Subscriber:
    """Return a subscriber of messages or frames."""
    system = job.system_for(topic)
    return system.frame_subscriber() if job.case.frames else system.subscriber()


def require(call: T | None, reason: str) -> T:
    """Return a call that a system may lack."""
    if call is None:
        raise Unsupported(reason)
    return call


def phases(seconds: float) -> tuple[int, int]:
    """Return when the warm-up is over, and when the measurement is."""
    now = perf_counter_ns()
    return now + int(seconds * 0.25e9), now + int(seconds * 1.25e9)


def sample(seconds: float, once: Callable[[], T]) -> list[T]:
    """Call a function for a while, and return its results after the warm-up."""
    warm_until, end_at = phases(seconds)
    results: list[T] = []
    while (now := perf_counter_ns()) < end_at or not results:
        result = once()
        if now >= warm_until:
            results.append(result)
    return results


def elapsed_ns(loop: Callable[..., Any], *arguments: Any) -> int:
    """Return the time of a call."""
    start = perf_counter_ns()
    loop(*arguments)
    return perf_counter_ns() - start


def repeat(loop: Callable[[int], None], seconds: float) -> float:
    """Run the loop in chunks of about 2 ms, and return the median time of one turn."""
    warm_until, end_at = phases(seconds)
    count = FIRST_TURNS
    costs: list[float] = []
    while (start := perf_counter_ns()) < end_at or not costs:
        took = elapsed_ns(loop, count)
        if took < CHUNK_NS / 2:
            count *= 2
        elif start >= warm_until:
            costs.append(took / count)
    return numbers.median(costs)


def in_slices(job: Job, once: Callable[[memoryview], Result | None], pub: Publisher | None = None) -> Role:
    """Be the role that calls a function with the control words in each slice."""
    words = control.words(job.words_path)
    yield None
    if pub is not None:
        pub.await_subscribers(job.case.subscribers)
    while True:
        yield once(words)


def turns(job: Job, loop: Callable[[int], None], pub: Publisher | None = None, *, messages: int = 1) -> Role:
    """Be the role that repeats a loop. The figure is the time of one of the messages of a turn."""

    def once(words: memoryview) -> Result:
        took = repeat(loop, job.case.seconds)
        words[control.TOTAL] = 1  # notifies the watchers
        return {"value": took / messages}

    return in_slices(job, once, pub)


def samples(job: Job, once: Callable[[], float]) -> Role:
    """Be the role that times single calls."""
    return in_slices(job, lambda _: latency(sample(job.case.seconds, once)))


def latency(samples: Sequence[float]) -> Result:
    """Return the result of calls that were timed one by one."""
    return {"value": numbers.median(samples), "samples": samples}
