"""The names of timing topics, and the schema of what is on them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from msgq.common import timing
from tests.cases import each_case

NAMES = [
    "planner",
    "a b",
    "100%",
    "%3A",
    "%253A",
    "x:y/z",
    "channel/scans",
    "name:broadcast",
    "@solve",
    "grüße",
    "",
    "%",
]


@each_case("stage", NAMES)
@each_case("endpoint", NAMES)
def test_timing_topic_name_contains_any_stage_and_endpoint_name(stage: str, endpoint: str) -> None:
    topic = timing.make_timing_topic(stage, endpoint)
    assert timing.parse_timing_topic(topic) == (stage, endpoint)
    assert "/" not in topic
    assert topic.count(":") == 2


def test_timing_topic_name_contains_plain_names_unchanged() -> None:
    assert timing.make_timing_topic("planner", "@solve") == "timing:planner:@solve"
    assert timing.make_timing_topic("planner", "channel/scans") == "timing:planner:channel%2Fscans"


@pytest.mark.parametrize("topic", ["orders", "timing", "timing:planner", "timing:planner:a:b", "xtiming:a:b"])
def test_parse_timing_topic_returns_none_for_other_topics(topic: str) -> None:
    assert timing.parse_timing_topic(topic) is None


def test_timing_schema_describes_timing_record() -> None:
    fields = [tuple(field) for field in json.loads(timing.TIMING_SCHEMA.data)]
    dtype = np.dtype(fields)
    assert (timing.TIMING_SCHEMA.encoding, dtype.names, dtype.itemsize) == (
        "struct",
        timing.TIMING_FIELDS,
        timing.TIMING_RECORD_BYTES,
    )
    assert {dtype[name] for name in timing.TIMING_FIELDS} == {np.dtype("<i8")}
