"""`msgq bag doctor`: whether files are what MCAP wants."""

import sys
from collections import Counter
from pathlib import Path

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.render import echo_json, get_console, style_text
from msgq.common.formatting import format_count
from msgq.recording.mcap_io import recording_files
from msgq.recording.repair.doctor import FileExamination

_HELP_EPILOG = "Exit codes: 0 no errors (warnings are none); 1 errors, or a file that cannot be read; 2 wrong usage."
_SEVERITY_COLOURS = {"error": "red", "warning": "yellow"}


@click.command(epilog=_HELP_EPILOG)
@arguments.logs_argument
@arguments.chunk_limit_option
@options.json_option
def command(logs: tuple[Path, ...], max_chunk_bytes: int, as_json: bool) -> None:
    """Check the files of LOGS against the rules of MCAP, and say where they are broken.

    An error is what MCAP forbids, or what contradicts itself; a warning is what it allows but readers suffer from. What
    `msgq bag recover` can mend, it mends. With --json: an object for each finding, then one for each file.
    """
    failed = False
    output = get_console()
    for path in (path for log in logs for path in recording_files.find_segment_files(log)):
        examination, counts = FileExamination(path, max_chunk_bytes), Counter({"error": 0, "warning": 0})
        for finding in examination:
            counts[finding.severity] += 1
            if as_json:
                echo_json(finding)
            else:
                where = style_text(f"{finding.severity:7}", _SEVERITY_COLOURS[finding.severity])
                output.print(
                    where, f"{finding.path} at byte {finding.offset}: {finding.text} [{finding.rule}]", soft_wrap=True
                )
        failed |= counts["error"] > 0
        facts = examination.data_stats
        said = {"messages": facts.message_counts.total(), "chunks": len(facts.index_bytes_by_chunk)}
        said |= {f"{severity}s": count for severity, count in counts.items()}
        if as_json:
            echo_json({"path": str(path), **said})
        else:
            output.print(f"{path}: {', '.join(f'{format_count(count)} {name}' for name, count in said.items())}")
    sys.exit(failed)
