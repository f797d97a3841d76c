"""What stages say is recorded with all else, and the live tree is that of the recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from msgq.common import timing
from msgq.common.thread_samples import PARTICIPANTS_ENDPOINT, SAMPLES_ENDPOINT
from msgq.monitor.hop_tree import HopTreeCollector, compute_hops
from msgq.recording import LogReader, Recorder
from tests.support import Child
from tests.unit import stage_children

NAMES = ["camera", "model", "plan"]


def test_full_recording_gives_same_stage_tree_as_live_topics(prefix: str, tmp_path: Path) -> None:
    view = HopTreeCollector(lambda _: True, 600.0)
    with (
        Child(stage_children.publish_chain, NAMES, 300) as child,
        stage_children.timing_publisher("planner", "model") as beside,
    ):
        child.hear()
        view.poll()
        with Recorder(tmp_path / "log", chunk_seconds=0.02):
            child.say()
            beside.send(stage_children.timing_record(5, 6, 7, 4))
            assert child.hear() == "sent"
        view.poll()
        live = view.build_tree()
        child.say()
        child.result()
    log = LogReader(tmp_path / "log")
    assert log.endpoints.keys() - {SAMPLES_ENDPOINT, PARTICIPANTS_ENDPOINT} == {*NAMES, "timing:planner:model"}
    schema = log.endpoints["timing:planner:model"].schema
    assert schema is not None
    assert (schema.name, schema.data) == (timing.TIMING_SCHEMA.name, timing.TIMING_SCHEMA.data)
    rows: list[tuple[Any, ...]] = []
    for message in log:
        if message.endpoint in NAMES:
            (step,) = np.frombuffer(message.data, stage_children.STEP)
            rows.append((NAMES.index(message.endpoint), message.publish_time, int(step["origin_time"])))
    recorded = compute_hops(NAMES, *np.array(rows, np.int64).T)
    assert sorted(recorded, key=str) == sorted(live.hops, key=str)
    assert [hop.messages for hop in recorded] == [300, 300, 300]
