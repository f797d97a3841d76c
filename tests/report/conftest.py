"""Recordings with known trouble, their pages, and a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("plotly")
from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from tests.report.recordings import TROUBLES, ingest_recording, write_recording


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let one process of pytest-xdist make the pages, which takes seconds."""
    if "folder" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("report"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with trouble and a healthy one, with their lakes and pages."""
    path = tmp_path_factory.mktemp("recordings")
    for name, troubles in (("trouble", TROUBLES), ("healthy", ())):
        lake = ingest_recording(write_recording(path / f"{name}.mcap", troubles), path / f"{name}.lake")
        command = ["msgq", "play", str(path / f"{name}.mcap")]
        write_report(open_lake_tables(lake), path / f"{name}.html", replay_command=command)
    return path
