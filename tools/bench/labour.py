"""What the measured processes do with a queue, whose messages are each for one consumer; see `roles`."""

import time
from collections.abc import Callable

from tools.bench import control
from tools.bench.adapters.base import Unsupported, WorkQueue
from tools.bench.job import Job
from tools.bench.loops import compile_loop
from tools.bench.queue_cases import SPARE
from tools.bench.roles import Role, phases, repeat, stream

RANKS = 8
LOOK_S = 0.0002

# --------------------------------------------------------------------------------------------- one process, full queues


def queue_pair(job: Job) -> Role:
    """Send and receive with messages waiting, so that each turn takes the oldest one."""
    queue = _fill(job)
    return _turns(job, compile_loop("pair", job.message, send=queue.send, take=queue.receive))


def rank_pair(job: Job) -> Role:
    """Do the same with the next priority each time."""
    queue = _fill(job, ranked=True)
    loops = [
        compile_loop("pair", job.message, send=queue.send_ranked(rank), take=queue.receive) for rank in range(RANKS)
    ]

    def loop(count: int) -> None:
        for _ in range(-(-count // (RANKS * RANKS))):
            for pair in loops:
                pair(RANKS)

    return _turns(job, loop, at_least=RANKS * RANKS)


def ack_pair(job: Job) -> Role:
    """Send, take, and acknowledge."""
    queue = _fill(job)
    if queue.take is None:
        raise Unsupported("no acknowledgement")
    return _turns(job, compile_loop("ack_pair", job.message, send=queue.send, take=queue.take))


def _fill(job: Job, *, ranked: bool = False) -> WorkQueue:
    queue = job.system_for("data").queue()
    for number in range(job.depth - SPARE):
        send = queue.send_ranked(number % RANKS) if ranked else queue.send
        compile_loop("send", job.message, send=send)(1)
    return queue


def _turns(job: Job, loop: Callable[[int], None], at_least: int = 16) -> Role:
    yield None
    while True:
        yield repeat(loop, job.seconds, at_least)


# -------------------------------------------------------------------------------------------------------- two processes


def queue_send(job: Job) -> Role:
    """Send one by one, waiting for room."""
    loop = compile_loop("stream_send", job.message, send=job.system_for("data").queue(receives=False).send)
    yield None
    while True:
        yield stream(loop, job, calls=job.batch, credits_needed=False)


def queue_take(job: Job) -> Role:
    """Receive one by one, asleep when there is nothing."""
    loop = compile_loop("stream_take", job.message, take=job.system_for("data").queue(sends=False).receive)
    words = control.words(job.words_path)
    yield None
    while True:
        yield {"received": loop(words, job.batch)}


# ------------------------------------------------------------------------------------------------ senders and workers
# Each process has its own word. 0: the process is busy. Otherwise: the number of its messages plus 1.


def crowd_lead(job: Job) -> Role:
    """Send. After the last message of all senders, end the workers, and receive the remaining messages."""
    queue, words = _shared(job), control.words(job.words_path)
    loop = compile_loop("until", job.message, send=queue.send)
    send_loop, receive_loop = (
        compile_loop("send", b"", send=queue.send),
        compile_loop("receive", job.message, take=queue.receive),
    )
    senders, workers = (range(3), range(3, 7))
    yield None
    while True:
        rate, sent = loop(job.batch, *phases(job.seconds))
        sent += _sum(words, senders)
        send_loop(len(workers))
        receive_loop(sent - _sum(words, workers))
        yield {"value": rate, "sent": sent}


def crowd_send(job: Job) -> Role:
    """Send for as long as the others do."""
    queue, words = _shared(job), control.words(job.words_path)
    loop = compile_loop("until", job.message, send=queue.send)
    yield None
    while True:
        rate, sent = loop(job.batch, *phases(job.seconds))
        words[control.OWN + job.number] = sent + 1
        yield {"rate": rate}


def crowd_take(job: Job) -> Role:
    """Receive until the leader sends the end."""
    queue, words = _shared(job), control.words(job.words_path)
    loop = compile_loop("work", queue.end, take=queue.receive)
    yield None
    while True:
        received = loop()
        words[control.OWN + job.number] = received + 1
        yield {"received": received}


def _shared(job: Job) -> WorkQueue:
    queue = job.system_for("data").queue()
    if not queue.shared:
        raise Unsupported("one sender and one receiver only")
    return queue


def _sum(words: memoryview, numbers: range) -> int:
    """Wait until these have ended, and return their sum; the process's own limit ends it when one has failed."""
    places = [control.OWN + number for number in numbers]
    while not all(words[place] for place in places):
        time.sleep(LOOK_S)
    return sum(words[place] - 1 for place in places)


ROLES: dict[str, Callable[[Job], Role]] = {
    role.__name__: role
    for role in (queue_pair, rank_pair, ack_pair, queue_send, queue_take, crowd_lead, crowd_send, crowd_take)
}
