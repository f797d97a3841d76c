"""`msgq bag cat`, `msgq bag list` and `msgq bag convert -o -`: looking into a log."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from msgq.common.schema import Schema
from msgq.recording.mcap_io.log_writer import Writer
from tests.command import run

SECOND = 1_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with Writer(tmp_path / "a.mcap") as writer:
        json_channel = writer.channel("json", Schema("Number", "json", b"{}"))
        plain = writer.channel("plain\x1b[2J")
        writer.write(json_channel, b'{"a": [1, 2]}', 1 * SECOND)
        writer.write(plain, b"\1\2\3\4\5", 2 * SECOND + 5, 2 * SECOND)
        writer.write(json_channel, b"{", 3 * SECOND)
    return tmp_path / "a.mcap"


def test_bag_cat_prints_message_values(log: Path) -> None:
    first, second, third = run("bag", "cat", log).stdout.splitlines()
    assert first == '1970-01-01T00:00:01.000000000 json: {"a": [1, 2]}'
    assert second == "1970-01-01T00:00:02.000000005 plain\\x1b[2J: 01020304 05"
    assert third.startswith("1970-01-01T00:00:03.000000000 json: 7b  (json: ")


def test_bag_cat_with_filters_prints_selected_messages(log: Path) -> None:
    assert len(run("bag", "cat", "-n", 2, log).stdout.splitlines()) == 2
    assert run("bag", "cat", "--endpoint", "json", "--hex", log).stdout.splitlines()[1].endswith("json: 7b")
    assert run("bag", "cat", "-e", "plain", "--raw", log).stdout_bytes == b"\1\2\3\4\5"
    assert "exclude each other; give one" in run("bag", "cat", "--raw", "--json", log, code=2).output


def test_bag_cat_prints_text_and_truncates_on_request(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap") as writer:
        writer.write(writer.channel("chatter"), b"hello, world", 0)
        writer.write(writer.channel("list", Schema("List", "json")), b"[1, 2, 3]", 0)
    path = tmp_path / "a.mcap"
    texts = [line.partition(" ")[2] for line in run("bag", "cat", path).stdout.splitlines()]
    assert texts == ["chatter: hello, world", "list: [1, 2, 3]"]
    texts = [line.partition(" ")[2] for line in run("bag", "cat", path, "--truncate", 2).stdout.splitlines()]
    assert texts == ["chatter: he... 10 more", 'list: [1, 2, "... 1 more"]']
    text = run("bag", "cat", path, "--truncate", 2, "--hex", "-n", 1).stdout
    assert text.endswith("chatter: 6865 ... 10 more\n")
    assert "omit --raw and --json" in run("bag", "cat", path, "--truncate", 2, "--json", code=2).stderr


def test_bag_cat_prints_key_and_publisher(tmp_path: Path) -> None:
    with Writer(tmp_path / "b.mcap") as writer:
        for number, beside in enumerate(
            ({"kind": "records", "key": "camera"}, {"kind": "channel", "publisher": "left"})
        ):
            writer.write(writer.channel(f"{beside['kind']}/b", metadata=beside), b"\1", number)
    first, second = run("bag", "cat", tmp_path / "b.mcap").stdout.splitlines()
    assert first.endswith(" records/b[camera]: 01")
    assert second.endswith(" channel/b (left): 01")


def test_bag_command_reports_unknown_endpoint(log: Path, tmp_path: Path) -> None:
    verbs = [("cat",), ("info",), ("filter", "-o", tmp_path / "c.mcap"), ("convert", "-o", tmp_path / "c.csv")]
    for verb, *more in verbs:
        done = run("bag", verb, log, "--endpoint", "jsn", "--endpoint", "json", *more, code=1)
        assert done.stderr == "Error: no endpoint of the recording matches jsn; did you mean json?\n"


def test_bag_cat_prints_unknown_values_as_null(log: Path) -> None:
    shown = [json.loads(line) for line in run("bag", "cat", "--json", log).stdout.splitlines()]
    assert [row["origin_time"] for row in shown] == [None] * 3
    rows = list(csv.DictReader(run("bag", "convert", "--to", "csv", "-o", "-", log).stdout.splitlines()))
    assert [row["origin_time"] for row in rows] == [""] * 3
    assert ["json: " in row["reason"] for row in rows] == [False, False, True]


def test_bag_cat_and_convert_print_same_json_lines(log: Path) -> None:
    shown = run("bag", "cat", "--json", log).stdout
    assert shown == run("bag", "convert", "--to", "jsonl", "-o", "-", log).stdout
    assert [json.loads(line).get("value") for line in shown.splitlines()] == [{"a": [1, 2]}, None, None]


def test_bag_convert_writes_to_standard_output(log: Path) -> None:
    rows = list(csv.reader(run("bag", "convert", "--to", "csv", "-o", "-", log).stdout.splitlines()))
    assert [row[0] for row in rows] == ["endpoint", "json", "plain\x1b[2J", "json"]
    assert (
        "cannot be written to the standard output"
        in run("bag", "convert", "--to", "parquet", "-o", "-", log, code=2).output
    )


def test_bag_list_prints_each_kind_of_record(log: Path) -> None:
    (chunk,) = [json.loads(line) for line in run("bag", "list", "chunks", "--json", log).stdout.splitlines()]
    assert (chunk["start"], chunk["end"], chunk["channels"], chunk["chunked"]) == (SECOND, 3 * SECOND, 2, True)
    first, second = [json.loads(line) for line in run("bag", "list", "channels", "--json", log).stdout.splitlines()]
    assert (first["endpoint"], first["messages"], first["schema_encoding"]) == ("json", 2, "jsonschema")
    assert (second["endpoint"], second["messages"], second["schema"]) == ("plain\x1b[2J", 1, None)
    assert "\x1b" not in run("bag", "list", "channels", log).stdout


@pytest.fixture
def attached(tmp_path: Path) -> Path:
    with Writer(tmp_path / "b.mcap") as writer:
        writer.write(writer.channel("a"), b"1", 5)
        writer.attach("maps/../map.txt", b"here", "text/plain", create_time=3)
        writer.attach("notes", b"\1" * 9)
        writer.add_metadata("place", {"city": "Oslo"})
    return tmp_path / "b.mcap"


def test_bag_list_prints_attachments_and_metadata(attached: Path) -> None:
    lines = run("bag", "list", "attachments", "--json", attached).stdout.splitlines()
    first, second = map(json.loads, lines)
    assert (first["name"], first["media_type"], first["bytes"], first["create_time"]) == (
        "maps/../map.txt",
        "text/plain",
        4,
        3,
    )
    assert (second["name"], second["log_time"]) == ("notes", 5)
    said = [json.loads(line) for line in run("bag", "list", "metadata", "--json", attached).stdout.splitlines()]
    assert {"name": "place", "values": {"city": "Oslo"}} in said


def test_bag_attachments_command_writes_only_into_output_directory(attached: Path, tmp_path: Path) -> None:
    said = run("bag", "attachments", attached, "-o", tmp_path / "out", "--json").stdout
    assert [Path(json.loads(line)["path"]).name for line in said.splitlines()] == ["map.txt", "notes"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "map.txt": b"here",
        "notes": b"\1" * 9,
    }
    with Writer(tmp_path / "twins.mcap") as writer:
        for name in ("one/notes", "notes"):
            writer.attach(name, b"x")
    twins = run("bag", "attachments", tmp_path / "twins.mcap", "-o", tmp_path / "twins", code=1)
    assert "several attachments have this file name" in twins.output
    assert not (tmp_path / "twins").exists()
    assert "exists" in run("bag", "attachments", attached, "-o", tmp_path / "out", "--name", "notes", code=1).output
    assert (
        "attachment 'x' not found"
        in run("bag", "attachments", attached, "-o", tmp_path / "x", "--name", "x", code=1).output
    )
