"""The main function of a measured process: one job, on one core, spoken to through its standard input and output.

It prints ``{"ready": true}``; for each line it reads it measures one slice and prints the result; it leaves when its
input ends. What the measured systems print goes to the standard error.
"""

import gc
import json
import os
import signal
import sys
from time import perf_counter_ns, process_time_ns
from typing import TextIO

from tools.bench import crowd, exchange, labour, roles, state
from tools.bench.adapters.base import Unsupported
from tools.bench.job import Job
from tools.bench.machine import read_wait_ns

ROLES = {**roles.ROLES, **crowd.ROLES, **exchange.ROLES, **labour.ROLES, **state.ROLES}


def main() -> None:
    """Do the job on the command line."""
    job = Job.from_json(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner gets it too, and ends this process
    signal.alarm(job.limit_s)
    os.sched_setaffinity(0, {job.cpu})
    with os.fdopen(os.dup(1), "w", buffering=1) as out:
        os.dup2(2, 1)
        try:
            _measure(job, out)
        except Unsupported as reason:
            _say(out, unsupported=str(reason))
        except ImportError as reason:
            _say(out, absent=str(reason))
    # Exits without destroying objects: the runner removes what is left, and a slow tear-down is not measured.
    sys.stderr.flush()
    os._exit(0)


def _measure(job: Job, out: TextIO) -> None:
    role = ROLES[job.role](job)
    next(role)
    gc.collect()
    gc.disable()
    signal.alarm(0)
    _say(out, ready=True)
    while sys.stdin.readline():
        signal.alarm(job.limit_s)
        start, used_before, waited_before = perf_counter_ns(), process_time_ns(), read_wait_ns()
        result = next(role)
        took = perf_counter_ns() - start
        waited, used = read_wait_ns() - waited_before, process_time_ns() - used_before
        signal.alarm(0)
        _say(out, result={**(result or {}), "waited": waited / took, "cores": used / took})


def _say(out: TextIO, **words: object) -> None:
    out.write(json.dumps(words) + "\n")


if __name__ == "__main__":
    main()
