"""Results of a run: what the processes and counters say, checks, and the table for the user."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgq.recording import EndpointInfo, LogReader
from msgq_demo.endpoints import BUSY, FRAMES, GAUGES, JOBS
from msgq_demo.roles import SUBSCRIBERS, WORKERS


@dataclass(frozen=True)
class Flow:
    """Messages of an endpoint that one subscriber received, with the median and the 99th percentile of their latency.

    Attributes:
        lost: number of lost messages, by the library's count.
    """

    subscriber: str
    endpoint: str
    received: int
    lost: int
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Restart:
    """The killed publisher, and the time until the first message of its successor."""

    endpoint: str
    killed_pid: int
    outage_ms: int


@dataclass(frozen=True)
class Work:
    """Counters of the work queue.

    Attributes:
        returned: number of jobs that a dead worker had, and that the queue gave to another worker.
        unfinished: number of jobs that wait, or that a worker has.
        killed_pid: the killed worker; None: none was killed.
    """

    sent: int
    acknowledged: int
    returned: int
    unfinished: int
    killed_pid: int | None


@dataclass(frozen=True)
class Recorded:
    """An endpoint in the recording.

    Attributes:
        published: number of published messages according to the recording.
        lost: number of published messages that the recording lacks.
    """

    endpoint: str
    messages: int
    published: int
    lost: int


@dataclass
class Results:
    """Results of a run. `published` has the number of messages of each endpoint."""

    interrupted: bool = False
    duration_s: float = 0.0
    published: dict[str, int] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    restart: Restart | None = None
    work: Work | None = None
    recording_path: str | None = None
    recording: list[Recorded] = field(default_factory=list)
    replay: str = ""
    failures: list[str] = field(default_factory=list)


def read_recording(path: Path) -> Iterator[Recorded]:
    """Yield what the recording contains of each endpoint."""
    log = LogReader(path)
    for info in log.endpoints.values():
        yield Recorded(info.endpoint, info.messages, _count_published(log, info), info.lost or 0)


def _count_published(log: LogReader, info: EndpointInfo) -> int:
    """Return the number of published messages according to the recording."""
    if info.endpoint == JOBS:  # each job has several events
        return sum(event["event"] == "sent" for _, event in log[JOBS].decoded())
    if info.endpoint == GAUGES:  # a value that was overwritten soon has no message, but the next one has a higher count
        changes = log.to_numpy(GAUGES)
        return sum(dict(zip(changes["index"].tolist(), changes["count"].tolist(), strict=True)).values())
    return info.messages + (info.lost or 0)


def find_failures(results: Results) -> Iterator[str]:
    """Yield the violated promises of the library."""
    for flow in results.flows:
        yield from _check_flow(flow, results)
    yield from _check_recording(results)
    if results.work is not None and not results.interrupted:
        yield from _check_work(results.work)


def _check_flow(flow: Flow, results: Results) -> Iterator[str]:
    where, published = f"{flow.subscriber} of {flow.endpoint}", results.published[flow.endpoint]
    if not flow.received and not results.interrupted:
        yield f"{where} received nothing"
    if flow.subscriber in WORKERS:  # each job is given to one worker
        return
    if flow.received + flow.lost != published:
        yield f"{where}: received {flow.received} + lost {flow.lost} differs from published {published}"
    if flow.lost and not SUBSCRIBERS[flow.subscriber].may_lose:
        yield f"{where} lost {flow.lost}"


def _check_recording(results: Results) -> Iterator[str]:
    recorded = {each.endpoint: each for each in results.recording}
    for endpoint, published in results.published.items() if results.recording_path else ():
        if endpoint == FRAMES:  # recorded as pictures, at a lower rate
            continue
        if endpoint not in recorded or recorded[endpoint].published != published:
            found = recorded[endpoint].published if endpoint in recorded else 0
            yield f"{endpoint}: {found} of {published} messages in the recording"
        elif recorded[endpoint].lost and endpoint != BUSY:
            yield f"{endpoint}: the recording lacks {recorded[endpoint].lost} messages"


def _check_work(work: Work) -> Iterator[str]:
    if work.acknowledged != work.sent or work.unfinished:
        yield f"{work.acknowledged} of {work.sent} jobs finished, and {work.unfinished} unfinished"
    if work.killed_pid is None or not work.returned:
        yield "no job of the killed worker returned to the queue"


def print_results(results: Results) -> None:
    """Print a table with a line for each subscriber, the other results, and commands to try next."""
    _print_flows(results)
    if results.restart is not None:
        killed = f"{results.restart.endpoint}: publisher {results.restart.killed_pid} was killed"
        print(f"{killed} and replaced after {results.restart.outage_ms:,} ms")
    if results.work is not None:
        done = f"{JOBS}: {results.work.acknowledged:,} of {results.work.sent:,} jobs finished"
        print(f"{done}; {results.work.returned:,} returned from the killed worker {results.work.killed_pid}")
    if results.recording:
        messages, lost = (sum(getattr(one, name) for one in results.recording) for name in ("messages", "lost"))
        print(f"recorded, and read back: {messages:,} messages, lost {lost:,}")
    if results.replay:
        print(f"replayed twice in virtual time: {results.replay}")
    for failure in results.failures:
        print(f"FAILED {failure}")
    end = ", ended early" if results.interrupted else ""
    print(f"{'some checks failed' if results.failures else 'all checks passed'} ({results.duration_s:.1f} s{end})")
    if results.recording_path:
        _print_next_commands(shlex.quote(results.recording_path))


def _print_flows(results: Results) -> None:
    print("endpoint         published  subscriber  received      lost    p50 us    p99 us")
    for endpoint, published in results.published.items():
        first = f"{endpoint:16} {published:9,}"
        for flow in results.flows:
            if flow.endpoint == endpoint:
                latencies = f"{flow.p50_us:9,.1f} {flow.p99_us:9,.1f}"
                print(f"{first:26}  {flow.subscriber:10} {flow.received:9,} {flow.lost:9,} {latencies}")
                first = ""
    print("Subscribers count losses: received + lost = published.")


def _print_next_commands(recording: str) -> None:
    print("Play the recording, and try the other commands in a second terminal:")
    print(f"  msgq play --loop {recording}")
    print("  msgq list")
    print("  msgq echo cpu --count 3")
    print("  msgq record --all -o drive --duration 3")
