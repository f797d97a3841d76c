"""Servers and clients of frames that are killed or stopped at named moments."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import DEADLINE_MS, Child, hear, say, wait_until
from tests.visionipc.conftest import SOCKETS, name
from tools.chaos.kinds.frames import BUFFERS, count_published, open_server
from visionipc import VisionIpcClient, VisionIpcServer
from visionipc.server import with_spare

__all__ = ["name"]


def publish(server: VisionIpcServer, number: int) -> bool:
    with server.frame(0) as frame:
        frame.array.view(np.uint64)[:] = number
    return not frame.dropped


def connected(name: str) -> VisionIpcClient:
    client = VisionIpcClient(name, 0, False)
    client.connect(True)
    return client


def state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2]


def hold(name: str, count: int) -> list[int]:
    """Child: hold so many frames until told to look at them again."""
    client = connected(name)
    say("connected")
    frames = [client.frame(DEADLINE_MS) for _ in range(count)]
    views = [frame.array.view(np.uint64) for frame in frames]
    before = [int(view[0]) for view in views]
    say(before)
    hear()
    assert [set(view.tolist()) for view in views] == [{number} for number in before], "a held frame changed"
    return before


def render(name: str, stage: str) -> None:
    """Child: a server that stops in the middle of its second frame."""
    server = open_server(name)
    say("ready")
    hear()
    publish(server, 1)
    say("published")
    with server.frame(0) as frame:
        words = frame.array.view(np.uint64)
        words[: len(words) // 2 if stage == "half" else len(words)] = 2
        say("rendering")
        signal.pause()


def test_stopped_client_keeps_its_leases(name: Any) -> None:
    """It may be stopped for as long as it likes: it is not dead."""
    with open_server(name) as server, Child(hold, name, 2) as child:
        assert child.hear() == "connected"
        assert publish(server, 1)
        assert publish(server, 2)
        assert child.hear() == [1, 2]
        child.kill(signal.SIGSTOP)
        wait_until(lambda: state(child.pid) == "T")
        for number in range(3, 200):
            assert publish(server, number)
        assert (server.stats(0).held, server.stats(0).clients, server.stats(0).taken_back) == (2, [child.pid], 0)
        child.kill(signal.SIGCONT)
        child.say("look")
        assert child.result() == [1, 2]
        wait_until(lambda: server.stats(0).held == 0)


def test_server_waits_for_stopped_client_with_all_buffers_until_its_death(name: Any) -> None:
    with open_server(name) as server, Child(hold, name, with_spare(BUFFERS)) as child:
        assert child.hear() == "connected"
        for number in range(with_spare(BUFFERS)):
            wait_until(lambda: server.stats(0).held == number)  # noqa: B023 called before the next number
            assert publish(server, number)
        assert child.hear() == list(range(with_spare(BUFFERS)))
        child.kill(signal.SIGSTOP)
        wait_until(lambda: state(child.pid) == "T")
        assert not any(publish(server, 99) for _ in range(20))
        assert server.stats(0).dropped == 20
        child.kill()
        wait_until(lambda: publish(server, 100))
        assert (server.stats(0).held, server.stats(0).taken_back) == (0, 1)


@pytest.mark.ci
def test_server_reclaims_leases_of_many_killed_clients(name: Any) -> None:
    with open_server(name) as server:
        children = [Child(hold, name, 1) for _ in range(BUFFERS)]
        for child in children:
            assert child.hear() == "connected"
        assert publish(server, 7)
        for child in children:
            assert child.hear() == [7]
        assert sorted(server.stats(0).clients) == sorted(child.pid for child in children)
        for child in children:
            with child:
                child.kill()
        assert server.stats(0).clients == []
        wait_until(lambda: publish(server, 8) and server.stats(0).held == 0)
        assert server.stats(0).taken_back == BUFFERS


@pytest.mark.parametrize("stage", ["half", "whole"])
def test_server_killed_while_rendering_loses_only_unpublished_frame(name: Any, stage: Any) -> None:
    """What was rendered and not published is nobody's; what is held stays; the next server takes over the name."""
    with Child(render, name, stage) as child:
        assert child.hear() == "ready"
        client = connected(name)
        child.say("go")
        assert child.hear() == "published"
        held = client.frame(DEADLINE_MS).array.view(np.uint64)
        assert child.hear() == "rendering"
        child.kill()
    assert client.recv(0) is None
    assert set(held.tolist()) == {1}
    assert count_published(name) == 1
    assert list(SOCKETS.glob(f"*_visionipc_{name}")), "nobody was there to remove it"
    with open_server(name) as server:
        assert publish(server, 3)
        frame = client.frame(DEADLINE_MS)
        assert set(frame.array.view(np.uint64).tolist()) == {3}
        assert (client.connections, client.lost) == (2, 0)
        assert server.stats(0).clients == [os.getpid()]
        assert set(held.tolist()) == {1}
    client.close()
