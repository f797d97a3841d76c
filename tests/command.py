"""The command, in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from msgq.cli.app import app


def run(*arguments: object, code: int | None = 0) -> Result:
    """Run `msgq`, see it end with an exit code (None: any) and without a stack trace, and return what it said."""
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert code in (None, result.exit_code), result.output
    assert "Traceback" not in result.output
    return result
