"""Reading and decoding files, beside the libraries that read MCAP. A step returns the number of messages or files."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from msgq.recording import LogReader
from msgq.recording.export.decoded_tables import decode_joined_batches
from tools.bench.adapters import OURS
from tools.bench.job import Job
from tools.bench.roles import require
from tools.bench.works import Step, libraries
from tools.bench.works.files import make_file

_SMALL_FILE_READS = 100  # readings of a small file, because one reading is too short for a measurement
#: Program that prints the topics of a file and their numbers of messages. The file is the first argument.
_MCAP_INFO_PROGRAM = """
import sys
from mcap.reader import make_reader

with open(sys.argv[1], "rb") as file:
    summary = make_reader(file).get_summary()
for channel in summary.channels.values():
    count = summary.statistics.channel_message_counts.get(channel.id)
    print(channel.topic, summary.schemas[channel.schema_id].name, count)
"""
_INFO_PROGRAMS = {OURS: ["-m", "msgq", "bag", "info"], "mcap": ["-c", _MCAP_INFO_PROGRAM]}


def info(job: Job) -> Step:
    """Read the summary of a file."""
    summary = _read(job, lambda path: len(LogReader(path).endpoints), libraries.SUMMARIES)
    return Step(lambda: int(summary.run() > 0))


def info_often(job: Job) -> Step:
    """Read the summary of a small file."""
    once = info(job)
    return Step(lambda: sum(once.run() for _ in range(_SMALL_FILE_READS)))


def info_process(job: Job) -> Step:
    """Read the summary of a file in a new process."""
    words = require(_INFO_PROGRAMS.get(job.system), "no program")
    command = [sys.executable, *words, str(make_file(job))]

    def run() -> int:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return 1

    return Step(run)


def iterate(job: Job) -> Step:
    """Take all messages one by one."""
    return _read(job, lambda path: sum(1 for _ in LogReader(path)), libraries.ITERATIONS)


def decode(job: Job) -> Step:
    """Decode all messages one by one. The libraries decode ROS 2."""
    peers = {} if job.case.kind in ("json", "struct") else libraries.DECODERS
    return _read(job, lambda path: sum(1 for _ in LogReader(path).decoded()), peers)


def batches(job: Job) -> Step:
    """Take batches of messages."""
    return _read(job, lambda path: sum(batch.num_rows for batch in LogReader(path).batches()))


def columns(job: Job) -> Step:
    """Decode batches to columns."""
    return _read(job, lambda path: sum(batch.rows.num_rows for batch in LogReader(path).decoded_batches("/e0")))


def arrow(job: Job) -> Step:
    """Decode all messages to one table."""
    return _read(job, lambda path: int(LogReader(path).to_arrow("/e0").num_rows))


def joined(job: Job) -> Step:
    """Decode the messages of each endpoint to tables."""
    return _read(job, lambda path: sum(batch.messages for _, batch in decode_joined_batches(LogReader(path).log_view)))


def parquet(job: Job) -> Step:
    """Convert to Parquet. The output stays, because ext4 creates files more slowly after it has deleted other files."""
    return _read(job, lambda path: LogReader(path).to_parquet(Path(tempfile.mkdtemp(dir=job.folder)) / "tables"))


def _read(job: Job, own: Callable[[Path], int], peers: Mapping[str, Callable[[Path], int]] | None = None) -> Step:
    readers = {OURS: own, **(peers or {})}
    return Step(partial(require(readers.get(job.system), "no such call"), make_file(job)))
