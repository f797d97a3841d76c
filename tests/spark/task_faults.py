"""Faults in the jobs of a lake. A fault happens when a task has written its files and has not returned its result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import psutil
from pyspark import TaskContext

from msgq.spark import spark_executor
from tests.spark.deadline import DEADLINE
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings with which Spark soon runs a copy of a slow task, even of the only task of a job.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.task.duration.threshold": "100ms",
    "spark.speculation.efficiency.enabled": "false",
}


@contextmanager
def inject_faults(directory: Path, *faults: Callable[[Path], None]) -> Iterator[None]:
    """Within the block, call functions in all tasks of a lake. The functions get a path in `directory` for each job."""
    run_tasks, job_numbers = spark_executor.run_tasks_on_workers, itertools.count()

    def run_faulty_tasks(spark: SparkSession, tasks: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
        marker = directory / f"job{next(job_numbers)}"

        def run_faulty_task(task: Any) -> Any:
            result = function(task)
            for fault in faults:
                fault(marker)
            return result

        return run_tasks(spark, tasks, run_faulty_task)

    with mock.patch.object(spark_executor, "run_tasks_on_workers", run_faulty_tasks):
        yield


def kill_executor(marker: Path) -> None:
    """Kill the executor of this worker, once in a job."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    daemon, executor = psutil.Process().parents()[:2]
    assert executor.name() == "java", f"the parent of {daemon} is {executor}"
    executor.kill()


def wait_for_copy(marker: Path) -> None:
    """In the first task of a job, wait until a copy of the task has written its files, too."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0:
        if context.attemptNumber() == 0:
            wait_until(marker.exists, "a copy of the task", DEADLINE, 0.01)
        else:
            marker.touch()
