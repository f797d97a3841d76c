"""`msgq serve`: shows the bus in a browser, and offers the bus to Foxglove and Lichtblick."""

from msgq.cli.serve.verb import command

__all__ = ["command"]
