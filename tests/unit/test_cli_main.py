"""The command itself: versions, errors in one line, and what happens without the extra."""

import json
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from msgq.cli.app import VERBS, app
from tests.cases import each_case
from tests.command import run
from tests.recording.logs import write_log

DEADLINE_S = 60
SHOW_HELP = "import sys; sys.modules[{!r}] = None; from msgq.cli import main; main([{!r}, {!r}, '--help'])"


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)


def test_version_option_shows_installed_version() -> None:
    result = CliRunner().invoke(app, ["version"])
    assert result.exit_code == 0
    assert f"msgq {version('msgq-bus')}\n" in result.output


def test_version_option_with_json_prints_one_object() -> None:
    result = CliRunner().invoke(app, ["version", "--json"])
    assert json.loads(result.output)["msgq"] == version("msgq-bus")


@pytest.mark.parametrize("group", [(), ("bag",), ("frames",), ("lake",), ("schema",)], ids=" ".join)
def test_group_without_arguments_prints_the_lines_of_its_help(group: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*group])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == CliRunner().invoke(app, [*group, "--help"]).stdout


def test_python_m_msgq_runs_command() -> None:
    result = run_python("-m", "msgq", "version", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["msgq"] == version("msgq-bus")


def start_and_await_line(*program: str) -> subprocess.Popen[str]:
    """Start a new process that prints lines until it is ended; return when it has printed one."""
    process = subprocess.Popen(
        [*program, "stat", "--interval", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_installed_script_exits_without_traceback_on_ctrl_c(prefix: str) -> None:
    with start_and_await_line(str(Path(sys.executable).with_name("msgq"))) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=DEADLINE_S)[1] == ""
        assert process.returncode == 0


def test_python_m_msgq_exits_without_traceback_on_closed_pipe(prefix: str) -> None:
    with start_and_await_line(sys.executable, "-m", "msgq") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@each_case("verb", VERBS)
def test_help_of_each_command_documents_exit_codes(verb: str) -> None:
    result = CliRunner().invoke(app, [verb, "--help"])
    assert result.exit_code == 0
    assert "Exit codes: 0" in result.output


def test_unknown_command_exits_with_usage_error() -> None:
    assert CliRunner().invoke(app, ["fly"]).exit_code == 2


def test_command_prints_library_error_in_one_line() -> None:
    result = run_python("-m", "msgq", "list", "--prefix", "a/b")
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "a/b" in result.stderr


def test_command_prints_unknown_backend_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGQ_BACKEND", "foo")
    result = run_python("-m", "msgq", "pub", "e", "x")
    assert result.returncode == 1
    assert result.stderr == "Error: MSGQ_BACKEND='foo' is not a backend; give one of msgq, zmq, fake\n"
    run("version")  # uses no backend


@pytest.mark.parametrize("missing", ["click", "rich", "psutil"])
def test_command_without_optional_package_names_missing_extra(missing: str) -> None:
    result = run_python("-c", SHOW_HELP.format(missing, "lake", "report"))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert missing in result.stderr
    assert "pip install 'msgq-bus[cli]'" in result.stderr


def test_missing_standard_module_is_not_reported_as_missing_extra() -> None:
    result = run_python("-c", SHOW_HELP.format("secrets", "frames", "bench"))
    assert result.returncode == 1
    assert "ModuleNotFoundError" in result.stderr
    assert "pip install" not in result.stderr


LIST_THEN_RECORD = """
from msgq.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
main(["record", "--all", "-o", "never"])
"""


@pytest.mark.parametrize("missing", ["mcap", "zstandard"])
def test_help_lists_commands_with_missing_extras(missing: str) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None"
    called = run_python("-c", f"{hide}\n{LIST_THEN_RECORD}")
    assert "hz " in called.stdout
    assert "needs msgq-bus[record]" in called.stdout
    assert called.returncode == 1
    assert len(called.stderr.splitlines()) == 1
    assert "pip install 'msgq-bus[record]'" in called.stderr


def test_play_and_merge_modules_do_not_import_arrow() -> None:
    modules = "msgq.cli.play, msgq.recording.merge.log_copy, msgq.recording.player.replay"
    result = run_python("-c", f"import sys; sys.modules['pyarrow'] = None; import {modules}")
    assert result.returncode == 0, result.stderr


WITHOUT = """
import sys
from msgq.errors import MissingLibraryError
for package, missing in (
    ("msgq.spark", "pyspark"), ("msgq.lake.delta_table", "pyarrow"), ("msgq.spark.lake", "deltalake"),
    ("msgq.lake.report.report_page", "plotly"),
):
    sys.modules |= {missing: None}
    try:
        __import__(package)
    except MissingLibraryError as error:
        print(error)
    del sys.modules[missing]
"""


def test_package_import_without_extra_names_missing_extra() -> None:
    done = run_python("-c", WITHOUT)
    needed = (
        ("msgq.spark", "pyspark", "spark"),
        ("msgq.lake", "pyarrow", "lake"),
        ("msgq.lake", "deltalake", "lake"),
        ("msgq.lake.report", "plotly", "report"),
    )
    text = "{} needs {}, which is not installed; run: pip install 'msgq-bus[{}]'".format
    expected = [text(*one) for one in needed]
    assert done.stdout.splitlines() == expected, done.stderr


def test_recording_import_without_extra_names_missing_extra() -> None:
    called = run_python("-c", "import sys; sys.modules['mcap'] = None; from msgq.recording import LogReader")
    text = "msgq.recording.LogReader needs mcap, which is not installed; run: pip install 'msgq-bus[record]'"
    assert called.stderr.splitlines()[-1].endswith(f"MissingLibraryError: {text}")


def test_lake_import_without_extra_names_missing_extra(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['pyspark'] = None; from msgq.cli import main; "
    called = run_python("-c", f"{hide}main(['lake', 'ingest', {str(tmp_path)!r}, 'x'])")
    assert called.returncode == 1, called.stdout
    assert (
        called.stderr == "Error: msgq.spark needs pyspark, which is not installed; run: pip install 'msgq-bus[spark]'\n"
    )


def test_command_ends_without_traceback_on_ctrl_c_during_imports() -> None:
    interrupt = "import sys; sys.meta_path.insert(0, type('Finder', (), {'find_spec': staticmethod(stop)}))"
    stop = "def stop(name, *_):\n    if name == 'msgq.cli.app':\n        raise KeyboardInterrupt\n"
    called = run_python("-c", f"{stop}{interrupt}; from msgq.cli import main; main(['list'])")
    assert (called.returncode, called.stdout, called.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        ("play LOG --rate inf", "<&-"),
        ("pub t --lines", "<&-"),
        ("bag cat LOG", ">&-"),
        ("bag info LOG", ">&-"),
        ("bag info LOG", "<&- >&- 2>&-"),
    ],
)
def test_command_with_closed_standard_streams_succeeds(prefix: str, tmp_path: Path, words: str, closed: str) -> None:
    log = write_log(tmp_path / "log.mcap", ("e", 1, b"x"))
    program = f"'{sys.executable}' -m msgq {words.replace('LOG', str(log))} {closed}"
    result = subprocess.run(program, shell=True, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
