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


def _subscriber(one: SubscriberInfo) -> str:
    lost = "an unknown number of" if one.lost is None else in_units(one.lost)
    lag = "lapped" if one.lag_bytes is None else f"{in_bytes(one.lag_bytes)} to read"
    return f"{one.participant}: {in_units(one.received)} received, {lost} lost in {one.resets} laps, {lag}"


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
    for one in channel.publishers:
        yield f"    {_channel_publisher(one)}"
    others = ", and perhaps more than are listed" if channel.opened and len(channel.subscribers) >= LISTED else ""
    yield f"  subscribers  {len(channel.subscribers)}{others}"
    for subscriber in channel.subscribers:
        yield f"    {_channel_subscriber(subscriber)}"
    for viewer in channel.viewers:
        yield f"  views        {_viewer(viewer)}"
    for path in channel.orphans:
        yield f"  orphan       {path}"


def _most(limit: int | None) -> str:
    return "any number" if limit is None else f"at most {limit}"


def _channel_publisher(one: ChannelPublisher) -> str:
    state = " (left)" if one.left else " (grew, and has loans here)" if one.superseded else ""
    who = (
        f"{one.node} {one.participant.name} {one.participant.pid}{state}"
        if one.left
        else f"{one.node} {one.participant}"
    )
    pool = f"{one.slots} slots of {in_bytes(one.slot_bytes)}, {in_bytes(one.pool_bytes)}"
    done = f"{in_units(one.sent)} sent, {in_units(one.refused)} refused, {in_units(one.evicted)} evicted"
    return f"{who}{'' if one.left else state}: {done}, {one.messages} there; {pool}"


def _channel_subscriber(one: ChannelSubscriber) -> str:
    lag = "" if one.lag is None else f", {in_units(one.lag)} to read"
    done = f"{in_units(one.received)} received, {in_units(one.lost)} lost in {one.resets} laps"
    return f"{one.node} {one.participant}: {done}{lag}, {one.views_held} views held"


def _viewer(one: ViewHolder) -> str:
    kept = "" if one.oldest_ns is None else f", the oldest of {age(one.oldest_ns)} ago"
    return f"{one.node or '-'} {one.participant}: {one.views} slots, {one.outdated} of old messages{kept}"


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
    for one in queue.handles:
        yield f"    {_handle(one)}"


def _waiting(queue: QueueStats) -> str:
    if queue.oldest_age_ns is None:
        return f"{in_units(queue.depth)} messages"
    priorities = ", ".join(f"{count} with {priority}" for priority, count in queue.priorities)
    more = queue.depth - sum(count for _, count in queue.priorities)
    rest = f", {more} with less" if more > 0 else ""
    oldest = f"the oldest for {queue.oldest_age_ns / NS_PER_S:.3g} s"
    return f"{in_units(queue.depth)} messages, {oldest}; by priority: {priorities}{rest}"


def _counts(one: QueueStats | QueueHandleInfo) -> str:
    done = f"{in_units(one.sent)} sent, {in_units(one.received)} received, {in_units(one.acknowledged)} acknowledged"
    return f"{done}, {in_units(one.returned)} returned, {in_units(one.refused)} refused"


def _handle(one: QueueHandleInfo) -> str:
    has = f"; {one.taken} taken" if one.taken else ""
    has += f"; {one.holds} being written" if one.holds else ""
    has += f"; {', '.join(one.waits)}" if one.waits else ""
    return f"{one.participant}: {_counts(one)}{has}"


def _record_lines(row: RecordRow) -> Iterator[str]:
    """Return what is known of a vector or board, a line each."""
    record, file = row.stats, _file(row.stats.path)
    what = "keys, each with a value of up to" if record.kind == "board" else "elements of"
    alone = "; one handle writes" if record.exclusive else ""
    copies = f"; {record.copies} copies of each"
    yield row.endpoint
    yield f"  file         {record.path}, {in_bytes(record.bytes)}; user {file['owner']}, mode {file['mode']}"
    yield f"  made         by {record.creator[0]} {record.creator[1]}, age {age(record.created_ns)}"
    yield f"  {record.kind:12} {in_units(record.length)} {what} {in_bytes(record.item_bytes)}{copies}{alone}"
    yield f"  written      {_written(record)}"
    yield f"  rate         {in_rate(row.rate)} elements/s"
    if record.locked:
        yield f"  held         {record.locked} elements are being written, {record.locked_by_dead} of them by the dead"
    yield f"  schema       {_schema(record.schema)}{'' if record.dtype is None else f', {record.dtype}'}"
    yield f"  readers      leave no trace; {'some may sleep' if record.has_waiters else 'none sleeps'} until it changes"
    yield f"  writers      {len(record.writers)}"
    for one in record.writers:
        yield f"    {_writer(one)}"
    if record.kind == "board":
        yield f"  keys         {in_units(record.key_count)}"
    for key in record.keys:
        yield f"    {_key(key)}"
    if record.key_count > len(record.keys):
        yield f"    and {in_units(record.key_count - len(record.keys))} more"


def _written(record: RecordStats) -> str:
    if record.last_age_ns is None:
        return "nothing so far"
    which = f", number {record.last_index}" if record.kind == "vector" else ""
    last = f"the last {record.last_age_ns / NS_PER_S:.3g} s ago{which}"
    return f"{in_units(record.written)} times, {in_units(record.elements_written)} elements; {last}"


def _writer(one: RecordWriterInfo) -> str:
    has = f"; {one.locked} being written" if one.locked else ""
    has += f"; {one.keys} keys" if one.keys else ""
    return f"{one.participant}: {in_units(one.written)} written by this row{has}"


def _key(one: RecordKeyInfo) -> str:
    owner = "no owner" if one.owner is None else f"of {one.owner}"
    written = f"written {in_units(one.count)} {'time' if one.count == 1 else 'times'}"
    if one.age_ns is None:
        return f"{one.key}: {owner}, {written if one.count else 'never written'}"
    return f"{one.key}: {owner}, {in_bytes(one.bytes)}, {written}, {one.age_ns / NS_PER_S:.3g} s ago"


_LINES: dict[Kind, Callable[[Any], Iterator[str]]] = {
    TOPIC: _topic_lines,
    CHANNEL: _channel_lines,
    RECORDS: _record_lines,
    QUEUE: _queue_lines,
}
