"""Instructions of a process that sleeps for its messages: `python -m tools.bench.instructions`.

In each cycle, the process sleeps, another process sends a message of 256 bytes, and the process wakes up and receives
the message. callgrind counts the instructions of the process outside of the kernel, including the loop in Python, so
the counts do not depend on the load of the machine.
"""

import argparse
import contextlib
import itertools
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgq
from tools.bench.floor.build import build_preloaded
from tools.bench.machine import PROJECT
from tools.bench.workspace import workspace

LIMIT_S = 60
CYCLES = 500
RUN_CYCLES = 4 * CYCLES  # to warm up, N, and 2 N
TOPICS = 4
SIZE = 256
TIMEOUT_S = 2 * LIMIT_S
TIMEOUT_MS = 1000 * TIMEOUT_S
MARK = "getppid"  # function of the C library; callgrind begins a new count at each call
PROGRAM = "import sys; from tools.bench import instructions; instructions.run_cycles(*sys.argv[1:])"
Cycles = Callable[[int], None]


def poll(names: list[str]) -> Cycles:
    """Poll four topics, and receive each ready topic until it is empty."""
    poller = msgq.Poller()
    for name in names:
        msgq.sub_sock(name, poller)

    def run(cycles: int) -> None:
        for _ in range(cycles):
            for sub in poller.poll(TIMEOUT_MS):
                while sub.receive(True) is not None:
                    pass

    return run


def update(names: list[str]) -> Cycles:
    """Update a SubMaster of four topics, at their rates by a clock that does not depend on the machine."""
    rate = 100.0
    clock = itertools.count(0, 1 / rate / len(names)).__next__
    master = msgq.SubMaster(dict.fromkeys(names, rate), clock=clock)

    def run(cycles: int) -> None:
        for _ in range(cycles):
            master.update(TIMEOUT_MS)

    return run


def receive(names: list[str]) -> Cycles:
    """Receive a topic with the time-out of setTimeout."""
    sub = msgq.sub_sock(names[0], timeout=TIMEOUT_MS)

    def run(cycles: int) -> None:
        for _ in range(cycles):
            sub.receive()

    return run


def receive_timeout(names: list[str]) -> Cycles:
    """Receive a topic with an argument `timeout`."""
    sub = msgq.sub_sock(names[0])

    def run(cycles: int) -> None:
        for _ in range(cycles):
            sub.receive(timeout=TIMEOUT_S)

    return run


def queue(names: list[str]) -> Cycles:
    """Receive a message of a work queue, without a spin: the time of the machine would limit the spin."""
    consumer = msgq.MessageQueue(names[0], spin_us=0)

    def run(cycles: int) -> None:
        for _ in range(cycles):
            consumer.receive(TIMEOUT_S)

    return run


class Work(NamedTuple):
    """A kind of cycles: what the process does, and how many endpoints of which type get messages in turns."""

    begin: Callable[[list[str]], Cycles]
    endpoints: int = 1
    open_sender: Callable[[str], msgq.PubSocket | msgq.MessageQueue] = msgq.pub_sock


WORKS = {
    "poll": Work(poll, TOPICS),
    "update": Work(update, TOPICS),
    "receive": Work(receive),
    "receive_timeout": Work(receive_timeout),
    "queue": Work(queue, open_sender=msgq.MessageQueue),
}


class CallgrindError(Exception):
    """valgrind is missing or failed, or the process did not sleep once in each cycle."""


def count_instructions(work: str, profiles: Path | None = None) -> float:
    """Return the instructions of one cycle. A folder of profiles gets the files of callgrind.

    Raises:
        CallgrindError: see there.
        FloorError: the C compiler is missing or fails.
    """
    if not shutil.which("valgrind"):
        raise CallgrindError("valgrind is not installed")
    with workspace() as space:
        out = (profiles or space.folder) / f"{work}.callgrind"
        name = space.new_name()
        names = [f"{name}-{number}" for number in range(WORKS[work].endpoints)]
        _run(work, names, build_preloaded(space.folder), out)
        counts = [_read_count(Path(f"{out}.{part}")) for part in (2, 3)]  # part 1 ends at the first mark
    return (counts[1] - counts[0]) / CYCLES


def run_cycles(work: str, *names: str) -> None:
    """Run cycles in the counted process: first some to warm up, then N and 2 N between marks."""
    run = WORKS[work].begin(list(names))
    run(CYCLES)
    os.getppid()
    run(CYCLES)
    os.getppid()
    run(2 * CYCLES)
    os.getppid()


def _run(work: str, names: Sequence[str], preloaded: Path, out: Path) -> None:
    """Run the counted process under callgrind, and send a message whenever it sleeps."""
    words = ["valgrind", "--tool=callgrind", f"--dump-before={MARK}", f"--callgrind-out-file={out}"]
    errors = Path(f"{out}.err")
    with errors.open("wb") as stderr, contextlib.ExitStack() as stack:
        senders = [WORKS[work].open_sender(name) for name in names]
        for sender in senders:
            stack.enter_context(sender)
        process = subprocess.Popen(
            [*words, sys.executable, "-c", PROGRAM, work, *names],
            bufsize=0,
            cwd=PROJECT,
            env={**os.environ, "LD_PRELOAD": str(preloaded), "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        try:
            sleeps = _answer(process, senders)
        finally:
            process.kill()
            process.communicate()
    if sleeps != RUN_CYCLES:
        raise CallgrindError(f"{work}: {sleeps} sleeps in {RUN_CYCLES} cycles\n{errors.read_text()[-2000:]}")


def _answer(process: "subprocess.Popen[bytes]", senders: Sequence[msgq.PubSocket | msgq.MessageQueue]) -> int:
    """Send a message at each sleep of the process, to the endpoints in turns. Return the number of sleeps."""
    assert process.stdin is not None
    assert process.stdout is not None
    for sleeps in range(RUN_CYCLES + 1):
        if not select.select([process.stdout], [], [], LIMIT_S)[0] or not process.stdout.read(1):
            return sleeps
        senders[sleeps % len(senders)].send(bytes(SIZE))
        process.stdin.write(b"\0")
    return RUN_CYCLES + 1


def _read_count(profile: Path) -> int:
    """Return the number of instructions in a file of callgrind."""
    lines = profile.read_text().splitlines()
    return next(int(line.removeprefix("totals: ")) for line in lines if line.startswith("totals: "))


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, and print a line for each kind of cycle."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.instructions", description="Count instructions of one sleep with callgrind."
    )
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"kinds of cycles (all: {' '.join(WORKS)})")
    parser.add_argument(
        "--profiles", type=Path, metavar="DIR", help="keep callgrind's files in DIR; part 3 has 2 N cycles"
    )
    options = parser.parse_args(arguments)
    if options.profiles:
        options.profiles.mkdir(parents=True, exist_ok=True)
    for work in options.works or WORKS:
        print(f"{work}: {count_instructions(work, options.profiles):,.0f} instructions per cycle", flush=True)


if __name__ == "__main__":
    main()
