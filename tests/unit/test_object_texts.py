"""`repr`, `len` and names of pollers, masters, nodes and recorders."""

from __future__ import annotations

from pathlib import Path

import pytest

import msgq
from msgq.errors import UnknownTopicError
from msgq.recording import Recorder


def test_poller_shows_and_counts_its_readers(endpoint: str) -> None:
    poller = msgq.Poller()
    assert repr(poller) == "<msgq Poller of no readers>"
    assert poller
    with msgq.sub_sock(endpoint, poller=poller):
        assert (len(poller), repr(poller)) == (1, f"<msgq Poller of {endpoint!r}>")


def test_masters_show_and_iterate_their_topics(endpoint: str, prefix: str) -> None:
    with msgq.PubMaster([endpoint]) as pm, msgq.SubMaster([endpoint]) as sm:
        assert list(pm) == list(sm) == [endpoint]
        assert len(pm) == len(sm) == 1
        assert endpoint in pm
        assert "nosuch" not in sm
        assert repr(sm) == f"<msgq SubMaster of {endpoint!r}: 0 of 1 topic seen>"
        pm.send(endpoint, b"one")
        sm.update(0)
        assert "1 of 1 topic seen" in repr(sm)
        assert endpoint in repr(pm)


def test_misspelt_topic_of_a_master_raises_with_the_nearest_name(endpoint: str, prefix: str) -> None:
    with msgq.SubMaster([endpoint], connect=False) as sm:
        with pytest.raises(UnknownTopicError, match=f"did you mean '{endpoint}'?"):
            sm[endpoint[:-1]]
        with pytest.raises(UnknownTopicError, match=f"its topics are '{endpoint}'"):
            sm["?"]


def test_node_shows_its_channels(endpoint: str) -> None:
    with msgq.Node("navigation") as node:
        assert repr(node) == "<msgq Node 'navigation', no channels>"
        node.advertise(endpoint)
        assert repr(node) == f"<msgq Node 'navigation', 1 handle of {endpoint!r}>"
        node.channels[endpoint].unlink()


def test_recorder_shows_its_state(endpoint: str, prefix: str, tmp_path: Path) -> None:
    with msgq.pub_sock(endpoint), Recorder(tmp_path / "log", [endpoint]) as recorder:
        assert repr(recorder) == f"<Recorder '{tmp_path / 'log'}', recording: 0 messages>"
        recorder.pause()
        assert "paused" in repr(recorder)
    assert "stopped" in repr(recorder)
