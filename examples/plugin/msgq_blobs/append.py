"""`msgq append`: adds a message to a blob."""

import click

from msgq.common import settings
from msgq.kinds import kind_of
from msgq_blobs.names import KIND
from msgq_blobs.stats import append


@click.command()
@click.argument("endpoint")
@click.argument("message")
def command(endpoint: str, message: str) -> None:
    """Append MESSAGE to the blob ENDPOINT, which is created if it does not exist."""
    if kind_of(endpoint) != KIND:
        raise click.UsageError(f"endpoint {endpoint!r} is not a blob; give a name such as {KIND.endpoint('notes')}")
    append(KIND.validate_name(KIND.bare_name(endpoint)), settings.resolve_prefix(None), message.encode())
