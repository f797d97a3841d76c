"""Recording, filtering and playing, beside the libraries that write MCAP.

At the end of a step, written files are on the disk: the recorder syncs its file, and the step syncs the files of the
libraries. The removal of written files and of rings is not measured.
"""

import os
from pathlib import Path
from typing import Any

from msgq.recording import LogReader, Player, Recorder
from msgq.recording.merge.log_copy import write_merged_log
from tools.bench import companions, control
from tools.bench.adapters import OURS
from tools.bench.adapters.base import Unsupported, unlink
from tools.bench.job import Job
from tools.bench.works import Step
from tools.bench.works.files import make_file, make_texts
from tools.bench.works.libraries import WRITERS
from tools.bench.workspace import SHARED, remove_rings

_LOOK_S = 0.005  # the recorder's own time must not grow by many looks


def record(job: Job) -> Step:
    """Record what another process publishes; libraries write payloads from memory."""
    folder, kind, count = _place(job), job.case.kind, job.case.messages
    if job.system == OURS:
        return Step(lambda: _record_bus(job, folder))
    library = WRITERS[job.system]
    if kind not in library.compressions:
        raise Unsupported(f"no compression {kind}")
    texts = [row.tobytes() for row in make_texts(job.case.size, count)]
    messages = library.convert((texts * (count // len(texts) + 1))[:count])

    def run() -> int:
        library.write(folder, messages, kind)
        for path in folder.iterdir() if folder.is_dir() else [folder]:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return count

    return Step(run)


def _record_bus(job: Job, folder: Path) -> dict[str, Any]:
    words, endpoint = control.words(job.words_path), f"{job.name}-data"
    control.wait_until(lambda: words[control.OWN] == 1)
    recorder = Recorder(folder, [endpoint], compression=job.case.kind)
    words[control.TOTAL] = companions.PUBLISH
    control.wait_until(lambda: words[control.OWN] == 2, _LOOK_S)
    stats = recorder.stop()
    del recorder
    remove_rings(endpoint)
    words[control.TOTAL] = companions.CLOSE  # the publisher closes the ring last, so the removal is not measured
    return {"done": stats.messages, "lost": job.case.messages - stats.messages}


def filter_topic(job: Job) -> Step:
    """Copy the messages of one endpoint."""
    return _filter(job, ["/e3"])


def filter_all(job: Job) -> Step:
    """Copy all messages."""
    return _filter(job, None)


def _filter(job: Job, endpoints: list[str] | None) -> Step:
    path, folder = _file(job), _place(job)

    def run() -> int:
        write_merged_log([LogReader(path, endpoints=endpoints)], folder)
        return LogReader(path).messages  # all messages were read

    return Step(run)


def play(job: Job) -> Step:
    """Publish all messages."""
    path, prefix = _file(job), _new_prefix(job)
    return Step(lambda: Player(path, rate=float("inf"), prefix=prefix).run().messages)


def start_playing(job: Job) -> Step:
    """Open a large file for playing."""
    path, prefix = _file(job), _new_prefix(job)

    def run() -> int:
        Player(path, prefix=prefix, start_paused=True).stop()
        return 1

    return Step(run)


def _new_prefix(job: Job) -> str:
    """Return a prefix of topics without files. Remove the files of the previous slice."""
    prefix = f"{job.name}-play"
    for path in SHARED.glob(f"*{prefix}"):
        unlink(path)
    return prefix


def _file(job: Job) -> Path:
    if job.system != OURS:
        raise Unsupported("no such call")
    return make_file(job)


def _place(job: Job) -> Path:
    """Return a path for the written file or folder. Remove the file or folder of the previous slice."""
    path = job.folder / f"{job.name}-written.mcap"
    unlink(path)
    return path
