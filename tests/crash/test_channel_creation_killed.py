"""Processes that are killed while they make a channel, join it and grow, around each system call."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from msgq.channel import Channel
from tests.crash.test_creation_killed import CALLS
from tests.stress.roles import fork
from tests.support import SHM, run_child

JOIN_CALLS = (*CALLS, "unlink", "advise", "row")


def join_and_die(plans: dict[str, str]) -> dict[str, int]:
    """Child: fork one process for each channel, which joins the channel and dies as planned; return the exit codes."""
    codes = {}
    for endpoint, plan in plans.items():
        if (pid := fork()) == 0:
            os.environ["MSGQ_TEST_CALLS"] = plan
            channel = Channel(endpoint, create=False)
            with channel.subscriber() as subscriber, channel.publisher(slot_bytes=64) as publisher:
                publisher.send(b"joined")
                subscriber.receive_view(0)
            os._exit(0)
        codes[endpoint] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


def die_in_turn(plans: dict[str, str]) -> dict[str, int]:
    """Child: fork one process for each channel, which dies as planned; return their exit codes."""
    codes = {}
    for endpoint, plan in plans.items():
        if (pid := fork()) == 0:
            os.environ["MSGQ_TEST_CALLS"] = plan
            with Channel(endpoint, capacity=4) as channel, channel.publisher(slot_bytes=64) as publisher:
                publisher.send(b"small")
                publisher.send(bytes(1000))
            os._exit(0)
        codes[endpoint] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


def test_channel_creation_killed_around_each_system_call_leaves_usable_channel(tools: Path, endpoint: str) -> None:
    """What: a process dies before or after each call that makes the channel file and two pools; then others use it.

    Why: a file must be complete before it has a name, and a pool must have a row before that.

    Failure would mean: a file stays that nobody removes, or others trip over it, or wait for a dead one.
    """
    plans = {
        f"{endpoint}-{when}-{call}-{at}": f"{int(signal.SIGKILL)} {when} {call} {at}"
        for when in ("before", "after")
        for call in CALLS
        for at in range(1, 8)
    }
    codes = run_child(die_in_turn, plans, env={"LD_PRELOAD": str(tools / "interpose.so")})
    assert set(codes.values()) <= {0, -signal.SIGKILL}, codes
    assert [*codes.values()].count(-signal.SIGKILL) >= 2 * 3 * 3, (
        "the channel file and two pools: is that different now?"
    )
    for name in plans:
        with Channel(name, capacity=4) as channel:
            subscriber = channel.subscriber()
            with channel.publisher() as publisher:
                for number in range(40):
                    publisher.send(bytes([number]))
                    assert subscriber.receive(0) == bytes([number]), name
                channel.publisher().close()
                assert len([*SHM.glob(f"msgqpool_{name}:*")]) <= 2, f"{name}: files of the dead"
            subscriber.close()
            channel.unlink()
    assert not [*SHM.glob(f"msgq*_{endpoint}*")]


def test_join_killed_around_each_system_call_leaves_no_living_participant(tools: Path, endpoint: str) -> None:
    """What: a process dies before or after each call by which it joins a channel that exists; then others use it.

    Why: one open file locks the channel and the row. Its page must not keep the channel's lock.

    Failure would mean: the channel stays locked or in use, or a row is lost.
    """
    plans = {
        f"{endpoint}-{when}-{call}-{at}": f"{int(signal.SIGKILL)} {when} {call} {at}"
        for when in ("before", "after")
        for call in JOIN_CALLS
        for at in range(1, 6)
    }
    for name in plans:
        Channel(name, capacity=4).close()
    codes = run_child(join_and_die, plans, env={"LD_PRELOAD": str(tools / "interpose.so")})
    assert set(codes.values()) <= {0, -signal.SIGKILL}, codes
    killed = {name.split("-")[-2] for name, code in codes.items() if code}
    assert killed >= {"lock", "unlock", "advise", "row", "link"}, "joins make these calls: is that different now?"
    for name in plans:
        with Channel(name, create=False, passive=True) as observer:
            found = observer.stats()
            assert found.opened is False, name
            assert not any(publisher.participant.alive for publisher in found.publishers), name
        with Channel(name, create=False) as channel, channel.subscriber() as subscriber:
            with channel.publisher() as publisher:
                publisher.send(b"next")
                assert subscriber.receive(0) == b"next", name
            channel.unlink()
    assert not [*SHM.glob(f"msgq*_{endpoint}*")]
