"""`msgq bag merge`: several logs into one file."""

from pathlib import Path

import click

from msgq.cli import bag_options, options


@click.command(epilog=options.EXIT_CODES)
@bag_options.logs
@bag_options.output
@bag_options.compression
@bag_options.max_chunk
@options.as_json
def command(logs: tuple[Path, ...], output: Path, compression: str, max_chunk: int, as_json: bool) -> None:
    """Write the messages of several LOGS into one file, in the order of their log time.

    Epochs are numbered anew, so that a gap in the sequence of an endpoint still is a loss.
    """
    from msgq.recording.copying import write_mcap

    opened = [bag_options.open_log([path], max_chunk=max_chunk) for path in logs]
    count = write_mcap(opened, output, compression)
    for log in opened:
        bag_options.tell_problems(log)
    bag_options.tell_written(output, count, as_json)
