"""Recording and reading, beside the libraries that write and read MCAP.

At the end of a step, written files are on the disk: the recorder syncs its file, and the step syncs the files of the
libraries. The removal of written files and of rings is not measured.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgq.recording import LogReader, Player, Recorder
from msgq.recording.merge.log_copy import write_merged_log
from tools.bench import bus, control
from tools.bench.adapters import OURS
from tools.bench.adapters.base import Unsupported
from tools.bench.job import Job
from tools.bench.roles import require
from tools.bench.works import Step
from tools.bench.works.files import make_text_file, make_texts
from tools.bench.works.libraries import LIBRARIES, MCAP_INFO_PROGRAM, Library
from tools.bench.workspace import SHARED, remove_rings

_LARGE = 1000  # bytes of each message in a file of 1 GB
_LOOK_S = 0.005  # the recorder's own time must not grow by many looks
_SMALL_FILE_READS = 100  # readings of a small file, because one reading is too short for a measurement


def record(job: Job) -> Step:
    """Record what another process publishes; libraries write payloads from memory."""
    where, kind, count = _place(job), job.case.kind, job.case.messages
    if job.system == OURS:
        return Step(lambda: _record_bus(job, where))
    library = LIBRARIES[job.system]
    write = require(library.write, "no writer")
    if kind not in library.compressions:
        raise Unsupported(f"no compression {kind}")
    texts = [row.tobytes() for row in make_texts(job.case.size, count)]
    messages = library.convert((texts * (count // len(texts) + 1))[:count])

    def run() -> int:
        write(where, messages, kind)
        for path in where.iterdir() if where.is_dir() else [where]:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return count

    return Step(run)


def _record_bus(job: Job, where: Path) -> dict[str, Any]:
    words, endpoint = control.words(job.words_path), f"{job.name}-data"
    control.wait_until(lambda: words[control.OWN] == 1)
    recorder = Recorder(where, [endpoint], compression=job.case.kind)
    words[control.TOTAL] = bus.PUBLISH
    control.wait_until(lambda: words[control.OWN] == 2, _LOOK_S)
    stats = recorder.stop()
    del recorder
    remove_rings(endpoint)
    words[control.TOTAL] = bus.CLOSE  # the publisher closes the ring last, so the removal is not measured
    return {"done": stats.messages, "lost": job.case.messages - stats.messages}


# ---- reading ----


def info(job: Job) -> Step:
    """Read the summary of a large file."""
    return _read_info(job, make_text_file(job, _LARGE), 1)


def info_often(job: Job) -> Step:
    """Read the summary of a small file."""
    return _read_info(job, make_text_file(job), _SMALL_FILE_READS)


def _read_info(job: Job, path: Path, times: int) -> Step:
    read = _reader(job, lambda path: len(LogReader(path).endpoints), lambda library: library.summarize)
    return Step(lambda: sum(bool(read(path)) for _ in range(times)))


def info_process(job: Job) -> Step:
    """Read the summary of a large file in a new process."""
    programs = {OURS: ["-m", "msgq", "bag", "info"], "mcap": ["-c", MCAP_INFO_PROGRAM]}
    words = require(programs.get(job.system), "no program")
    command = [sys.executable, *words, str(make_text_file(job, _LARGE))]

    def run() -> int:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return 1

    return Step(run)


def iterate(job: Job) -> Step:
    """Take all messages one by one."""
    path = make_text_file(job)
    read = _reader(job, lambda path: sum(1 for _ in LogReader(path)), lambda library: library.iterate)
    return Step(lambda: read(path))


def decode(job: Job) -> Step:
    """Decode all messages one by one."""
    path = make_text_file(job, topics=1)
    read = _reader(job, lambda path: sum(1 for _ in LogReader(path).decoded()), lambda library: library.decode)
    return Step(lambda: read(path))


def _reader(
    job: Job,
    own: Callable[[Path], int],
    find: Callable[[Library], Callable[[Path], int] | None],
) -> Callable[[Path], int]:
    """Return the function of msgq or of a library."""
    return own if job.system == OURS else require(find(LIBRARIES[job.system]), "no such call")


def decode_columns(job: Job) -> Step:
    """Decode all messages to columns."""
    path = make_text_file(_only_ours(job), topics=1)
    return Step(lambda: sum(batch.rows.num_rows for batch in LogReader(path).decoded_batches("/t0")))


def batches(job: Job) -> Step:
    """Take batches of messages."""
    path = make_text_file(_only_ours(job))
    return Step(lambda: sum(batch.num_rows for batch in LogReader(path).batches()))


def filter_topic(job: Job) -> Step:
    """Copy the messages of one endpoint."""
    return _filter(job, ["/t3"])


def filter_all(job: Job) -> Step:
    """Copy all messages."""
    return _filter(job, None)


def _filter(job: Job, endpoints: list[str] | None) -> Step:
    path, where = make_text_file(_only_ours(job)), _place(job)

    def run() -> int:
        write_merged_log([LogReader(path, endpoints=endpoints)], where)
        return LogReader(path).messages  # all messages were read

    return Step(run)


def play(job: Job) -> Step:
    """Publish all messages."""
    path = make_text_file(_only_ours(job))
    _remove_rings_of(job)
    return Step(lambda: Player(path, rate=float("inf"), prefix=job.name).run().messages)


def start_playing(job: Job) -> Step:
    """Open a large file for playing."""
    path = make_text_file(_only_ours(job), _LARGE)
    _remove_rings_of(job)

    def run() -> int:
        Player(path, prefix=job.name, start_paused=True).stop()
        return 1

    return Step(run)


def _remove_rings_of(job: Job) -> None:
    for path in SHARED.glob(f"msgq*_{job.name}"):
        shutil.rmtree(path, ignore_errors=True)


def _only_ours(job: Job) -> Job:
    if job.system != OURS:
        raise Unsupported("no such call")
    return job


def _place(job: Job) -> Path:
    """Return a path for the written file or folder. Remove the file or folder of the previous slice."""
    path = job.folder / f"{job.name}-written.mcap"
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path
