"""`msgq info`: all that is known of an endpoint, of whatever kind."""

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.endpoint_rows import ChannelRow, QueueRow, RecordRow, TopicRow
from msgq.cli.common.endpoint_selection import EndpointSelection
from msgq.cli.common.live_endpoints import LiveEndpoints
from msgq.cli.common.render import age, echo, echo_json, in_bytes, in_rate, in_units, publisher
from msgq.common.schema import Schema
from msgq.common.units import NS_PER_S
from msgq.kinds import CHANNEL, QUEUE, RECORDS, TOPIC, Kind, kind_of
from msgq.stats import (
    ChannelPublisher,
    ChannelSubscriber,
    QueueHandleInfo,
    QueueStats,
    RecordKeyInfo,
    RecordStats,
    RecordWriterInfo,
    SubscriberInfo,
    ViewHolder,
)

LISTED = 64  # subscribers of a channel, with their names


@click.command(epilog=options.EXIT_CODES)
@options.some_endpoints
@options.interval(0.5, "For how long rates are measured.")
@options.as_json
@options.prefix
def command(endpoints: tuple[str, ...], interval: float, as_json: bool, prefix: str | None) -> None:
    """Show all that is known of these: files, publishers, schema, and each subscriber with its lag and losses.

    A channel is called channel/NAME, a work queue queue/NAME, a vector or board records/NAME. Only looks, as
    `msgq list` does.
    """
    names = EndpointSelection(endpoints, prefix)
    for row in LiveEndpoints(names).measure(interval):
        if as_json:
            echo_json({**row.as_json(), **_file(row.stats.path)})
        else:
            for line in _LINES[kind_of(row.endpoint)](row):
                echo(line)
    names.require_matched()


def _file(path: str) -> dict[str, str | int | None]:
    """Whose the file is, and who else may open it."""
    try:
        status = os.stat(path)
    except FileNotFoundError:  # removed just now; the mapping is still good
        return {"owner": None, "mode": None}
    return {"owner": status.st_uid, "mode": f"{stat.S_IMODE(status.st_mode):o}"}


def _topic_lines(row: TopicRow) -> Iterator[str]:
    topic, file = row.stats, _file(row.stats.path)
    yield topic.endpoint
    yield f"  ring         {topic.path}, {in_bytes(topic.data_bytes)}; a message may take a third of it"
    side = "side segment" if topic.created_ns else "no side segment: only stock programs were here"
    yield f"  file         {side}, user {file['owner']}, mode {file['mode']}, age {age(topic.created_ns)}"
    yield f"  publisher    {publisher(topic)}"
    yield f"  published    {in_units(topic.messages)} messages, {in_bytes(topic.bytes)}"
    yield f"  rate         {in_rate(row.rate)} messages/s, {in_bytes(row.byte_rate)}/s"
    yield f"  schema       {_schema(topic.schema)}"
    yield f"  tracked      {'each message has its publish and origin time' if topic.tracked else 'no'}"
    yield f"  position     lap {topic.write_position[0]}, offset {topic.write_position[1]}"
    yield f"  subscribers  {len(topic.subscribers)}, and {topic.stock_subscribers} stock"
    for subscriber in topic.subscribers:
        yield f"    {_subscriber(subscriber)}"


def _schema(schema: Schema | None) -> str:
    return "none" if schema is None else f"{schema.name}, {schema.encoding}, {len(schema.data)} bytes of definition"


def _subscriber(subscriber: SubscriberInfo) -> str:
    lost = "an unknown number of" if subscriber.lost is None else in_units(subscriber.lost)
    lag = "lapped" if subscriber.lag_bytes is None else f"{in_bytes(subscriber.lag_bytes)} to read"
    counts = f"{in_units(subscriber.received)} received, {lost} lost in {subscriber.resets} laps"
    return f"{subscriber.participant}: {counts}, {lag}"


def _channel_lines(row: ChannelRow) -> Iterator[str]:
    """Return what is known of a channel, a line each."""
    channel, file = row.stats, _file(row.stats.path)
    limits = f"publishers: {_most(channel.max_publishers)}, subscribers: {_most(channel.max_subscribers)}"
    stamps = {None: "", True: ", stamps", False: ", no stamps"}[channel.stamps]
    holds = "not settled so far" if channel.capacity is None else f"{channel.capacity} messages"
    pause = "" if row.tolerance_s is None else f"; at this rate a subscriber may pause for {row.tolerance_s:.3g} s"
    yield row.endpoint
    yield f"  file{channel.path}, {in_bytes(channel.hub_bytes)}; pools {in_bytes(channel.pool_bytes)}"
    made = f"made by {channel.creator[0]} {channel.creator[1]}, age {age(channel.created_ns)}"
    yield f"  file         user {file['owner']}, mode {file['mode']}, {made}"
    yield f"  kind         {channel.kind}, {limits}{stamps}"
    yield f"  published    {in_units(channel.messages)} messages"
    yield f"  rate         {in_rate(row.rate)} messages/s, {in_bytes(row.byte_rate)}/s"
    yield f"  capacity     {holds}{pause}"
    yield f"  schema       {_schema(channel.schema)}"
    yield f"  publishers   {len(channel.publishers)}"
    for channel_publisher in channel.publishers:
        yield f"    {_channel_publisher(channel_publisher)}"
    unlisted = ", and perhaps more than are listed" if channel.opened and len(channel.subscribers) >= LISTED else ""
    yield f"  subscribers  {len(channel.subscribers)}{unlisted}"
    for subscriber in channel.subscribers:
        yield f"    {_channel_subscriber(subscriber)}"
    for viewer in channel.viewers:
        yield f"  views        {_viewer(viewer)}"
    for path in channel.orphans:
        yield f"  orphan       {path}"


def _most(limit: int | None) -> str:
    return "any number" if limit is None else f"at most {limit}"


def _channel_publisher(publisher: ChannelPublisher) -> str:
    state = " (left)" if publisher.left else " (grew, and has loans here)" if publisher.superseded else ""
    name = (
        f"{publisher.node} {publisher.participant.name} {publisher.participant.pid}{state}"
        if publisher.left
        else f"{publisher.node} {publisher.participant}"
    )
    pool = f"{publisher.slots} slots of {in_bytes(publisher.slot_bytes)}, {in_bytes(publisher.pool_bytes)}"
    done = (
        f"{in_units(publisher.sent)} sent, {in_units(publisher.refused)} refused, {in_units(publisher.evicted)} evicted"
    )
    return f"{name}{'' if publisher.left else state}: {done}, {publisher.messages} there; {pool}"


def _channel_subscriber(subscriber: ChannelSubscriber) -> str:
    lag = "" if subscriber.lag is None else f", {in_units(subscriber.lag)} to read"
    done = f"{in_units(subscriber.received)} received, {in_units(subscriber.lost)} lost in {subscriber.resets} laps"
    return f"{subscriber.node} {subscriber.participant}: {done}{lag}, {subscriber.views_held} views held"


def _viewer(holder: ViewHolder) -> str:
    kept = "" if holder.oldest_ns is None else f", the oldest of {age(holder.oldest_ns)} ago"
    return f"{holder.node or '-'} {holder.participant}: {holder.views} slots, {holder.outdated} of old messages{kept}"


def _queue_lines(row: QueueRow) -> Iterator[str]:
    """Return what is known of a work queue, a line each."""
    queue, file = row.stats, _file(row.stats.path)
    yield row.endpoint
    yield f"  file         {queue.path}, {in_bytes(queue.bytes)}; user {file['owner']}, mode {file['mode']}"
    yield f"  made         by {queue.creator[0]} {queue.creator[1]}, age {age(queue.created_ns)}"
    yield f"  room         {in_units(queue.max_messages)} messages of up to {in_bytes(queue.max_message_size)}"
    yield f"  waiting      {_waiting(queue)}"
    yield f"  taken        {in_units(queue.in_flight)} messages, {queue.leases} with a lease, {queue.overdue} expired"
    yield f"  slots        {in_units(queue.free)} free, {queue.held} being written, {queue.astray} lost slots"
    if queue.nonsense:
        yield f"  corrupt      {queue.nonsense} slots, in which another program wrote"
    if queue.redelivered:
        yield f"  came back    {queue.redelivered} of these messages; one was taken {queue.most_deliveries} times"
    yield f"  counts       {_counts(queue)}"
    if queue.events:
        yield f"  events       {queue.events}, {in_units(queue.events_lost)} lost"
    yield f"  rate         {in_rate(row.rate)} messages/s sent, {in_rate(row.received_rate)} messages/s received"
    yield f"  schema       {_schema(queue.schema)}"
    yield f"  handles      {len(queue.handles)}"
    for handle in queue.handles:
        yield f"    {_handle(handle)}"


def _waiting(queue: QueueStats) -> str:
    if queue.oldest_age_ns is None:
        return f"{in_units(queue.depth)} messages"
    priorities = ", ".join(f"{count} with {priority}" for priority, count in queue.priorities)
    remaining = queue.depth - sum(count for _, count in queue.priorities)
    remaining_text = f", {remaining} with less" if remaining > 0 else ""
    oldest = f"the oldest for {queue.oldest_age_ns / NS_PER_S:.3g} s"
    return f"{in_units(queue.depth)} messages, {oldest}; by priority: {priorities}{remaining_text}"


def _counts(stats: QueueStats | QueueHandleInfo) -> str:
    done = (
        f"{in_units(stats.sent)} sent, {in_units(stats.received)} received, {in_units(stats.acknowledged)} acknowledged"
    )
    return f"{done}, {in_units(stats.returned)} returned, {in_units(stats.refused)} refused"


def _handle(handle: QueueHandleInfo) -> str:
    has = f"; {handle.taken} taken" if handle.taken else ""
    has += f"; {handle.holds} being written" if handle.holds else ""
    has += f"; {', '.join(handle.waits)}" if handle.waits else ""
    return f"{handle.participant}: {_counts(handle)}{has}"


def _record_lines(row: RecordRow) -> Iterator[str]:
    """Return what is known of a vector or board, a line each."""
    record, file = row.stats, _file(row.stats.path)
    elements = "keys, each with a value of up to" if record.kind == "board" else "elements of"
    alone = "; one handle writes" if record.exclusive else ""
    copies = f"; {record.copies} copies of each"
    yield row.endpoint
    yield f"  file         {record.path}, {in_bytes(record.bytes)}; user {file['owner']}, mode {file['mode']}"
    yield f"  made         by {record.creator[0]} {record.creator[1]}, age {age(record.created_ns)}"
    yield f"  {record.kind:12} {in_units(record.length)} {elements} {in_bytes(record.item_bytes)}{copies}{alone}"
    yield f"  written      {_format_writes(record)}"
    yield f"  rate         {in_rate(row.rate)} elements/s"
    if record.locked:
        yield f"  held         {record.locked} elements are being written, {record.locked_by_dead} of them by the dead"
    yield f"  schema       {_schema(record.schema)}{'' if record.dtype is None else f', {record.dtype}'}"
    yield f"  readers      leave no trace; {'some may sleep' if record.has_waiters else 'none sleeps'} until it changes"
    yield f"  writers      {len(record.writers)}"
    for writer in record.writers:
        yield f"    {_writer(writer)}"
    if record.kind == "board":
        yield f"  keys         {in_units(record.key_count)}"
    for key in record.keys:
        yield f"    {_key(key)}"
    if record.key_count > len(record.keys):
        yield f"    and {in_units(record.key_count - len(record.keys))} more"


def _format_writes(record: RecordStats) -> str:
    if record.last_age_ns is None:
        return "nothing so far"
    index = f", number {record.last_index}" if record.kind == "vector" else ""
    last = f"the last {record.last_age_ns / NS_PER_S:.3g} s ago{index}"
    return f"{in_units(record.written)} times, {in_units(record.elements_written)} elements; {last}"


def _writer(writer: RecordWriterInfo) -> str:
    has = f"; {writer.locked} being written" if writer.locked else ""
    has += f"; {writer.keys} keys" if writer.keys else ""
    return f"{writer.participant}: {in_units(writer.written)} written by this row{has}"


def _key(key: RecordKeyInfo) -> str:
    owner = "no owner" if key.owner is None else f"of {key.owner}"
    written = f"written {in_units(key.count)} {'time' if key.count == 1 else 'times'}"
    if key.age_ns is None:
        return f"{key.key}: {owner}, {written if key.count else 'never written'}"
    return f"{key.key}: {owner}, {in_bytes(key.bytes)}, {written}, {key.age_ns / NS_PER_S:.3g} s ago"


_LINES: dict[Kind, Callable[[Any], Iterator[str]]] = {
    TOPIC: _topic_lines,
    CHANNEL: _channel_lines,
    RECORDS: _record_lines,
    QUEUE: _queue_lines,
}
