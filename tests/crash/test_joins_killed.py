"""Processes that are killed at each step by which they make an endpoint, join it, use it a little, and leave.

The steps are those of users: Python handles, which are killed around each system call (interpose.c), and the C library,
which is killed after each write to shared memory, too (driver.c). A table names the roles. Each role meets a new
endpoint, one with living participants, and one with dead participants: they hold a row, and a pool, a message, an
element or a key.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from msgq import Board, SeqlockVector, stats
from msgq.channel import Channel
from msgq.errors import SegmentError
from msgq.topic.leftovers import remove_old_drafts
from msgq.workqueue import MessageQueue
from tests.crash.harness import WRITES, driver_program, message, number_of, plan
from tests.crash.queues import ROWS_AT
from tests.crash.records import key_name
from tests.stress.roles import publisher, subscriber
from tests.support import SHM, Child, hear, in_fork, say

SLOTS = 4
JOINED = int.from_bytes(b"joined", "little")  # the driver's number of the message
MESSAGE, HELD = message(3, 24), message(6, 24)
POINTS_MAX = 400  # more mean that no run ends
Act = Callable[[str], None]

# ---- topics ----

PAGE = 4096
# size in bytes, and the smallest memory in bytes: the ring's first and last page, the side segment up to schema_data
FILES = {"msgq_": (384 + (1 << 20), 2 * PAGE), "msgqside_": (65536, 18928)}


def publish(name: str) -> None:
    with publisher(name) as pub:
        pub.send(b"joined")


def subscribe(name: str) -> None:
    with subscriber(name) as sub:
        sub.receive(True)


def die_on_topic(name: str) -> None:
    sub, pub = subscriber(name), publisher(name)
    pub.send(b"last")
    sub.receive(True)
    os._exit(0)


def check_files(endpoint: str) -> None:
    """Only complete files have a name."""
    for kind, (size, memory) in FILES.items():
        path = SHM / f"{kind}{os.environ['OPENPILOT_PREFIX']}" / endpoint
        if path.exists():
            status = path.stat()
            assert (status.st_size, status.st_blocks * 512 >= memory) == (size, True)
            assert status.st_nlink == 1


def check_topic(name: str) -> None:
    """Observe the dead, then let the living go on."""
    check_files(name)
    with contextlib.suppress(SegmentError):  # there is none
        found = stats.topic(name)
        assert not any(reader.participant.alive for reader in found.subscribers)
        assert found.publisher is None or not found.publisher.alive
    with subscriber(name) as sub, publisher(name) as pub:
        pub.send(b"next")
        assert sub.receive() == b"next"
        assert sub.lost == 0
        with publisher(name) as successor:
            successor.send(b"after")
        assert sub.receive() == b"after"
    check_files(name)


@contextlib.contextmanager
def live_on_topic(name: str) -> Iterator[None]:
    with subscriber(name) as sub, publisher(name) as pub:
        pub.send(b"before")
        yield
        assert sub.receive() == b"before"
        assert sub.receive(True) in (None, b"joined")
        with publisher(name) as successor:
            successor.send(b"after")
        assert sub.receive() == b"after"
        assert sub.lost == 0


# ---- channels ----


def publish_on_channel(name: str) -> None:
    with Channel(name, capacity=4) as channel, channel.publisher(slot_bytes=64) as pub:
        pub.send(b"joined")
        loan = pub.loan(8)
        pub.send(bytes(1000))  # the pool grows; the loan keeps the former one
        loan[:] = b"lent out"
        loan.publish()


def subscribe_to_channel(name: str) -> None:
    with Channel(name, capacity=4) as channel, channel.subscriber(history=4) as sub:
        view = sub.receive_view(0)
        channel.subscriber().close()  # has steps at which the view pins its slot
        del view


def die_on_channel(name: str) -> None:
    channel = Channel(name, capacity=4)
    pub, sub = channel.publisher(slots=2), channel.subscriber()
    pub.send(b"last")
    assert sub.receive_view(0)
    os._exit(0)


def check_channel(name: str) -> None:
    prefix = os.environ["OPENPILOT_PREFIX"]
    with contextlib.suppress(SegmentError), Channel(name, create=False, passive=True) as observer:
        found = observer.stats()
        assert found.opened is False
        ends: list[Any] = [*found.publishers, *found.subscribers, *found.viewers]
        assert not any(end.participant.alive for end in ends)
        assert found.orphans == (), "a pool with a name has a row"
    with Channel(name, capacity=4) as channel, channel.subscriber() as sub:
        # the dead publisher gave its last message a position, and did not advance the tail
        assert sub.receive_many() in ([], [b"joined"], [bytes(1000)], [b"lent out"])
        with channel.publisher() as pub:
            for number in range(40):
                pub.send(bytes([number]))
                assert sub.receive(0) == bytes([number])
            channel.publisher().close()
            assert len([*SHM.glob(f"msgqpool_{prefix}/{name}:*")]) <= 2, "pools of the dead"
        channel.unlink()
    assert not [*SHM.glob(f"msgq*_{prefix}/{name}*")]


@contextlib.contextmanager
def live_on_channel(name: str) -> Iterator[None]:
    with Channel(name, capacity=4) as channel, channel.publisher(slots=2) as pub:
        pub.send(b"held")
        yield
        with channel.subscriber() as sub:
            sub.receive_many()
            pub.send(b"second")
            view = sub.receive_view(0)  # in the row of a dead viewer, whose pins are gone
            assert bytes(view) == b"second"
            for _ in range(4):
                pub.send(b"in the other slot")
            view.release()


# ---- work queues ----


def use_queue(name: str) -> None:
    with MessageQueue(name, max_messages=SLOTS) as queue:
        queue.send(MESSAGE)
        job = queue.take(0)
        assert job is not None
        job.nack()


def die_with_a_job(name: str) -> None:
    queue = MessageQueue(name, max_messages=SLOTS)
    queue.send(HELD)
    assert queue.take(0)
    os._exit(0)


def check_queue(name: str) -> None:
    with contextlib.suppress(SegmentError):  # there is none
        assert not any(handle.participant.alive for handle in stats.queue(name).handles)
        assert (SHM / f"msgqjobs_{os.environ['OPENPILOT_PREFIX']}" / name).stat().st_nlink == 1
    with MessageQueue(name, max_messages=SLOTS) as queue:
        left = [message.data for message in queue.receive_many()]
        assert left in ([], [MESSAGE], [HELD], [HELD, MESSAGE])
        for lap in range(5):
            for number in range(SLOTS):
                queue.send(bytes([lap, number]), timeout=0)
            assert [message.data[1] for message in queue.receive_many()] == [*range(SLOTS)]
        queue.unlink()


@contextlib.contextmanager
def live_with_a_job(name: str) -> Iterator[None]:
    with MessageQueue(name, max_messages=SLOTS) as queue:
        queue.send(HELD)
        job = queue.take(0)
        assert job is not None
        yield
        assert [message.data for message in queue.receive_many()] in ([], [MESSAGE])
        job.ack()


# ---- records ----


def open_record(kind: str, name: str) -> Any:
    if kind == "board":
        return Board(name, keys=2, value_bytes=16)
    return SeqlockVector(name, "u8", 2, exclusive=kind == "exclusive")


def write(handle: Any, number: int) -> None:
    if isinstance(handle, Board):
        with handle.declare(key_name(0)) as entry:
            entry.write(message(number))
    else:
        handle[0] = number


def read(handle: Any) -> int:
    """Return what is there; 0: nothing was written."""
    if not isinstance(handle, Board):
        return int(handle[0])
    data = handle.observe(key_name(0)).data() or bytes(16)
    return number_of(data)


def write_record(kind: str, name: str) -> None:
    with open_record(kind, name) as handle:
        write(handle, 7)


def die_with_a_record(kind: str, name: str) -> None:
    handle = open_record(kind, name)
    if isinstance(handle, Board):
        handle.declare(key_name(0)).write(bytes(16))
    else:
        handle[0] = 0
    os._exit(0)


def check_record(kind: str, name: str) -> None:
    with contextlib.suppress(SegmentError):  # there is none
        assert not any(writer.participant.alive for writer in stats.record(name).writers)
        assert (SHM / f"msgqrec_{os.environ['OPENPILOT_PREFIX']}" / name).stat().st_nlink == 1
    with open_record(kind, name) as handle:
        assert read(handle) in (0, 6, 7)
        write(handle, 8)
        assert read(handle) == 8
        handle.unlink()


@contextlib.contextmanager
def live_with_a_record(kind: str, name: str) -> Iterator[None]:
    with open_record(kind, name) as handle:
        yield
        assert read(handle) in (0, 6, 7)


# ---- the table ----


@dataclass(frozen=True)
class Role:
    """What a process does with an endpoint, and who lives or has died there.

    `act`: the call of Python. `c`: the same by the driver, its kind and operations. None: C has no such call.
    `live`: has living participants before the block, and uses them after it.
    `die`: leaves a dead participant.
    `check`: observes what the killed process left, and uses the endpoint as others do.
    """

    act: Act
    live: Callable[[str], contextlib.AbstractContextManager[None]]
    die: Act
    check: Act
    c: str | None = None


RECORDS = {
    "shared": "vector:2 arm open write:0:7",
    "exclusive": "vector:2:1 arm open write:0:7",
    "board": "board:2 arm openboard declare:0 put:0:6",
}


def of_record(kind: str, unlinks: bool = False) -> Role:
    c = None if unlinks else f"record {RECORDS[kind]} leave"
    act = partial(unlink, partial(open_record, kind)) if unlinks else partial(write_record, kind)
    live, die = partial(live_with_a_record, kind), partial(die_with_a_record, kind)
    return Role(act, live, die, partial(check_record, kind), c)


def unlink(opened: Callable[[str], Any], name: str) -> None:
    with opened(name) as handle:
        handle.unlink()


ROLES = {
    "publisher": Role(publish, live_on_topic, die_on_topic, check_topic, f"topic arm claim send:6:{JOINED} close"),
    "subscriber": Role(subscribe, live_on_topic, die_on_topic, check_topic, "topic arm join receive:1 leave"),
    "channel's publisher": Role(
        publish_on_channel,
        live_on_channel,
        die_on_channel,
        check_channel,
        f"channel history:0:4 arm join:0:64 send:6:{JOINED} send:1000:0 close",
    ),
    "channel's subscriber": Role(
        subscribe_to_channel,
        live_on_channel,
        die_on_channel,
        check_channel,
        "channel history:4:4 arm listen receive:1 leave",
    ),
    "queue": Role(
        use_queue, live_with_a_job, die_with_a_job, check_queue, "queue slots:4 arm join send:3 take:1 nack leave"
    ),
    "queue's end": Role(
        partial(unlink, partial(MessageQueue, max_messages=SLOTS)), live_with_a_job, die_with_a_job, check_queue
    ),
    "vector": of_record("shared"),
    "exclusive vector": of_record("exclusive"),
    "board": of_record("board"),
    "board's end": of_record("board", unlinks=True),
}


# ---- the driver ----


def die_as_planned(role: str) -> None:
    """Child: fork a process for each endpoint and plan that the parent says, and say its exit code."""
    import numpy  # noqa: F401  # once, and not in each of them

    while planned := hear():
        name, plan = planned
        os.environ |= plan
        say(in_fork(partial(ROLES[role].act, name)))


@contextlib.contextmanager
def python_victims(role: str, interposer: Path) -> Iterator[Callable[[str, int, str], int]]:
    with Child(die_as_planned, role, env={"LD_PRELOAD": str(interposer)}) as child:

        def run(name: str, number: int, point: str) -> int:
            child.say((name, plan(signal.SIGKILL, number, point)))
            return int(child.hear())

        yield run
        child.say()
        child.result()


@contextlib.contextmanager
def c_victims(role: str, _interposer: Path) -> Iterator[Callable[[str, int, str], int]]:
    def run(name: str, number: int, point: str) -> int:
        command = [str(driver_program()), *str(ROLES[role].c).replace(" ", f" {name} ", 1).split()]
        env = os.environ | plan(signal.SIGKILL, number, point)
        return subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=False).returncode

    yield run


PYTHON = [("Python", role) for role in ROLES]
C = [("C", name) for name, role in ROLES.items() if role.c]


@pytest.mark.parametrize("endpoint_is", ["new", "of the living", "of the dead"])
@pytest.mark.parametrize(("language", "role"), [*PYTHON, *C])
def test_join_killed_at_each_step_leaves_usable_endpoint(
    interposer: Path,
    endpoint: str,
    prefix: str,
    language: str,
    role: str,
    endpoint_is: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What: a process dies at the first step, at the second one, and so on, until it is not killed any more.

    Why: a file must be complete before it has a name, a pool needs a row before that, and locks are the kernel's.

    Failure would mean: a file stays that nobody removes, or others trip over it, wait for a dead process or lose a row.
    """
    monkeypatch.setenv("MSGQ_MODE", "660")  # a mode that the umask does not give: else there is no fchmod
    with (python_victims if language == "Python" else c_victims)(role, interposer) as run:
        for point in range(1, POINTS_MAX):
            name = f"{endpoint}-{point}"
            if endpoint_is == "of the dead":
                assert in_fork(partial(ROLES[role].die, name)) == 0
            with ROLES[role].live(name) if endpoint_is == "of the living" else contextlib.nullcontext():
                code = run(name, point, "call: *" if language == "Python" else WRITES)
                assert code in (0, -signal.SIGKILL)
            ROLES[role].check(name)
            if code == 0:
                break
    assert code == 0
    assert point > 4, "the steps between system calls: are they different now?"
    for draft in SHM.glob(f".msgq*_{prefix}.*"):  # the folder of the prefix, before it has its name and mode
        os.utime(draft, (0, 0))
    assert all(draft.removed for draft in remove_old_drafts(prefix))
    assert not [*SHM.glob(f".msgq*_{prefix}.*")]
    left = [path for path in SHM.glob(f"msgq*_{prefix}/*") if not path.name.startswith(endpoint)]
    assert not left, "temporary files"


@pytest.mark.parametrize("victims", [python_victims, c_victims])
def test_queue_lock_is_released_after_the_row_has_an_owner(
    interposer: Path, endpoint: str, prefix: str, victims: Callable[..., contextlib.AbstractContextManager[Any]]
) -> None:
    """A kill at the release finds the row taken: otherwise two processes could repair and take it at the same time."""
    with victims("queue", interposer) as run:
        assert run(endpoint, 1, "call: before unlock") == -signal.SIGKILL
    file = SHM / f"msgqjobs_{prefix}" / endpoint
    assert any(file.read_bytes()[ROWS_AT : ROWS_AT + 8]), "nobody has the first row"
    ROLES["queue"].check(endpoint)
