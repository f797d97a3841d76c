"""What Spark and its Java refuse, in one line: an error of Spark is a page of Java. And a Java that is gone."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import Any

from msgq.errors import SparkError

_JAVA_EXIT_TIMEOUT_S = 10.0  # that a Java which does not answer any more may take to end
_TRACEBACK_HEADER = "Traceback (most recent call last):"
_OUT_OF_MEMORY_ERROR = "OutOfMemoryError"
_OUT_OF_MEMORY_EXIT_CODE = 52  # with which Spark ends a Java that has no memory left
_FEWER_TASKS_ADVICE = "or run fewer tasks at a time with master local[1]"
_MORE_MEMORY_ADVICE = (
    f"give the process more, such as SPARK_DRIVER_MEMORY=8g in the environment, {_FEWER_TASKS_ADVICE}, "
    "and start this program again"
)


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Turn what Spark raises into a `SparkError` of one line.

    Raises
    ------
    SparkError : what a query asks for is no SQL, or is not there, or cannot be done; or Java is gone.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with report_java_exit():
            yield
    except (PySparkException, Py4JJavaError) as error:
        raise SparkError(extract_first_line(_get_error_text(error))) from None


@contextmanager
def report_java_exit() -> Iterator[None]:
    """Say it where the Java that this process has started has no memory left, or has ended; leave other errors alone.

    Raises
    ------
    SparkError : so it is; the text says what to do.
    """
    try:
        yield
    except Exception as error:
        if "pyspark" in sys.modules and (death := _describe_java_exit(error)):
            raise SparkError(death) from None
        raise


def silence_py4j() -> None:
    """Have py4j say nothing of a Java that does not answer any more: `report_java_exit` says it in one line."""
    logging.getLogger().addFilter(_is_log_record_kept)


def _is_log_record_kept(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith("while sending command.")


def extract_first_line(text: str) -> str:
    """Return the first line of a text that is not blank; of what a Python worker raised, what that says."""
    _, is_of_worker, end = text.rpartition(_TRACEBACK_HEADER)
    if is_of_worker:  # its calls follow, indented
        text = re.sub(r"^msgq\.errors\.\w+: ", "", re.sub(r"\A(\s*\n)?([ \t].*\n)+", "", end))
    lines = (line.strip() for line in text.splitlines())
    return next(filter(None, lines), "Spark gave no reason")


def _get_error_text(error: BaseException) -> str:
    """Return what an error says; it may have to ask a Java for it that is gone."""
    from py4j.protocol import Py4JError, Py4JJavaError

    with suppress(Py4JError, OSError):
        return str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    return ""


def _describe_java_exit(error: Exception) -> str | None:
    """Return how Java ended, by which an error may come, and what to do; None: it lives, or is not of this process."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    if not isinstance(error, (PySparkException, Py4JError, ConnectionError, EOFError)):
        return None
    text = _get_error_text(error)
    if _OUT_OF_MEMORY_ERROR in text:
        return f"Spark's Java process is out of memory: {_MORE_MEMORY_ADVICE}"
    lives = isinstance(error, (PySparkException, Py4JJavaError)) and not re.search("shut ?down|stopped", text)
    process = _get_java_process()
    with suppress(TimeoutExpired):
        code = None if process is None else process.wait(0 if lives else _JAVA_EXIT_TIMEOUT_S)
        if code == _OUT_OF_MEMORY_EXIT_CODE:
            return f"Spark's Java process ended because it was out of memory: {_MORE_MEMORY_ADVICE}"
        if code == -signal.SIGKILL:
            text = "Spark's Java process was killed, probably by the kernel because the machine was out of memory"
            return f"{text}: end other programs, {_FEWER_TASKS_ADVICE}, and start this program again"
        if code is not None:
            text = f"Spark's Java process ended with code {code}"
            return f"{text}: look for the reason in its output on stderr, and start this program again"
    return None


def _get_java_process() -> Any:
    """Return the Java that this process has started; None: it has not started one."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)
