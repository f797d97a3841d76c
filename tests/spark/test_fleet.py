"""Fleet tables by Spark's workers: the command, and 50 lakes on a cluster."""

from __future__ import annotations

import json
import random
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark")
from msgq.errors import InvalidValueError
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.spark.lake import Lake
from msgq.spark.runtime import session as sessions
from tests.command import run
from tests.lake import fleets, golds
from tests.lake.bronze_rows import add, directory, some_rows
from tests.lake.fleets import endpoint, write_lake
from tests.lake.rows import sorted_rows
from tests.spark import cluster
from tests.spark.jobs import build_fleet_twice
from tests.support import run_child

HOSTS, DAYS = 25, 2


def test_fleet_command_copies_changed_lakes_and_reports_problems(spark: Any, tmp_path: Path) -> None:
    fleet, pattern = tmp_path / "fleet", tmp_path / "lakes" / "host=*"
    for host in "abc":
        write_lake(tmp_path / "lakes" / f"host={host}", endpoints=[endpoint("x")])
    assert "3 lakes copied, 0 unchanged, 0 removed" in run("lake", "fleet", fleet, pattern).stdout
    shutil.rmtree(tmp_path / "lakes" / "host=a")
    shutil.rmtree(tmp_path / "lakes" / "host=b" / "gold")
    done = run("lake", "fleet", fleet, pattern, "--remove-missing", "--json", code=1)
    found = json.loads(done.stdout)
    assert (found["copied"], found["unchanged"], found["removed"]) == (0, 1, 1)
    assert f"skipped: {tmp_path}/lakes/host=b: lake has no gold" in done.stderr
    assert fleets.rows(fleet, "endpoints", "host") == [("b",), ("c",)]


def test_fleet_command_refuses_lake_and_lake_commands_refuse_fleet(spark: Any, tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", endpoints=[endpoint("x")])
    fleets.build_fleet(tmp_path / "fleet", tmp_path / "lake")
    assert "is a lake" in run("lake", "fleet", tmp_path / "lake", tmp_path / "*", code=1).stderr
    assert "no lakes found" in run("lake", "fleet", tmp_path / "new", tmp_path / "z*", code=1).stderr
    (tmp_path / "a.mcap").touch()
    assert "has fleet tables" in run("lake", "tables", tmp_path / "fleet", code=1).stderr
    assert "has fleet tables" in run("lake", "ingest", tmp_path / "fleet", tmp_path / "a.mcap", code=1).stderr
    with pytest.raises(InvalidValueError, match="has fleet tables"):
        Lake(spark, tmp_path / "fleet")


def test_fleet_master_option_selects_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_get_active_session", lambda: None)  # a test before may have left one
    write_lake(tmp_path / "lake")
    done = run("lake", "fleet", tmp_path / "fleet", tmp_path / "lake", "--master", "moon", code=1)
    assert done.stderr.startswith("Error: master 'moon' is invalid")


@pytest.mark.nightly
def test_standalone_cluster_builds_fleet_tables_of_50_lakes(tmp_path: Path, standalone: str) -> None:
    for day in range(1, DAYS + 1):
        source = tmp_path / f"{day}"
        add(directory(source), some_rows(random.Random(day)))
        golds.build_gold(source)
        for host in range(HOSTS):
            shutil.copytree(source, tmp_path / "lakes" / f"date=2026-05-{day:02}" / f"host=h{host:04}")
    done = run_child(
        build_fleet_twice,
        standalone,
        str(tmp_path / "fleet"),
        f"{tmp_path}/lakes/date=*/host=*",
        env=cluster.environment(),
    )
    assert done["executors"] == 2
    assert done["first"] == {"copied": HOSTS * DAYS, "unchanged": 0, "removed": 0, "problems": []}
    assert done["second"] == {"copied": 0, "unchanged": HOSTS * DAYS, "removed": 0, "problems": []}
    for name in GOLD_TABLE_NAMES:
        found = fleets.table(tmp_path / "fleet", name)
        for day in range(1, DAYS + 1):
            known = golds.table(tmp_path / f"{day}", name)
            columns = [column for column in known.column_names if column not in ("hour", "host")]
            of_day = found.filter(pc.equal(found["date"], date(2026, 5, day)))
            assert of_day.num_rows == HOSTS * known.num_rows, name
            for host in range(HOSTS):
                rows = of_day.filter(pc.equal(of_day["host"], f"h{host:04}"))
                assert sorted_rows(rows, *columns) == sorted_rows(known, *columns), (name, day, host)
