"""The example of stages finds the slow stage, and leaves no files."""

from __future__ import annotations

import pytest

from examples.pipeline import STAGES, TOPICS
from examples.test_channels import numbers, run


@pytest.mark.ci
def test_pipeline_example_finds_slow_stage_and_topic_path(prefix: str) -> None:
    output = run("pipeline", prefix)
    assert output["slowest"].startswith("track works ")
    (milliseconds,) = numbers(output["slowest"], r"works (\d+) ms on each message of objects")
    assert milliseconds >= STAGES["track"][2] * 1000
    assert output["last"] == "drive"
    assert output["path"] == " -> ".join(TOPICS)
    assert numbers(output["camera"], r"(\d+) images")[0] >= 20
