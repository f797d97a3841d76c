"""Spark's own servers on loopback: a standalone cluster, and a server for Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Self

import psutil
import pyspark

from msgq.spark.runtime.cds_archive import choose_archive_options
from msgq.spark.runtime.java import find_java, make_launcher_home
from tests.spark.deadline import DEADLINE
from tests.support import wait_until

HOME = Path(pyspark.__file__).parent
LIFETIME = 1800  # seconds after which a forgotten server ends by itself
#: Settings of a server for Spark Connect: loopback, and a free port.
CONNECT_SETTINGS = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}


@cache
def quick() -> str:
    """Return options for a Java that lives for a test: it takes Spark's classes as a session has left them, where one
    has, and optimizes nothing.
    """
    quickly = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return f"{choose_archive_options(find_java(), quickly)} {quickly}".strip()


def settings() -> dict[str, str]:
    """Return settings for a session that lives for a test."""
    return {
        "spark.driver.extraJavaOptions": quick(),
        "spark.executor.extraJavaOptions": quick(),
        "spark.sql.codegen.wholeStage": "false",  # rows are few: to compile a plan takes longer than to interpret it
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",  # a cluster's would be 200 tasks
        "spark.ui.enabled": "false",
    }


def environment(**variables: str) -> dict[str, str]:
    """Return what processes of Spark need: the Java that a session takes, and no address but loopback."""
    environment = {
        "JAVA_HOME": str(make_launcher_home(find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": quick(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(HOME),
    }
    return {**os.environ, **environment, **variables}


def options(chosen: dict[str, str]) -> list[str]:
    """Return settings as spark-submit takes them."""
    return [text for key, value in chosen.items() for text in ("--conf", f"{key}={value}")]


def build_submit_command(master: str, script: str, *arguments: str) -> list[str]:
    """Return the command that runs a Python program by spark-submit."""
    chosen = options({**settings(), "spark.driver.host": "127.0.0.1"})
    return [str(HOME / "bin" / "spark-submit"), "--master", master, *chosen, script, *arguments]


class Server:
    """A server of Spark. Its processes end with the context, whatever they do."""

    def __init__(self, program: str, *arguments: str, log: Path, **variables: str) -> None:
        self._log = log
        command = ["timeout", "--signal=KILL", str(LIFETIME), str(HOME / "bin" / program), *arguments]
        with log.open("w") as file:
            self._process = subprocess.Popen(command, env=environment(**variables), stdout=file, stderr=file)

    def wait_for_line(self, pattern: str) -> str:
        """Return the group of an expression that the log comes to match."""

        def search_log() -> re.Match[str] | None:
            text = self._log.read_text()
            assert self._process.poll() is None, text
            return re.search(pattern, text)

        return str(wait_until(search_log, f"{pattern} in {self._log}", DEADLINE, 0.05)[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            kill(self._process.pid)
            self._process.wait()


def kill(pid: int) -> None:
    """Kill a process and all that it started."""
    first = psutil.Process(pid)
    processes = [first, *first.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, DEADLINE)


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """Run a master and two workers with a core each; give the master's URL.

    The workers have hosts of their own, because Spark runs the copy of a slow task on another host.
    """
    with ExitStack() as stack:

        def start_server(kind: str, name: str, host: str, *options: str) -> Server:
            log = directory / f"{name}.log"
            address = ("--host", host, "--port", "0", "--webui-port", "0")
            arguments = (f"org.apache.spark.deploy.{kind}", *address, *options)
            return stack.enter_context(Server("spark-class", *arguments, log=log))

        url = start_server("master.Master", "master", "127.0.0.1").wait_for_line(
            r"Starting Spark master at (spark://\S+)"
        )
        limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory))
        workers = [
            start_server("worker.Worker", f"worker{number}", f"127.0.0.{number}", *limits, url) for number in (1, 2)
        ]
        for worker in workers:
            worker.wait_for_line(r"(Successfully registered with master)")
        yield url


@contextmanager
def connect(directory: Path, master: str, **variables: str) -> Iterator[str]:
    """Run a server for Spark Connect, with more in its environment; give its URL."""
    chosen = {
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        **CONNECT_SETTINGS,
        **settings(),
    }
    kind = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ("--master", master, "--class", kind, *options(chosen))
    with Server("spark-submit", *arguments, log=directory / "connect.log", **variables) as server:
        yield "sc://127.0.0.1:" + server.wait_for_line(r"Spark Connect server started at: \S+:(\d+)")
