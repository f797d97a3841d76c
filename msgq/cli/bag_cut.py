"""`msgq bag cut`: a log in pieces of the same length."""

from pathlib import Path

import click

from msgq.cli import bag_options, options


@click.command(epilog=options.EXIT_CODES)
@bag_options.logs
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="A new directory for the pieces.")
@click.option("--every", required=True, metavar="SECONDS", type=click.FloatRange(min=0.001), help="Of each piece.")
@bag_options.compression
@bag_options.max_chunk
@options.as_json
def command(
    logs: tuple[Path, ...], output: Path, every: float, compression: str, max_chunk: int, as_json: bool
) -> None:
    """Cut LOGS, which are one log together, into pieces of the same duration.

    The pieces are segments in a new directory, which can be read as one log again. For one piece from here to there
    see `msgq bag filter`.
    """
    from msgq.recording.copying import write_pieces

    for path, count in write_pieces(logs, output, round(every * 1e9), compression, max_chunk):
        bag_options.tell_written(path, count, as_json)
