"""Plan of a playback: endpoints to create, and reasons for skipped endpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgq.common.texts import join_first_texts
from msgq.errors import InvalidValueError, RecordingError
from msgq.kinds import find_kind
from msgq.kinds.playback import EndpointSpec, UnplayableError
from msgq.recording.log_reader import LogReader
from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.player.log_index import LogIndex, may_match_endpoints
from msgq.recording.player.remapping import EndpointRemapping

_FRAMES_ANNOUNCED_REASON = "the topic announces frames; playing the pictures announces them again"
_INVALID_NAME_REASON = "the name is not valid for an endpoint; remap it"
_NOT_INDEXED_REASON = "the index of the file does not list this endpoint; reindex the file"
_BATCH_ROWS = 4096


class PlaybackPlan(NamedTuple):
    """Plan of a playback.

    Attributes:
        endpoint_specs: endpoints to create, by new name.
        skip_reasons: reasons for skipped endpoints, by recorded name.
        recorded_names: recorded names, by new name.
        log_index: index of the log.
    """

    endpoint_specs: dict[str, EndpointSpec]
    skip_reasons: dict[str, str]
    recorded_names: dict[str, str]
    log_index: LogIndex

    def create_endpoints(self, create: Callable[[EndpointSpec], object]) -> None:
        """Create all endpoints. Skip those for which `create` raises `UnplayableError`."""
        for name, spec in list(self.endpoint_specs.items()):
            try:
                create(spec)
            except UnplayableError as error:
                self.skip_endpoint(name, str(error))

    def skip_endpoint(self, name: str, reason: str) -> None:
        """Skip an endpoint, given by its new name."""
        del self.endpoint_specs[name]
        self.skip_reasons[self.recorded_names.pop(name)] = reason

    def add_skipped_endpoints(self, endpoints: Iterable[str]) -> None:
        """Add endpoints whose messages were omitted. Most of them have a reason already."""
        for endpoint in endpoints:
            self.skip_reasons.setdefault(endpoint, _NOT_INDEXED_REASON)


def make_playback_plan(log: LogReader, before: LogReader, names: EndpointRemapping) -> PlaybackPlan:
    """Return the plan for a log. Reads only the necessary parts of the log.

    Args:
        log: log to play.
        before: reader of changes to vectors and boards before the start. The changed vectors and boards belong to the
            plan, too.
        names: new names of endpoints.

    Raises:
        InvalidValueError: a remapped endpoint does not exist, or two endpoints have one new name.
        RecordingError: no endpoint of the log can be played.
    """
    log_index = LogIndex(log)
    infos = dict(sorted({**LogIndex(before).endpoints, **log_index.endpoints}.items()))
    if unused := names.find_unused_rules(infos):
        raise InvalidValueError(f"remapped endpoint not found in the recording: {', '.join(unused)}")
    playback_plan = PlaybackPlan({}, {}, {}, log_index)
    for old, info in infos.items():
        name = names.find_new_name(old, info.kind)
        if name is None:
            playback_plan.skip_reasons[old] = _INVALID_NAME_REASON
            continue
        if name in playback_plan.recorded_names:
            text = (
                f"endpoints {playback_plan.recorded_names[name]!r} and {old!r} would both be played to this name; "
                "remap one"
            )
            raise InvalidValueError(text, name)
        playback_plan.recorded_names[name] = old
        playback_plan.endpoint_specs[name] = EndpointSpec(
            name,
            info.kind,
            info.schema,
            info.options,
            info.largest_payload_bytes,
            info.is_tracked,
            _collect_source_values("publisher", old, log),
            tuple(key for key in _collect_source_values("key", old, before, log) if key),
            changes_schema=info.changes_schema,
        )
    _skip_announcements(playback_plan)
    _skip_unplayable_endpoints(log, playback_plan)
    if not playback_plan.endpoint_specs:
        reasons = join_first_texts(
            (f"{name!r}: {reason}" for name, reason in playback_plan.skip_reasons.items()), separator="; "
        )
        raise RecordingError(f"no endpoint can be played; remap endpoints or select more: {reasons}")
    return playback_plan


def _skip_announcements(playback_plan: PlaybackPlan) -> None:
    """Skip topics that a writer publishes by itself, for example the announcements of a frame server."""
    announcements = (
        kind.playback.find_announced_endpoint(old)
        for name, old in playback_plan.recorded_names.items()
        if (kind := find_kind(playback_plan.endpoint_specs[name].kind)) is not None
    )
    announced = set(announcements)
    for name, old in list(playback_plan.recorded_names.items()):
        if old in announced:
            playback_plan.skip_endpoint(name, _FRAMES_ANNOUNCED_REASON)


def _collect_source_values(field: str, endpoint: str, *logs: LogReader) -> tuple[str, ...]:
    """Return the different values of a source field of an endpoint: its publishers or keys."""
    channels = (channel for log in logs for channel in log.channels if channel.endpoint == endpoint)
    channels = (channel for channel in channels if not channel.boundary_losses.unrecorded_messages)
    return tuple(dict.fromkeys(getattr(channel.message_source, field) for channel in channels))


def _skip_unplayable_endpoints(log: LogReader, playback_plan: PlaybackPlan) -> None:
    """Check the first messages of kinds that require it, and skip endpoints that cannot be played."""
    new = {old: name for name, old in playback_plan.recorded_names.items()}
    samples = {}
    for old, name in new.items():
        kind = find_kind(playback_plan.endpoint_specs[name].kind)
        if kind is not None and kind.playback.open_sample is not None:
            samples[old] = kind.playback.open_sample()
    sampled_endpoints = set(samples)
    for endpoint, data in _iter_first_messages(log, sampled_endpoints):
        if samples[endpoint].add(data):
            sampled_endpoints.discard(endpoint)
    for endpoint, sample in samples.items():
        name = new[endpoint]
        playback_plan.endpoint_specs[name] = playback_plan.endpoint_specs[name]._replace(sample_message=sample.data)
        if sample.refusal_reason:
            playback_plan.skip_endpoint(name, sample.refusal_reason)


def _iter_first_messages(log: LogReader, endpoints: set[str]) -> Iterator[tuple[str, bytes]]:
    """Yield messages of endpoints, until the caller has removed all endpoints from the set."""
    view, columns = log.log_view, ScanColumns(_BATCH_ROWS)
    for file, block in view.plan_wanted_blocks(by_time=True):
        if not endpoints:
            return
        if block.channel_ids and not any(may_match_endpoints(file, number, endpoints) for number in block.channel_ids):
            continue
        for content in view.scan_block(file, block, columns):
            rows = slice(columns.row_count)
            offsets = columns.offset[rows]
            ends = (offsets + columns.length[rows]).tolist()
            for code, begin, end in zip(columns.channel_code[rows].tolist(), offsets.tolist(), ends, strict=True):
                endpoint = view.channels[code].endpoint
                if endpoint in endpoints:
                    yield endpoint, content[begin:end]
