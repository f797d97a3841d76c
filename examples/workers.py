"""A pool of workers on one queue: a worker is killed, a worker hangs, and a job always fails. No result is missing.

python -m examples.workers
"""

from __future__ import annotations

import multiprocessing
import queue
import time
from typing import Any

import msgq
from examples.processes import finish, say, start
from msgq.errors import LeaseExpiredError
from msgq.workqueue import Message, parse_dead_letter

PIECES = 200
TRIES = 3  # tries of a job before it moves to the dead letters
LEASE = 0.5  # seconds that a job may take
PATIENCE = 20.0  # seconds; if all works, no call waits as long
STOP = b"stop"


def square(data: bytes) -> bytes:
    """Return a number and its square. If the data is not a number, raise ValueError."""
    return b"%d %d" % (int(data), int(data) ** 2)


def worker(name: str) -> None:
    """Work until a job says stop.

    The function sends the result, and then the worker acknowledges the job. After a kill between these two steps, the
    result exists twice, but is never missing.
    """
    pieces, results, dead = (msgq.MessageQueue(each) for each in ("pieces", "results", "dead"))

    def process_piece(message: Message) -> None:
        if message.data == STOP:
            crew.stop()
        else:
            results.send(square(message.data))

    crew = msgq.Worker(pieces, process_piece, retries=TRIES - 1, backoff=0.01, lease=LEASE, dead_letters=dead)
    counts = crew.run()
    say(f"{name}: {counts.succeeded - 1} done")


def unlucky(name: str) -> None:
    """Take a job, and never finish."""
    job = msgq.MessageQueue("pieces").take()
    assert job is not None
    msgq.MessageQueue("news").send(f"{name} took {job.data.decode()}".encode())
    msgq.MessageQueue("never").receive()


def hanging(name: str) -> None:
    """Take a job, and wait until its lease has ended."""
    job = msgq.MessageQueue("pieces").take(lease=LEASE)
    assert job is not None
    msgq.MessageQueue("news").send(f"{name} took {job.data.decode()}".encode())
    msgq.MessageQueue("awake").receive(timeout=PATIENCE)
    try:
        job.ack()
    except LeaseExpiredError:
        say(f"{name}: lease expired")


def pool() -> None:
    """Lose two workers that each have a job, and receive all results."""
    pieces, results, dead, news, awake = (
        msgq.MessageQueue(each, max_messages=2 * PIECES) for each in ("pieces", "results", "dead", "news", "awake")
    )
    pieces.send_many((b"%d" % number for number in range(PIECES)), priority=1)
    pieces.send(b"poison")
    victim, sleeper = start(unlucky, "Ann"), start(hanging, "Ben")
    for _ in range(2):
        message = news.receive(timeout=PATIENCE)
        assert message is not None
        say(f"pool: {message.data.decode().partition(' ')[0]} has a job")
    victim.kill()
    workers = [start(worker, name) for name in ("Cleo", "Dan")]
    squares: dict[int, int] = {}
    while len(squares) < PIECES:
        result = results.receive(timeout=PATIENCE)
        assert result is not None, f"{len(squares)} results"
        number, number_squared = map(int, result.data.split())
        squares[number] = number_squared
    buried = dead.receive(timeout=PATIENCE)
    assert buried is not None
    awake.send(b"")
    pieces.send_many([STOP] * len(workers))
    finish(sleeper, *workers)
    right = squares == {number: number**2 for number in range(PIECES)}
    letter = parse_dead_letter(buried.data)
    say(f"pool: {len(squares)} results, all right: {right}; dead letter: {letter.data.decode()}")
    say(f"pool: {pieces.current_messages} jobs wait, {pieces.in_flight} are taken")


def reader() -> None:
    """Wait for a message."""
    msgq.MessageQueue("news").send(b"reading")
    msgq.MessageQueue("mail").receive()


def reader_of(mail: multiprocessing.Queue[bytes]) -> None:
    """Wait for a message."""
    mail.get()


def killed_reader() -> None:
    """Kill a process that waits in receive(), and receive the next message here."""
    mail, news = msgq.MessageQueue("mail"), msgq.MessageQueue("news")
    process = start(reader)
    news.receive(timeout=PATIENCE)
    process.kill()
    process.join()
    mail.send(b"hello")
    message = mail.receive(timeout=PATIENCE)
    say(f"MessageQueue: {message.data.decode() if message else 'nothing'}")


def killed_reader_of_multiprocessing() -> None:
    """Kill a process that waits in get(), and call get() here: the lock of the killed process is never released."""
    mail: Any = multiprocessing.get_context("spawn").Queue()
    process = start(reader_of, mail)
    while process.is_alive() and mail._rlock.acquire(block=False):  # loops until the reader has the lock
        mail._rlock.release()
        time.sleep(0.001)
    process.kill()
    process.join()
    mail.put(b"hello")
    try:
        got = mail.get(timeout=0.5).decode()
    except queue.Empty:
        got = f"received nothing in 0.5 s, although {mail.qsize()} message waits"
    say(f"multiprocessing.Queue: {got}")


def main() -> None:
    """Run the pool, and kill a waiting reader of msgq's queue and of multiprocessing's queue."""
    try:
        pool()
        killed_reader()
    finally:
        for name in ("pieces", "results", "dead", "news", "awake", "never", "mail"):
            with msgq.MessageQueue(name) as each:  # creates the queue if the pool failed before
                each.unlink()
    killed_reader_of_multiprocessing()


if __name__ == "__main__":
    main()
