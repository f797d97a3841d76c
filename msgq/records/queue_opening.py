"""Opening and removal of record queues: checks of arguments, the transport, and open queues in forked children."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from msgq.channel.channel import Channel
from msgq.common import naming, settings
from msgq.common.dtype_descriptions import record_dtype
from msgq.errors import InvalidValueError
from msgq.impl import backend as backends
from msgq.impl.base import event_loop
from msgq.records.channel_transport import ChannelTransport
from msgq.records.topic_transport import TopicTransport, unlink_queue_topic

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.records.record_transport import RecordTransport

_open_queues: weakref.WeakSet[Any] = weakref.WeakSet()


def validate_queue_name(name: str | bytes, producers: str) -> str:
    """Return the name of a queue as text. Raises `EndpointNameError`."""
    validate = naming.validate_channel_name if producers == "multiple" else naming.validate_endpoint_name
    return validate(name)


def open_transport(
    name: str,
    prefix: str | None,
    dtype: npt.DTypeLike | None,
    capacity: int | None,
    producers: str,
    create: bool | None,
    history: int,
    on_lost: str,
    trust: str | None,
    spin_us: int | None,
) -> RecordTransport:
    """Open or create the topic or channel of a queue. The arguments and errors are those of `RecordQueue`."""
    _check_options(name, producers, history, on_lost)
    prefix = settings.resolve_prefix(prefix)
    requested = None if dtype is None else record_dtype(dtype, name)
    raises_on_loss = on_lost == "raise"
    if producers == "multiple":
        return ChannelTransport(name, prefix, requested, capacity, create, history, raises_on_loss, trust, spin_us)
    return TopicTransport(name, prefix, requested, capacity, create, raises_on_loss, trust, spin_us)


def _check_options(name: str, producers: str, history: int, on_lost: str) -> None:
    for action, value, allowed in (
        ("producers", producers, ("single", "multiple")),
        ("on_lost", on_lost, ("count", "raise")),
    ):
        if value not in allowed:
            raise InvalidValueError(f"{action} is {value!r}; give {' or '.join(map(repr, allowed))}", name)
    if history and producers == "single":
        raise InvalidValueError('history needs producers="multiple": topics keep no history', name)


def unlink_queue_name(name: str | bytes, prefix: str | None, producers: str) -> None:
    """Remove the name of a queue. See `RecordQueue.unlink_name`."""
    if producers == "multiple":
        Channel.unlink_name(name, prefix)
    else:
        unlink_queue_topic(
            backends.current_backend(), naming.validate_endpoint_name(name), settings.resolve_prefix(prefix)
        )


async def consume_async(queue: Any, limit: int | None) -> npt.NDArray[Any]:
    """See `RecordQueue.aconsume`."""
    while not len(records := queue.consume(limit, 0)) and limit != 0:
        await event_loop.wait_readable_async([queue._reader])
    return records  # type: ignore[no-any-return]


async def receive_async(queue: Any) -> Any:
    """See `RecordQueue.areceive`."""
    return (await queue.aconsume(1))[0]


def register_queue(queue: Any) -> None:
    """Prepare an open queue for forks."""
    _open_queues.add(queue)


def _reset_queues_in_child() -> None:
    for queue in list(_open_queues):
        queue._reset_in_child()


os.register_at_fork(after_in_child=_reset_queues_in_child)
