"""`msgq bag recover`: makes truncated and damaged files whole."""

from pathlib import Path

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json, in_bytes, in_units
from msgq.recording.format import conventions
from msgq.recording.format.recover import Recovery, recover


@click.command(epilog=options.EXIT_CODES)
@arguments.logs
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Leave the file (one only) alone and write this one."
)
@arguments.max_chunk
@options.as_json
def command(logs: tuple[Path, ...], output: Path | None, max_chunk: int, as_json: bool) -> None:
    """Make the files of LOGS whole, so that every MCAP reader takes them.

    In place: what is no whole record at the end is cut off, damage within is marked so that readers pass over it, and
    a summary is written. What `msgq` reads from the file stays the same. Whole files stay as they are, and so do those
    that a recorder is writing. One with a chunk above --max-chunk is left alone: it may be a good one.
    """
    paths = [path for log in logs for path in conventions.segments(log)]
    if output is not None and len(paths) != 1:
        raise click.UsageError(f"--output is for one file, not for {len(paths)}")
    for path in paths:
        done = recover(path, output, max_chunk)
        echo_json(done) if as_json else echo(_text(done))


def _text(done: Recovery) -> str:
    what = f"{done.path}: {in_units(done.messages)} messages in {in_units(done.chunks)} chunks"
    if not done.changed:
        return f"{what}; was whole"
    damage = f", {in_bytes(done.damaged_bytes)} of damage passed over" if done.damaged_bytes else ""
    return f"{what}; {in_bytes(done.cut_bytes)} cut off{damage}"
