"""`msgq bag`: inspects, repairs, compares and converts recordings."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_BAG_COMMANDS = {
    "info": "Show endpoints, counts, times and losses of recordings.",
    "list": "List chunks, channels, attachments or metadata of recordings.",
    "cat": "Print the messages of recordings in the order of recording.",
    "doctor": "Check files against the rules of MCAP, and report damage.",
    "recover": "Repair recordings, so that every MCAP reader can read them.",
    "reindex": "Rebuild all indexes and the summary of recordings.",
    "merge": "Merge recordings into one file, in the order of log time.",
    "filter": "Copy selected messages of recordings into a new file.",
    "split": "Split recordings into pieces of equal duration.",
    "diff": "Compare two logs, and report the first difference.",
    "convert": "Convert recordings to Parquet, JSON lines or CSV.",
    "attachments": "Extract the attachments of recordings into a directory.",
}


@click.group(cls=LazyCommandGroup, package=__name__, short_helps=_BAG_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Inspect, repair, compare and convert recordings.

    A LOG is an MCAP file from any program, a directory of segments, or the URL of one of them in an object store
    (s3://, gs://, abfss://, hdfs://). Several LOGS form one log. Truncated files are readable.
    """
