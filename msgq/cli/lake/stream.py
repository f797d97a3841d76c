"""`msgq lake stream`: adds growing recordings to a lake."""

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo
from msgq.cli.common.signals import call_on_interrupt
from msgq.cli.lake import arguments
from msgq.common.texts import format_count_noun


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@arguments.lake_argument
@click.argument("recordings")
@click.option(
    "--checkpoint",
    metavar="DIRECTORY",
    help="Directory that stores the position of the stream.  [default: in the lake]",
)
@click.option(
    "--trigger-seconds",
    type=options.NumberRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two batches, in seconds. Each batch writes new files.",
)
@click.option("--once", is_flag=True, help="Add the existing messages, then stop.")
@arguments.master_option
def command(
    lake: str, recordings: str, checkpoint: str | None, trigger_seconds: float, once: bool, master: str | None
) -> None:
    """Add messages to a lake while a recorder runs.

    RECORDINGS is a directory in which a recorder writes. Each message is added once, even if a process is killed. At
    the end of the stream, the command updates the silver and gold tables, and prints the number of messages in the
    lake. After a kill, the next `msgq lake ingest` updates the silver and gold tables.
    """
    from msgq.lake.bronze.bronze_writer import open_messages_table
    from msgq.spark.lake import follow

    opened = arguments.open_lake(lake, master, (recordings,))
    over: list[bool] = []
    with call_on_interrupt(lambda: over.append(True)):
        if not once:
            echo(f"{lake}: following {recordings}; stop with Ctrl-C", err=True)
        with arguments.show_task_progress(opened.spark, "stream"):
            query = follow(opened, recordings, checkpoint, None if once else trigger_seconds)
            while not over and not query.awaitTermination(1):
                continue
            query.stop()
    with arguments.show_task_progress(opened.spark, "decode"):
        opened.build_silver()
    with arguments.show_task_progress(opened.spark, "tables"):
        opened.build_gold()
    snapshot = open_messages_table(arguments.open_lake_directory(lake)).read_snapshot()
    if snapshot is not None:
        echo(f"{lake}: {format_count_noun(snapshot.row_count, 'message')} in the lake; version {snapshot.version}")
