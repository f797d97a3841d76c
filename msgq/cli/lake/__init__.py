"""`msgq lake`: recordings as tables."""

import sys
from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup
from msgq.common.storage.store_errors import translate_store_errors

_LAKE_COMMANDS = {
    "export": "Write messages or the result of a query to a file.",
    "fleet": "Combine the gold tables of many lakes into fleet tables.",
    "ingest": "Add recordings to a lake.",
    "optimize": "Merge small files of a lake, and remove unneeded files.",
    "replay": "Play selected messages, or the messages that a query returns.",
    "report": "Write an HTML report about a lake or a recording.",
    "sql": "Query the tables of a lake in SQL.",
    "stream": "Add messages to a lake while a recorder runs.",
    "tables": "List the tables of a lake with their sizes.",
}


class _SparkGroup(LazyCommandGroup):
    """If an object store or the Java process of a subcommand fails, prints one line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            with translate_store_errors():
                return super().invoke(ctx)
        except Exception:
            if sys.modules.get("pyspark") is None:
                raise
            from msgq.spark.runtime.spark_errors import report_java_exit

            with report_java_exit():
                raise


@click.group(cls=_SparkGroup, package=__name__, short_helps=_LAKE_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Create tables from recordings, and query the tables.

    A LAKE is a directory, or a URL such as s3://BUCKET/PATH, with credentials in the environment. Without --master,
    Spark runs on this machine.
    """
