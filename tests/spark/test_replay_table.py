"""Tables back on the bus: `msgq lake replay` and `export`, as a user runs them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
from click.testing import Result
from mcap import records
from mcap.reader import make_reader

import msgq
from msgq.errors import InvalidValueError, RecordingError
from msgq.recording import LogReader, compare, replay
from msgq.spark.lake import Lake, export
from tests.command import run
from tests.recording import all_kinds, all_kinds_program, logs
from tests.spark.children import subscribe
from tests.spark.rows import message, messages
from tests.support import Child

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = 10**18
PERIOD = 10**7
PROGRAM = """
import msgq

def doubles():
    numbers, out = msgq.sub_sock("a"), msgq.pub_sock("double")
    while True:
        out.send(b"%d" % (2 * int(numbers.receive())))
"""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 messages of three endpoints in turn, of which one has a name that is no endpoint here."""
    where = tmp_path_factory.mktemp("replay")
    channels = [logs.channel(number, name) for number, name in enumerate(("a", "b", "/"), 1)]
    sent = [logs.message(1 + i % 3, i // 3, BEGIN + i * PERIOD, b"%d" % i) for i in range(60)]
    logs.write_unclosed_file(where / "000000.mcap", logs.build_chunk_record(*channels, *sent[::-1]))
    Lake(spark, where / "lake").ingest([where / "000000.mcap"])
    return where / "lake"


@pytest.fixture(scope="module")
def kinds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten messages of each kind of endpoint but frames, and ten events of jobs that were taken."""
    where = tmp_path_factory.mktemp("kinds")
    all_kinds.write(where / "000000.mcap", all_kinds.fill_all)
    Lake(spark, where / "lake").ingest([where / "000000.mcap"])
    return where / "lake"


def replay_recording(
    lake: Path, query: str, endpoints: list[str], count: int, *options: object
) -> tuple[list[Any], Result]:
    """Return what a subscriber in another process got: endpoint, number."""
    with Child(subscribe, endpoints, count) as child:
        child.hear()
        done = run("lake", "replay", lake, query, *options)
        return child.result(), done


def test_played_rows_reach_subscriber_in_time_order(lake: Path, prefix: str) -> None:
    query = "SELECT endpoint, log_time, data FROM messages WHERE sequence % 2 = 0 ORDER BY data"
    got, done = replay_recording(lake, query, ["b"], 10, "--rate", "inf")
    assert got == [["b", number] for number in range(1, 60, 6)]
    assert "not played: '/'" in done.stderr
    assert "20 messages of 2 endpoints played" in done.stdout


def test_played_rows_keep_recorded_time_intervals(lake: Path, prefix: str) -> None:
    query = "SELECT * FROM messages WHERE endpoint IN ('a', 'b')"
    begin = time.monotonic()
    got, done = replay_recording(lake, query, ["a", "b"], 40, "--rate", 2, "--json")
    assert time.monotonic() - begin >= 58 * PERIOD / 1e9 / 2
    stats = json.loads(done.stdout)
    assert (stats["messages"], stats["position"]) == (40, pytest.approx(58 * PERIOD / 1e9))
    for name, first in (("a", 0), ("b", 1)):
        assert [number for endpoint, number in got if endpoint == name] == list(range(first, 60, 3))


def test_rows_are_played_into_zmq(lake: Path, prefix: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGQ_BACKEND", "zmq")
    query = f"SELECT '{endpoint}' AS endpoint, log_time, data FROM messages WHERE endpoint = 'a'"
    got, _ = replay_recording(lake, query, [endpoint], 20, "--rate", "inf", "--wait-for-readers", "--backend", "zmq")
    assert got == [[endpoint, number] for number in range(0, 60, 3)]


def test_played_rows_of_all_kinds_reach_their_endpoints(kinds: Path, prefix: str) -> None:
    with msgq.Channel("lidar", capacity=16) as channel, msgq.sub_sock("topic") as topic:
        lidar = channel.subscriber()
        done = run("lake", "replay", kinds, "SELECT * FROM messages", "--rate", "inf", "--json")
        assert (done.stderr, json.loads(done.stdout)["messages"]) == ("", 50)  # those taken of the queue are no jobs
        scans = [(lidar.receive(0), lidar.last and lidar.last.publisher.name) for _ in range(10)]
        assert scans == [(b"scan %d" % i, ("front", "rear")[i % 2]) for i in range(10)]
        assert msgq.drain_sock_raw(topic) == [b'{"n": %d}' % i for i in range(10)]
    with msgq.SeqlockVector("quotes") as quotes, msgq.Board("state", create=False) as state:
        assert quotes.dtype == all_kinds.QUOTE
        assert quotes.read()[:5].tolist() == [(8.5, 8.0), (9.5, 9.0), (6.5, 6.0), (7.5, 7.0), (0.0, 0.0)]
        assert dict(state.items()) == {"mode": b"8", "pose": b"9"}
    with msgq.MessageQueue("jobs", 0) as jobs:
        received = [(message.data, message.priority) for message in jobs.receive_many()]
        assert received == [(b"job %d" % i, p) for p in (2, 1, 0) for i in range(10) if i % 3 == p]
        assert (jobs.max_messages, jobs.max_message_size) == (32, 128)


def test_query_selects_played_channel_and_queue_rows(kinds: Path, prefix: str) -> None:
    """By the publisher of a channel and by what an event is; the names tell which kind it is."""
    chosen = "publisher = 'rear' OR (endpoint = 'queue/jobs' AND hex(substring(data, 1, 1)) = '01')"
    done = run("lake", "replay", kinds, f"SELECT * FROM messages WHERE {chosen}", "--rate", "inf")
    assert "15 messages of 2 endpoints played" in done.stdout
    with msgq.Channel("lidar", create=False) as channel:
        assert channel.messages == 5
    with msgq.MessageQueue("jobs", 0) as jobs:
        assert {message.data for message in jobs.receive_many()} == {b"job %d" % i for i in range(10)}


def test_replay_of_lake_equals_replay_of_recording(kinds: Path, prefix: str) -> None:
    program = "tests.recording.all_kinds_program:all_kinds"
    done = run("lake", "replay", kinds, "SELECT * FROM messages", "--deterministic", program, "--json")
    sent = replay(LogReader(kinds.parent / "000000.mcap"), all_kinds_program.all_kinds)
    assert json.loads(done.stdout)["messages"] == len(sent) > 20
    run("lake", "export", kinds, "SELECT * FROM messages", "-o", kinds.parent / "out.mcap")
    assert compare(replay(LogReader(kinds.parent / "out.mcap"), all_kinds_program.all_kinds), sent)


def test_rows_are_replayed_to_programs_in_virtual_time(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "doubling.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    query = "SELECT * FROM messages WHERE endpoint = 'a'"
    done = run("lake", "replay", lake, query, "--deterministic", "doubling:doubles", "--json")
    assert json.loads(done.stdout)["messages"] == 20
    sys.modules.pop("doubling")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT endpoint, data FROM messages", "column 'log_time' is missing"),
        ("SELECT * FROM messages WHERE endpoint = 'nobody'", "query returned no messages"),
        ("SELECT * FROM messages WHERE endpoint = '/'", "'/': the name is not valid for an endpoint; remap it"),
        ("SELECT endpoint, timestamp_micros(1) AS log_time, data FROM messages", "'log_time' has type timestamp"),
        ("SELECT endpoint, -log_time AS log_time, data FROM messages", "use nanoseconds since 1970"),
        ("SELECT endpoint, bigint('x') AS log_time, data FROM messages", "CAST_INVALID_INPUT"),
        ("SELECT endpoint, raise_error('oh') AS log_time, data FROM messages", "log_time"),
    ],
)
def test_replay_table_user_error_is_one_line(lake: Path, prefix: str, query: str, text: str) -> None:
    done = run("lake", "replay", lake, query, code=1)
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_export_keeps_message_fields(lake: Path, tmp_path: Path) -> None:
    done = run("lake", "export", lake, "SELECT * FROM messages", "-o", tmp_path / "all.mcap", "--json")
    assert json.loads(done.stdout)["rows"] == 60
    found = [(m.endpoint, m.sequence, m.epoch, m.log_time, m.data) for m in LogReader(tmp_path / "all.mcap")]
    assert found == [(("a", "b", "/")[i % 3], i // 3, 1, BEGIN + i * PERIOD, b"%d" % i) for i in range(60)]


def test_export_writes_schemas_of_lake(spark: SparkSession, tmp_path: Path) -> None:
    """The text is not in the rows; a channel has the schema that its messages were recorded with."""
    first = records.Schema(id=1, name="P", encoding="struct", data=b'[["x", "<i4"]]')
    second = records.Schema(id=2, name="P", encoding="struct", data=b'[["x", "<f4"]]')
    words = records.Schema(id=3, name="Words", encoding="jsonschema", data=b'{"type": "object"}')
    channels = [
        logs.channel(1, "p", schema_id=1, encoding="struct"),
        logs.channel(2, "p", schema_id=2, encoding="struct"),
        logs.channel(3, "words", schema_id=3, encoding="json"),
        logs.channel(4, "plain", encoding="msgpack"),
    ]
    payloads = [b"\1\0\0\0", b"\0\0\x80\x3f", b'{"a": 1}', b"\5"]
    sent = [logs.message(1 + i, 0, BEGIN + i, payload) for i, payload in enumerate(payloads)]
    recorded = logs.write_unclosed_file(
        tmp_path / "in.mcap", logs.build_chunk_record(first, second, words, *channels, *sent)
    )
    Lake(spark, tmp_path / "lake").ingest([recorded])
    run("lake", "export", tmp_path / "lake", "SELECT * FROM messages", "-o", tmp_path / "out.mcap")
    found = [(m.endpoint, m.schema, m.data) for m in LogReader(tmp_path / "out.mcap")]
    assert found == [(m.endpoint, m.schema, m.data) for m in LogReader(recorded)]
    assert [value for _, value in LogReader(tmp_path / "out.mcap").decoded()][2:] == [{"a": 1}, 5]
    with (tmp_path / "out.mcap").open("rb") as file:
        texts = {
            (schema.name, schema.encoding, schema.data) for schema, _, _ in make_reader(file).iter_messages() if schema
        }
    assert texts == {(schema.name, schema.encoding, schema.data) for schema in (first, second, words)}


def test_export_refuses_unsupported_values_of_format(lake: Path, tmp_path: Path) -> None:
    done = run("lake", "export", lake, "SELECT map(1, 2) AS m", "-o", tmp_path / "all.csv", code=1)
    assert "UNSUPPORTED_DATA_TYPE" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_rows_of_large_query_results_are_streamed_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """They are in order across what workers wrote, and where times are equal; of that nothing is left."""
    made = [message("ba"[i % 2], i, 1000 + i // 10, data=b"%d" % i) for i in range(3000)]
    rows = messages(spark, made[::-1]).repartition(7)
    assert export.write_log(rows, tmp_path / "a.mcap") == 3000
    found = [(m.log_time, m.endpoint, m.sequence) for m in LogReader(tmp_path / "a.mcap")]
    assert found == sorted((row["log_time"], row["endpoint"], row["sequence"]) for row in made)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mcap"]


def test_export_skips_incomplete_rows_and_refuses_invalid_times(spark: SparkSession, tmp_path: Path) -> None:
    made = [message("a", 0, 1000), message("a", 1, 1001, data=None), message("a", 2, None), message(None, 3, 1003)]
    large = [message("a", 2**32 + 4, 1004, publish_time=None), message("a", 5, 1005, publish_time=0, run=None)]
    none = message("a", None, 1006, epoch=None, encoding=None)
    assert export.write_log(messages(spark, [*made, *large, none]), tmp_path / "a.mcap") == 4
    found = list(LogReader(tmp_path / "a.mcap"))
    assert [(m.sequence, m.publish_time, m.epoch) for m in found] == [
        (0, 1000, 1),
        (4, 1004, 1),
        (5, 0, 1),
        (0, 1006, 0),
    ]
    with pytest.raises(RecordingError, match="exists"):
        export.write_log(messages(spark, made), tmp_path / "a.mcap")
    with pytest.raises(InvalidValueError, match="use nanoseconds since 1970"):
        export.write_log(messages(spark, [message("a", 0, 1000, publish_time=-1)]), tmp_path / "b.mcap")
    assert [path.name for path in tmp_path.iterdir()] == ["a.mcap"]
