"""What was recorded is played, and recorded again: nothing is lost on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.recording import LogReader, Player, Recorder, compare
from tests.support import DEADLINE_MS, wait_until

NS = 1_000_000_000
SAMPLE = msgq.Schema("sample", "struct", json.dumps([["x", "<f8"], ["publish_time", "<i8"]]).encode())


def record_something(path: Path) -> None:
    """Record endpoints of several kinds for half a second."""
    plain, large = msgq.pub_sock("plain"), msgq.pub_sock("large", 4 << 20)
    samples = msgq.PubSocket()
    samples.connect(msgq.context, "samples", schema=SAMPLE)
    random = np.random.default_rng(1)
    with plain, large, samples, Recorder(path, chunk_seconds=0.02) as recorder:
        for number in range(100):
            plain.send(random.bytes(number))  # the first one is empty
            samples.send(np.array([(number / 7, time.time_ns())], [("x", "<f8"), ("publish_time", "<i8")]))
            if number % 20 == 0:
                large.send(random.bytes(1_000_000))
            time.sleep(0.005)
        wait_until(lambda: recorder.stats().messages == 205)


def read_endpoint_payloads(path: Path) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for message in LogReader(path):
        found.setdefault(message.endpoint, []).append(message.data)
    return found


def test_recording_of_played_log_equals_log(prefix: str, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    record_something(first)
    with Player(first) as player, Recorder(again, chunk_seconds=0.02) as recorder:
        assert recorder.stats().endpoints == 3
        player.run()
        wait_until(lambda: recorder.stats().messages == 205)
    assert read_endpoint_payloads(again) == read_endpoint_payloads(first)
    for one, other in zip(LogReader(first).endpoints.values(), LogReader(again).endpoints.values(), strict=True):
        assert (one.endpoint, one.schema, one.messages, one.lost) == (
            other.endpoint,
            other.schema,
            other.messages,
            other.lost,
        )
    spans = [LogReader(path, endpoints=["plain"]) for path in (first, again)]
    lengths = [(log.end_time or 0) - (log.start_time or 0) for log in spans]
    assert lengths[1] - lengths[0] == pytest.approx(0, abs=NS // 5)
    assert compare(first, again)


@pytest.mark.parametrize("backend", ["msgq", "zmq", "fake"])
def test_all_backends_receive_recorded_messages(
    prefix: str, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch, backend: Any
) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    record_something(tmp_path / "log")
    wanted = read_endpoint_payloads(tmp_path / "log")
    remap = {name: f"{token}{name}" for name in wanted}
    with Player(tmp_path / "log", backend=backend, remap=remap, wait_for_readers=True, segment_size=8 << 20) as player:
        subs = {name: msgq.sub_sock(new, timeout=DEADLINE_MS, backend=backend) for name, new in remap.items()}
        player.run()
        found = {name: [sub.receive() for _ in wanted[name]] for name, sub in subs.items()}
        for sub in subs.values():
            sub.close()
    assert found == wanted
