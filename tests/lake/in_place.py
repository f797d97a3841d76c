"""An executor that runs tasks in this process, in place of Spark's workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from msgq.lake.bronze.bronze_writer import UncommittedFiles
from msgq.lake.lake_directory import LakeDirectory


class InPlaceExecutor:
    """Does what workers would do, and returns what they would send."""

    def run_tasks(self, tasks: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
        return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task))))) for task in tasks]

    def rewrite_duplicates(
        self, lake: LakeDirectory, doubtful: Sequence[str], met: Sequence[str]
    ) -> dict[str, UncommittedFiles]:
        raise NotImplementedError("messages that are there twice need Spark")
