"""`msgq bag`: what it prints, its exit codes, the files it makes."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

import pyarrow.parquet as pq
import pytest
from mcap.opcode import Opcode

from msgq.cli.common.interruption import interrupt_on_termination
from msgq.common.message_source import MessageSource
from msgq.recording import LogReader, Writer
from msgq.recording.export import text_export
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT
from tests.command import run
from tests.recording import all_kinds
from tests.recording.logs import (
    FOREIGN,
    build_chunk_record,
    by_library,
    channel,
    message,
    read_chunk_indexes,
    write_foreign,
    write_log,
    write_unclosed_file,
)

bag = partial(run, "bag")


def test_bag_info_shows_endpoints(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    text = bag("info", path).stdout
    assert "300" in text
    assert "Number (json)" in text
    about, *endpoints = map(json.loads, bag("info", "--json", path).stdout.splitlines())
    assert (about["messages"], about["complete"], about["start"], about["end"]) == (300, True, 1000, 3990)
    assert about["duration"] == 2990
    assert re.search(r"(?m)^duration +0\.000 s$", text)
    assert [info["endpoint"] for info in endpoints] == ["topic0", "topic1", "topic2"]


def test_bag_info_of_empty_log_shows_no_duration(tmp_path: Path) -> None:
    Writer(tmp_path / "a.mcap").close()
    assert re.search(r"(?m)^duration +-$", bag("info", tmp_path / "a.mcap").stdout)


def test_bag_info_of_truncated_file_shows_skipped_parts(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    os.truncate(path, path.stat().st_size // 2)
    result = bag("info", path)
    assert "msgq bag recover" in result.stdout
    assert "skipped:" in result.stderr


def test_bag_recover_of_damaged_file_keeps_valid_messages(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    os.truncate(path, path.stat().st_size // 2)
    assert json.loads(bag("recover", "--json", "--in-place", path).stdout)["changed"] is True
    assert "was intact" in bag("recover", path).stdout


def write_damaged_file(path: Path) -> Path:
    """Write a file with one flipped bit, in the chunk that describes all others."""
    write_foreign(path)
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)
    return path


def test_bag_recover_writes_new_file_and_prints_result(tmp_path: Path) -> None:
    path = write_damaged_file(tmp_path / "a.mcap")
    before = len(list(LogReader(path)))
    said = bag("recover", path).stdout
    assert said.startswith(f"{tmp_path}/a.recovered.mcap: {before} messages")
    assert "from the summary to the data" in said
    assert len(by_library(tmp_path / "a.recovered.mcap")) == before
    assert "exists" in bag("recover", path, code=1).stderr
    assert "exclude each other" in bag("recover", path, "--in-place", "-o", tmp_path / "b.mcap", code=2).stderr


def test_bag_recover_of_directory_writes_directory(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    write_foreign(folder / "0.mcap")
    write_damaged_file(folder / "1.mcap")
    expected = len(list(LogReader(folder)))
    bag("recover", folder)
    assert sorted(os.listdir(tmp_path / "log.recovered")) == ["0.mcap", "1.mcap"]
    assert len(list(LogReader(tmp_path / "log.recovered"))) == expected
    bag("recover", folder / "1.mcap")
    assert len(list(LogReader(folder))) == expected  # the copy of a segment is not a segment
    (folder / "2.mcap").write_text("no log")
    bag("recover", folder, "-o", tmp_path / "other", code=1)
    assert not (tmp_path / "other").exists()


def test_bag_reindex_writes_indexes(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN["no summary"])
    assert json.loads(bag("reindex", "--json", path).stdout)["output"] == str(tmp_path / "a.reindexed.mcap")
    assert by_library(tmp_path / "a.reindexed.mcap") == by_library(path)
    bag("reindex", "--in-place", path)
    assert path.read_bytes() == (tmp_path / "a.reindexed.mcap").read_bytes()


def test_bag_doctor_prints_errors_and_warnings(tmp_path: Path) -> None:
    good, bad = write_foreign(tmp_path / "good.mcap"), write_damaged_file(tmp_path / "bad.mcap")
    assert bag("doctor", good).stdout == f"{good}: 300 messages, 24 chunks, 0 errors, 0 warnings\n"
    said = bag("doctor", good, bad, code=1).stdout
    assert f"error   {bad} at byte 32: a chunk is damaged: the CRC of the chunk is wrong [damage]" in said
    *findings, one = map(json.loads, bag("doctor", bad, "--json", code=1).stdout.splitlines())
    assert (one["path"], one["errors"]) == (str(bad), len(findings))
    assert findings[0]["rule"] == "damage"
    assert "cannot be read" in bag("doctor", tmp_path / "none", code=1).stderr
    warned = write_foreign(tmp_path / "warned.mcap", **FOREIGN["no summary"])
    assert "warning" in bag("doctor", warned).stdout


def test_bag_merge_keeps_losses_per_run(tmp_path: Path) -> None:
    one = write_unclosed_file(
        tmp_path / "1.mcap", build_chunk_record(channel(1, "a"), message(1, 5, 10), message(1, 7, 30))
    )
    two = write_unclosed_file(
        tmp_path / "2.mcap", build_chunk_record(channel(1, "a"), message(1, 90, 20), message(1, 91, 40))
    )
    output = tmp_path / "3.mcap"
    bag("merge", one, two, "-o", output)
    assert [m[2] for m in by_library(output)] == [10, 20, 30, 40]
    info = LogReader(output).endpoints["a"]
    assert (info.lost, info.epochs) == (1, 2)


def test_bag_filter_selects_by_name_and_time(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    output = tmp_path / "b.mcap"
    options = ["--start", "0.0000005", "--end", "1970-01-01T00:00:00.000003"]
    bag("filter", path, "-o", output, "-e", "topic[01]", "-x", "1", *options)
    found = list(LogReader(output))
    assert {m.endpoint for m in found} == {"topic0"}
    assert (found[0].log_time, found[-1].log_time) == (1510, 2980)
    assert {m.schema.name for m in found if m.schema} == {"Number"}
    assert "exists" in bag("filter", path, "-o", output, code=1).stderr


def test_bag_split_writes_pieces_of_one_log(tmp_path: Path) -> None:
    second = 1_000_000_000
    seconds = (100, 101, 102, 10**9, 10**9 + 1)
    messages = [message(1, i, time * second) for i, time in enumerate(seconds)]
    path = write_unclosed_file(tmp_path / "a.mcap", build_chunk_record(channel(1, "a"), *messages))
    bag("split", path, "-o", tmp_path / "pieces", "--split-seconds", 2)
    assert [file.name for file in sorted((tmp_path / "pieces").iterdir())] == [f"00000{i}.mcap" for i in range(3)]
    pieces = LogReader(tmp_path / "pieces")
    assert list(pieces) == list(LogReader(path))
    assert pieces.endpoints["a"].lost == 0


def test_bag_convert_writes_all_formats(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    for name in ("b.jsonl", "b.csv"):
        bag("convert", path, "-o", tmp_path / name)
    bag("convert", path, "-o", tmp_path / "b", "--to", "parquet")
    tables = [pq.read_table(file) for file in sorted((tmp_path / "b").iterdir())]
    assert [table["n"].to_pylist() for table in tables] == [list(range(i, 300, 3)) for i in range(3)]
    assert "topic0" in bag("convert", path, "-o", tmp_path / "b.parquet", code=1).output
    bag("convert", path, "-o", tmp_path / "b.parquet", "--endpoint", "topic2")
    assert pq.read_table(tmp_path / "b.parquet").equals(tables[2])
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert lines[7]["value"] == {"n": 7}
    assert lines[7]["endpoint"] == "topic1"
    with (tmp_path / "b.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert json.loads(rows[7]["value"]) == {"n": 7}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.mcap", "b", "b.csv", "b.jsonl", "b.parquet"]


def test_bag_convert_writes_publisher_and_key_columns(tmp_path: Path) -> None:
    def fill(log: all_kinds.Log) -> None:
        for i, (name, source) in enumerate(
            [
                ("channel/lidar", MessageSource("channel", "left")),
                ("channel/lidar", MessageSource("channel", "right")),
                ("records/state", MessageSource("records", "", "camera")),
            ]
        ):
            log.add(i, name, b"1", source, None)
        log.topic(3, b"1")

    path = all_kinds.write(tmp_path / "a.mcap", fill)
    for name in ("b.jsonl", "b.csv"):
        bag("convert", path, "-o", tmp_path / name)
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    with (tmp_path / "b.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for table in (lines, rows):
        assert [(row["kind"], row["publisher"], row["key"]) for row in table] == [
            ("channel", "left", ""),
            ("channel", "right", ""),
            ("records", "", "camera"),
            ("topic", "", ""),
        ]
        assert all(not row["origin_time"] for row in table)


def test_bag_convert_writes_values_of_all_encodings(tmp_path: Path) -> None:
    from mcap import records

    schema = records.Schema(id=1, name="p", encoding="struct", data=b'[["x", "<f8"], ["n", "<i4", [2]]]')
    path = write_unclosed_file(
        tmp_path / "a.mcap",
        build_chunk_record(
            schema,
            channel(1, "s", schema_id=1, encoding="struct"),
            message(1, 0, 1, bytes(16)),
            message(1, 1, 2),
            channel(2, "raw"),
            message(2, 0, 3, b"raw"),
        ),
    )
    bag("convert", path, "-o", tmp_path / "b.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert lines[0]["value"] == {"x": 0.0, "n": [0, 0]}
    assert "struct" in lines[1]["reason"]
    assert lines[2]["data"] == "cmF3"


def test_bag_usage_error_is_one_line(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    assert "No such file" in bag("info", tmp_path / "missing", code=1).stderr
    assert "has no extension of a known format" in bag("convert", path, "-o", tmp_path / "b", code=2).stderr
    assert "is not a regular expression" in bag("info", path, "-e", "(", code=2).stderr
    assert "seconds after the start of the log" in bag("info", path, "--start", "noon", code=2).stderr
    swapped = bag("cat", path, "--start", "2", "--end", "1", code=2).stderr
    assert "--end is not after --start, so the range is empty; swap the two times" in swapped
    assert "give a later --end" in bag("cat", path, "--start", "1", "--end", "1", code=2).stderr
    assert "needs a single LOG" in bag("recover", path, path, "-o", tmp_path / "b", code=2).stderr


def test_bag_recover_of_other_file_type_writes_no_output(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no log")
    assert f"'{text}' is not an MCAP file" in bag("recover", text, "-o", tmp_path / "b", code=1).stderr
    assert not (tmp_path / "b").exists()


def test_bag_copy_has_self_contained_chunks(tmp_path: Path) -> None:
    """As those of a recorder: failure would mean that readers of a part look through the whole file for channels."""
    log = write_log(tmp_path / "a.mcap", *((f"e{i % 3}", 10**18 + i, bytes(100_000)) for i in range(60)))
    bag("filter", log, "-o", tmp_path / "b.mcap", "--compression", "lz4")  # so that no chunk is taken as it is
    (file,) = LogReader(tmp_path / "b.mcap").files
    assert len(file.blocks) > 3
    for part in file.blocks:
        content, position, described = file.read_block(part) or b"", 0, set()
        while position < len(content):
            opcode, length = RECORD_HEAD_STRUCT.unpack_from(content, position)
            if opcode == Opcode.CHANNEL:
                described.add(int.from_bytes(content[position + RECORD_HEAD_STRUCT.size :][:2], "little"))
            position += RECORD_HEAD_STRUCT.size + length
        assert described == part.channel_ids


def test_bag_copy_keeps_message_larger_than_chunk(tmp_path: Path) -> None:
    sizes = [10, 3_000_000, 20, 5_000_000, 30]
    log = write_log(tmp_path / "a.mcap", *(("e", 10**18 + i, bytes(size)) for i, size in enumerate(sizes)))
    bag("filter", log, "-o", tmp_path / "b.mcap")
    assert [len(one.data) for one in LogReader(tmp_path / "b.mcap")] == sizes


WRITING = {
    "merge": ("-o", "new.mcap"),
    "filter": ("-o", "new.mcap"),
    "split": ("-o", "new", "--split-seconds", 1),
    "convert": ("-o", "new.jsonl"),
}


@pytest.mark.parametrize("verb", WRITING)
def test_bag_command_that_writes_prints_path_and_count_as_json(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = json.loads(bag(verb, write_foreign(Path("a.mcap")), *WRITING[verb], "--json").stdout)
    assert (said["messages"], Path(said["path"]).is_file()) == (300, True)


@pytest.mark.parametrize("verb", ["merge", "filter", "split"])
@pytest.mark.parametrize("compression", ["lz4", "none"])
def test_bag_compression_applies_to_all_chunks(
    tmp_path: Path, verb: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = bag(verb, write_foreign(Path("a.mcap")), *WRITING[verb], "--compression", compression).stdout.split(":")[0]
    assert {build_chunk_record.compression for build_chunk_record in read_chunk_indexes(Path(path))} == {
        compression.replace("none", "")
    }
    assert len(by_library(Path(path))) == 300


LARGE = "exceed max_chunk_bytes (--max-chunk-bytes), which is 1000"


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("info", ["--scan"]),
        ("cat", []),
        ("diff", ["a.mcap"]),
        ("convert", ["-o", "-", "--to", "jsonl"]),
        ("merge", ["-o", "new.mcap", "--compression", "lz4"]),
        ("filter", ["-o", "new.mcap", "--compression", "lz4"]),
        ("split", ["-o", "new", "--split-seconds", 1, "--compression", "lz4"]),
    ],
)
def test_bag_command_that_reads_skips_chunks_above_max_chunk_bytes(
    tmp_path: Path, verb: str, more: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_foreign(Path("a.mcap"), chunk_size=1 << 20)
    write_foreign(Path("b.mcap"), chunk_size=1 << 20)
    said = bag(verb, "b.mcap", *more, "--max-chunk-bytes", "1kB")
    assert f"skipped: b.mcap at byte 67: a chunk was skipped: 12336 bytes {LARGE}" in said.stderr
    assert "300" not in said.stdout


@pytest.mark.parametrize("verb", ["doctor", "recover", "reindex"])
def test_bag_command_that_checks_fails_at_chunk_above_max_chunk_bytes(tmp_path: Path, verb: str) -> None:
    path = write_foreign(tmp_path / "a.mcap", chunk_size=1 << 20)
    assert LARGE in bag(verb, path, "--max-chunk-bytes", "1kB", code=1).output
    bag(verb, path, "--max-chunk-bytes", "13kB")


def test_bag_list_reads_file_with_summary_above_max_chunk_bytes(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    assert "the whole file is scanned instead" in bag("list", "channels", path, "--max-chunk-bytes", "1kB").stderr
    assert bag("list", "channels", path).stderr == ""


@pytest.mark.parametrize(
    ("verb", "more", "count"),
    [
        ("info", ["--json"], lambda said: json.loads(said.splitlines()[0])["messages"]),
        ("cat", [], lambda said: len(said.splitlines())),
        ("convert", ["-o", "-", "--to", "jsonl"], lambda said: len(said.splitlines())),
        ("diff", ["b.mcap", "--json"], lambda said: json.loads(said)["endpoints"]["topic0"]["a"]),
    ],
)
def test_bag_options_select_messages_by_time_and_name(
    tmp_path: Path, verb: str, more: list[str], count: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_foreign(Path("a.mcap"))
    write_foreign(Path("b.mcap"))
    for options, expected in (
        (["-x", "topic[12]"], 100),
        (["-e", "topic[01]", "-x", "1"], 100),
        (["-e", "c0$", "--start", "0.0000005"], 83),
        (["-e", "c0$", "--start", "0.0000005", "--end", "1970-01-01T00:00:00.000003"], 50),
    ):
        assert count(bag(verb, "a.mcap", *more, *options).stdout) == expected, options


def test_bag_reindex_with_output_writes_output_file(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN["no summary"])
    bag("reindex", path, "-o", tmp_path / "new.mcap")
    assert by_library(tmp_path / "new.mcap") == by_library(path)
    assert sorted(os.listdir(tmp_path)) == ["a.mcap", "new.mcap"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_bag_convert_after_signal_removes_its_file_and_exits_with_code_of_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def write_until_signal(_messages: object, file: TextIO) -> int:
        file.write("{")
        signal.raise_signal(number)
        return 1

    monkeypatch.setitem(text_export.EXPORT_WRITERS, "jsonl", write_until_signal)
    log = write_log(tmp_path / "log.mcap", ("e", 1, b"x"))
    before = [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGHUP)]
    try:
        interrupt_on_termination()
        bag("convert", log, "-o", tmp_path / "o.jsonl", code=128 + number)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGHUP, before[1])
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e300"])
def test_bag_refuses_times_and_durations_that_are_not_finite(tmp_path: Path, number: str) -> None:
    log = write_log(tmp_path / "log.mcap", ("e", 1, b"x"))
    for option in ("--start", "--end"):
        assert f"'{number}' is not a time" in bag("info", log, option, number, code=2).stderr
    said = bag("split", log, "-o", tmp_path / "parts", "--split-seconds", number, code=2).stderr
    assert "--split-seconds" in said
