"""This checkout beside another one, in turns: `python -m tools.bench.compare OTHER_CHECKOUT`.

For a change that must cost nothing. A round measures each case in both trees, one right after the other, and each round
begins with the other tree; the table shows medians over the rounds, and medians of the ratios within one round (this
tree / the other: below 1 is better). Both trees must be built; each runs with its own ``.venv/bin/python``, or with the
present interpreter. The measured code uses public names only, so the trees may differ inside.

Times are wall clock a call, p50 and p99; beside them the CPU time of the measuring process. Nothing is asserted: run it
where nothing else runs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from statistics import median
from time import monotonic_ns, process_time_ns, sleep
from typing import Any

Measurements = dict[str, float]
MESSAGE = bytes(64)
CALLS = 20000  # in a measurement, after as many to warm up
CHUNK = 100  # calls between two reads of the clock, which takes as long as a call
QUICK = 1000
PAUSES = 13  # so many times fewer calls in a measurement with sleeps
IDLE_S = 2.0
HERE = Path(__file__).resolve().parents[2]


# ---- what the measured processes do ----


def summary(samples: list[float], cpu_ns: float) -> Measurements:
    """Return the measurements of single latencies."""
    ordered = sorted(samples)
    return {"p50": median(ordered), "p99": ordered[len(ordered) * 99 // 100], "cpu": cpu_ns / len(ordered)}


def chunks(call: Callable[[], Any], calls: int) -> Measurements:
    """Return what a call takes, by means over chunks."""
    for _ in range(calls):
        call()
    samples, began = [], process_time_ns()
    for _ in range(calls // CHUNK):
        start = monotonic_ns()
        for _ in range(CHUNK):
            call()
        samples.append((monotonic_ns() - start) / CHUNK)
    measurements = summary(samples, process_time_ns() - began)
    return {**measurements, "cpu": measurements["cpu"] / CHUNK}


def send(name: str, calls: int, subscribers: int) -> Measurements:
    """Send where so many do not take anything."""
    import msgq

    subs = [msgq.sub_sock(name) for _ in range(subscribers)]
    with msgq.pub_sock(name) as pub:
        measurements = chunks(lambda: pub.send(MESSAGE), calls)
    for sub in subs:
        sub.close()
    return measurements


def ping(name: str, calls: int, asleep: bool) -> Measurements:
    """Send and wait for the answer of another process."""
    import msgq

    with msgq.pub_sock(f"{name}a") as pub, msgq.sub_sock(f"{name}b", timeout=10000) as sub, Peer("pong", name, asleep):
        while sub.receive(True) is None:  # it has not subscribed yet
            pub.send(MESSAGE)
            sleep(0.001)
        while sub.receive(True) is not None:
            pass
        samples, began = [], process_time_ns()
        for _ in range(calls // PAUSES if asleep else calls):
            if asleep:
                sleep(0.0005)  # until the other side sleeps
            start = monotonic_ns()
            pub.send(MESSAGE)
            while sub.receive(not asleep) is None:
                pass
            samples.append((monotonic_ns() - start) / 2)
        return summary(samples, process_time_ns() - began)


def pong(name: str, asleep: bool) -> None:
    """Answer until the parent ends us."""
    import msgq

    with msgq.sub_sock(f"{name}a") as sub, msgq.pub_sock(f"{name}b") as pub:
        while True:
            if sub.receive(not asleep) is not None:
                pub.send(MESSAGE)


def wake(name: str, calls: int) -> Measurements:
    """Receive messages at a rate with short sleeps, and measure their ages."""
    import msgq

    with msgq.sub_sock(name, timeout=10000) as sub, Peer("fire", name):
        for _ in range(calls // PAUSES):
            sub.receive()
        samples, began = [], process_time_ns()
        for _ in range(4 * calls // PAUSES):
            message, now = sub.receive(), monotonic_ns()
            assert message is not None, "nothing came"
            samples.append(float(now - int.from_bytes(message[:8], "little")))
        return summary(samples, process_time_ns() - began)


def fire(name: str) -> None:
    """Send a message each 20 us, until the parent kills this process."""
    import msgq

    with msgq.pub_sock(name) as pub:
        while True:
            now = monotonic_ns()
            pub.send(now.to_bytes(8, "little") + MESSAGE)
            while monotonic_ns() < now + 20000:
                pass


def idle(name: str, _calls: int) -> Measurements:
    """Sleep in a receive, and measure the wake-ups of all threads per second."""
    import msgq

    with msgq.sub_sock(name, timeout=1) as sub:
        sub.receive()
        sub.setTimeout(int(IDLE_S * 1000))
        before, began = switches(), process_time_ns()
        sub.receive()
        each = (switches() - before) / IDLE_S
        return {"p50": each, "p99": each, "cpu": (process_time_ns() - began) / IDLE_S}


def switches() -> int:
    """Return the voluntary context switches of this process."""
    texts = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
    return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)


class Peer:
    """Another process of the same tree. The end of the ``with`` block kills it."""

    def __init__(self, role: str, *arguments: Any) -> None:
        self.process = subprocess.Popen([sys.executable, "-P", __file__, "--role", role, json.dumps(arguments)])

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


ROLES: dict[str, Callable[..., Any]] = {f.__name__: f for f in (send, ping, pong, wake, fire, idle)}
CASES: dict[str, tuple[str, list[Any]]] = {
    "send, 0 subscribers (ns)": ("send", [0]),
    "send, 14 subscribers (ns)": ("send", [14]),
    "ping-pong, busy (ns)": ("ping", [False]),
    "ping-pong, asleep (ns)": ("ping", [True]),
    "wake-ups under fire (ns)": ("wake", []),
    "idle (wake-ups a second)": ("idle", []),
}


# ---- in turns ----


def measure(tree: Path, role: str, calls: int, arguments: list[Any]) -> Measurements:
    """Measure in a process of this tree, and return the figures."""
    own = tree / ".venv" / "bin" / "python"
    name = f"compare{token_hex(6)}"
    command = [str(own) if own.exists() else sys.executable, "-P", __file__]
    command += ["--role", role, json.dumps([name, calls, *arguments])]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True, timeout=120)
    finally:
        for path in Path("/dev/shm").glob(f"*{name}*"):
            path.unlink()
    measurements: Measurements = json.loads(done.stdout)
    return measurements


def compare(other: Path, rounds: int, calls: int) -> None:
    """Print the table."""
    print(f"{'':<28} {'other p50':>11} {'this p50':>11} {'p50':>7} {'p99':>7} {'CPU':>7}  (ratios: this / other)")
    for title, (role, arguments) in CASES.items():
        pairs: list[tuple[Measurements, Measurements]] = []
        for number in range(rounds):
            first, second = (HERE, other) if number % 2 else (other, HERE)
            pair = measure(first, role, calls, arguments), measure(second, role, calls, arguments)
            pairs.append(pair[::-1] if number % 2 else pair)
        ratios = [median((new[key] or 1) / (old[key] or 1) for old, new in pairs) for key in ("p50", "p99", "cpu")]
        middle = [median(pair[side]["p50"] for pair in pairs) for side in (0, 1)]
        # The spaces separate the columns also if a number is wider than its column.
        print(f"{title:<28}", *(f"{p50:>11.1f}" for p50 in middle), *(f"{ratio:>7.3f}" for ratio in ratios), flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.compare", description="this checkout beside another")
    parser.add_argument(
        "other", type=Path, nargs="?", default=HERE, help="a built checkout; default: this one, to see the noise"
    )
    parser.add_argument("--rounds", type=int, default=9, help="of each case (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer calls: to see that all works")
    parser.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        print(json.dumps(ROLES[options.role[0]](*json.loads(options.role[1]))))
    else:
        compare(options.other.resolve(), options.rounds, QUICK if options.quick else CALLS)


if __name__ == "__main__":
    main()
