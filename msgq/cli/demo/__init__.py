"""`msgq demo`: its subcommand, and the programs that it runs.

The programs are separate processes (`python -m msgq.cli.demo.roles`) that import this package, too. Therefore the
subcommand with its output code is loaded at its first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgq.cli.demo.verb import command

__all__ = ["command"]


def __getattr__(name: str) -> Any:
    if name != "command":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from msgq.cli.demo.verb import command

    return command
