"""The command `msgq`, beside the package: so it can say in a line why the package cannot be imported."""

import sys


def main() -> None:
    """Run the command and exit with its code."""
    try:
        from msgq.cli import main as command
    except ImportError as error:  # no backend of the name in MSGQ_BACKEND, or without what it needs
        sys.exit(f"msgq: {error}")
    command()
