"""The timed loops, compiled around the calls of a system as `timeit` does, so that nothing else is timed.

``SEND`` becomes the system's send of `message`, ``TAKE`` its receive, ``WAIT`` its poll of topics, ``BOUND`` the names
that they need. Every loop is the same for all systems.
"""

from collections.abc import Callable
from heapq import heapreplace
from itertools import islice, repeat
from time import perf_counter_ns, sleep
from typing import Any

from tools.bench.adapters.base import Call
from tools.bench.control import RECEIVED, STAMP, TOTAL

_SOURCES = {
    "send": """
def loop(count, BOUND):
    for _ in repeat(None, count):
        SEND
""",
    "pair": """
def loop(count, BOUND):
    for _ in repeat(None, count):
        SEND
        TAKE
""",
    "drain": """
def loop(count, BOUND):
    while TAKE is not None:
        pass
""",
    "each": """
def loop(count, BOUND):
    for _ in TAKE:
        pass
""",
    # `room` is what may be on its way beside the batch that is about to be sent. The clock starts at what the
    # subscriber has taken by then, and stops when it has taken everything.
    "stream_send": """
def loop(words, batch, calls, room, warm_until, end_at, BOUND):
    sent = began = before = 0
    last = False
    while not last:
        now = clock()
        if not began and now >= warm_until:
            began, before = now, words[RECEIVED]
        last = began and now >= end_at
        if last:
            words[TOTAL] = sent + batch
        while sent - words[RECEIVED] > room:
            pass
        for _ in repeat(None, calls):
            SEND
        sent += batch
    while words[RECEIVED] != sent:
        pass
    return sent - before, clock() - began
""",
    "stream_take": """
def loop(words, batch, BOUND):
    received = 0
    while words[TOTAL] != received or not received:
        for _ in repeat(None, batch):
            while TAKE is None:
                pass
        received += batch
        words[RECEIVED] = received
    return received
""",
    "ping": """
def loop(count, BOUND):
    for _ in repeat(None, count):
        SEND
        while TAKE is None:
            pass
""",
    "ping_timed": """
def loop(count, pause_s, BOUND):
    took = []
    for _ in repeat(None, count):
        if pause_s:
            sleep(pause_s)
        start = clock()
        SEND
        while TAKE is None:
            pass
        took.append(clock() - start)
    return took
""",
    "pong": """
def loop(words, batch, BOUND):
    served = 0
    while words[TOTAL] != served or not served:
        for _ in repeat(None, batch):
            while TAKE is None:
                pass
            SEND
        served += batch
    return served
""",
    "paced": """
def loop(count, gap_ns, BOUND):
    due = 0
    for _ in repeat(None, count):
        while (now := clock()) < due:
            pass
        SEND
        due = now + gap_ns
""",
    # Each message begins with the time of its send.
    "fire": """
def loop(count, gap_ns, BOUND):
    rest = message
    for _ in repeat(None, count):
        now = clock()
        message = now.to_bytes(8, "little") + rest
        SEND
        while clock() < now + gap_ns:
            pass
""",
    "count": """
def loop(words, BOUND):
    received = 0
    while True:
        over = words[TOTAL]
        if TAKE is not None:
            received += 1
        elif over:
            return received
""",
    "ages": """
def loop(words, BOUND):
    ages = []
    while not words[TOTAL]:
        message = TAKE
        ages.append(clock() - int.from_bytes(message[:8], "little"))
    return ages
""",
    # Each message begins with the time of its send. `schedule`: see `members`. `timeout` is in ms.
    "member": """
def loop(sends, schedule, until, BOUND):
    ages, sent = [], 0
    while (now := clock()) < until:
        due, number, period = schedule[0]
        if now >= due:
            sends[number](now.to_bytes(8, "little") + message)
            heapreplace(schedule, (due + period, number, period))
            sent += 1
            continue
        timeout = (min(due, until) - now) // 1_000_000 + 1
        for ready in WAIT:
            payload = TAKE
            ages.append(clock() - int.from_bytes(payload[:8], "little"))
    return ages, sent
""",
    "send_at_rate": """
def loop(words, due, period, until, BOUND):
    rest, sent = message, 0
    while due < until:
        sleep(max(0, due - clock()) / 1e9)
        words[STAMP] = now = clock()
        message = now.to_bytes(8, "little") + rest
        SEND
        due += period
        sent += now < until
    return sent, due
""",
    "woken": """
def loop(words, until, BOUND):
    ages = []
    while True:
        payload = TAKE
        sent_at = int.from_bytes(payload[:8], "little")
        if sent_at >= until:
            return ages
        ages.append(clock() - sent_at)
""",
    "woken_by_frame": """
def loop(words, until, BOUND):
    ages = []
    while True:
        TAKE
        sent_at = words[STAMP]
        if sent_at >= until:
            return ages
        ages.append(clock() - sent_at)
""",
    "longest": """
def loop(count, BOUND):
    longest = 0
    for _ in repeat(None, count):
        start = clock()
        SEND
        took = clock() - start
        if took > longest:
            longest = took
    return longest
""",
    # Returns the messages per second after the warm-up, and the number of all messages.
    "until": """
def loop(batch, warm_until, end_at, BOUND):
    sent = began = before = 0
    while (now := clock()) < end_at or not began:
        if not began and now >= warm_until:
            began, before = now, sent
        for _ in repeat(None, batch):
            SEND
        sent += batch
    return (sent - before) / (clock() - began) * 1e9, sent
""",
    # `message` is the one that ends it.
    "work": """
def loop(BOUND):
    received = 0
    while TAKE != message:
        received += 1
    return received
""",
}


def compile_loop(
    name: str, message: Any, *, send: Call | None = None, take: Call | None = None, wait: Call | None = None
) -> Callable[..., Any]:
    """Return the loop of that name around the given calls."""
    bound: dict[str, Any] = {
        "message": message,
        "repeat": repeat,
        "heapreplace": heapreplace,
        "islice": islice,
        "clock": perf_counter_ns,
        "sleep": sleep,
    }
    source = _SOURCES[name]
    for place, number in (("RECEIVED", RECEIVED), ("STAMP", STAMP), ("TOTAL", TOTAL)):
        source = source.replace(place, str(number))
    for word, call in (("SEND", send), ("TAKE", take), ("WAIT", wait)):
        if call is not None:
            text = call.form.replace("CALL", word.lower()).replace("ARGUMENTS", call.arguments)
            source = source.replace(word, text)
            bound[word.lower()] = call.function
    # Default values make these names local variables, which have the fastest access.
    source = source.replace("BOUND", ", ".join(f"{each}={each}" for each in bound))
    exec(compile(source, f"<loop {name}>", "exec"), bound)
    loop: Callable[..., Any] = bound["loop"]
    return loop
