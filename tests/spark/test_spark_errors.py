"""What Spark refuses is one line of ours, not a page of Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark")
from py4j.protocol import Py4JNetworkError
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkRuntimeError, UnknownException
from pyspark.sql import SparkSession

from msgq.cli.lake import _LAKE_COMMANDS, arguments
from msgq.errors import IpcError, SparkError
from msgq.spark.runtime import session as sessions
from msgq.spark.runtime import spark_errors as error_module
from msgq.spark.runtime.spark_errors import extract_first_line, report_java_exit, translate_spark_errors
from msgq.spark.source.data_source import RecordingSource
from msgq.spark.source.registered_source import make_registered_source
from tests.command import run
from tests.spark.deadline import DEADLINE
from tests.support import ROOT, wait_until


def test_spark_error_is_first_line() -> None:
    with pytest.raises(SparkError) as caught, translate_spark_errors():
        raise AnalysisException(message="\n  [TABLE_OR_VIEW_NOT_FOUND] nowhere \n== SQL ==\nand a page more")
    assert str(caught.value) == "[TABLE_OR_VIEW_NOT_FOUND] nowhere"
    assert not isinstance(caught.value, (IpcError, ValueError)), "no value, and nothing between processes"


def test_other_errors_are_unchanged() -> None:
    with pytest.raises(KeyError), translate_spark_errors():
        raise KeyError("x")


def test_blank_spark_error_has_default_reason() -> None:
    assert extract_first_line(" \n ") == "Spark gave no reason"


def test_spark_start_failure_names_master(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_: object) -> SparkSession:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", ended)
    with pytest.raises(SparkError, match=r"does not start on local\[1\]: .*JAVA_GATEWAY_EXITED"):
        sessions._start_spark({}, "local[1]")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("msgq.errors.RecordingError: the part x is torn: do this", "the part x is torn: do this"),
        ("OSError: [Errno 28] No space left on device", "OSError: [Errno 28] No space left on device"),
    ],
)
def test_spark_error_shows_worker_exception(raised: str, said: str) -> None:
    calls = '  File "worker.py", line 1, in main\n    process()\n    ~~~~~~~^^\n'
    traceback = f"Traceback (most recent call last):\n{calls}"
    before = f"{traceback}KeyError: 1\n\nDuring handling of it, another occurred:\n\n"
    text = f"\n  An exception was thrown from the Python worker:\n{before}{traceback}{raised}\n"
    assert extract_first_line(text) == said


# A Python of workers without msgq


@pytest.mark.parametrize(
    "text",
    [
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: msgq. Make sure the provider name is correct",
        "Traceback (most recent call last):\n  File \"x\", line 1, in f\nModuleNotFoundError: No module named 'msgq'",
    ],
)
def test_worker_python_without_msgq_is_explained(text: str) -> None:
    advice = r"Spark's workers cannot use msgq; .* set PYSPARK_PYTHON to"
    with pytest.raises(SparkError, match=advice), translate_spark_errors():
        raise AnalysisException(message=text)


def test_registered_source_explains_missing_msgq(tmp_path: Path) -> None:
    """The class reaches a Python that finds pyspark and not msgq."""
    for name in ("pyspark", "py4j"):
        (tmp_path / name).symlink_to(Path(str(import_module(name).__file__)).parent)
    program = f"""if True:
        import sys
        sys.path.append({str(tmp_path)!r})
        from pyspark.cloudpickle import loads
        loads(sys.stdin.buffer.read())({{}})"""
    sent = cloudpickle.dumps(make_registered_source())  # type: ignore[no-untyped-call]
    python = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(python, input=sent, capture_output=True, timeout=DEADLINE, check=False)
    last = done.stderr.decode().splitlines()[-1]
    assert f"Python '{sys.executable}' of Spark's workers cannot use msgq: No module named" in last
    assert "set PYSPARK_PYTHON" in last


def test_registered_source_creates_source_of_recordings(tmp_path: Path) -> None:
    sent = cloudpickle.dumps(make_registered_source())  # type: ignore[no-untyped-call]
    source = cloudpickle.loads(sent)({"path": str(tmp_path)})
    assert isinstance(source, RecordingSource)
    assert source.parsed_options.paths == (str(tmp_path),)


# A Java that is gone


def ended(code: int) -> subprocess.Popen[bytes]:
    """Return a process that has ended so."""
    how = f"kill -{-code} $$" if code < 0 else f"exit {code}"
    return subprocess.Popen(["/bin/sh", "-c", how])


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (52, "ended because it was out of memory: give the process more, such as SPARK_DRIVER_MEMORY=8g"),
        (-signal.SIGKILL, "was killed, probably by the kernel .* end other programs"),
        (1, "ended with code 1: look for the reason"),
    ],
)
@pytest.mark.parametrize("noticed", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("empty"), EOFError()])
def test_java_exit_error_states_exit_status(
    monkeypatch: pytest.MonkeyPatch, noticed: Exception, code: int, text: str
) -> None:
    monkeypatch.setattr(error_module, "_get_java_process", lambda: ended(code))
    for errors in (translate_spark_errors, report_java_exit):
        with pytest.raises(SparkError, match=text) as caught, errors():
            raise noticed
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "x"), ConnectionRefusedError(111, "x"), KeyError("x")])
def test_other_errors_with_live_java_are_unchanged(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(error_module, "_JAVA_EXIT_TIMEOUT_S", 0.01)
    with subprocess.Popen(["/bin/sh", "-c", "read x"], stdin=subprocess.PIPE) as living:
        monkeypatch.setattr(error_module, "_get_java_process", lambda: living)
        with pytest.raises(type(error)), translate_spark_errors():
            raise error


def test_live_java_without_memory_raises_spark_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_module, "_get_java_process", lambda: None)
    error = UnknownException("java.lang.OutOfMemoryError: Java heap space\n\tat a.page.of.Java")
    with (
        pytest.raises(SparkError, match="is out of memory: give the process more, such as SPARK_DRIVER_MEMORY"),
        report_java_exit(),
    ):
        raise error


@pytest.mark.parametrize("verb", sorted({*_LAKE_COMMANDS} - {"tables"}))  # the verb `tables` starts no Java
def test_each_verb_reports_java_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    for name in ("open_lake", "start_spark"):
        monkeypatch.setattr(arguments, name, refused)
    monkeypatch.setattr(error_module, "_get_java_process", lambda: ended(52))
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)  # a lake with nothing in it
    more = {"export": ("SELECT 1", "-o", tmp_path / "x"), "ingest": (tmp_path,), "stream": (tmp_path,)}
    more |= dict.fromkeys(("sql", "replay"), ("SELECT 1",))
    words = (tmp_path / "fleet", tmp_path) if verb == "fleet" else (tmp_path, *more.get(verb, ()))
    done = run("lake", verb, *words, code=1)
    assert "ended because it was out of memory: give the process more" in done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.nightly
def test_killed_java_in_query_gives_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "lake" / "messages" / "_delta_log").mkdir(parents=True)
    query = "SELECT max(sqrt(id)) FROM range(0, 1000000000000, 1, 2)"
    command = [sys.executable, "-m", "msgq", "lake", "sql", str(tmp_path / "lake"), query, "--master", "local[2]"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.kill(wait_until(lambda: find_working_java(process.pid), "a task", DEADLINE), signal.SIGKILL)
        out, err = process.communicate(timeout=DEADLINE)
    assert (out, process.returncode) == ("", 1)
    assert "was killed, probably by the kernel" in err
    assert len(err.splitlines()) == 1


def find_working_java(pid: int) -> int | None:
    """Return the Java below a process, once it works at a task."""
    with suppress(psutil.NoSuchProcess, OSError):
        for child in psutil.Process(pid).children(recursive=True):
            threads = Path(f"/proc/{child.pid}/task").glob("*/comm")
            if any(path.read_text().startswith("Executor task l") for path in threads):
                return int(child.pid)
    return None
