"""`msgq lake`: recordings as tables."""

import sys
from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_LAKE_COMMANDS = ("export", "fleet", "ingest", "optimize", "replay", "report", "sql", "stream", "tables")


class _SparkGroup(LazyCommandGroup):
    """If the Java process of a subcommand has ended, prints one line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except Exception:
            if sys.modules.get("pyspark") is None:
                raise
            from msgq.spark.runtime.spark_errors import report_java_exit

            with report_java_exit():
                raise


@click.group(cls=_SparkGroup, verb="lake", names=_LAKE_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Create tables from recordings, and query the tables.

    A LAKE is a directory, or a URI that the Spark cluster can open. Without --master, Spark runs on this machine.
    """
