"""The progress of `msgq lake export` and `msgq lake replay` without SQL."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("deltalake")
from msgq.lake import log_export
from msgq.lake.bronze import bronze_writer
from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.log_export import EXPORT_COLUMNS, write_messages
from msgq.lake.message_filter import MessageFilter
from tests.lake.bronze_rows import HOUR, MIDNIGHT, add
from tests.lake.rows import message
from tests.recording.test_bag_progress import PROGRESS, Terminal, start_at

COUNT = 3000  # messages of a file


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake of two files with several row groups each."""
    monkeypatch.setattr(bronze_writer, "_ROW_GROUP_ROWS", 1000)
    for hour in range(2):
        rows = [message("imu", n, MIDNIGHT + hour * HOUR + n * 1000, data=b"%d" % n) for n in range(COUNT)]
        add(LakeDirectory(tmp_path / "lake"), rows, batch_rows=1000)
    return tmp_path / "lake"


def read_percentages(text: str, name: str) -> list[int]:
    return [int(found) for found in re.findall(rf"{name} [^\r\n]*? (\d+)%", text)]


@pytest.mark.parametrize("words", ["export {} -o {}/out.mcap", "replay {} --rate inf"])
def test_lake_command_on_terminal_shows_part_rate_and_remaining_time(
    lake: Path, tmp_path: Path, prefix: str, words: str
) -> None:
    arguments = words.format(lake, tmp_path).split()
    with closing(Terminal()) as terminal, start_at(terminal, *arguments, "--json", group="lake") as process:
        terminal.read_to_end()
        output = process.communicate()[0]
        assert process.returncode == 0, terminal.written
    found = json.loads(output)
    assert found["rows" if arguments[0] == "export" else "messages"] == 2 * COUNT
    assert PROGRESS.search(terminal.written)
    percentages = read_percentages(terminal.written, "export")
    assert percentages == sorted(percentages)
    assert percentages[-1] >= 50
    assert terminal.get_lines() == []


def test_reader_reports_bytes_after_each_row_group(lake: Path) -> None:
    reader, reports = BronzeReader(LakeDirectory(lake)), list[float]()
    files = reader.select_files(MessageFilter())
    rows = sum(batch.num_rows for batch in reader.read_batches(files, MessageFilter(), EXPORT_COLUMNS, reports.append))
    assert rows == 2 * COUNT
    assert reports == sorted(reports)
    assert len(set(reports)) == 6
    assert reports[-1] == sum(file.size_bytes for file in files)


def test_reader_reports_whole_file_if_filter_selects_part(lake: Path) -> None:
    reader, reports = BronzeReader(LakeDirectory(lake)), list[float]()
    wanted = MessageFilter(None, MIDNIGHT + 2500 * 1000, MIDNIGHT + HOUR)
    files = reader.select_files(wanted)
    rows = sum(batch.num_rows for batch in reader.read_batches(files, wanted, EXPORT_COLUMNS, reports.append))
    assert rows == 500
    assert set(reports) == {sum(file.size_bytes for file in files)}


def test_export_reports_merged_part(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_export, "_REPORTED_ROWS", 600)
    reader, reports = BronzeReader(LakeDirectory(lake)), list[float]()
    batches = reader.read_batches(reader.select_files(MessageFilter()), MessageFilter(), EXPORT_COLUMNS)
    assert write_messages(batches, tmp_path / "out.mcap", {}, reports.append) == 2 * COUNT
    assert reports == [number / 10 for number in range(10)]
