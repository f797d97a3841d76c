"""`msgq version`."""

import platform
from importlib.metadata import version

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json


@click.command(epilog=options.EXIT_CODES)
@options.json_option
def command(as_json: bool) -> None:
    """Show the versions of msgq, Python and the system."""
    system = f"{platform.system()} {platform.release()}"
    versions = {"msgq": version("msgq-bus"), "python": platform.python_version(), "system": system}
    if as_json:
        echo_json(versions)
    else:
        for name, value in versions.items():
            echo(f"{name} {value}")
