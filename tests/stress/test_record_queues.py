"""What: several threads and the consumer of a queue of records race, with a capacity that is too small for both.

Why: arrays are copied in blocks, so a producer may come around in the middle of one. Failure would mean a torn record,
an array that spans a loss, or a wrong count of lost records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from msgq.records import RecordQueue
from tests.support import SHM, Task

ROUNDS, BURST = 1000, 64
RECORD = np.dtype([("producer", "<i8"), ("number", "<i8"), ("check", "<i8", (6,))])


@pytest.fixture
def name(token: str) -> Iterator[str]:
    yield token
    for path in SHM.glob(f"msgq*_{token}*"):
        Path(path).unlink()


def produce(name: str, producers: str, producer: int) -> None:
    with RecordQueue(name, RECORD, 256, producers=producers) as queue:  # type: ignore[arg-type]
        made = np.empty(BURST, RECORD)
        made["producer"] = producer
        for number in range(0, ROUNDS * BURST, BURST):
            made["number"] = np.arange(number, number + BURST)
            made["check"] = made["number"][:, None]
            queue.produce(made)


@pytest.mark.parametrize(("producers", "count"), [("single", 1), ("multiple", 3)])
def test_record_queue_with_many_producers_counts_losses_exactly(name: str, producers: str, count: int) -> None:
    with RecordQueue(name, RECORD, 256, producers=producers) as consumer:  # type: ignore[arg-type]
        tasks = [Task(produce, name, producers, producer) for producer in range(count)]
        total, received = count * ROUNDS * BURST, 0
        last = [-1] * count
        while received + (consumer.lost or 0) < total:
            records = consumer.consume(timeout=0.1)  # nothing comes where the rest was lost
            received += len(records)
            assert (records["check"] == records["number"][:, None]).all()
            for producer in range(count):
                numbers = records["number"][records["producer"] == producer]
                if len(numbers):
                    assert (np.diff(numbers) == 1).all(), "an array spans no loss"
                    assert numbers[0] > last[producer]
                    last[producer] = int(numbers[-1])
        for task in tasks:
            task.result()
        assert received + (consumer.lost or 0) == total
        assert len(consumer.consume(timeout=0)) == 0
