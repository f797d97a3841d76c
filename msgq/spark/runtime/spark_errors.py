"""Errors of Spark and of its Java process in one line. Spark's own errors contain long Java traces."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import Any

from msgq.common.storage.store_errors import translate_store_errors
from msgq.errors import SparkError

_JAVA_EXIT_TIMEOUT_S = 10.0  # limit for the end of a Java process that no longer answers
_TRACEBACK_HEADER = "Traceback (most recent call last):"
_OUT_OF_MEMORY_ERROR = "OutOfMemoryError"
_OUT_OF_MEMORY_EXIT_CODE = 52  # exit code of a Java without memory, as Spark ends it
_FEWER_TASKS_ADVICE = "or run fewer tasks at a time with master local[1]"
_MORE_MEMORY_ADVICE = (
    f"give the process more, such as SPARK_DRIVER_MEMORY=8g in the environment, {_FEWER_TASKS_ADVICE}, "
    "and start this program again"
)

_WORKER_PYTHON_ADVICE = (
    "before the session starts, set PYSPARK_PYTHON to a Python with msgq-bus[spark], on all machines"
)


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Translate Spark's exceptions into a `SparkError` of one line.

    Raises:
        SparkError: the query is invalid, names a missing object, or cannot be executed; or Java has ended.
        RecordingError: an object store cannot be used, also by a worker.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with translate_store_errors(), report_java_exit():
            yield
    except (PySparkException, Py4JJavaError) as error:
        text = _get_error_text(error)
        raise SparkError(_explain_missing_library(text) or extract_first_line(text)) from None


@contextmanager
def report_java_exit() -> Iterator[None]:
    """If this process's Java ran out of memory or has ended, raise SparkError. Other errors pass through.

    Raises:
        SparkError: Java has ended. The text has the remedy.
    """
    try:
        yield
    except Exception as error:
        if "pyspark" in sys.modules and (death := _describe_java_exit(error)):
            raise SparkError(death) from None
        raise


def silence_py4j() -> None:
    """Disable messages of py4j about a Java process that does not answer. `report_java_exit` reports it in one line."""
    for name in (None, "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_is_log_record_kept)


def _is_log_record_kept(record: logging.LogRecord) -> bool:
    return not re.search("while (sending command|trying to connect to the Java server)", str(record.msg))


def extract_first_line(text: str) -> str:
    """Return the first non-blank line of a text. For an exception of a Python worker, return the exception's text."""
    _, is_of_worker, end = text.rpartition(_TRACEBACK_HEADER)
    if is_of_worker:  # its calls follow, indented
        text = re.sub(r"^msgq\.errors\.\w+: ", "", re.sub(r"\A(\s*\n)?([ \t].*\n)+", "", end))
    lines = (line.strip() for line in text.splitlines())
    return next(filter(None, lines), "Spark gave no reason")


def _explain_missing_library(text: str) -> str | None:
    """Return what to do if the Python of Spark's workers cannot use msgq; None: another error."""
    if re.search(r"\[DATA_SOURCE_NOT_FOUND\].*\bmsgq|No module named '(msgq|pyarrow|deltalake)\b", text):
        return f"the Python of Spark's workers cannot use msgq; {_WORKER_PYTHON_ADVICE}"
    return None


def _get_error_text(error: BaseException) -> str:
    """Return the text of an error. Getting the text may need Java, which may have ended."""
    from py4j.protocol import Py4JError, Py4JJavaError

    with suppress(Py4JError, OSError):
        return str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    return ""


def _describe_java_exit(error: Exception) -> str | None:
    """Return how Java ended, and the remedy; None: Java runs, or does not belong to this process."""
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
    """Return the Java process of this process; None: not started."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)
