"""Bad input, end to end: the good is in the tables, what is skipped is in `problems`, nobody sees a stack trace.

Most cases are files of one directory, which goes into one lake: Spark's part is to have what `LogReader` finds in each,
and a job costs seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
from mcap import records
from pyspark.errors import PythonException

from msgq.errors import InvalidValueError
from msgq.lake.message_columns import MESSAGE_COLUMNS
from msgq.recording import LogReader
from msgq.spark import read
from msgq.spark.lake import Lake
from msgq.spark.source.file_stream import RecordingStreamReader
from msgq.spark.source.source_options import SourceOptions
from tests.command import run
from tests.recording.logs import build_chunk_record, channel, message, write_unclosed_file
from tests.recording.record_cases import CASES
from tests.spark.rows import sorted_rows
from tests.support import LONGER

DAY = 86_400 * 10**9
NOW = 1_800_000_000 * 10**9
LARGE = 48 << 20
OTHERS = 1000 if LONGER < 2 else 10_000
LATEST = 2**63 - 2  # in the year 2262: one ns more could not be before any end
NAMES = [
    "a/b//c",
    "/",
    "..",
    "../../etc",
    "épée 火",
    "with space",
    "quote'\"`$",
    "a\\b",
    "x" * 5000,
    "<script>",
    "%s{}",
    "",
    "line\nbreak",
]


def good(endpoint: str = "a", number: int = 1, count: int = 3, first: int = NOW) -> bytes:
    return build_chunk_record(
        channel(number, endpoint), *(message(number, i, first + i, b"%d" % i) for i in range(count))
    )


def write_foreign_files(directory: Path) -> None:
    """Put there what only has the name of a recording, and links that lead nowhere or in a circle."""
    (directory / "empty.mcap").touch()
    (directory / "text.mcap").write_text("no recording at all")
    os.mkfifo(directory / "pipe.mcap")
    (directory / "directory.mcap").mkdir()
    (directory / "loop.mcap").symlink_to("loop.mcap")
    (directory / "dangling.mcap").symlink_to("nowhere")
    (directory / "round").symlink_to(directory)
    (directory / os.fsdecode(b"\xff.mcap")).write_bytes(b"not even a name")


STRANGE = {"empty.mcap", "text.mcap", "pipe.mcap", "loop.mcap", "dangling.mcap", "\ufffd.mcap"}


def names(path: Path) -> None:
    channels = [channel(i, name) for i, name in enumerate(NAMES)]
    write_unclosed_file(
        path, build_chunk_record(*channels, *(message(i, 0, NOW + i, b"%d" % i) for i in range(len(NAMES))))
    )


def write_clock_jumps(path: Path) -> None:
    times = {
        "clock": [(0, 0), (1, NOW), (2, 5), (3, LATEST), (4, NOW + 1)],
        "restart": [(7, 1), (8, 2), (0, 3), (1, 4)],
        "wrap": [(2**32 - 2, 1), (2**32 - 1, 2), (1, 3)],
        "same": [(0, 9)] * 3,
    }
    parts = [
        build_chunk_record(channel(i, name), *(message(i, number, time) for number, time in sent))
        for i, (name, sent) in enumerate(times.items())
    ]
    early = build_chunk_record(
        channel(9, "early"), records.Message(9, 10, b"", LATEST, 0), records.Message(9, LATEST, b"", 0, 1)
    )
    wrong = build_chunk_record(
        channel(10, "wrong"), message(10, 0, 2**63), message(10, 1, 2**64 - 1), message(10, 2, 2**63 - 1)
    )
    write_unclosed_file(path, *parts, early, wrong)


def twice(path: Path) -> None:
    write_unclosed_file(path, good("twice"))
    shutil.copy(path, path.with_name("again.mcap"))


def write_mixed_schemas(path: Path) -> None:
    schemas = [
        records.Schema(id=1, name="One", encoding="jsonschema", data=b"{}"),
        records.Schema(id=2, name="Two", encoding="struct", data=b'"<i4"'),
    ]
    one = build_chunk_record(
        schemas[0], channel(1, "mixed", schema_id=1, encoding="json"), message(1, 0, NOW, b'{"x": 1}')
    )
    two = build_chunk_record(
        schemas[1], channel(1, "mixed", schema_id=2, encoding="struct"), message(1, 1, NOW + 1, bytes(4))
    )
    write_unclosed_file(path, one, two)


def payloads(path: Path) -> None:
    sent = [b"", bytes(LARGE), b""]
    write_unclosed_file(
        path, build_chunk_record(channel(1, "payload"), *(message(1, i, NOW + i, data) for i, data in enumerate(sent)))
    )


def pictures(path: Path) -> None:
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5B", 13, b"IHDR", 2**30, 2**30, 8, 6, 0, 0, 0)
    broken = [b"\xff\xd8\xff", b"\xff\xd8\xff" + b"\0" * 100, b"\x89PNG\r\n\x1a\n", bomb]
    write_unclosed_file(
        path, build_chunk_record(channel(1, "camera"), *(message(1, i, NOW + i, data) for i, data in enumerate(broken)))
    )


def write_skewed_recording(path: Path) -> None:
    """Nearly all messages are of one endpoint, and there are very many others."""
    most = [
        build_chunk_record(channel(0, "most"), *(message(0, i, NOW + i) for i in range(OTHERS * k, OTHERS * (k + 1))))
        for k in range(9)
    ]
    others = [records.Channel(i, f"other{i}", "", {"epoch": "1"}, 0) for i in range(1, OTHERS + 1)]
    write_unclosed_file(
        path, *most, build_chunk_record(*others, *(message(i, 0, NOW + i) for i in range(1, OTHERS + 1)))
    )


class Everything(NamedTuple):
    """A lake of all that is odd, where its recordings are, and what was said when they were ingested."""

    lake: Lake
    recordings: Path
    said: str


@pytest.fixture(scope="module")
def everything(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Everything:
    place = tmp_path_factory.mktemp("everything")
    recordings = place / "recordings"
    recordings.mkdir()
    write_foreign_files(recordings)
    files = {
        "names": names,
        "clocks": write_clock_jumps,
        "twice": twice,
        "mixed": write_mixed_schemas,
        "payloads": payloads,
        "pictures": pictures,
        "skewed": write_skewed_recording,
    }
    for name, write in files.items():
        write(recordings / f"{name}.mcap")
    said = run("lake", "ingest", place / "lake", recordings).output
    run("lake", "report", place / "lake", "-o", place / "report.html")
    return Everything(Lake(spark, place / "lake"), recordings, said)


def count_messages(lake: Lake, *endpoints: str) -> list[tuple[Any, ...]]:
    table = lake.table("endpoints")
    return sorted_rows(table.where(table.endpoint.isin(list(endpoints))), "endpoint", "messages", "lost")


def test_read_errors_table_has_skipped_input(everything: Everything) -> None:
    rows = everything.lake.read_errors().collect()
    assert {Path(row.file).name for row in rows} == STRANGE | {"clocks.mcap", "mixed.mcap"}
    assert everything.said.count("skipped: ") == len(rows)
    reasons = [row.reason for row in rows]
    assert sum("invalid time" in reason for reason in reasons) == 3
    assert sum("to 'mixed' here" in reason for reason in reasons) == 1
    assert sum("is not an MCAP file" in reason for reason in reasons) == 3
    assert sum("is not a regular file" in reason for reason in reasons) == 1


def test_foreign_files_do_not_stop_batch_or_stream(spark: Any, everything: Everything) -> None:
    skipped = read(spark, str(everything.recordings), readErrors=True)
    assert {Path(row.file).name for row in skipped.collect()} == STRANGE | {"clocks.mcap", "mixed.mcap"}
    stream = RecordingStreamReader(
        SourceOptions.parse_options({"path": str(everything.recordings), "endpoints": "twice"}), MESSAGE_COLUMNS
    )
    end = stream.latestOffset({}, stream.getDefaultReadLimit())
    batches = [batch for part in stream.partitions({}, end) for batch in stream.read(part)]
    assert sum(batch.num_rows for batch in batches) == 6


def test_hostile_endpoint_names_are_kept(spark: Any, everything: Everything, tmp_path: Path) -> None:
    assert len(count_messages(everything.lake, *NAMES)) == len(NAMES)
    path = everything.recordings / "names.mcap"
    for name in ("quote'\"`$", "with space", "x" * 5000):
        assert read(spark, str(path), endpoints=[name]).count() == 1
    assert "<td><script></td>" not in (everything.recordings.parent / "report.html").read_text()
    assert run("bag", "info", path).output
    asked = "SELECT * FROM messages WHERE endpoint LIKE '%/%' OR endpoint = ''"
    assert run("lake", "export", everything.recordings.parent / "lake", asked, "-o", tmp_path / "some.mcap").output
    assert {m.endpoint for m in LogReader(tmp_path / "some.mcap")} == {n for n in NAMES if "/" in n or not n}


def test_clock_jumps_and_sequence_restarts_are_counted(everything: Everything) -> None:
    lake = everything.lake
    assert count_messages(lake, "clock", "early", "restart", "same", "wrap", "wrong") == [
        ("clock", 5, 0),
        ("early", 2, 0),
        ("restart", 4, 5),
        ("same", 1, 0),
        ("wrap", 3, 1),
    ]
    assert sorted_rows(
        lake.table("sequence_gaps").where("endpoint = 'wrap'"), "previous_sequence", "next_sequence"
    ) == [(2**32 - 1, 1)]
    checks = lake.table("checks").where("endpoint = 'early' AND check_name = 'negative latency'")
    assert sorted_rows(checks, "passed", "value") == [(False, LATEST - 10)]
    found = sorted_rows(lake.messages().where("endpoint = 'clock'"), "log_time")
    assert found == [(0,), (5,), (NOW,), (NOW + 1,), (LATEST,)]
    assert run("bag", "info", everything.recordings / "clocks.mcap").output


def test_endpoint_with_duplicates_and_mixed_schemas_is_read(spark: Any, everything: Everything) -> None:
    assert count_messages(everything.lake, "twice") == [("twice", 3, 0)]
    found = sorted_rows(everything.lake.messages().where("endpoint = 'mixed'"), "schema", "encoding")
    assert found == [("One", "json"), ("Two", "struct")]
    rows = read(spark, str(everything.recordings / "mixed.mcap"), decode="mixed").collect()
    assert [(row.value is None) == (row.reason is not None) == (row.data is not None) for row in rows] == [True, True]


def test_empty_and_large_payloads_are_read(spark: Any, everything: Everything) -> None:
    wanted = [(0,), (0,), (LARGE,)]
    assert sorted_rows(everything.lake.messages().where("endpoint = 'payload'"), "size_bytes") == wanted
    lengths = read(spark, str(everything.recordings / "payloads.mcap")).selectExpr("octet_length(data) AS size_bytes")
    assert sorted_rows(lengths, "size_bytes") == wanted


def test_one_large_endpoint_and_many_small_endpoints_are_read(everything: Everything) -> None:
    assert count_messages(everything.lake, "most") == [("most", 9 * OTHERS, 0)]
    assert everything.lake.table("endpoints").where("endpoint LIKE 'other%'").count() == OTHERS
    assert len(list((everything.recordings.parent / "lake").rglob("*.parquet"))) < 200, "no file for each endpoint"
    assert (everything.recordings.parent / "report.html").stat().st_size < 20 << 20


def test_invalid_pictures_are_skipped(everything: Everything) -> None:
    assert everything.lake.table("frames").where("endpoint = 'camera'").count() == 4


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "recordings"
    made.mkdir()
    write_unclosed_file(made / "good.mcap", good())
    return made


def test_invalid_records_of_each_kind_are_read_errors(spark: Any, tmp_path: Path) -> None:
    expected, problems = [], set()
    for number, (name, case) in enumerate(CASES.items()):
        path = case.write(tmp_path / f"{number:03}.mcap")
        expected += [(str(path), *sent) for sent in case.messages]
        problems |= {str(path)} if case.problem else set()
        assert not (case.problem == "" and LogReader(path).problems), name
    table = read(spark, str(tmp_path), columns=["file", "endpoint", "data"])
    found = [(row.file, row.endpoint, bytes(row.data)) for row in table.toLocalIterator()]
    assert sorted(found) == sorted(expected)
    skipped = read(spark, str(tmp_path), readErrors=True).collect()
    assert problems <= {row.file for row in skipped}
    for row in skipped:
        assert CASES[list(CASES)[int(Path(row.file).stem)]].problem != ""
        assert 0 <= row.byte_offset <= Path(row.file).stat().st_size
        assert row.reason
    assert len(skipped) == len(set(skipped)), "each is said once"


@pytest.mark.nightly
def test_directory_with_only_foreign_files_gives_no_messages(spark: Any, tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    directory.mkdir()
    write_foreign_files(directory)
    write_unclosed_file(directory / "nothing.mcap")
    assert read(spark, str(directory)).count() == 0
    assert "0 new messages" in run("lake", "ingest", tmp_path / "lake", directory).output
    assert Lake(spark, tmp_path / "lake").read_errors().count() == len(STRANGE)
    assert run("lake", "report", tmp_path / "lake", "-o", tmp_path / "report.html").output
    asked = run("lake", "sql", tmp_path / "lake", "SELECT count(*) AS messages FROM messages", "--json").output
    assert json.loads(asked) == {"messages": 0}


def test_unreadable_file_is_ingested_when_readable(spark: Any, directory: Path, tmp_path: Path) -> None:
    """A link to nothing stands for a file without permission, which the superuser of a container never meets."""
    late = directory / "late.mcap"
    late.symlink_to(tmp_path / "elsewhere.mcap")
    lake = Lake(spark, tmp_path / "lake")
    assert lake.ingest([directory]).messages == 3
    assert "No such file" in lake.read_errors().collect()[0].reason
    write_unclosed_file(tmp_path / "elsewhere.mcap", good("late"))
    assert lake.ingest([directory]).messages == 3
    assert lake.read_errors().collect() == []


@pytest.mark.nightly
def test_file_removed_or_truncated_during_read_is_read_error(spark: Any, directory: Path) -> None:
    write_unclosed_file(directory / "gone.mcap", good("gone"))
    whole = write_unclosed_file(directory / "short.mcap", good("short"), good("short", first=NOW + 10))
    source = spark.read.format("msgq")
    table, skipped = source.load(str(directory)), source.option("readErrors", "true").load(str(directory))
    for planned in (table, skipped):
        planned.count()  # plans it: Spark keeps the plan for this table
    careless = source.option("failOnDataLoss", "false").option("readErrors", "false").load(str(directory))
    careless.count()
    (directory / "gone.mcap").unlink()
    os.truncate(whole, whole.stat().st_size - 5)
    with pytest.raises(PythonException, match=r"gone\.mcap.* store recordings where all workers can read them"):
        table.count()
    assert sorted_rows(careless.groupBy("endpoint").count(), "endpoint", "count") == [("a", 3), ("short", 3)]
    reasons = {Path(row.file).name: row.reason for row in skipped.collect()}
    assert "No such file" in reasons["gone.mcap"]
    assert "bytes could be read" in reasons["short.mcap"]


def test_growing_file_is_ingested_completely(spark: Any, tmp_path: Path) -> None:
    parts = [good(first=NOW + 10 * i) for i in range(3)]
    path = write_unclosed_file(tmp_path / "a.mcap", *parts[:2])
    os.truncate(path, path.stat().st_size - 9)
    lake = Lake(spark, tmp_path / "lake")
    assert lake.ingest([path]).messages == 3
    (problem,) = lake.read_errors().collect()
    assert "is still being written" in problem.reason
    write_unclosed_file(path, *parts)
    assert lake.ingest([path]).messages == 6
    assert lake.read_errors().collect() == [], "nothing is missing any more"


def test_chunk_with_false_size_uses_little_memory(spark: Any, tmp_path: Path) -> None:
    claims = [2**60, 2**31 - 1, 2**20]
    bombs = [
        build_chunk_record(channel(1, "a"), message(1, 0, NOW), compression=name, size=size)
        for size in claims
        for name in ("zstd", "lz4", "")
    ]
    write_unclosed_file(tmp_path / "a.mcap", good(), *bombs, good(first=NOW + 9))
    assert read(spark, str(tmp_path)).count() == 6
    assert read(spark, str(tmp_path), readErrors=True).count() == len(bombs)


@pytest.mark.parametrize(
    ("option", "value"),
    [("endpoints", "[1, 2]"), ("endpoints", '[{"a": 1}]'), ("start", "9" * 5000)],
)
def test_invalid_source_option_is_refused(option: str, value: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{option}"):
        SourceOptions.parse_options({"path": "p", option: value})


def test_unusual_source_options_are_accepted(spark: Any, tmp_path: Path) -> None:
    path = write_unclosed_file(tmp_path / "a.mcap", good("b1"), good("[x]", 2))
    assert read(spark, str(path), endpoints="[ab]1").count() == 3
    assert read(spark, str(path), endpoints='["[[]x]"]').count() == 3
    assert read(spark, str(path), start=10**30).count() == 0
    assert read(spark, str(path), start=-(10**30), end="2999-01-01").count() == 6


def test_impossible_lake_and_report_paths_are_errors(everything: Everything, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recording = everything.recordings / "twice.mcap"
    assert run("lake", "ingest", tmp_path / "file", recording, code=1).output.startswith("Error: ")
    lake = everything.recordings.parent / "lake"
    assert run("lake", "report", lake, "-o", tmp_path / "no" / "report.html", code=1).output.startswith("Error: ")
