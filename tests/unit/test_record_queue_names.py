"""A queue of records with one producer, which another process creates, opens or removes in the middle of a step."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgq.common import shm_paths
from msgq.errors import SegmentError
from msgq.records import RecordQueue, topic_transport
from tests.support import SHM, Task

QUOTE = np.dtype([("number", "<i8"), ("price", "<f8")])


def act_before_connect(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    """Call `action` once, between the check for an existing queue and the step that creates or opens it."""
    real = topic_transport.resolve_ring_bytes

    def act_first(*arguments: Any) -> int:
        monkeypatch.setattr(topic_transport, "resolve_ring_bytes", real)
        action()
        return real(*arguments)

    monkeypatch.setattr(topic_transport, "resolve_ring_bytes", act_first)


def files(prefix: str) -> list[Path]:
    return list(SHM.glob(f"msgq*_{prefix}/*"))


def test_record_queue_create_fails_if_another_process_creates_first(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[RecordQueue] = []
    act_before_connect(monkeypatch, lambda: others.append(RecordQueue("quotes", QUOTE, create=True)))
    with pytest.raises(SegmentError) as error:
        RecordQueue("quotes", QUOTE, create=True)
    assert error.value.errno == errno.EEXIST
    with others[0] as queue:
        assert queue.produce([(1, 0.5)]) == 0
        assert queue.consume(timeout=0)["number"].tolist() == [1], "the queue of the other one is as it was"


def test_record_queue_open_fails_if_another_process_unlinks_first(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RecordQueue("quotes", QUOTE, create=True) as queue:
        act_before_connect(monkeypatch, queue.unlink)
        with pytest.raises(SegmentError) as error:
            RecordQueue("quotes", QUOTE, create=False)
        assert error.value.errno == errno.ENOENT
        assert not files(prefix), "the open has created nothing"


@pytest.mark.parametrize("by_name", [False, True])
def test_record_queue_unlink_waits_for_open_in_progress(prefix: str, by_name: bool) -> None:
    """An open holds the lock of the ring until it has created the side segment."""
    with RecordQueue("quotes", QUOTE) as queue, open(shm_paths.ring_path("quotes", prefix), "rb") as ring:
        fcntl.flock(ring, fcntl.LOCK_EX)
        unlink = Task(lambda: RecordQueue.unlink_name("quotes", prefix)) if by_name else Task(queue.unlink)
        unlink.wait_asleep()
        assert len(files(prefix)) == 2, "ring and side segment"
        fcntl.flock(ring, fcntl.LOCK_UN)
        unlink.result()
        assert not files(prefix)


def test_record_queue_unlink_removes_side_segment_without_ring(prefix: str) -> None:
    with RecordQueue("quotes", QUOTE):
        Path(shm_paths.ring_path("quotes", prefix)).unlink()
        RecordQueue.unlink_name("quotes", prefix)
        assert not files(prefix)
        with pytest.raises(SegmentError) as error:
            RecordQueue.unlink_name("quotes", prefix)
        assert error.value.errno == errno.ENOENT
