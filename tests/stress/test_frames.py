"""Frames under traffic: clients that hold them, clients that are killed, servers that are killed."""

from __future__ import annotations

import pytest

from tests.stress import frames
from tests.stress.process_group import ProcessGroup, assert_complete, finish
from tests.support import LONGER
from tests.visionipc.conftest import name

__all__ = ["name"]

SECONDS = 1.5 * LONGER  # MSGQ_STRESS=400: ten minutes


def test_frames_are_not_torn_when_clients_are_killed(scene: ProcessGroup, name: str, seed: int) -> None:
    """What: a server publishes as fast as it can; three clients hold up to three frames each for random times, a
    fourth is killed while it does so, and started again, all the time.

    Why: the leases of those that live and of those that died are looked at while the buffers go round.

    Failure would mean: a frame changes under the hands of who holds it; a client's count is wrong; the buffers that
    dead clients held are lost.
    """
    server = scene.start(frames.serve, name, seed, SECONDS)
    holders = scene.start_all([(frames.hold, name, kind, seed) for kind in frames.KINDS])
    killer = scene.start(frames.victims, name, seed)
    server.say("go")
    counts = server.hear()
    killed = finish([killer])[0]["killed"]
    print(counts, killed)
    assert_complete(finish(holders), counts["published"])
    assert killed > 1
    server.say("all are gone")
    assert server.result()["taken_back"] <= killed


@pytest.mark.nightly
def test_clients_reconnect_after_death_of_server(scene: ProcessGroup, name: str, seed: int) -> None:
    """What: a server is killed at a random moment, often in the middle of a frame, or closed, and the next one starts,
    while clients hold frames of former lives.

    Why: each life has buffers and leases of its own; a client finds its way to the newest by what the packets say.

    Failure would mean: a half frame is received, one that is held changes, a client stays with a dead server, or does
    not count what it missed.
    """
    first = scene.start(frames.first_life, name)
    holders = scene.start_all([(frames.hold, name, kind, seed) for kind in frames.KINDS])
    first.say("end")
    first.result()
    source = scene.start(frames.lives, name, seed, int(12 * LONGER) or 1)
    source.say("go")
    counts = source.result()
    reports = finish(holders)
    assert_complete(reports, counts["published"])
    assert all(report["connections"] > 1 for report in reports)
