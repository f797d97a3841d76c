"""`msgq bag attachments`: attachments as files."""

from pathlib import Path

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json, in_bytes
from msgq.errors import RecordingError
from msgq.recording import LogReader
from msgq.recording.mcap_io.log_writer import create_atomically


@click.command(epilog=options.EXIT_CODES)
@arguments.logs
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The directory for the files.")
@click.option("--name", "names", multiple=True, help="Only the attachment of this name; repeatable.")
@options.as_json
def command(logs: tuple[Path, ...], output: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Write the attachments of LOGS into a directory, each under its name, without the directories in that.

    A file that is there already stays as it is, and is an error.
    """
    log = LogReader(*logs)
    found = [one for one in log.attachments if not names or one.name in names]
    if missing := set(names) - {one.name for one in found}:
        raise RecordingError(f"there is no attachment {sorted(missing)[0]!r}; `msgq bag list attachments` shows all")
    if not found:
        echo("no attachments", err=True)
        return
    paths = [output / (Path(one.name).name or "unnamed") for one in found]
    for path, one in zip(paths, found, strict=True):
        if paths.count(path) > 1:
            raise RecordingError(
                f"several attachments would be {path}, {one.name!r} among them; choose one with --name"
            )
    output.mkdir(parents=True, exist_ok=True)
    for path, one in zip(paths, found, strict=True):
        with create_atomically(path) as unfinished:
            unfinished.write_bytes(one.read())
        said = {"path": str(path), "name": one.name, "bytes": one.size}
        echo_json(said) if as_json else echo(f"{path}: {in_bytes(one.size)}")
    arguments.tell_problems(log)
