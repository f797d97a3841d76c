"""The report of a recording of the full demo, as `make demo` writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.command import run
from tests.spark.pages import sections


@pytest.mark.nightly
def test_demo_report_page_shows_the_recording(spark: Any, prefix: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("demo", "--full", "--duration", 5, "-o", tmp_path / "log")
    run("lake", "report", tmp_path / "log", "--output", page)
    found = sections(page.read_text())
    assert "Endpoints" in found
    rows = re.findall(r"<tr><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>", found["Anomalies"])
    assert {*rows} >= {("Dropout", "pulse"), ("Requeue", "queue/jobs")}, "the killed publisher and the killed worker"
