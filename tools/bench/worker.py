"""The work of a measured process: one job, on one core. The runner sends and receives over a connection.

The process sends ``{"ready": True}``. For each object that the runner sends, the process measures one slice and sends
the result. The process ends when the runner closes the connection. The output of the measured systems goes to a file.
"""

import gc
import os
import pickle
import signal
import sys
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter_ns
from typing import NoReturn

from tools.bench import alone, companions, crowd, members, streams
from tools.bench.adapters.base import Unsupported
from tools.bench.job import Job
from tools.bench.machine import PROJECT, cpu_seconds, read_wait_ns
from tools.bench.works import is_work, work

_ROLES = {**vars(alone), **vars(streams), **vars(crowd), **vars(companions), **vars(members)}

# Program of a new interpreter. The libraries are of the measured checkout, and the benchmark is of this one.
_PROGRAM = """
import pickle, sys
checkout, project, fd, errors, job = sys.argv[1:]
sys.path.insert(0, checkout)
if checkout != project:
    import msgq, visionipc
sys.path[0] = project
from multiprocessing.connection import Connection
from pathlib import Path
from tools.bench.worker import run_job
run_job(pickle.loads(bytes.fromhex(job)), Connection(int(fd)), Path(errors))
"""


def run_job(job: Job, connection: Connection, errors: Path) -> NoReturn:
    """Do the job, and end this process. `errors` gets the standard output and error."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner gets it too, and ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        signal.alarm(job.case.limit_s)
        _redirect_output(errors)
        if job.checkout is not None or job.case.interpreters:
            case = replace(job.case, interpreters=False)
            _execute(replace(job, case=case, checkout=None), job.checkout or PROJECT, connection, errors)
        if job.cpu is not None:
            os.sched_setaffinity(0, {job.cpu})
        _measure(job, connection)
        code = 0
    except Unsupported as reason:
        connection.send({"unsupported": str(reason)})
    except ImportError as reason:
        connection.send({"absent": str(reason)})
    except BaseException:
        traceback.print_exc()
    finally:
        # Exit without destroying objects: the runner removes the files, and a slow tear-down is not measured.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect_output(errors: Path) -> None:
    output, nothing = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


def _execute(job: Job, checkout: Path, connection: Connection, errors: Path) -> None:
    """Do the job in a new interpreter with the libraries of a checkout."""
    own = checkout / ".venv/bin/python"
    python = str(own) if checkout != PROJECT and own.exists() else sys.executable
    os.set_inheritable(connection.fileno(), True)
    words = (checkout, PROJECT, connection.fileno(), errors, pickle.dumps(job).hex())
    os.execv(python, [python, "-P", "-c", _PROGRAM, *map(str, words)])


def _measure(job: Job, connection: Connection) -> None:
    role = work(job) if is_work(job.role) else _ROLES[job.role](job)
    next(role)
    gc.collect()
    gc.disable()
    signal.alarm(0)
    connection.send({"ready": True})
    while _is_slice_wanted(connection):
        signal.alarm(job.case.limit_s)
        start, used_before, waited_before = perf_counter_ns(), cpu_seconds(), read_wait_ns()
        result = next(role)
        took = perf_counter_ns() - start
        waited, used = read_wait_ns() - waited_before, 1e9 * (cpu_seconds() - used_before)
        signal.alarm(0)
        connection.send({"result": {"waited": waited / took, "cores": used / took, **(result or {})}})


def _is_slice_wanted(connection: Connection) -> bool:
    """Wait for the runner. Return False if the runner closed the connection."""
    try:
        connection.recv()
    except EOFError:
        return False
    return True
