"""Names, schemas, payloads and texts of others never reach a terminal as they are: it would obey them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import msgq
from msgq.cli.app import app
from msgq.cli.common.console import get_console, join_display_lines, style_text
from msgq.cli.common.render import echo, echo_json
from msgq.common.terminal import escape_terminal
from tests.command import start
from tests.recording.logs import write_log
from tests.support import DEADLINE, Child, hear, say

#: Clears the screen, sets the title, turns the writing, hides, feeds lines; and rich's markup.
EVIL = "\x1b[2J\x1b]0;t\x07\x9b31m\u202e\u2066\u200f\u061c\r\n\t\x7f[red]\u2028"
#: A name of a process, of 15 bytes, with control characters.
NAME = "\x1b[31m\x9bx\n[red]"
OWN_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def control_characters(text: str, allowed: str = "\n") -> list[str]:
    """Return the characters that a terminal would obey."""
    categories = {character: unicodedata.category(character) for character in text if character not in allowed}
    return [repr(one) for one, category in categories.items() if category[0] == "C" or category in ("Zl", "Zp")]


def run(*arguments: object, code: int | None = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert code is None or result.exit_code == code, result.output
    assert not control_characters(result.output)
    return result


def test_unprintable_characters_are_escaped() -> None:
    assert escape_terminal("a\x1b[2J\x9b\u202e\n\ud800") == r"a\x1b[2J\x9b\u202e\n\ud800"
    plain = "Grüße, 日本\u3000語, 100\u00a0€ ▀ 🙂 [red] \\x1b"
    assert escape_terminal(plain) == plain
    assert escape_terminal(escape_terminal(EVIL)) == escape_terminal(EVIL)


def test_echo_function_prints_any_content_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"a{EVIL}b")
    echo("ä\ud800", err=True)
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    assert not control_characters(said.out)
    assert said.err == "ä\\ud800\n"


@pytest.mark.parametrize("value", ["\ud800", "\x1b\x7f\x9b", {"\udfff": float("nan")}, [float("inf"), -1e999], b"\xff"])
def test_json_output_is_valid_ascii_json(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(constant: str) -> object:
        raise AssertionError(constant)

    echo_json({"value": value})
    line = capsys.readouterr().out
    assert line.isascii()
    assert not control_characters(line)
    json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("colours", [False, True])
def test_console_escapes_control_characters_of_content(
    colours: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.table import Table
    from rich.text import Text

    if colours:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
    table = Table(f"head{EVIL}", title=f"title{EVIL}")
    table.add_row(EVIL)
    table.add_row(style_text(EVIL, "red"))
    table.add_row(join_display_lines([EVIL, "second"]))
    table.add_row(Text(EVIL))  # not how a verb should do it
    screen = get_console()
    screen.print(table)
    screen.print(f"text{EVIL}", EVIL, style="green")
    said = capsys.readouterr().out
    assert ("\x1b[" in said) == colours
    assert not control_characters(OWN_COLOURS.sub("", said))
    assert said.count("[red]") >= 7  # complete markup


def publish(endpoint: str) -> None:
    Path("/proc/self/comm").write_text(NAME)
    with msgq.PubSocket() as socket:
        socket.connect(msgq.context, endpoint, schema=msgq.Schema("\x1b[31m\n\u202e[red]", "json\x1b", b""))
        say()
        hear()


def subscribe(endpoint: str) -> None:
    Path("/proc/self/comm").write_text(NAME)
    with msgq.sub_sock(endpoint):
        say()
        hear()


@pytest.fixture
def hostile(prefix: str) -> Iterator[str]:
    """An endpoint with such a name, a schema and participants that have them as well."""
    endpoint = EVIL.replace("\n", "\n\n")
    with Child(publish, endpoint) as publisher, Child(subscribe, endpoint) as subscriber:
        publisher.hear()
        subscriber.hear()
        no_text = os.fsencode(f"/dev/shm/msgq_{prefix}/") + b"no text \xff\x1b"
        Path(os.fsdecode(no_text)).write_bytes(b"x" * 1000)
        yield endpoint


LOOKING: dict[str, list[Any]] = {
    "list": ["--duration", 0],
    "info": [".*", "--duration", 0.01],
    "stat": ["--once", "--interval", 0.01],
    "top": ["--once", "--interval", 0.01],
    "hz": ["-n", 1, "--interval", 0.05, r"[\s\S]*"],
    "clean": ["--dry-run"],
    "doctor": [],
}


@pytest.mark.parametrize("verb", LOOKING)
def test_commands_escape_control_characters_in_names_and_schemas(hostile: str, verb: str) -> None:
    arguments = [r"[\s\S]*" if one == ".*" else one for one in LOOKING[verb]]
    result = run(verb, *arguments, code=None)
    shown = {"stat": "topics", "doctor": "topics"}.get(verb, r"\x1b[2J")
    assert shown in result.output
    as_json = run(verb, *arguments, "--json", code=None).stdout
    for line in as_json.splitlines():
        json.loads(line)


def test_doctor_and_clean_print_invalid_file_names_in_one_line(hostile: str, prefix: str) -> None:
    Path(f"/dev/shm/msgq_{prefix}", f"damaged{EVIL}").write_bytes(b"x" * 100)
    Path(f"/dev/shm/msgqside_{prefix}", f"orphan{EVIL}").write_bytes(b"x" * 100)
    said = run("doctor", code=1).output
    assert "damaged\\x1b[2J" in said
    assert "orphan\\x1b[2J" in said
    assert len(said.splitlines()) == len(run("doctor", "--json", code=1).stdout.splitlines())


def test_echo_shows_each_text_payload_in_one_line(prefix: str) -> None:
    payloads = [json.dumps(EVIL + "\ud800").encode(), json.dumps({EVIL: 1}, ensure_ascii=False).encode(), b"\x1b\x9b"]
    with msgq.PubSocket() as pub:
        pub.connect(msgq.context, "texts", schema=msgq.Schema("text", "json"))
        for arguments in ([], ["--json"], ["--hex"]):
            with start("echo", "texts", "-n", len(payloads), *arguments, stderr=subprocess.STDOUT) as process:
                process.wait_opened("msgq_")
                for payload in payloads:
                    pub.send(payload)
                said = process.communicate()[0]
            assert process.returncode == 0, said
            assert not control_characters(said)
            assert len([line for line in said.splitlines() if not line.startswith("msgq:")]) == len(payloads)


def test_echo_prints_unicode_with_ascii_python_encoding(prefix: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with msgq.MessageQueue("jobs", schema=msgq.Schema("text", "json")) as queue:
        queue.send('"grüß"'.encode())
        called = [sys.executable, "-m", "msgq", "echo", "queue/jobs", "-n", "1"]
        done = subprocess.run(called, env=environment, capture_output=True, timeout=DEADLINE)
    assert (done.stdout.decode(), done.stderr) == ('waiting 1, priority 0: "grüß"\n', b"")


def test_echo_with_raw_option_refuses_output_to_terminal(prefix: str) -> None:
    leader, terminal = os.openpty()
    try:
        with msgq.pub_sock("raw") as pub:
            words = "echo", "raw", "--raw", "--once"
            with start(*words, stdout=terminal) as process:
                process.wait_opened("msgq_")
                pub.send(b"\x1b[2J")
                assert "can contain control characters for the terminal" in process.communicate()[1]
                assert process.returncode == 2
            with start(*words) as process:
                process.wait_opened("msgq_")
                pub.send(b"\x1b[2J")
                assert process.communicate() == ("\x1b[2J", "")
    finally:
        os.close(leader)
        os.close(terminal)


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "\x1bc\x9b\u202e\n"],
        ["list", "--prefix", f"{EVIL}/"],
        [EVIL],
        ["bag", "info", EVIL],
        ["bag", "info", f"--x{EVIL}"],
        ["clean", EVIL],
        ["echo", f"({EVIL}"],
    ],
)
def test_error_messages_escape_control_characters(arguments: list[str]) -> None:
    result = run(*arguments, code=None)
    assert result.exit_code in (1, 2)
    assert result.output.splitlines()[-1].startswith("Error: ")


def test_completion_omits_names_with_shell_syntax(hostile: str, prefix: str) -> None:
    with msgq.pub_sock("harmless"):
        environment = {"_MSGQ_COMPLETE": "bash_complete", "COMP_WORDS": "msgq info ", "COMP_CWORD": "2"}
        with start(env=environment) as process:
            assert process.communicate()[0] == "plain,harmless\n"


def test_commands_escape_control_characters_in_recordings(tmp_path: Path, prefix: str) -> None:
    schema = msgq.Schema(f"s{EVIL}", "json", b"")
    logs = []
    for number in (1, 2):
        path = tmp_path / f"{number}{EVIL}.mcap"
        text = json.dumps({EVIL: number}).encode()
        logs.append(write_log(path, (EVIL, 1, text), ("b", 2, b"\x1b"), schemas={EVIL: schema}))
    logs[0].write_bytes(logs[0].read_bytes()[:-60])
    said = run("bag", "info", logs[0]).output
    assert r"\x1b[2J" in said
    different = run("bag", "diff", *logs, code=1).output
    assert r"\x1b[2J" in different
    assert not [line for line in different.splitlines() if line.startswith("\t")]
    run("bag", "filter", *logs, "-o", tmp_path / f"out{EVIL}.mcap")
    run("bag", "recover", logs[0])
    run("bag", "convert", *logs, "-o", tmp_path / f"out{EVIL}.jsonl")
    run("play", logs[1], "--rate", "inf", "--remap", "b:=c", code=None)


def test_usage_error_shows_usage_line() -> None:
    result = run("list", "--nothing", code=2)
    assert result.output.startswith("Usage: ")
    assert "Try 'app list --help' for help.\n\nError: no option '--nothing'; run `msgq list --help`\n" in result.output
