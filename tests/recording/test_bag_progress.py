"""The progress of `msgq bag` commands on a terminal of their own."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from contextlib import closing, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from msgq.common.schema import Schema
from msgq.recording.repair.doctor import FileExamination
from msgq.recording.repair.recover import FileRepair
from tests.command import run, start
from tests.recording.logs import write_log
from tests.support import DEADLINE

PROGRESS = re.compile(r"\d+%  \d[\d.]* k?B of \d[\d.]* kB  \d[\d.]* [kM]?B/s  0:00:\d\d left")
SEQUENCE = re.compile(r"(\r|\n|\x1b\[2K|\x1b\[1A|\x1b\[[\d;]*m)")


class Terminal:
    """A terminal, and all that was written to it."""

    def __init__(self) -> None:
        self._ours, self.side = os.openpty()
        self.written = ""

    def read_until(self, text: str) -> None:
        """Wait until this text was written."""
        until = time.monotonic() + DEADLINE
        while text not in self.written:
            assert select.select([self._ours], [], [], max(0, until - time.monotonic()))[0], self.written
            self.written += os.read(self._ours, 65536).decode()

    def read_to_end(self) -> None:
        """Read until all processes have closed the terminal."""
        with suppress(OSError):
            while data := os.read(self._ours, 65536):
                self.written += data.decode()

    def get_lines(self) -> list[str]:
        """Return the lines that a user sees at the end."""
        lines, row, column = [""], 0, 0
        for part in SEQUENCE.split(self.written):
            if part == "\r":
                column = 0
            elif part == "\n":
                row += 1
                lines += [""] * (row == len(lines))
            elif part == "\x1b[1A":
                row -= 1
            elif part == "\x1b[2K":
                lines[row] = ""
            elif not part.startswith("\x1b"):
                line = lines[row].ljust(column)
                lines[row] = line[:column] + part + line[column + len(part) :]
                column += len(part)
        assert lines[row] == ""
        assert column == 0
        return [line for line in lines if line]

    def close(self) -> None:
        os.close(self._ours)


def start_at(terminal: Terminal, *arguments: object, stdout: Any = PIPE, group: str = "bag") -> Any:
    """Start a command of a group, with its errors on the terminal."""
    environment = {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    process = start(group, *arguments, stdin=terminal.side, stdout=stdout, stderr=terminal.side, env=environment)
    os.close(terminal.side)
    return process


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sent = [("gps", 1000 * number, b'{"number": %d}' % number) for number in range(5000)]
    schemas = {"gps": Schema("Gps", "json", b"")}
    return write_log(tmp_path_factory.mktemp("logs") / "a.mcap", *sent, schemas=schemas)


@pytest.fixture(scope="module")
def damaged(recording: Path) -> Path:
    data = bytearray(recording.read_bytes())
    for place in range(2000, len(data) // 2, len(data) // 10):
        data[place] ^= 0xFF
    path = recording.with_name("damaged.mcap")
    path.write_bytes(data)
    return path


COMMANDS = [
    "convert {log} -o {output}.jsonl",
    "convert {log} -o {output} --to parquet",
    "doctor {log}",
    "doctor {log} --json",
    "recover {log} -o {output}.mcap",
    "recover {damaged} -o {output}.mcap --json",
    "reindex {log} -o {output}.mcap",
    "filter {log} -o {output}.mcap",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_bag_command_on_terminal_shows_part_rate_and_remaining_time(
    recording: Path, damaged: Path, tmp_path: Path, command: str
) -> None:
    words = command.format(log=recording, damaged=damaged, output=tmp_path / "output").split()
    with closing(Terminal()) as terminal, start_at(terminal, *words) as process:
        terminal.read_to_end()
        output = process.communicate()[0]
        assert process.returncode == 0
    assert PROGRESS.search(terminal.written)
    assert terminal.get_lines() == []
    for path in tmp_path.iterdir():
        path.rename(f"{path}.old")
    without_terminal = run("bag", *words)
    assert without_terminal.stdout == output
    assert without_terminal.stderr == ""


@pytest.mark.parametrize("command", ["doctor {log} {damaged}", "reindex {log} {damaged}", "split {log} -o {output}"])
def test_bag_output_on_terminal_is_not_mixed_with_progress(
    recording: Path, damaged: Path, tmp_path: Path, command: str
) -> None:
    words = command.format(log=recording, damaged=damaged, output=tmp_path / "output").split()
    words += ["--split-seconds", "0.001"] * (words[0] == "split")
    with closing(Terminal()) as terminal, start_at(terminal, *words, stdout=terminal.side) as process:
        terminal.read_to_end()
        process.wait(DEADLINE)
    assert PROGRESS.search(terminal.written)
    percentages = [int(text) for text in re.findall(r"(\d+)%", terminal.written)]
    assert percentages == sorted(percentages)
    assert percentages[-1] > 60  # the second file counts from the end of the first one
    for path in [*tmp_path.iterdir(), *recording.parent.glob("*.reindexed.mcap")]:
        path.rename(tmp_path / f"{path.name}.old")
    expected = run("bag", *words, code=process.returncode).stdout.splitlines()
    assert len(expected) > 1
    assert terminal.get_lines() == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_bag_progress_line_disappears_after_signal(recording: Path, number: signal.Signals) -> None:
    words = "convert", recording, "-o", "-", "--to", "jsonl"
    with closing(Terminal()) as terminal, start_at(terminal, *words) as process:
        terminal.read_until("/s  0:00:")  # the command waits, because nobody reads its output
        process.send_signal(number)
        process.communicate()
        terminal.read_to_end()
        assert process.returncode == 128 + number
    assert terminal.get_lines() == []


def test_bag_progress_line_disappears_before_error(recording: Path, tmp_path: Path) -> None:
    words = "recover", recording, recording, tmp_path / "missing.mcap"
    with closing(Terminal()) as terminal, start_at(terminal, *words) as process:
        terminal.read_to_end()
        process.communicate()
        assert process.returncode == 1
    assert PROGRESS.search(terminal.written)
    [line] = terminal.get_lines()
    assert line.startswith("Error: ")
    assert "missing.mcap" in line


def test_repair_reports_each_chunk_of_each_pass(recording: Path, tmp_path: Path) -> None:
    parts: list[float] = []
    done = FileRepair(
        recording, tmp_path / "new.mcap", False, 1 << 20, rewrites_indexes=True, report_progress=parts.append
    ).repair()
    assert parts == sorted(parts)
    assert parts[-1] <= 1
    per_pass = [sum(number / 6 < part <= (number + 1) / 6 for part in parts) for number in range(6)]
    assert min(per_pass) >= done.chunks
    assert max(per_pass) <= done.chunks + 10  # the header, a schema, a channel, the end and blocks of other bytes


def test_repair_with_copy_of_intact_file_reports_copied_bytes(recording: Path, tmp_path: Path) -> None:
    parts: list[float] = []
    FileRepair(
        recording, tmp_path / "new.mcap", False, 1 << 20, rewrites_indexes=False, report_progress=parts.append
    ).repair()
    assert parts == sorted(parts)
    assert 3 / 6 in parts


def test_examination_reports_each_chunk(recording: Path) -> None:
    parts: list[float] = []
    examination = FileExamination(recording, report_progress=parts.append)
    assert not [finding for finding in examination if finding.severity == "error"]
    chunks = len(examination.data_stats.index_bytes_by_chunk)
    assert parts == sorted(parts)
    assert chunks <= len(parts) <= chunks + 10
    assert 0.5 < parts[-1] < 1  # the summary follows
