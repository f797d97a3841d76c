"""`msgq bag doctor`: checks files against the rules of MCAP."""

import sys
from collections import Counter

import click

from msgq.cli.bag import arguments
from msgq.cli.bag.file_progress import FileProgress
from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json, echo_status
from msgq.common.formatting import format_count
from msgq.common.storage.url_path import RecordingPath
from msgq.recording.mcap_io import recording_files
from msgq.recording.repair.doctor import FileExamination

_HELP_EPILOG = "Exit codes: 0 no errors (warnings do not count); 1 errors, or an unreadable file; 2 wrong usage."
_SEVERITY_COLOURS = {"error": "red", "warning": "yellow"}


@click.command(epilog=_HELP_EPILOG)
@arguments.logs_argument
@arguments.chunk_limit_option
@options.json_option
def command(logs: tuple[RecordingPath, ...], max_chunk_bytes: int, as_json: bool) -> None:
    """Check files against the rules of MCAP, and report damage.

    An error means that the file breaks a rule of MCAP, or contradicts itself. A warning means that MCAP allows the
    data, but readers can have trouble with the data. To repair files, use `msgq bag recover`. With --json, the
    command prints one object for each finding, then one object for each file.
    """
    is_valid = True
    with FileProgress("check", logs) as progress:
        for path in (path for log in logs for path in recording_files.find_segment_files(log)):
            is_valid &= _check_file(path, max_chunk_bytes, as_json, progress)
    sys.exit(not is_valid)


def _check_file(path: RecordingPath, max_chunk_bytes: int, as_json: bool, progress: FileProgress) -> bool:
    """Check a file, print the findings, and return True if no finding is an error."""
    examination = FileExamination(path, max_chunk_bytes, progress.begin_file(path))
    counts = Counter({"error": 0, "warning": 0})
    for finding in examination:
        counts[finding.severity] += 1
        progress.hide()
        if as_json:
            echo_json(finding)
        else:
            text = f"{finding.path} at byte {finding.offset}: {finding.text} [{finding.rule}]"
            echo_status(f"{finding.severity:7}", _SEVERITY_COLOURS[finding.severity], text)
    facts = examination.data_stats
    fields = {"messages": facts.message_counts.total(), "chunks": len(facts.index_bytes_by_chunk)}
    fields |= {f"{severity}s": count for severity, count in counts.items()}
    progress.hide()
    if as_json:
        echo_json({"path": str(path), **fields})
    else:
        echo(f"{path}: {', '.join(f'{format_count(count)} {name}' for name, count in fields.items())}")
    return not counts["error"]
