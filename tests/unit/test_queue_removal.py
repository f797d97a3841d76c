"""What goes with a queue that is cleaned away."""

from __future__ import annotations

import os

import pytest

from msgq import stats
from msgq.common import shm_paths
from msgq.common.naming import events_channel
from msgq.impl.workqueue import core, removal
from msgq.workqueue import MessageQueue


def test_removal_deletes_events_channel_before_queue_file(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failure would mean: the events of a queue that somebody makes just then are taken from all who listen."""
    with MessageQueue("jobs", events=True) as queue:
        queue.send(b"x")
    remove, there = removal.remove_events, []

    def watched(name: str, in_prefix: str) -> None:
        there.append(os.path.exists(shm_paths.queue_path(name, in_prefix)))
        remove(name, in_prefix)

    monkeypatch.setattr(core, "remove_events", watched)
    assert not core.remove_queue("jobs", prefix, lambda stats: False)
    assert os.path.exists(shm_paths.channel_path(events_channel("jobs"), prefix))
    assert core.remove_queue("jobs", prefix, lambda stats: True)
    assert there == [True]
    assert not os.path.exists(shm_paths.channel_path(events_channel("jobs"), prefix))
    assert [one.endpoint for one in stats.endpoints()] == []
