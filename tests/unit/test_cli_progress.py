"""The progress line of commands, with a clock of the test."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from msgq.cli.common.progress import BYTES, TASKS, ProgressLine
from msgq.cli.lake.arguments import report_tasks

ERASE_LINE = "\n\r\x1b[1A\x1b[2K"


class Terminal(StringIO):
    """A terminal that stores all output."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that stands still."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal without colours of all consoles. All its control sequences come from the line itself."""
    terminal = Terminal()
    monkeypatch.setattr(Console, "file", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return terminal


def get_last_line(line: ProgressLine, screen: Terminal) -> str:
    """Hide the line, and return its last state."""
    line.hide()
    assert screen.getvalue().endswith(ERASE_LINE)
    return screen.getvalue().removesuffix(ERASE_LINE).split("\n")[-1].split("\r\x1b[2K")[-1].rstrip()


def test_progress_line_shows_part_rate_and_remaining_time_of_bytes(screen: Terminal, clock: Clock) -> None:
    with ProgressLine("read", BYTES, 50e6, clock) as line:
        assert screen.getvalue().endswith("0%  0 B of 50.0 MB  0:00:00")
        clock.now += 2
        line.advance(10e6)
        clock.now += 2
        line.advance(10e6)
        shown = get_last_line(line, screen)
        assert shown.startswith("read ")
        assert shown.endswith(" 40%  20.0 MB of 50.0 MB  5.0 MB/s  0:00:06 left")
        clock.now += 16
        line.set_finished(30e6)
        assert get_last_line(line, screen).endswith(" 60%  30.0 MB of 50.0 MB  1.5 MB/s  0:00:14 left")
        line.set_finished(50e6)
        assert get_last_line(line, screen).endswith(" 100%  50.0 MB of 50.0 MB  2.5 MB/s  0:00:00 left")


def test_progress_line_measures_rate_again_after_smaller_part(screen: Terminal, clock: Clock) -> None:
    with ProgressLine("tables", TASKS, None, clock) as line:
        line.set_finished(0, 2)
        clock.now += 2
        line.set_finished(2, 2)
        assert get_last_line(line, screen).endswith(" 100%  2 of 2 tasks  1 tasks/s  0:00:00 left")
        line.set_finished(0, 2)
        assert get_last_line(line, screen).endswith(" 0%  0 of 2 tasks  0:00:02")
        clock.now += 4
        line.set_finished(1, 2)
        assert get_last_line(line, screen).endswith(" 50%  1 of 2 tasks  0.25 tasks/s  0:00:04 left")


def test_progress_line_measures_rate_again_after_new_total(screen: Terminal, clock: Clock) -> None:
    with ProgressLine("decode", TASKS, None, clock) as line:
        line.set_finished(1, 8)
        clock.now += 2
        line.set_finished(6, 8)
        assert get_last_line(line, screen).endswith(" 75%  6 of 8 tasks  2.5 tasks/s  0:00:01 left")
        line.set_finished(0, 4000)
        assert get_last_line(line, screen).endswith(" 0%  0 of 4,000 tasks  0:00:02")
        clock.now += 4
        line.set_finished(1, 4000)
        assert get_last_line(line, screen).endswith(" 0%  1 of 4,000 tasks  0.25 tasks/s  4:26:36 left")


def test_progress_line_without_total_shows_elapsed_time(screen: Terminal, clock: Clock) -> None:
    with ProgressLine("Spark starts", TASKS, None, clock) as line:
        clock.now += 65
        shown = get_last_line(line, screen)
    assert shown.startswith("Spark starts ")
    assert shown.endswith(" 0:01:05")
    assert "tasks" not in screen.getvalue()


@pytest.mark.parametrize("columns", [120, 40, 10])
def test_progress_line_occupies_one_row_of_any_terminal(
    screen: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with ProgressLine("read", BYTES, 50e6, clock) as line:
        line.advance(10e6)
    lines = screen.getvalue().removesuffix(ERASE_LINE).split("\r\x1b[2K")
    assert max(map(len, lines)) <= columns
    assert "\n" not in "".join(lines)


def test_progress_line_leaves_clean_terminal_after_error(screen: Terminal, clock: Clock) -> None:
    with pytest.raises(KeyboardInterrupt), ProgressLine("read", BYTES, 50e6, clock):
        raise KeyboardInterrupt
    assert " 0%  0 B of 50.0 MB" in screen.getvalue()
    assert screen.getvalue().endswith(ERASE_LINE)
    assert "\x1b[?25l" not in screen.getvalue()  # a killed command would leave the cursor hidden


@pytest.mark.parametrize(
    ("file", "variables"),
    [
        (StringIO(), {}),
        (StringIO(), {"TERM": "xterm", "FORCE_COLOR": "1"}),
        (Terminal(), {"TERM": "dumb"}),
    ],
)
def test_progress_line_without_terminal_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, file: StringIO, variables: dict[str, str]
) -> None:
    monkeypatch.setattr(Console, "file", file)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with ProgressLine("read", BYTES, 50e6) as line:
        assert not line.is_shown
        line.advance(10e6)
        line.set_finished(20e6, 30e6)
        line.hide()
    assert file.getvalue() == ""


def test_task_progress_counts_tasks_of_known_active_stages(screen: Terminal, clock: Clock) -> None:
    stages = {
        1: SimpleNamespace(numCompletedTasks=3, numTasks=4),
        2: SimpleNamespace(numCompletedTasks=5, numTasks=6),
        3: None,
    }
    tracker = SimpleNamespace(getActiveStageIds=lambda: [*stages], getStageInfo=stages.get)
    with ProgressLine("ingest", TASKS, None, clock) as line:
        report_tasks(tracker, line)
        assert get_last_line(line, screen).endswith(" 80%  8 of 10 tasks  0:00:00")
        stages.clear()  # between two stages, the figures stay
        report_tasks(tracker, line)
        assert get_last_line(line, screen).endswith(" 80%  8 of 10 tasks  0:00:00")
