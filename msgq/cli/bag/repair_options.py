"""Common code of `msgq bag recover` and `msgq bag reindex`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import NoReturn

import click

from msgq.cli.bag.file_progress import FileProgress
from msgq.cli.common import options, signals
from msgq.cli.common.render import echo, echo_json
from msgq.common.formatting import format_bytes
from msgq.common.storage.url_path import RecordingPath
from msgq.common.texts import format_count_noun
from msgq.errors import RecordingError
from msgq.recording.mcap_io import recording_files
from msgq.recording.repair.recover import FileRepair, Recovery

#: Adds the options that choose the new files.
add_repair_options = options.combine_options(
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="New file, or new directory if LOG is a directory. The output must not exist. LOG must be a single log.",
    ),
    click.option("--in-place", is_flag=True, help="Replace each old file by its new file, atomically."),
)


def repair_logs(
    logs: tuple[RecordingPath, ...],
    output: Path | None,
    in_place: bool,
    max_chunk_bytes: int,
    as_json: bool,
    *,
    rewrites_indexes: bool,
) -> None:
    """Repair all files, and print the repairs. `rewrites_indexes`: True: also the indexes of undamaged files."""
    if output is not None and in_place:
        raise click.UsageError("--output and --in-place exclude each other; give one")
    if output is not None and len(logs) != 1:
        raise click.UsageError(f"--output needs a single LOG, but {len(logs)} were given; repair one LOG at a time")
    local = [log for log in logs if isinstance(log, Path)]
    if len(local) < len(logs):
        raise click.UsageError("repair needs local files; copy the recording from the store first")
    label = recording_files.REINDEXED_LABEL if rewrites_indexes else recording_files.RECOVERED_LABEL
    with signals.call_on_interrupt(_exit_with_failure), FileProgress("repair", local) as progress:
        for log in local:
            for path, target in _list_output_paths(log, output, label, in_place):
                report = progress.begin_file(path)
                done = FileRepair(
                    path, target, in_place, max_chunk_bytes, rewrites_indexes=rewrites_indexes, report_progress=report
                ).repair()
                progress.hide()
                echo_json(done) if as_json else _print_recovery(done)


def _exit_with_failure() -> NoReturn:
    raise KeyboardInterrupt


def _list_output_paths(
    log: Path, output: Path | None, suffix: str, in_place: bool
) -> Iterator[tuple[Path, Path | None]]:
    """Yield each file and the path of its repaired file; None: next to the file, or in its place."""
    segments = map(Path, map(str, recording_files.find_segment_files(log)))
    if in_place or not log.is_dir():
        yield from ((path, output) for path in segments)
        return
    folder = Path(os.path.normpath(log))
    with _create_output_directory(
        output or folder.with_name(recording_files.make_sibling_name(folder, suffix))
    ) as directory:
        yield from ((path, directory / path.name) for path in segments)


@contextmanager
def _create_output_directory(path: Path) -> Iterator[Path]:
    """Yield a new directory. After an exception, the directory is removed."""
    try:
        path.mkdir()
    except OSError as error:
        raise RecordingError(f"cannot create directory {path}: {error.strerror}", errno=error.errno) from error
    try:
        yield path
    except BaseException:
        rmtree(path)
        raise


def _print_recovery(done: Recovery) -> None:
    text = f"{done.output}: {format_count_noun(done.messages, 'message')} in {format_count_noun(done.chunks, 'chunk')}"
    if not done.changed:
        has_errors = any(finding.severity == "error" for finding in done.remaining)
        state = "has errors that cannot be repaired" if has_errors else "was intact"
        text += f"; {state}"
    elif done.cut_bytes or done.damaged_bytes:
        text += f"; {format_bytes(done.cut_bytes)} cut off, {format_bytes(done.damaged_bytes)} of damage skipped"
    echo(text)
    for sentence in done.actions:
        echo(f"  {sentence}")
    for finding in done.remaining:
        echo(f"  remaining: {finding}")
