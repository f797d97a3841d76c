"""A lake continues after another program has merged and removed files of its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake")
from deltalake import DeltaTable

from tests.lake.local_lake import LocalLake, check_lake_continues, make_rows


def optimize(table: Path) -> None:
    """Merge and remove files, as OPTIMIZE and VACUUM of delta-spark do."""
    delta = DeltaTable(str(table))
    if not any("%7E" in uri or "~" in uri for uri in delta.file_uris()):  # delta-rs does not find these files
        delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False)


def test_lake_continues_after_optimize_and_vacuum_of_delta_rs(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path / "written")
    for number in range(2):
        lake.ingest(*make_rows(number, number))
        lake.build()
    check_lake_continues(lake, tmp_path, optimize)
