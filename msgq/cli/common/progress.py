"""Progress of long operations in the last line of a terminal: the finished part, the rate and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from msgq.cli.common.console import get_progress_console, style_text
from msgq.common.formatting import format_bytes, format_rate

_BAR_COLUMNS = 20
_REFRESHES_PER_SECOND = 5


@dataclass(frozen=True, slots=True)
class ProgressUnit:
    """Unit of an operation's parts.

    Attributes:
        format_amount: returns an amount as text.
        noun: text after an amount.
    """

    format_amount: Callable[[float], str]
    noun: str = ""


BYTES = ProgressUnit(format_bytes)
TASKS = ProgressUnit(format_rate, " tasks")


class ProgressLine:
    """Shows the progress of an operation on the standard error. Use as a context manager, whose end removes the line.

    Without a terminal, nothing is shown. If the remaining time is unknown, the line shows the elapsed time. Before
    other output, call `hide`.

    Attributes:
        is_shown: True if the standard error is a terminal.
    """

    def __init__(
        self,
        text: str,
        unit: ProgressUnit,
        total: float | None = None,
        get_time: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the line.

        Args:
            text: name of the operation.
            unit: unit of the total.
            total: amount of all parts; None: unknown.
            get_time: clock in seconds.
        """
        screen = get_progress_console()
        self.is_shown = screen.is_interactive and screen.file.isatty()
        self._progress = _OneLineProgress(
            TextColumn(text),
            BarColumn(_BAR_COLUMNS),
            _StateColumn(unit),
            console=screen,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            get_time=get_time,
            disable=not self.is_shown,
        )
        self._task = self._progress.add_task("", total=total)
        self._total = total

    def __enter__(self) -> Self:
        self._progress.advance(self._task, 0)  # the time from which the rate counts
        self._progress.start()
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def advance(self, amount: float) -> None:
        """Add an amount to the finished part."""
        self._progress.start()
        self._progress.advance(self._task, amount)

    def set_finished(self, amount: float, total: float | None = None) -> None:
        """Set the finished part. After a new total or a smaller part, the measurement of the rate begins again."""
        self._progress.start()
        task = self._progress.tasks[0]
        if amount < task.completed:
            start_time = task.start_time
            self._progress.reset(self._task)
            task.start_time = start_time  # start of the whole operation
            self._progress.advance(self._task, 0)
        self._progress.update(self._task, completed=amount, total=total)
        if total not in (None, self._total):
            self._total = total
            self._progress.advance(self._task, 0)

    def hide(self) -> None:
        """Remove the line, so that other output can follow. The next progress shows the line again."""
        self._progress.stop()


class _OneLineProgress(Progress):
    """A progress display that a narrow terminal cuts off instead of wrapping it."""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Return the table of the display."""
        table = super().make_tasks_table(tasks)
        for column in table.columns:
            column.no_wrap = True
        return table


class _StateColumn(ProgressColumn):
    """Percentage, finished part, rate and remaining time. The elapsed time replaces unknown values."""

    def __init__(self, unit: ProgressUnit) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """Return the column of a task."""
        values: list[str] = []
        amount, noun = self._unit.format_amount, self._unit.noun
        if task.total is not None:
            values += f"{int(task.percentage)}%", f"{amount(task.completed)} of {amount(task.total)}{noun}"
        if speed := task.finished_speed or task.speed:
            values.append(f"{amount(speed)}{noun}/s")
        if task.time_remaining is not None:
            values.append(f"{_format_time(task.time_remaining)} left")
        else:
            values.append(_format_time(task.elapsed or 0))
        return style_text("  ".join(values), "")


def _format_time(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02}:{int(seconds) % 60:02}"
