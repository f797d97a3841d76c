"""Python of Spark's workers on this machine: this process's Python, started through `pyspark_msgq_daemon`."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

from msgq.errors import SparkError
from msgq.spark.runtime.cache_dir import make_in_cache, write_program

_WORKER_SCRIPT = """#!/bin/sh
# Runs Python for Spark, with a daemon that says nothing when Java closes the connection of an idle worker. The workers
# of streams, which Spark starts without a daemon, connect before they import pyspark.
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -c '{daemon}' "$@"
elif [ "$1" = "-m" ] && [ -n "$PYTHON_WORKER_FACTORY_SOCK_PATH" ]; then
    shift
    set -- -c '{worker}' "$@"
fi
exec {python} "$@"
"""
# This program may have found msgq where workers do not look.
_DAEMON_SCRIPT = """from importlib.util import find_spec
from runpy import run_module
ours = "pyspark_msgq_daemon"
run_module(ours if find_spec(ours) else "pyspark.daemon", run_name="__main__", alter_sys=True)"""

# Spark waits 10 seconds for the connection, and no setting changes this. With high load, the import takes longer.
_CONNECT_SCRIPT = """import os, sys
from runpy import run_module
from socket import AF_UNIX, socket
path = os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"]
connection = socket(AF_UNIX)
connection.connect(path)
from pyspark import util
connect = util.local_connect_and_auth
def use_connection(place, *secret):
    return (connection.makefile("rwb"), connection) if place == path else connect(place, *secret)
util.local_connect_and_auth = use_connection
del sys.argv[0]
run_module(sys.argv[0], run_name="__main__", alter_sys=True)"""


def make_worker_python() -> Path:
    """Return a program that runs `sys.executable`, but replaces the daemon that Spark starts.

    The program is created once.

    A setting could replace the daemon for tasks, but not for the workers that plan queries on Python sources. If the
    program cannot be created, the result is `sys.executable`, and the normal daemon prints more messages.
    """
    text = _WORKER_SCRIPT.format(daemon=_DAEMON_SCRIPT, worker=_CONNECT_SCRIPT, python=shlex.quote(sys.executable))
    name = f"python-{hashlib.sha256(os.fsencode(text)).hexdigest()[:16]}"
    try:
        return make_in_cache(name, lambda path: write_program(path, text))
    except SparkError:
        return Path(sys.executable)
