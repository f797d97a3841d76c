"""What a recording of ours says of itself is used where it is true, and what nobody knows is not shown as 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader
from mcap.writer import Writer as ForeignWriter

from msgq.common.schema import Schema
from msgq.recording import LogReader
from msgq.recording.mcap_io.log_writer import Writer
from msgq.recording.mcap_io.metadata_keys import PUBLISHER_SEQUENCE, STATISTICS_METADATA, build_channel_metadata
from tests.command import run


def write_numbered_file(path: Path, begin: int = 0, count: int = 3000, step: int = 1) -> Path:
    """Write `count` messages on "a", numbered by `step`, and half as many on "b"."""
    counted = build_channel_metadata(1, PUBLISHER_SEQUENCE)
    with Writer(path) as log:
        a = log.channel("a", Schema("A", "json"), metadata=counted)
        b = log.channel("b", metadata=counted)
        for number in range(begin, begin + count):
            log.write(a, b"x" * (number % 50), 10 + number, sequence=number * step)
            if number % 2:
                log.write(b, b"yy", 10 + number, sequence=number // 2)
    return path


def read_bag_info(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("bag", "info", "--json", *arguments).stdout.splitlines()]


def test_channel_statistics_equal_totals_of_full_scan(tmp_path: Path) -> None:
    log = LogReader(write_numbered_file(tmp_path / "a.mcap", step=3))
    assert log.has_statistics
    assert log.endpoints == log.summarize(scan=True)
    assert (log.endpoints["a"].lost, log.endpoints["a"].largest) == (2 * 2999, 49)
    assert log.counts == {"a": 3000, "b": 1500}


@pytest.mark.parametrize("begins", [(0, 3000), (0, 3100), (3000, 0)], ids=["continued", "gap", "out of order"])
def test_channel_statistics_of_several_files_equal_totals_of_full_scan(tmp_path: Path, begins: tuple[int, int]) -> None:
    log = LogReader(*(write_numbered_file(tmp_path / f"{begin}.mcap", begin) for begin in begins))
    assert log.has_statistics
    assert log.endpoints == log.summarize(scan=True)


def test_file_without_channel_statistics_is_scanned_next_to_other_files(tmp_path: Path) -> None:
    first, second = write_numbered_file(tmp_path / "1.mcap"), write_numbered_file(tmp_path / "2.mcap", 3005)
    second.write_bytes(second.read_bytes()[:-100])
    log = LogReader(first, second, write_numbered_file(tmp_path / "3.mcap", 7000))
    assert not log.has_statistics
    assert log.endpoints == log.summarize(scan=True)


def test_channel_statistics_are_available_without_reading_messages(tmp_path: Path) -> None:
    path = write_numbered_file(tmp_path / "a.mcap")
    data = bytearray(path.read_bytes())
    data[600:700] = bytes(100)  # within the first chunk
    path.write_bytes(data)
    said, *_ = read_bag_info(str(path))
    assert (said["messages"], said["source"]) == (4500, "summary")
    found, *_ = read_bag_info(str(path), "--scan")
    assert (found["messages"] < 4500, found["problems"], found["source"]) == (True, 1, "full scan")


def test_channel_statistics_of_time_range_are_read_from_messages(tmp_path: Path) -> None:
    log = LogReader(write_numbered_file(tmp_path / "a.mcap")).between(20, 30)
    assert not log.has_statistics
    assert log.counts is None
    assert log.endpoints["a"].messages == 10
    assert sum(piece.messages for piece in LogReader(tmp_path / "a.mcap").split(1)) == 4500


def test_channel_statistics_copied_by_other_program_are_ignored(tmp_path: Path) -> None:
    """Other programs carry metadata along, whatever they do to the messages: here each payload is another one."""
    with write_numbered_file(tmp_path / "a.mcap").open("rb") as old, (tmp_path / "b.mcap").open("wb") as new:
        writer, reader = ForeignWriter(new), make_reader(old)
        writer.start()
        numbers: dict[int, int] = {}
        for _, channel, message in reader.iter_messages():
            if channel.id not in numbers:
                numbers[channel.id] = writer.register_channel(channel.topic, "", 0, channel.metadata)
            writer.add_message(numbers[channel.id], message.log_time, b"another one", message.log_time, 0)
        for metadata in reader.iter_metadata():
            writer.add_metadata(metadata.name, metadata.metadata)
        writer.finish()
    log = LogReader(tmp_path / "b.mcap")
    assert STATISTICS_METADATA in log.files[0].metadata
    assert not log.has_statistics
    assert log.endpoints["a"].largest == len(b"another one")


WHOLE = {"messages": 3000, "bytes": 1, "largest": 1, "first_time": 0, "last_time": 1}
HUGE = {"sequences": [0, 2**63 - 1]}, {"bytes": 2**63 - 1}, {"lost": 2**60}, {"last_time": 2**63}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 9999,
        '{"messages": 3000}',
        '{"messages": true}',
        "{}",
        *(json.dumps(WHOLE | one) for one in HUGE),
    ],
)
def test_invalid_channel_statistics_are_ignored(tmp_path: Path, text: str) -> None:
    log = LogReader(write_numbered_file(tmp_path / "a.mcap"))
    log.files[0].metadata[STATISTICS_METADATA]["1"] = text
    assert not log.has_statistics
    assert log.endpoints["a"].messages == 3000


@pytest.mark.parametrize("key", ["\N{SUPERSCRIPT TWO}", "9" * 5000], ids=["superscript", "5,000 digits"])
def test_key_that_is_no_channel_id_is_ignored(tmp_path: Path, key: str) -> None:
    log = LogReader(write_numbered_file(tmp_path / "a.mcap"))
    log.files[0].metadata[STATISTICS_METADATA][key] = json.dumps(WHOLE)
    assert log.has_statistics
    assert log.endpoints["a"].messages == 3000


def test_info_of_foreign_file_shows_only_its_statistics(tmp_path: Path) -> None:
    with (tmp_path / "b.mcap").open("wb") as file:
        writer = ForeignWriter(file)
        writer.start()
        channel = writer.register_channel("/a", "json", 0)
        for time in range(10):
            writer.add_message(channel, time, b"{}", time, 0)
        writer.finish()
    about, one = read_bag_info(str(tmp_path / "b.mcap"))
    assert (about["messages"], about["source"], about["start"], about["end"]) == (10, "summary", 0, 9)
    assert (one["endpoint"], one["messages"], one["bytes"], one["lost"]) == ("/a", 10, None, None)
    about, one = read_bag_info(str(tmp_path / "b.mcap"), "--scan")
    assert (about["source"], one["bytes"], one["lost"]) == ("full scan", 20, None)
    assert "--scan" in run("bag", "info", tmp_path / "b.mcap").stdout
