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
# Runs Python for Spark, with a daemon that says nothing when Java closes the connection of an idle worker.
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -c '{daemon}' "$@"
fi
exec {python} "$@"
"""
# This program may have found msgq where workers do not look.
_DAEMON_SCRIPT = """from importlib.util import find_spec
from runpy import run_module
ours = "pyspark_msgq_daemon"
run_module(ours if find_spec(ours) else "pyspark.daemon", run_name="__main__", alter_sys=True)"""


def make_worker_python() -> Path:
    """Return a program that runs `sys.executable`, but replaces the daemon that Spark starts.

    The program is created once.

    A setting could replace the daemon for tasks, but not for the workers that plan queries on Python sources. If the
    program cannot be created, the result is `sys.executable`, and the normal daemon prints more messages.
    """
    text = _WORKER_SCRIPT.format(daemon=_DAEMON_SCRIPT, python=shlex.quote(sys.executable))
    name = f"python-{hashlib.sha256(os.fsencode(text)).hexdigest()[:16]}"
    try:
        return make_in_cache(name, lambda made: write_program(made, text))
    except SparkError:
        return Path(sys.executable)
