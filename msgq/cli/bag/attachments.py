"""`msgq bag attachments`: writes attachments to files."""

from pathlib import Path

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.common.formatting import format_bytes
from msgq.common.storage.url_path import RecordingPath
from msgq.errors import RecordingError
from msgq.recording import LogReader
from msgq.recording.mcap_io.log_writer import create_atomically


@click.command(epilog=options.EXIT_CODES)
@arguments.logs_argument
@options.required_output_option("DIRECTORY", "Directory for the files.")
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="Select the attachment with this name. Repeatable."
)
@options.json_option
def command(logs: tuple[RecordingPath, ...], output: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Extract the attachments of recordings into a directory.

    Each file has the name of its attachment, without directories. If an output file exists, the command fails.
    """
    log = LogReader(*logs)
    attachments = [attachment for attachment in log.attachments if not names or attachment.name in names]
    if missing := set(names) - {attachment.name for attachment in attachments}:
        raise RecordingError(f"attachment {sorted(missing)[0]!r} not found; run `msgq bag list attachments LOGS`")
    if not attachments:
        echo("no attachments", err=True)
        return
    paths = [output / (Path(attachment.name).name or "unnamed") for attachment in attachments]
    for path, attachment in zip(paths, attachments, strict=True):
        if paths.count(path) > 1:
            raise RecordingError(
                f"{path}: several attachments have this file name, including {attachment.name!r}; give --name"
            )
    output.mkdir(parents=True, exist_ok=True)
    for path, attachment in zip(paths, attachments, strict=True):
        with create_atomically(path) as unfinished:
            unfinished.write_bytes(attachment.read())
        fields = {"path": str(path), "name": attachment.name, "bytes": attachment.size}
        echo_json(fields) if as_json else echo(f"{path}: {format_bytes(attachment.size)}")
    arguments.print_log_problems(log)
