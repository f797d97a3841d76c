"""`msgq bag list`: lists chunks, channels, attachments and metadata of a log."""

from collections.abc import Callable, Iterator
from typing import Any

import click

from msgq.cli.bag import arguments
from msgq.cli.common import options
from msgq.cli.common.columns import TableColumn, print_table
from msgq.cli.common.render import echo_json
from msgq.common.storage.url_path import RecordingPath
from msgq.recording import LogReader

_TableRowIterator = Iterator[dict[str, Any]]


def _list_chunks(log: LogReader) -> _TableRowIterator:
    for file in log.files:
        for block in file.blocks:
            yield {
                "file": str(file.path),
                "offset": block.offset,
                "length": block.stored_bytes,
                "uncompressed": block.uncompressed_bytes,
                "start": block.start_time,
                "end": block.end_time,
                "channels": None if block.channel_ids is None else len(block.channel_ids),
                "chunked": block.is_chunk,
            }


def _list_channels(log: LogReader) -> _TableRowIterator:
    for file in log.files:
        counts = file.statistics.channel_message_counts if file.statistics else None
        for number, channel in sorted(file.registry.channels.items()):
            record = channel.channel_record
            yield {
                "file": str(file.path),
                "id": number,
                "endpoint": channel.endpoint,
                "messages": None if counts is None else counts.get(number, 0),
                "encoding": record.message_encoding,
                "schema": record.schema.name if record.schema else None,
                "schema_encoding": record.schema.encoding if record.schema else None,
                "metadata": dict(record.metadata),
            }


def _list_attachments(log: LogReader) -> _TableRowIterator:
    for attachment in log.attachments:
        yield {
            "file": str(attachment.path),
            "name": attachment.name,
            "media_type": attachment.media_type,
            "bytes": attachment.size,
            "log_time": attachment.log_time,
            "create_time": attachment.create_time,
        }


def _list_metadata(log: LogReader) -> _TableRowIterator:
    for metadata in log.metadata:
        yield {"name": metadata.name, "values": metadata.values}


_LIST_FUNCTIONS: dict[str, Callable[[LogReader], _TableRowIterator]] = {
    "chunks": _list_chunks,
    "channels": _list_channels,
    "attachments": _list_attachments,
    "metadata": _list_metadata,
}


@click.command(epilog=options.EXIT_CODES)
@click.argument("what", type=click.Choice(list(_LIST_FUNCTIONS)))
@arguments.logs_argument
@arguments.chunk_limit_option
@options.json_option
def command(what: str, logs: tuple[RecordingPath, ...], max_chunk_bytes: int, as_json: bool) -> None:
    """List chunks, channels, attachments or metadata of recordings.

    The command reads the indexes of the files, and reads no messages. The list of chunks also shows messages outside
    of chunks. One row stands for many messages outside of chunks.
    """
    log = LogReader(*logs, max_chunk_bytes=max_chunk_bytes)
    rows = list(_LIST_FUNCTIONS[what](log))
    if as_json:
        for row in rows:
            echo_json(row)
    elif rows:
        print_table([_make_column(name) for name in rows[0]], rows)
    arguments.print_log_problems(log)


def _make_column(name: str) -> TableColumn[dict[str, Any]]:
    return TableColumn(name, lambda row: "-" if row[name] is None else str(row[name]), text_width=12)
