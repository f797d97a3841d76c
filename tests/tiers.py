"""A pytest plugin that marks tests for the make targets.

`make test` runs the unmarked tests, `make lint` runs those marked `style`, `make ci` adds those marked `ci`, and
`make nightly` runs all tests. All tests of a file below have the mark of its list.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("ci", "nightly", "style")
STYLE = (  # rules for names, texts, comments and imports, and the pages and examples of the documents
    "tests/meta/test_architecture.py",
    "tests/meta/test_benchmarks_page.py",
    "tests/meta/test_cli_output.py",
    "tests/meta/test_docstrings.py",
    "tests/meta/test_errors_page.py",
    "tests/meta/test_help_texts.py",
    "tests/meta/test_imports.py",
    "tests/meta/test_memory_order_edges.py",
    "tests/meta/test_nightly.py",
    "tests/meta/test_prose.py",
    "tests/meta/test_readme.py",
    "tests/meta/test_real_time.py",
    "tests/meta/test_verbs.py",
    "tests/meta/test_vocabulary.py",
)
CI = (
    "examples/test_channels.py",
    "examples/test_queues.py",
    "tests/crash/",
    "tests/fuzz/",
    "tests/lake/",
    "tests/report/",
    "tests/sanitizers/",
    "tests/spark/",
    "tests/stress/",
    "tests/contract/test_bridge.py",
    "tests/contract/test_demo.py",
    "tests/contract/test_stock_",
    "tests/contract/test_tracked_zmq.py",
    "tests/contract/test_zmq_",
    "tests/meta/test_build.py",
    "tests/meta/test_model.py",
    "tests/recording/test_bombs.py",
    "tests/unit/test_bench",
    "tests/unit/test_c_opening.py",
    "tests/unit/test_c_programs.py",
    "tests/unit/test_c_queue_events.py",
    "tests/unit/test_base.py",
    "tests/unit/test_pytest_plugin.py",
    "tests/unit/test_file_permissions.py",
    "tests/unit/test_row_locks.py",
    "tests/unit/test_settings_values.py",
    "tests/visionipc/test_stock_",
)


def is_fast_run(config: pytest.Config) -> bool:
    """Whether this is the run of `make test`."""
    return "not ci" in config.option.markexpr


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files whose tests the mark expression deselects, because that takes seconds."""
    return True if is_fast_run(config) and _mark_of_file(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the files above."""
    mark = _mark_of_file(item.path)
    if mark and not item.get_closest_marker("nightly"):
        item.add_marker(mark)


@cache
def _mark_of_file(path: Path) -> str | None:
    """Return the mark of all tests in a file or folder, or None."""
    name = f"{path.relative_to(ROOT)}{'/' * path.is_dir()}" if path.is_relative_to(ROOT) else ""
    return next((mark for mark, files in (("ci", CI), ("style", STYLE)) if name.startswith(files)), None)
