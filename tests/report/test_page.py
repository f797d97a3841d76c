"""The page: what it says, and of what it is made, without Spark."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("plotly")
import pyarrow as pa

from msgq.errors import InvalidValueError
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from tests.report.gold import BEGIN, SECOND, Tables, endpoint
from tests.spark.pages import sections, table

NAME = "topic<1>&"


def full() -> Tables:
    """A recording with two endpoints, of which one lost messages."""
    rates = [
        {"run": "r", "endpoint": name, "window_start": BEGIN + i * SECOND, "window_ns": SECOND, "messages": 10}
        for name in (NAME, "b")
        for i in range(3)
    ]
    checks = [
        {"run": "r", "endpoint": name, "check_name": "lost", "passed": name == "b", "value": 2, "threshold": 0}
        for name in (NAME, "b")
    ]
    return Tables(
        endpoints=[endpoint(NAME, lost=2, end_time=BEGIN + 3 * SECOND), endpoint("b", messages=30, rate=10.0)],
        throughput=rates,
        checks=checks,
        sequence_gaps=[{"run": "r", "endpoint": NAME, "from_time": BEGIN - 1, "to_time": BEGIN, "lost": 2}],
    )


def frames(tables: Tables, times: list[int], picture: bytes) -> None:
    which = [{"run": "r", "endpoint": "cam", "log_time": time} for time in times]
    tables["frames"] = [row for row in which for _ in range(2)]
    tables["messages"] = [row | {"date": day(row["log_time"]), "data": picture} for row in tables["frames"]]


def day(time: Any) -> str:
    return datetime.fromtimestamp(time // SECOND, UTC).date().isoformat()


def test_report_page_shows_table_values(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    summary = write_report(full(), page)
    assert (summary["endpoints"], summary["messages"], summary["lost"], summary["failed"]) == (2, 31, 2, 1)
    text = page.read_text()
    found = sections(text)
    assert [row["endpoint"] for row in table(found["Endpoints"])] == [NAME, "b"]
    assert html.escape(NAME) in found["Checks"]
    assert not {"Stages", "Queues", "Publishers", "Pictures"} & set(found)
    assert "There is nothing to show" in found["Hops"]
    ours = re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:)', ours), "it needs no network"


def test_report_of_unknown_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"run 'nosuch' not found in the lake; runs: r$"):
        write_report(full(), page := tmp_path / "report.html", ["r", "nosuch"])
    assert not page.exists()


def test_report_pictures_are_few_and_evenly_spread(tmp_path: Path) -> None:
    cv2, numpy = pytest.importorskip("cv2"), pytest.importorskip("numpy")
    picture = cv2.imencode(".png", numpy.full((300, 400, 3), 128, numpy.uint8))[1].tobytes()
    tables = full()
    frames(tables, [BEGIN + i * SECOND for i in range(60)], picture)
    write_report(tables, page := tmp_path / "report.html")
    shown = re.findall(r"data:image/jpeg;base64,([^\"]+).*?<br>(.*?) UTC", sections(page.read_text())["Pictures"])
    assert [time[-2:] for _, time in shown] == ["00", "10", "20", "30", "40", "50"]
    assert all(len(data) < 4000 for data, _ in shown)


def test_report_page_without_opencv_names_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    tables = full()
    frames(tables, [BEGIN], b"")
    write_report(tables, page := tmp_path / "report.html")
    assert "msgq-bus[frames]" in sections(page.read_text())["Pictures"]


def test_report_page_ignores_uncommitted_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that no commit names do not count."""
    for name, rows in full().items():
        made = pa.Table.from_pylist(rows)
        fields = [pa.field(one.name, pa.string() if one.type == pa.null() else one.type) for one in made.schema]
        made = made.cast(pa.schema(fields))
        delta = LakeTable(LakeDirectory(tmp_path), f"gold/{name}")
        delta.commit_files(None, made.schema, [delta.write_file(f"{number}.parquet", made) for number in range(2)][:1])
    monkeypatch.chdir(tmp_path.parent)
    for path in (tmp_path, tmp_path.name, f"file://{tmp_path}"):
        assert write_report(open_lake_tables(path), tmp_path / "report.html")["messages"] == 31
