"""`msgq demo`: its verb and the programs that it runs.

The programs are processes of their own (`python -m msgq.cli.demo.roles`), which import this package as well; so the
verb with all that it renders is loaded when the command asks for it.
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
