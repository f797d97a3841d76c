"""Calls of many threads at the same moment, and messages whose words are all their number."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from queue import SimpleQueue
from typing import Any

import numpy as np

from msgq.errors import ConcurrentUseError, EndpointClosedError
from tests.support import LONGER

THREADS = 8
CALLS = int(300 * LONGER)  # calls of each thread
WORDS = 8  # words of a message or value, which are all its number
BYTES = 8 * WORDS  # size of a message
LARGE = 1 << 19  # bytes of a message that is copied without the GIL
ROW = np.dtype([("words", "<u8", WORDS)])


def words(number: int) -> bytes:
    """Return a message whose words are all the number."""
    return number.to_bytes(8, "little") * WORDS


def number_of(message: Any) -> int:
    """Return the number of a message, which must be whole."""
    found = np.frombuffer(message, "<u8")
    assert len(found) == WORDS, found
    assert (found == found[0]).all(), f"torn: {found}"
    return int(found[0])


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Call each function in a thread, all at the same moment; return the results, or raise the first error."""
    barrier, results, errors = threading.Barrier(len(functions)), [None] * len(functions), list[BaseException]()

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = functions[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def repeat(call: Callable[[int], Any], first: int) -> Callable[[], list[int]]:
    """Return a function that calls `call` with numbers of its own and returns those that no other thread refused."""

    def run() -> list[int]:
        done = []
        for number in range(first, first + CALLS):
            with contextlib.suppress(ConcurrentUseError):
                call(number)
                done.append(number)
        return done

    return run


def spread(call: Callable[[int], Any]) -> list[Callable[[], list[int]]]:
    """Return a function for each thread, as `repeat`."""
    return [repeat(call, 1 + i * CALLS) for i in range(THREADS)]


def drain(receive: Callable[[], Any], is_over: threading.Event) -> Callable[[], list[int]]:
    """Return a function that receives until all is sent and nothing is left; it returns the numbers of messages."""

    def run() -> list[int]:
        taken = list[int]()
        while True:
            was_over = is_over.is_set()
            try:
                message = receive()
            except ConcurrentUseError:
                continue
            if message is not None:
                taken.append(number_of(message))
            elif was_over:
                return taken

    return run


def until(is_over: threading.Event, call: Callable[[], Any]) -> Callable[[], list[Any]]:
    """Return a function that calls until all is over; it returns the results that no other thread prevented."""

    def run() -> list[Any]:
        done = []
        while not is_over.is_set():
            with contextlib.suppress(ConcurrentUseError):
                done.append(call())
        return done

    return run


def beside(writes: Iterable[Callable[[], Any]], reads: Iterable[Callable[[threading.Event], Callable[[], Any]]]) -> Any:
    """Write in threads, and read in others until the writers are ready; return the results of both."""
    over, writes = threading.Event(), list(writes)
    left = list(writes)

    def ending(write: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            try:
                return write()
            finally:
                left.pop()
                if not left:
                    over.set()

        return run

    results = in_threads(*map(ending, writes), *[read(over) for read in reads])
    return results[: len(writes)], results[len(writes) :]


def flow(sends: Iterable[Callable[[], list[int]]], receive: Callable[[], Any], receivers: int) -> list[list[int]]:
    """Send in threads, and receive in others; return the numbers that were sent, and those that each receiver took."""
    sent, received = beside(sends, [lambda over: drain(receive, over)] * receivers)
    return [list(chain(*sent)), *received]


def check_once(sent: Sequence[int], received: Iterable[int], lost: int | None) -> None:
    """Check that each message came once or is counted as lost, and that nothing else came."""
    received = list(received)
    assert lost is not None
    double = [number for number, times in Counter(received).items() if times > 1]
    assert not double, f"came twice: {double[:5]}"
    assert not set(received) - set(sent), "came, but was not sent"
    assert len(received) + lost == len(sent), f"{len(sent)} sent, {len(received)} received, {lost} counted as lost"


class Cycle:
    """Keeps an object until the garbage collector finds the cycle."""

    def __init__(self, kept: Any) -> None:
        self.kept, self.cycle = kept, self


def end_in_other_threads(
    send: Callable[[Callable[[Any], None]], Any], ends: list[Callable[[Any], Any]], threads: int = 4
) -> None:
    """Run `send`, whose argument passes an object to threads that end the objects in turn, each in another way."""
    passed, is_over = SimpleQueue[Any](), threading.Event()

    def end(i: int) -> None:
        while (found := passed.get()) is not None:
            i += 1
            ends[i % len(ends)](found)
            del found

    def run() -> None:
        try:
            send(passed.put)
        finally:
            is_over.set()
            for _ in range(threads):
                passed.put(None)

    def collect() -> None:
        while not is_over.wait(0.01):
            gc.collect()

    in_threads(run, collect, *[lambda i=i: end(i) for i in range(threads)])
    gc.collect()


def try_call(call: Callable[[], Any]) -> bool:
    """Return False if another thread used the handle at the same time."""
    try:
        call()
    except ConcurrentUseError:
        return False
    return True


def end_wait_by_close(handle: Any, call: Callable[[], Any], pause: int, threads: int = 1) -> None:
    """Call until the handle is closed, which happens `pause` steps of a loop after the begin of the first call."""
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with contextlib.suppress(EndpointClosedError):
            while True:
                call()

    def close() -> None:
        begun.wait()
        for _ in range(pause):
            pass
        while not try_call(handle.close):
            pass

    in_threads(*[wait] * threads, close)
