"""What of a log is played, and where: an endpoint for each that can be one here; and why others are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgq.errors import EndpointNameError, InvalidValueError, RecordingError
from msgq.kinds import CHANNEL, FRAMES, KINDS, PICTURES, QUEUE, TOPIC, kind_of
from msgq.outlets import Wanted
from msgq.outlets.queues import NO_PAYLOAD, has_payload
from msgq.queue_events import HEAD_BYTES
from msgq.recording.reader.reader import LogReader

_RAW = "/image"
_ANNOUNCES = "it announces frames, whose pictures are played: that announces them anew"
_NO_NAME = "it cannot be the name of an endpoint; remap it"


class Plan(NamedTuple):
    """What is played.

    Attributes
    ----------
    wanted : by the new name.
    skipped : why an endpoint of the log is not played, by its name there.
    """

    wanted: dict[str, Wanted]
    skipped: dict[str, str]


def new_name(endpoint: str, kind: str, remap: Mapping[str, str]) -> str | None:
    """Return where an endpoint of a log is played; None: nowhere, as its name cannot be one here.

    Raises
    ------
    EndpointNameError : the name that it was given cannot be one.
    InvalidValueError : the name that it was given is of another kind.
    """
    wanted = remap.get(endpoint, endpoint)
    try:
        return _checked(wanted, kind, endpoint)
    except (EndpointNameError, InvalidValueError):
        if endpoint in remap:
            raise
        return None


def _checked(name: str, kind: str, former: str) -> str:
    """Return a name that an endpoint of a kind can have."""
    if kind == FRAMES:
        if not PICTURES.fullmatch(name):
            text = f"{former!r} has frames, which {name!r} cannot have; give visionipc_SERVER_STREAM/image"
            raise InvalidValueError(text)
        return name
    known = next((one for one in KINDS if one.name == kind), None)
    if known is None:
        raise InvalidValueError(f"{former!r} is of kind {kind!r}, which this version does not know")
    if known is TOPIC and kind_of(name) is TOPIC:
        return TOPIC.checked(name)
    if known is not kind_of(name):
        text = f"{former!r} is of kind {kind}, and {name!r} of another; give a name of the same kind"
        raise InvalidValueError(f"{text}: {known.mark}NAME" if known.mark else f"{text}, without '/'")
    return known.mark + known.checked(known.plain(name))


def plan(log: LogReader, before: LogReader, remap: Mapping[str, str]) -> Plan:
    """Return what of a log is played, and where. Reads both, once.

    Parameters
    ----------
    log : what is played.
    before : what was written to vectors and boards before it begins: they are there, too.
    remap : new names by those of the log.

    Raises
    ------
    InvalidValueError : what is remapped is not there, or two endpoints would be played to one.
    RecordingError : nothing of it can be played.
    """
    infos = dict(sorted({**before.endpoints, **log.endpoints}.items()))
    if unknown := set(remap) - set(infos):
        raise InvalidValueError(f"{', '.join(sorted(unknown))} cannot be remapped: it is not played")
    found = Plan({}, {})
    former: dict[str, str] = {}
    for old, info in infos.items():
        name = new_name(old, info.kind, remap)
        if name is None:
            found.skipped[old] = _NO_NAME
            continue
        if name in former:
            raise InvalidValueError(f"both {former[name]!r} and {old!r} would be played there; remap one of them", name)
        former[name] = old
        found.wanted[name] = Wanted(
            name,
            info.kind,
            info.schema,
            info.options,
            info.largest,
            info.tracked,
            _told("publisher", old, log) if info.kind == CHANNEL.name else (),
            tuple(key for key in _told("key", old, before, log) if key),
        )
    _leave_out_announcements(former, found)
    _look_inside(log, former, found)
    if not found.wanted:
        reasons = "; ".join(f"{name!r}: {why}" for name, why in found.skipped.items())
        raise RecordingError(f"there is nothing to play; remap what is to be played, or select more: {reasons}")
    return found


def _leave_out_announcements(former: dict[str, str], found: Plan) -> None:
    """Leave out topics of streams whose pictures go back into frames: their server publishes there."""
    pictures = [old for name, old in former.items() if found.wanted[name].kind == FRAMES and old.endswith(_RAW)]
    announced = {old.removesuffix(_RAW) for old in pictures}
    for name, old in list(former.items()):
        if old in announced:
            del found.wanted[name], former[name]
            found.skipped[old] = _ANNOUNCES


def _told(what: str, endpoint: str, *logs: LogReader) -> tuple[str, ...]:
    """Return what logs say of those who published to an endpoint, or its keys; each once."""
    channels = (channel for log in logs for channel in log.channels if channel.endpoint == endpoint)
    return tuple(dict.fromkeys(getattr(channel.source, what) for channel in channels))


def _look_inside(log: LogReader, former: Mapping[str, str], found: Plan) -> None:
    """Find the first picture of each stream, and the queues whose events have no payloads."""
    infos = log.endpoints
    pictures = {old for name, old in former.items() if found.wanted[name].kind == FRAMES}
    queues = {
        old
        for name, old in former.items()
        if found.wanted[name].kind == QUEUE.name and infos[old].largest <= HEAD_BYTES  # messages may be empty
    }
    new = {old: name for name, old in former.items()}
    messages = iter(log if pictures or queues else ())
    while (pictures or queues) and (message := next(messages, None)) is not None:
        if message.endpoint in pictures:
            name = new[message.endpoint]
            found.wanted[name] = found.wanted[name]._replace(sample=message.data)
            pictures.discard(message.endpoint)
        elif message.endpoint in queues and has_payload(message.data):
            queues.discard(message.endpoint)
    for old in queues:
        del found.wanted[new[old]]
        found.skipped[old] = NO_PAYLOAD
