"""`msgq lake`, as a user runs it; in this process, as a session takes seconds to start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from rich.console import Console

pytest.importorskip("pyspark")
from examples import questions
from msgq.cli.lake import arguments
from msgq.common.queue_events import Event
from msgq.lake.fleet import fleet_tables
from msgq.recording import LogReader
from msgq.recording.mcap_io import recording_files
from msgq.spark.lake import Lake
from msgq.spark.runtime import session as sessions
from msgq.stats import topics
from tests.command import run
from tests.lake.without_spark import run_without_spark
from tests.recording import logs
from tests.spark.deadline import DEADLINE
from tests.spark.kind_logs import BEGIN, QueueEvent, of_queue, write_kinds
from tests.spark.pages import sections, table
from tests.support import ROOT, Task, wait_until

OTHER = logs.build_chunk_record(logs.channel(1, "gps", encoding="json"), logs.message(1, 0, 10**18, b'{"x": 1}'))


def write(path: Path) -> Path:
    sent = [logs.message(1, i, 10**18 + i * 10**8, b'{"n": %d}' % i) for i in range(20) if i != 7]
    return logs.write_unclosed_file(path, logs.build_chunk_record(logs.channel(1, "imu", encoding="json"), *sent))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write(tmp_path / "000000.mcap")


class Ingested(NamedTuple):
    """A lake with all tables of one recording, which tests only read; and what the command said of it."""

    lake: Path
    recording: Path
    said: dict[str, Any]


@pytest.fixture(scope="module")
def ingested(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    place = tmp_path_factory.mktemp("ingested")
    recording = write(place / "000000.mcap")
    said = json.loads(run("lake", "ingest", place / "lake", recording, "--json").stdout)
    return Ingested(place / "lake", recording, said)


def test_ingest_of_new_recordings_continues_at_last_one(spark: Any, tmp_path: Path) -> None:
    """An earlier name that comes later is found without --new."""
    recordings, lake = tmp_path / "recordings", tmp_path / "lake"
    for run_name in ("run2", "run3"):
        (recordings / run_name).mkdir(parents=True)
        write(recordings / run_name / "000000.mcap")
        os.utime(recordings / run_name / "000000.mcap", (1, 1))
    command = ("lake", "ingest", lake, recordings, "--no-silver", "--no-gold")
    assert "19 new messages from 2 new files, 0 known files skipped" in run(*command, "--new").stdout
    logs.write_unclosed_file(recordings / "run1.mcap", OTHER)
    (recordings / "run1").mkdir()
    (recordings / "run1.mcap").rename(recordings / "run1/000000.mcap")
    assert "0 new messages from 0 new files, 1 known file skipped" in run(*command, "--new").stdout
    assert "1 new message from 1 new file, 2 known files skipped" in run(*command).stdout


def test_lake_commands_ingest_query_and_export_recording(ingested: Ingested, tmp_path: Path) -> None:
    lake, recording, said = ingested
    assert said["messages"] == 19
    assert "0 new files, 1 known file skipped" in run("lake", "ingest", lake, recording).stdout
    asked = run("lake", "sql", lake, "SELECT endpoint, messages, lost FROM endpoints", "--json").stdout
    assert json.loads(asked) == {"endpoint": "imu", "messages": 19, "lost": 1}
    assert "imu" in run("lake", "sql", lake, "SELECT * FROM messages", "-n", 5).stdout
    asked = run("lake", "sql", lake, "SELECT sum(n) AS total FROM silver_imu", "--json").stdout
    assert json.loads(asked) == {"total": sum(range(20)) - 7}
    assert run("lake", "export", lake, "SELECT * FROM messages WHERE sequence < 5", "-o", tmp_path / "some.mcap").stdout
    assert [message.data for message in LogReader(tmp_path / "some.mcap")] == [b'{"n": %d}' % i for i in range(5)]
    rows = run(
        "lake", "export", lake, "SELECT endpoint, lost FROM sequence_gaps", "-o", tmp_path / "gaps.csv", "--json"
    ).stdout
    assert json.loads(rows)["rows"] == 1


def test_export_of_range_without_spark_has_rows_of_query(ingested: Ingested, tmp_path: Path) -> None:
    start, end = 10**18 + 5 * 10**8, 10**18 + 12 * 10**8
    query = f"SELECT * FROM messages WHERE endpoint = 'imu' AND log_time >= {start} AND log_time < {end}"
    by_spark, by_arrow = tmp_path / "spark.mcap", tmp_path / "arrow.mcap"
    run("lake", "export", ingested.lake, query, "-o", by_spark)
    ranges = ("--start", 0.5, "--end", "2001-09-09T01:46:41.2")
    run_without_spark("lake", "export", ingested.lake, "--endpoint", "imu", *ranges, "-o", by_arrow)
    assert len(list(LogReader(by_spark))) == 6
    assert list(LogReader(by_arrow)) == list(LogReader(by_spark))
    assert by_arrow.read_bytes() == by_spark.read_bytes()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM messages ORDER BY sequence",
        "SELECT * FROM silver_imu ORDER BY sequence",
        "SELECT * FROM endpoints",
        "SELECT * FROM traffic_windows ORDER BY window_start",
        "SELECT * FROM latency_summary",
        "SELECT * FROM decode_errors",
        "SELECT * FROM read_errors",
    ],
)
def test_duckdb_query_has_rows_of_spark(ingested: Ingested, sql: str) -> None:
    pytest.importorskip("duckdb")
    by_spark = run("lake", "sql", ingested.lake, sql, "--json").stdout
    assert run("lake", "sql", ingested.lake, sql, "--engine", "duckdb", "--json").stdout == by_spark


@pytest.mark.nightly
def test_lake_commands_handle_queues_and_publishers(spark: Any, tmp_path: Path) -> None:
    told = [
        QueueEvent(Event.SENT, 1, BEGIN, 0, BEGIN, publisher="boss"),
        QueueEvent(Event.RECEIVED, 1, BEGIN + 9, 1, BEGIN),
    ]
    recording = write_kinds(tmp_path / "000000.mcap", of_queue("jobs", told))
    lake, out = tmp_path / "lake", tmp_path / "out.mcap"
    run("lake", "ingest", lake, recording)
    queries = {
        "SELECT queue, outcome, queue_time_ns FROM queue_deliveries": {
            "queue": "jobs",
            "outcome": "received",
            "queue_time_ns": 9,
        },
        "SELECT unix_micros(delivered_timestamp) AS at FROM queue_deliveries": {"at": (BEGIN + 9) // 1000},
        "SELECT sent, delivered, backlog FROM queue_summary": {"sent": 1, "delivered": 1, "backlog": 0},
        "SELECT publisher, messages FROM publishers": {"publisher": "boss", "messages": 1},
        "SELECT kind, publishers FROM endpoints": {"kind": "queue", "publishers": 1},
        "SELECT event FROM `silver_queue/jobs` WHERE publisher IS NULL": {"event": "received"},
    }
    for query, answer in queries.items():
        assert json.loads(run("lake", "sql", lake, query, "--json").stdout) == answer
    done = run("lake", "sql", lake, "SELECT event FROM silver_queue/jobs", code=1)
    assert done.output == "Error: table 'silver_queue/jobs' needs backticks; write `silver_queue/jobs`\n"
    run("lake", "export", lake, "SELECT * FROM messages", "-o", out)
    assert list(LogReader(out)) == list(LogReader(recording))
    pytest.importorskip("duckdb")
    done = run("lake", "sql", lake, "SELECT event FROM silver_queue/jobs", "--engine", "duckdb", code=1)
    assert done.output.endswith("table 'silver_queue/jobs' needs quotes; write \"silver_queue/jobs\"\n")


def test_lake_queries_in_documentation_return_rows(spark: Any, ingested: Ingested) -> None:
    Lake(spark, ingested.lake).register()
    answers = {question: spark.sql(sql).collect() for question, sql in questions.QUESTIONS.items()}
    assert len(answers) == 5
    assert [tuple(row) for row in next(iter(answers.values()))] == [("imu", 1, 5.0)]


def test_lake_stream_adds_each_message_once(spark: Any, tmp_path: Path, recording: Path) -> None:
    lake = tmp_path / "lake"
    for _ in range(2):
        output = run("lake", "stream", lake, tmp_path, "--once").stdout
        assert output.startswith(f"{lake}: 19 messages in the lake; version ")
    assert Lake(spark, lake).messages().count() == 19
    assert json.loads(run("lake", "ingest", lake, recording, "--json").stdout)["messages"] == 0


def test_lake_ctrl_c_ends_spark_without_traceback(tmp_path: Path, recording: Path) -> None:
    """Also without a Java: one whose driver left it half-way would stay for ever, and hold its driver's output."""
    lake = tmp_path / "lake"
    program = [sys.executable, "-m", "msgq", "lake", "ingest", str(lake), str(recording)]
    with subprocess.Popen(
        program, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        # Java, which takes seconds from here
        wait_until(lambda: children.read_text() or process.poll() is not None, deadline=DEADLINE)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        said: tuple[str, str | None] = process.communicate(timeout=DEADLINE)
        assert said == ("", None)
    assert process.returncode == 130


class Terminal(StringIO):
    """A terminal that stores all output."""

    def isatty(self) -> bool:
        return True

    def shows(self, text: str) -> bool:
        return text in self.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as the standard error of `msgq`."""
    terminal = Terminal()
    monkeypatch.setattr(Console, "file", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return terminal


def test_task_progress_on_terminal_shows_part_rate_and_remaining_time(
    spark: Any, tmp_path: Path, terminal: Terminal
) -> None:
    pipes = [str(tmp_path / f"pipe{number}") for number in range(2)]
    for pipe in pipes:
        os.mkfifo(pipe)

    def wait_in_tasks() -> None:
        with arguments.show_task_progress(spark, "tasks of a test"):
            spark.sparkContext.parallelize(["/dev/null", *pipes], 3).foreach(read_file)

    waiting = Task(wait_in_tasks)
    for number, pipe in enumerate(pipes, 1):
        wait_until(partial(terminal.shows, f"{number} of 3 tasks"), "the progress", DEADLINE)
        os.close(os.open(pipe, os.O_WRONLY))
    waiting.result()
    assert "tasks of a test" in terminal.getvalue()
    assert re.search(r"66%  2 of 3 tasks  [\d.]+ tasks/s  0:\d\d:\d\d left", terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[1A\x1b[2K")


def test_progress_line_is_shown_before_checks_of_paths(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bool] = []
    monkeypatch.setattr(recording_files, "match_paths", lambda *_: shown.append(terminal.shows("Spark starts")))
    monkeypatch.setattr(fleet_tables, "refuse_fleet_directory", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        arguments.open_lake("lake", None, ("drive",))
    assert shown == [True]
    assert terminal.getvalue().endswith("\r\x1b[1A\x1b[2K")


def test_task_progress_of_spark_connect_shows_elapsed_time(terminal: Terminal) -> None:
    with arguments.show_task_progress(SimpleNamespace(), "ingest"):
        assert re.search(r"ingest .* 0:\d\d:\d\d$", terminal.getvalue())
    assert "tasks" not in terminal.getvalue()


def read_file(path: str) -> None:
    """Wait in a task until the pipe has been opened and closed."""
    Path(path).read_bytes()


def test_lake_unknown_table_error_lists_tables(ingested: Ingested) -> None:
    for query, name in (
        ("SELECT * FROM endpoint", "endpoint"),
        ("SELECT * FROM silver_gps, sequence_gaps", "silver_gps"),
    ):
        done = run("lake", "sql", ingested.lake, query, code=1)
        assert f"has no table '{name}'; tables: messages, " in done.output
        there, _, hint = done.output.strip().rpartition("; tables: ")[2].partition("; ")
        assert {"endpoints", "sequence_gaps", "silver_imu"} <= set(there.split(", "))
        assert hint.startswith("did you mean ")
        assert len(done.output.splitlines()) == 1
    unknown = run("lake", "sql", ingested.lake, "SELECT speeed FROM endpoints", code=1)
    assert "speeed" in unknown.output
    assert "tables: " not in unknown.output


def test_lake_rejected_query_error_names_other_way(ingested: Ingested) -> None:
    for query, text, code in (
        ("SELECT * FROM messages VERSION AS OF 0", "use --version NUMBER", 1),
        ("INSERT INTO endpoints SELECT * FROM endpoints", "cannot change the tables of a lake", 1),
        ("show tables", "run `msgq lake tables LAKE`", 2),
    ):
        assert text in run("lake", "sql", ingested.lake, query, code=code).output


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("ingest", "{}", "{}/no"), 1, "does not exist; use a file"),
        (("stream", "{}", "{}/no"), 1, "does not exist; use a file"),
        (("sql", "{}/no", "SELECT 1"), 1, "/no RECORDINGS"),
        (("report", "{}/no"), 1, "not found; give a lake or a recording"),
        (("sql", __file__, "SELECT 1"), 1, "is a file, not a lake"),
        (("sql", "{}", "SELEC"), 1, "PARSE_SYNTAX_ERROR"),
        (("sql", "{}", "SELECT * FROM nowhere"), 1, "nowhere"),
        (("export", "{}", "SELECT endpoint FROM messages", "-o", "{}/x.mcap"), 1, "column 'log_time' is missing"),
        (("export", "{}", "SELECT 1", "-o", "/tmp"), 2, "exists"),
    ],
)
def test_lake_user_error_is_one_line(spark: Any, tmp_path: Path, arguments: Any, code: Any, text: Any) -> None:
    (tmp_path / "lake" / "messages" / "_delta_log").mkdir(parents=True)  # a lake with nothing in it
    done = run("lake", *(argument.format(tmp_path / "lake") for argument in arguments), code=code)
    assert text in done.output


def test_report_of_recording_leaves_no_lake(
    spark: Any, tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    page = tmp_path / "page.html"
    told = json.loads(run("lake", "report", recording, "-o", page, "--json").stdout)
    assert (told["messages"], told["lost"]) == (19, 1)
    assert [row["endpoint"] for row in table(sections(page.read_text())["Endpoints"])] == ["imu"]
    assert list((tmp_path / "tmp").iterdir()) == []


def has_parts(place: Path) -> bool:
    """Return whether there is a file of Parquet in a directory in which others come and go."""
    return any(name.endswith(".parquet") for _, _, names in os.walk(place) for name in names)


@pytest.mark.nightly
def test_report_ctrl_c_leaves_no_lake(tmp_path: Path) -> None:
    """Of a recording that takes long, when its lake has grown."""
    sent = (logs.message(1, i, 10**18 + i * 10**6, b'{"n": %d}' % i) for i in range(50_000))
    made = logs.write_unclosed_file(
        tmp_path / "000000.mcap", logs.build_chunk_record(logs.channel(1, "imu", encoding="json"), *sent)
    )
    for number in range(1, 200):
        (tmp_path / f"{number:06d}.mcap").hardlink_to(made)
    (temporary := tmp_path / "tmp").mkdir()
    program = [sys.executable, "-m", "msgq", "lake", "report", str(tmp_path), "-o", str(tmp_path / "page.html")]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        program, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        wait_until(lambda: has_parts(temporary) or process.poll() is not None, deadline=DEADLINE)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=DEADLINE)[0]
    assert (process.returncode, said) == (130, "")
    assert not list(temporary.glob("msgq-lake-*"))


def lake_of(tmp_path: Path, *options: object) -> tuple[Path, dict[str, Any]]:
    """Make a lake of one recording by the command; return its path, and what the command says."""
    tmp_path.mkdir(exist_ok=True)
    sent = [logs.message(1, i, 10**18 + i * 10**8, b'{"n": %d}' % i) for i in range(20)]
    path = logs.write_unclosed_file(
        tmp_path / "a.mcap", logs.build_chunk_record(logs.channel(1, "imu", encoding="json"), *sent)
    )
    said: dict[str, Any] = json.loads(run("lake", "ingest", tmp_path / "lake", path, "--json", *options).stdout)
    return tmp_path / "lake", said


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("export", ["SELECT 1", "-o", "{}/x"]),
        ("ingest", ["{}/a.mcap"]),
        ("optimize", []),
        ("replay", ["SELECT 1"]),
        ("report", []),
        ("sql", ["SELECT 1"]),
        ("stream", ["{}/a.mcap"]),
    ],
)
def test_lake_master_option_selects_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, more: list[str]
) -> None:
    monkeypatch.setattr(sessions, "_get_active_session", lambda: None)  # a test before may have left one
    (tmp_path / "lake" / "messages" / "_delta_log").mkdir(parents=True)
    logs.write_unclosed_file(tmp_path / "a.mcap")
    words = [word.format(tmp_path) for word in more]
    done = run("lake", verb, tmp_path / "lake", *words, "--master", "moon", code=1)
    assert done.stderr.startswith("Error: master 'moon' is invalid; use local[4], ")


def test_lake_version_option_reads_earlier_ingest(
    spark: Any, tmp_path: Path, prefix: str, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, first = lake_of(tmp_path / "first", "--no-silver", "--no-gold")
    run("lake", "ingest", lake, logs.write_unclosed_file(tmp_path / "b.mcap", OTHER), "--no-silver", "--no-gold")
    count, version = "SELECT count(*) AS n FROM messages", ("--version", first["version"])
    assert json.loads(run("lake", "sql", lake, count, "--json").stdout) == {"n": 21}
    assert json.loads(run("lake", "sql", lake, count, *version, "--json").stdout) == {"n": 20}
    said = run("lake", "export", lake, "SELECT endpoint FROM messages", "-o", tmp_path / "x", *version, "--json").stdout
    assert json.loads(said)["rows"] == 20
    monkeypatch.delenv("OPENPILOT_PREFIX")
    messages = ("SELECT * FROM messages", "--rate", "inf", "--remap", "imu:=moved", "--prefix", prefix)
    assert "20 messages of 1 endpoint played" in run("lake", "replay", lake, *messages, *version).stdout
    assert [topic.endpoint for topic in topics(prefix)] == ["moved"]


def test_ingest_builds_only_selected_tables(spark: Any, tmp_path: Path) -> None:
    lake, said = lake_of(tmp_path, "--no-silver", "--no-gold")
    assert (said["messages"], said["runs"]) == (20, 0)
    assert not any(has_parts(lake / name) for name in ("silver", "gold"))
    run("lake", "ingest", lake, tmp_path / "a.mcap", "--no-gold")
    assert [has_parts(lake / name) for name in ("silver", "gold")] == [True, False]


def test_ingest_schema_option_decodes_endpoints_without_schema(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "Number.msg").write_text("uint8 n\n")
    path = logs.write_log(tmp_path / "a.mcap", ("e", 1, b"\0\1\0\0\7"))
    schema = f"cdr:{tmp_path}/Number.msg:p/msg/Number"
    run("lake", "ingest", tmp_path / "lake", path, "--no-gold", "--schema", schema, "-I", tmp_path)
    assert json.loads(run("lake", "sql", tmp_path / "lake", "SELECT n FROM silver_e", "--json").stdout) == {"n": 7}


def test_optimize_with_zero_retention_removes_old_files(spark: Any, tmp_path: Path) -> None:
    lake, _ = lake_of(tmp_path, "--no-silver", "--no-gold")
    run("lake", "ingest", lake, logs.write_unclosed_file(tmp_path / "b.mcap", OTHER), "--no-silver", "--no-gold")
    before = parts(lake)
    done = json.loads(run("lake", "optimize", lake, "--json").stdout)
    assert done["files_after"] < done["files_before"] == before
    assert parts(lake) > done["files_after"]  # versions of the last week need further files
    run("lake", "optimize", lake, "--retain-hours", 0)
    assert parts(lake) == done["files_after"]


def parts(lake: Path) -> int:
    """Return the number of files of messages, those of older versions included."""
    return sum("_delta_log" not in path.parts for path in (lake / "messages").rglob("*.parquet"))


def test_export_to_option_sets_file_format(spark: Any, tmp_path: Path) -> None:
    lake, _ = lake_of(tmp_path, "--no-silver", "--no-gold")
    run("lake", "export", lake, "SELECT sequence FROM messages WHERE sequence = 3", "-o", tmp_path / "x", "--to", "csv")
    (file,) = (path for path in (tmp_path / "x").glob("*.csv") if path.stat().st_size)
    assert file.read_text() == "sequence\n3\n"


def test_report_run_option_selects_one_run(spark: Any, tmp_path: Path) -> None:
    lake, _ = lake_of(tmp_path)
    other = tmp_path / "b.mcap"
    other.write_bytes(logs.build_recording_head("cd" * 16) + OTHER)
    run("lake", "ingest", lake, other)
    page = tmp_path / "page.html"
    for options, expected in ((["--run", "cd" * 16], 1), ([], 21)):
        assert json.loads(run("lake", "report", lake, "-o", page, *options, "--json").stdout)["messages"] == expected


def test_stream_options_set_trigger_interval_and_checkpoint_folder(spark: Any, tmp_path: Path, recording: Path) -> None:
    lake, place = tmp_path / "lake", tmp_path / "place"

    def interrupt() -> None:
        wait_until(lambda: (place / "commits" / "0").exists(), deadline=DEADLINE)
        os.kill(os.getpid(), signal.SIGINT)

    task = Task(interrupt)
    run("lake", "stream", lake, recording.parent, "--trigger-seconds", 0.1, "--checkpoint", place)
    task.result()
    assert Lake(spark, lake).messages().count() == 19


RESTLESS = """
import msgq

def restless():
    numbers, out = msgq.sub_sock("imu", timeout=1000), msgq.pub_sock("out")
    while True:
        out.send(numbers.receive() or b"null")
"""


def test_replay_time_limit_options_end_programs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program_of_lake.py").write_text(RESTLESS)
    monkeypatch.syspath_prepend(str(tmp_path))
    lake, _ = lake_of(tmp_path, "--no-silver", "--no-gold")
    program = ("SELECT * FROM messages", "--deterministic", "program_of_lake:restless", "--seed", 3)
    silent = run("lake", "replay", lake, *program, "--idle-timeout", 0.5).stdout
    assert "the same: 20 messages" in silent
    assert (
        "the same: 25 messages" in run("lake", "replay", lake, *program, "--max-runtime", 5, "--idle-timeout", 2).stdout
    )
    sys.modules.pop("program_of_lake")
