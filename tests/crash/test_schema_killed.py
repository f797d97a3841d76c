"""A publisher that is killed while it describes its messages: the schema is the former or the new one, never none."""

from __future__ import annotations

import pytest

import msgq
from msgq import stats
from tests.crash.victims import Topic

FORMER, NEW = msgq.Schema("F", "F", b"F" * 100), msgq.Schema("N", "N", b"N" * 3000)
OTHER = msgq.Schema("O", "O", b"O" * 20_000)
DESCRIBE = {"F": "schema:100:70", "N": "schema:3000:78", "O": "schema:20000:79"}


def schema_of(topic: Topic) -> msgq.Schema | None:
    return stats.topic(topic.endpoint).schema


def test_schema_writer_killed_at_each_step_leaves_valid_schema(topic: Topic) -> None:
    """What: a writer dies at each of its points, after another schema was there; then comes the next one.

    Why: an odd turn that nobody ends would hide the schema from every tool until somebody describes the topic anew.

    Failure would mean: `msgq info`, the recorder and decoders lose the schema with a publisher that was killed.
    """
    operations = f"{DESCRIBE['F']} arm {DESCRIBE['N']}"
    with topic.another("trace") as trial:
        points = trial.points(operations)
    assert any("mq_schema_write_shadow: stored parts->shadow" in point for point in points)
    seen = set()
    for at in range(1, len(points) + 1):
        with topic.another(at) as trial:
            trial.kill(operations, at=at)
            left = schema_of(trial)
            assert left in (FORMER, NEW), points[at - 1]
            seen.add(left)
            trial.driver(DESCRIBE["O"]).ended(0)
            assert schema_of(trial) == OTHER, points[at - 1]
    assert seen == {FORMER, NEW}


@pytest.mark.parametrize("second", ["F", "N", "O"])
def test_second_schema_writer_killed_during_repair_leaves_valid_schema(topic: Topic, second: str) -> None:
    """What: a second writer dies at each of its points, after a first one that died half-way."""
    first = f"{DESCRIBE['F']} arm {DESCRIBE['N']}"
    half_way = ("mq_schema_write_in_place: half copied to parts->data", 2)
    known = {"F": FORMER, "N": NEW, "O": OTHER}
    with topic.another("trace") as trial:
        trial.kill(f"arm {first}", *half_way)
        points = trial.points(f"arm {DESCRIBE[second]}")
    for at in range(1, len(points) + 1):
        with topic.another(at) as trial:
            trial.kill(f"arm {first}", *half_way)
            assert schema_of(trial) == NEW
            trial.kill(f"arm {DESCRIBE[second]}", at=at)
            assert schema_of(trial) in (NEW, known[second]), points[at - 1]


def test_publisher_restart_with_same_schema_writes_no_schema(topic: Topic) -> None:
    topic.driver(DESCRIBE["O"]).ended(0)
    before = topic.side_bytes()
    topic.driver(DESCRIBE["O"]).ended(0)
    assert topic.side_bytes() == before


def test_schema_too_large_for_shadow_copy_is_written(topic: Topic) -> None:
    topic.driver(f"{DESCRIBE['F']} schema:46000:79").ended(0)
    assert schema_of(topic) == msgq.Schema("O", "O", b"O" * 46_000)
    topic.driver(DESCRIBE["N"]).ended(0)
    assert schema_of(topic) == NEW
