"""The interface of executors, which run a lake's work on workers; `msgq.spark.spark_executor` has the one on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from msgq.common.schema import Schema
from msgq.lake.bronze.bronze_writer import UncommittedFiles
from msgq.recording.mcap_io.problem import Problem

_TaskT = TypeVar("_TaskT")
_ResultT = TypeVar("_ResultT")


@dataclass(slots=True)
class TaskResult:
    """What a task has done: what it wrote, what it could not read, and the schemas that it met."""

    written_files: UncommittedFiles = field(default_factory=UncommittedFiles)
    read_errors: list[Problem] = field(default_factory=list)
    schemas: set[Schema] = field(default_factory=set)


def merge_results(results: Iterable[TaskResult]) -> TaskResult:
    """Return the results of several tasks as one."""
    merged = TaskResult()
    for result in results:
        merged.written_files.add_files(result.written_files)
        merged.read_errors += result.read_errors
        merged.schemas |= result.schemas
    return merged


class LakeExecutor(Protocol):
    """Runs functions on workers. Tasks, functions and results are pickled."""

    def run_tasks(self, tasks: Sequence[_TaskT], function: Callable[[_TaskT], _ResultT]) -> list[_ResultT]:
        """Run a function on each of these tasks, all at once; return the results in the order of the tasks."""
        ...

    def rewrite_duplicates(self, uri: str, doubtful: Sequence[str], met: Sequence[str]) -> dict[str, UncommittedFiles]:
        """Write those doubtful files of bronze again that have messages of others; return the new files by the old.

        met : committed files with which they may share messages.
        """
        ...
