"""Processes that are killed while they make a work queue, open and unlink it, around each system call."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from msgq.errors import SegmentError
from msgq.workqueue import MessageQueue
from tests.crash import test_creation_killed
from tests.stress.roles import fork
from tests.support import SHM, Child, run_child

CALLS = (*test_creation_killed.CALLS, "unlink", "advise", "row")
SLOTS = 4


def open_and_use(name: str, role: str) -> None:
    """Open the queue, or make it, use it a little, and perhaps unlink it."""
    with MessageQueue(name, 0 if role == "open" else None, max_messages=SLOTS) as queue:
        queue.send(b"message")
        job = queue.take(0)
        assert job is not None
        job.nack()
        if role == "unlink":
            queue.unlink()


def die_in_turn(plans: dict[str, str], role: str) -> dict[str, int]:
    """Child: fork one process for each queue, which dies as planned; return their exit codes."""
    codes = {}
    for name, plan in plans.items():
        if (pid := fork()) == 0:
            os.environ["MSGQ_TEST_CALLS"] = plan
            open_and_use(name, role)
            os._exit(0)
        codes[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


def check_queue_is_usable(queue: MessageQueue, sent: int) -> None:
    """Go on with a queue in which one process sent so many messages, or died on the way."""
    left = queue.receive_many()
    assert len(left) <= sent
    assert all(message.data == b"message" for message in left)
    for lap in range(5):
        for number in range(SLOTS):
            queue.send(bytes([lap, number]), timeout=0)
        assert [message.data[1] for message in queue.receive_many()] == [*range(SLOTS)]


@pytest.mark.parametrize("role", ["make", "open", "unlink"])
def test_queue_creation_killed_around_each_system_call_leaves_usable_queue(
    tools: Path, endpoint: str, prefix: str, role: str
) -> None:
    """What: a process dies before or after each call that makes a queue, opens one, uses and unlinks it.

    Why: a file must be complete before it has a name, and the lock must be the kernel's to drop.

    Failure would mean: half a file stays in /dev/shm, and everybody else trips over it or waits for a dead one.
    """
    plans = {
        f"{endpoint}-{when}-{call}-{at}": f"{int(signal.SIGKILL)} {when} {call} {at}"
        for when in ("before", "after")
        for call in CALLS
        for at in range(1, 5)
    }
    # A mode that the umask would take from it: else there is no fchmod.
    environment = {"LD_PRELOAD": str(tools / "interpose.so"), "MSGQ_MODE": "660"}
    with contextlib.ExitStack() as stack:
        if role == "open":
            for name in plans:
                stack.enter_context(MessageQueue(name, max_messages=SLOTS))
        codes = run_child(die_in_turn, plans, role, env=environment)
    assert set(codes.values()) == {0, -signal.SIGKILL}, codes
    # allocate, fchmod, link; lock, advise, row, unlock; unlink
    expected = {"make": 7, "open": 4, "unlink": 8}[role]
    assert len({name.split("-")[2] for name, code in codes.items() if code}) == expected, codes
    folder = SHM / f"msgqjobs_{prefix}"
    for name in plans:
        with contextlib.suppress(SegmentError) if role != "open" else contextlib.nullcontext():
            MessageQueue(name, 0, max_messages=SLOTS).close()  # complete, or not there
            assert (folder / name).stat().st_nlink == 1
        with MessageQueue(name, max_messages=SLOTS) as queue:
            check_queue_is_usable(queue, 1)
            queue.unlink()
    assert not [*folder.iterdir()], "temporary files"


def choose_sizes(name: str, max_messages: int) -> None:
    """Child: request the number of messages."""
    MessageQueue(name, max_messages=max_messages).close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["lock", "allocate", "unlock"])
def test_choice_of_sizes_killed_around_each_system_call_leaves_usable_queue(
    tools: Path, endpoint: str, call: str, when: str
) -> None:
    """What: a process dies while it chooses the sizes of a queue that others have open.

    Why: until the sizes are stored, any process may choose others, also larger ones than the file has memory for.
    """
    plan = {"LD_PRELOAD": str(tools / "interpose.so"), "MSGQ_TEST_CALLS": f"{int(signal.SIGKILL)} {when} {call} 1"}
    with MessageQueue(endpoint) as consumer:
        with Child(choose_sizes, endpoint, 100, env=plan) as child:
            assert child.process.wait() == -signal.SIGKILL
        max_messages = 100 if call == "unlock" else 200
        with MessageQueue(endpoint, max_messages=max_messages) as producer:
            messages = [b"%d" % number for number in range(max_messages)]
            assert producer.send_many([*messages, b""], timeout=0) == max_messages
            assert [message.data for message in consumer.receive_many()] == messages
            producer.unlink()
