"""The Python of Spark's workers on this machine: that of this process, by way of `pyspark_msgq_daemon`."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

from msgq.spark.cache import made_once

_SCRIPT = """#!/bin/sh
# Runs Python for Spark, with a daemon that says nothing when Java closes the connection of an idle worker.
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m pyspark_msgq_daemon "$@"
fi
exec {python} "$@"
"""


def worker_python() -> Path:
    """Return a program that is `sys.executable`, but for the daemon that Spark starts by name. It is made once.

    A setting could name another daemon for tasks, but not for the workers that plan queries about Python sources.

    Raises
    ------
    MissingLibraryError : the user's cache folder cannot be written.
    """
    text = _SCRIPT.format(python=shlex.quote(sys.executable))
    return made_once(f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}", lambda made: _write(made, text))


def _write(made: Path, text: str) -> None:
    made.write_text(text)
    made.chmod(0o755)
