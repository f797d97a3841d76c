"""Interface of executors, which run a lake's work on workers. `msgq.spark.spark_executor` implements it with Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from msgq.common.schema import Schema
from msgq.lake.bronze.bronze_writer import UncommittedFiles
from msgq.lake.lake_directory import LakeDirectory
from msgq.recording.mcap_io.problem import Problem

_TaskT = TypeVar("_TaskT")
_ResultT = TypeVar("_ResultT")


@dataclass(slots=True)
class TaskResult:
    """Result of a task: written files, read errors, and found schemas."""

    written_files: UncommittedFiles = field(default_factory=UncommittedFiles)
    read_errors: list[Problem] = field(default_factory=list)
    schemas: set[Schema] = field(default_factory=set)


def merge_results(results: Iterable[TaskResult]) -> TaskResult:
    """Return the combined results of several tasks."""
    merged = TaskResult()
    for result in results:
        merged.written_files.add_files(result.written_files)
        merged.read_errors += result.read_errors
        merged.schemas |= result.schemas
    return merged


class LakeExecutor(Protocol):
    """Runs functions on workers. Tasks, functions and results are pickled."""

    def run_tasks(self, tasks: Sequence[_TaskT], function: Callable[[_TaskT], _ResultT]) -> list[_ResultT]:
        """Run a function on all tasks at once. Return the results in the order of the tasks."""
        ...

    def rewrite_duplicates(
        self, lake: LakeDirectory, doubtful: Sequence[str], met: Sequence[str]
    ) -> dict[str, UncommittedFiles]:
        """Rewrite the bronze files in `doubtful` that contain messages of other files.

        Return the new files by old file.

        `met`: committed files that may share messages with them.
        """
        ...
