"""Listings of new recordings visit no directories of old recordings, and miss no recording that the rules include."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
from msgq.errors import RecordingError
from msgq.lake.bronze.listing_positions import ListingPositions
from msgq.lake.lake_directory import LakeDirectory

OLD = time.time() - 100_000


def add_recording(root: Path, name: str, is_old: bool = True) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if is_old:
        os.utime(path, (OLD, OLD))


def list_names(tmp_path: Path, *paths: str, unread: str | None = None) -> list[str]:
    """Return the names that an ingest with a new process lists, and store the positions."""
    root = tmp_path / "recordings"
    positions = ListingPositions(LakeDirectory(tmp_path / "lake"))
    found = positions.list_new_recordings([str(root / path) for path in paths or ("",)], [])
    positions.record_positions(set() if unread is None else {str(root / unread)})
    return [str(path).removeprefix(f"{root}/") for path in found]


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    for day in (1, 2, 3):
        for run in "ab":
            for segment in range(2):
                add_recording(tmp_path / "recordings", f"2026-05-0{day}/{run}/{segment:06}.mcap")
    return tmp_path / "recordings"


def test_next_listing_begins_at_last_recording(recordings: Path, tmp_path: Path) -> None:
    assert len(list_names(tmp_path)) == 12
    assert list_names(tmp_path) == ["2026-05-03/b/000001.mcap"]
    for name in ("2026-05-03/b/000002.mcap", "2026-05-04/a/000000.mcap", "2026-05-03/a/000009.mcap"):
        add_recording(recordings, name)
    assert list_names(tmp_path) == ["2026-05-03/b/000001.mcap", "2026-05-03/b/000002.mcap", "2026-05-04/a/000000.mcap"]
    assert list_names(tmp_path) == ["2026-05-04/a/000000.mcap"]


def test_listing_visits_no_directories_of_old_recordings(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_names(tmp_path)
    visited: list[str] = []
    plain = os.scandir

    def scan(path: str) -> object:
        visited.append(os.path.relpath(path, recordings))
        return plain(path)

    monkeypatch.setattr(os, "scandir", scan)
    list_names(tmp_path)
    assert visited == [".", "2026-05-03", "2026-05-03/b"]


@pytest.mark.parametrize("reason", ["changed", "unread"])
def test_next_listing_has_recordings_that_can_change(recordings: Path, tmp_path: Path, reason: str) -> None:
    name = "2026-05-02/a/000001.mcap"
    if reason == "changed":
        add_recording(recordings, name, is_old=False)
    list_names(tmp_path, unread=name if reason == "unread" else None)
    assert list_names(tmp_path)[0] == name
    add_recording(recordings, name)
    assert len(list_names(tmp_path)) == (7 if reason == "changed" else 1)
    assert list_names(tmp_path) == ["2026-05-03/b/000001.mcap"]


def test_numbers_in_names_of_files_sort_by_value(tmp_path: Path) -> None:
    for number in (2, 9, 10):
        add_recording(tmp_path / "recordings", f"run_{number}.mcap")
    list_names(tmp_path)
    add_recording(tmp_path / "recordings", "run_11.mcap")
    assert list_names(tmp_path) == ["run_10.mcap", "run_11.mcap"]


def test_each_directory_has_its_own_position(recordings: Path, tmp_path: Path) -> None:
    assert len(list_names(tmp_path, "2026-05-01", "2026-05-03")) == 8
    assert list_names(tmp_path, "2026-05-01", "2026-05-03") == ["2026-05-01/b/000001.mcap", "2026-05-03/b/000001.mcap"]
    assert len(list_names(tmp_path, "2026-05-02")) == 4
    one = "2026-05-01/a/000000.mcap"
    assert list_names(tmp_path, one) == list_names(tmp_path, one) == [one]


def test_listing_without_later_recordings_is_full(recordings: Path, tmp_path: Path) -> None:
    """The newest recordings were deleted, or the stored position is damaged."""
    list_names(tmp_path)
    (recordings / "2026-05-03/b/000001.mcap").unlink()
    assert len(list_names(tmp_path)) == 11
    [position] = (tmp_path / "lake/_listings").iterdir()
    position.write_text("")
    assert len(list_names(tmp_path)) == 11


def test_missing_and_empty_directories(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not exist"):
        list_names(tmp_path)
    (tmp_path / "recordings").mkdir()
    assert list_names(tmp_path) == []
    add_recording(tmp_path / "recordings", "a.mcap")
    assert list_names(tmp_path) == ["a.mcap"]


def test_position_does_not_pass_a_recording_that_grew_during_a_long_ingest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "recordings" / name for name in ("1.mcap", "2.mcap")]
    paths[0].parent.mkdir()
    for path in paths:
        path.touch()
        os.utime(path, (0, 0))
    lake, texts = LakeDirectory(tmp_path / "lake"), [str(tmp_path / "recordings")]
    positions = ListingPositions(lake)
    assert positions.list_new_recordings(texts, []) == paths
    now = time.time()
    os.utime(paths[0], (now + 1800, now + 1800))
    monkeypatch.setattr(time, "time", lambda: now + 7200)
    positions.record_positions(set())
    assert ListingPositions(lake).list_new_recordings(texts, []) == paths
