"""The public names and signatures, pinned: what is not here is not promised, what is here does not change silently."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest

import msgq
import visionipc
from msgq import bridge, errors, recording, simulation, stats
from msgq.common import selection
from msgq.common import stats as stat_values
from msgq.common.stats import channel, endpoint, meter, records, topic, workqueue
from msgq.impl import backend
from msgq.impl.base import core
from msgq.topic import api, fake_events
from tests.cases import each_case

TOP = {
    "NOBLOCK",
    "NO_TRAVERSAL_LIMIT",
    "POLLERR",
    "POLLIN",
    "POLLOUT",
    "Again",
    "Blackboard",
    "Board",
    "Channel",
    "Context",
    "Event",
    "IpcError",
    "JobClient",
    "MessageQueue",
    "MsgqError",
    "MultiplePublishersError",
    "Node",
    "Poller",
    "PubMaster",
    "PubSocket",
    "RecordQueue",
    "Schema",
    "Seqlock",
    "SeqlockVector",
    "SocketEventHandle",
    "SubMaster",
    "SubSocket",
    "StageTracer",
    "Worker",
    "context",
    "delete_fake_prefix",
    "drain_sock_raw",
    "errors",
    "fake_event_handle",
    "get_fake_prefix",
    "get_include",
    "pub_sock",
    "set_fake_prefix",
    "stats",
    "sub_sock",
    "time_ns",
    "to_host_time",
    "toggle_fake_events",
    "tracked",
    "wait_for_one_event",
    "zeromq_address",
    "__version__",
}
ERRORS = {
    "MsgqError": "Exception",
    "MsgqWarning": "UserWarning",
    "MissingAttributeError": "MsgqError AttributeError",
    "IpcError": "MsgqError",
    "MultiplePublishersError": "IpcError",
    "EndpointNameError": "IpcError ValueError",
    "UnknownTopicError": "IpcError KeyError",
    "InvalidValueError": "IpcError ValueError",
    "InvalidTypeError": "IpcError TypeError",
    "SocketOptionError": "IpcError AttributeError",
    "StateError": "IpcError",
    "SegmentError": "IpcError",
    "SegmentNotFoundError": "SegmentError FileNotFoundError",
    "SegmentExistsError": "SegmentError FileExistsError",
    "SegmentAccessError": "SegmentError PermissionError",
    "SegmentSizeError": "SegmentError",
    "LayoutVersionError": "SegmentError",
    "CorruptSegmentError": "SegmentError",
    "MessageSizeError": "IpcError ValueError",
    "MessageTooLargeError": "MessageSizeError",
    "EndpointClosedError": "IpcError",
    "ChannelMismatchError": "SegmentError",
    "PoolExhaustedError": "IpcError BlockingIOError",
    "TooManyViewsError": "IpcError",
    "TooManyPublishersError": "IpcError",
    "TooManySubscribersError": "IpcError",
    "LostMessagesError": "IpcError",
    "SchemaMismatchError": "IpcError",
    "QueueFullError": "IpcError Full",
    "QueueAccessError": "IpcError",
    "QueueBusyError": "IpcError",
    "QueueMismatchError": "SegmentError",
    "LeaseExpiredError": "IpcError",
    "JobFailedError": "IpcError",
    "JobCancelledError": "IpcError",
    "TooManyHandlesError": "IpcError",
    "RecordMismatchError": "SegmentError",
    "RecordIndexError": "IpcError IndexError",
    "RecordTypeError": "IpcError TypeError",
    "MultipleWritersError": "IpcError",
    "TooManyWritersError": "IpcError",
    "KeyTakenError": "IpcError",
    "BoardFullError": "IpcError",
    "BoardKeyError": "IpcError KeyError",
    "StreamNotFoundError": "IpcError LookupError",
    "MissingLibraryError": "MsgqError ImportError",
    "ForkedSocketError": "IpcError",
    "ConcurrentUseError": "IpcError",
    "WaitTimeoutError": "IpcError TimeoutError",
    "InterruptedWaitError": "IpcError InterruptedError",
    "EventTimeoutError": "WaitTimeoutError RuntimeError",
    "EventError": "IpcError RuntimeError",
    "ControllerDiedError": "EventError",
    "DeadlockError": "IpcError",
    "RecordingError": "MsgqError",
    "UnknownEndpointError": "RecordingError KeyError",
    "SparkError": "MsgqError",
    "Again": "IpcError BlockingIOError",
    "BackendNotAvailableError": "IpcError ImportError",
}
RECORDS = {
    stats.Participant: "pid thread_id start_time name alive",
    stats.PublisherStats: "endpoint messages bytes dropped",
    stats.SubscriberStats: "endpoint received lost resets",
    stats.SubscriberInfo: "participant received lost resets lag_bytes",
    stats.TopicStats: "endpoint path data_bytes publisher publisher_kind messages bytes write_position subscribers "
    "stock_subscribers schema created_ns unlisted tracked",
    stats.TopicCounts: "messages bytes position_bytes subscribers lost",
    stats.ChannelPublisher: "participant node slots slot_bytes sent bytes refused evicted messages path pool_bytes "
    "left superseded",
    stats.ChannelSubscriber: "participant node cursor lag received lost resets views_held",
    stats.ViewHolder: "participant node views outdated oldest_ns",
    stats.ChannelStats: "name prefix path kind capacity max_publishers max_subscribers stamps messages creator "
    "created_ns schema hub_bytes pool_bytes publishers subscribers viewers opened orphans",
    stats.QueueHandleInfo: "participant row sent received acknowledged returned refused pending_slots taken waits",
    stats.QueueMessage: "priority number deliveries sent_time origin_time data",
    stats.QueueStats: "name prefix path bytes mode creator created_ns max_messages max_message_size schema depth "
    "in_flight delayed pending_slots free_slots corrupt_slots lost_slots "
    "oldest_ns oldest_age_ns priorities redelivered most_deliveries leases expired_leases "
    "sent received acknowledged returned refused handles events events_lost",
    stats.RecordWriterInfo: "participant row written locked keys",
    stats.RecordKeyInfo: "key owner count bytes time_ns age_ns",
    stats.RecordStats: "name prefix path bytes mode kind creator created_ns length item_bytes copies exclusive schema "
    "written elements_written locked locked_by_dead last_ns last_age_ns last_index has_waiters key_count keys writers",
    stats.EndpointStats: "kind endpoint path bytes participants messages lost schema created_ns stats",
    stats.EndpointCounts: "messages bytes lost received",
    stats.Distribution: "count mean min p50 p90 p99 p999 max",
    stats.MeterReading: "endpoint messages bytes lost seconds span_s periods_us sizes delays_us "
    "without_timestamp negative_delays measured_until",
    channel.PublisherInfo: "name pid",
    channel.ChannelMessage: "position publish_time origin_time publisher",
    msgq.Schema: "name encoding data identity layout version schema_encoding",
    bridge.FlowStats: "topic direction host messages bytes lost dropped state",
    recording.EndpointInfo: "endpoint schema messages bytes first_time last_time lost epochs largest tracked kind "
    "options publishers",
    recording.Problem: "path offset reason errno",
    recording.Undecoded: "data reason",
    recording.Recovery: "path output changed messages chunks cut_bytes damaged_bytes actions remaining",
    recording.Finding: "path offset severity rule text",
    simulation.Fault: "kind endpoint message at delay",
    simulation.Faults: "drop delay duplicate reorder lap restart delay_max",
    visionipc.Geometry: "format width height stride uv_offset size channels",
    visionipc.ClientStats: "lost dropped connections buffers",
    visionipc.StreamStats: "endpoint geometry buffers held published dropped clients taken_back",
    simulation.Exploration: "orders complete choices error",
    recording.PlayerStats: "messages bytes passes position late_ns late_max_ns unplayed by_kind",
    recording.Difference: "endpoint index field time_a time_b a b",
    recording.EndpointComparison: "a b different",
    recording.Comparison: "endpoints first",
    recording.Tolerance: "absolute relative",
}
FUNCTIONS = {
    msgq.pub_sock: "(endpoint, segment_size=0, *, schema=None, backend=None, trust=None, tracked=None, prefix=None)",
    msgq.sub_sock: "(endpoint, poller=None, addr='127.0.0.1', conflate=False, timeout=None, segment_size=0, *, "
    "passive=False, latest=False, backend=None, trust=None, prefix=None)",
    msgq.zeromq_address: "(endpoint, host='127.0.0.1')",
    msgq.drain_sock_raw: "(sock, wait_for_one=False)",
    visionipc.to_rgb: "(data, geometry)",
    visionipc.FrameSync: "(clients, tolerance_ns)",
    visionipc.FrameSync.recv: "(self, timeout_ms=100)",
    visionipc.FrameSync.arecv: "(self)",
    visionipc.FrameSync.close: "(self)",
    msgq.delete_fake_prefix: "()",
    msgq.fake_event_handle: "(endpoint, identifier=None, override=True, enable=False)",
    msgq.get_fake_prefix: "()",
    msgq.get_include: "()",
    msgq.set_fake_prefix: "(prefix)",
    msgq.toggle_fake_events: "(enabled)",
    stats.channel: "(name, prefix=None)",
    stats.channels: "(prefix=None)",
    stats.channel_inodes: "(prefix=None)",
    stats.endpoint: "(name, prefix=None)",
    stats.endpoints: "(prefix=None)",
    stats.endpoint_inodes: "(prefix=None)",
    stats.queue: "(name, prefix=None)",
    stats.queues: "(prefix=None)",
    stats.queue_inodes: "(prefix=None)",
    stats.queue_messages: "(name, prefix=None, limit=None)",
    stats.record: "(name, prefix=None)",
    stats.records: "(prefix=None)",
    stats.record_inodes: "(prefix=None)",
    stats.topic: "(endpoint, prefix=None)",
    stats.topics: "(prefix=None)",
    stats.topic_inodes: "(prefix=None)",
    bridge.Bridge: "(out=(), into=None, segment_size=0)",
    bridge.Bridge.run: "(self, seconds=None)",
    bridge.Bridge.stop: "(self)",
    bridge.Bridge.flows: "(self)",
    bridge.Bridge.close: "(self)",
    recording.recover: "(path, output=None, *, in_place=False, max_chunk_bytes=268435456)",
    recording.reindex: "(path, output=None, *, in_place=False, max_chunk_bytes=268435456)",
    recording.examine: "(path, max_chunk_bytes=268435456)",
    recording.LogReader: "(*paths, endpoints=None, exclude=None, start=None, end=None, span=None, "
    "max_chunk_bytes=268435456, clock='host', schemas=None)",
    recording.LogReader.between: "(self, start=None, end=None)",
    recording.LogReader.times: "(self, endpoint)",
    recording.LogReader.to_numpy: "(self, endpoint)",
    recording.LogReader.to_pandas: "(self, endpoint, datetimes=False)",
    recording.LogReader.batches: "(self, columns=None, rows=65536)",
    recording.LogReader.decoded: "(self)",
    simulation.Simulation: "(seed=0, faults=None, fault_schedule=(), choices=None)",
    simulation.Simulation.add: "(self, function, *args, name=None)",
    simulation.Simulation.on: "(self, endpoint, function, *, name=None)",
    simulation.Simulation.play: "(self, recording)",
    simulation.Simulation.run: "(self, until=None)",
    simulation.Simulation.sent_on: "(self, endpoint)",
    visionipc.get_endpoint_name: "(name, stream)",
    simulation.explore: "(scenario, limit=10000, *, fault_schedule=())",
    recording.Player: "(log, *, start=0.0, duration=None, time_source='publish_time', rate=1.0, loops=1, "
    "remap=mappingproxy({}), start_paused=False, wait_for_readers=False, clock_endpoint=None, clock_rate=100.0, "
    "backend=None, prefix=None, segment_size=0, take_over=False, clock=None)",
    recording.Player.run: "(self)",
    recording.Player.pause: "(self)",
    recording.Player.resume: "(self)",
    recording.Player.step: "(self, count=1)",
    recording.Player.seek: "(self, position)",
    recording.Player.stop: "(self)",
    recording.Player.close: "(self)",
    recording.Player.stats: "(self)",
    recording.playback_messages: "(log, time_source='publish_time', remap=mappingproxy({}))",
    recording.replay: "(log, *programs, seed=0, time_source='publish_time', remap=mappingproxy({}), faults=None, "
    "idle_timeout=10.0, max_runtime=60.0)",
    selection.SelectedEndpoints: "(wanted=None, unwanted=())",
    selection.parse_pattern: "(text)",
    selection.compile_expression: "(text)",
    recording.compare: "(a, b, tolerances=mappingproxy({}), *, endpoints=None, time_tolerance=None)",
}
# What is written in Python: the arguments that make one, its methods, its plain attributes.
MASTERS = {
    msgq.SubMaster: {
        "(topics, poll=None, ignore_alive=(), ignore_avg_freq=(), ignore_valid=(), addr='127.0.0.1', frequency=None, "
        "*, decoders=mappingproxy({}), validators=mappingproxy({}), keep_all=(), segment_sizes=mappingproxy({}), "
        "clock=None, connect=True, prefix=None)",
        "all_alive(self, topics=None)",
        "all_checks(self, topics=None)",
        "all_freq_ok(self, topics=None)",
        "all_valid(self, topics=None)",
        "close(self)",
        "lost",
        "update(self, timeout=100)",
        "update_msgs(self, now, messages)",
        *["alive", "data", "decode_errors", "frame", "freq_ok", "messages", "recv_frame", "recv_time", "seen"],
        *["updated", "valid"],
    },
    msgq.PubMaster: {
        "(topics, *, encoders=mappingproxy({}), segment_sizes=mappingproxy({}), prefix=None)",
        "all_readers_updated(self, topic)",
        "close(self)",
        "send(self, topic, data)",
        "wait_for_readers(self, topics=None, timeout=1.0, n=None)",
    },
}
_LAYOUT = "format=<FrameFormat.NV12: 0>, channels=1, *, huge_pages=False)"
# The same of visionipc; () is a property.
VISIONIPC = {
    visionipc.VisionIpcServer: {
        "": "(name, *, prefix=None)",
        "close": "(self)",
        "create_buffers": f"(self, type, num, width, height, {_LAYOUT}",
        "create_buffers_with_sizes": f"(self, type, num, width, height, size, stride, uv_offset, {_LAYOUT}",
        "frame": "",  # compiled: test_stubs has its signature
        "name": "",
        "send": "(self, type, data, frame_id=0, timestamp_sof=0, timestamp_eof=0)",
        "start_listener": "(self)",
        "stats": "(self, type)",
    },
    visionipc.VisionIpcClient: {
        "": "(name, type, conflate, context=None, *, prefix=None)",
        "areceive": "(self)",
        "arecv": "(self)",
        "stats": "(self)",
        "available_streams": "(name, block=True, *, prefix=None)",
        "close": "(self)",
        "connect": "(self, blocking)",
        "dropped": "",
        "endpoint": "",
        "fileno": "(self)",
        "frame": "(self, timeout_ms=-1)",
        "is_connected": "(self)",
        "recv": "",  # compiled: test_stubs has its signature
        **dict.fromkeys(["width", "height", "stride", "uv_offset", "buffer_len", "num_buffers", "format", "lost"], ""),
        **dict.fromkeys(["frame_id", "timestamp_sof", "timestamp_eof", "valid"], ""),
    },
}
# The same of what is compiled; "" is a property.
METHODS = {
    visionipc.VisionBuf: {
        "release": "(self, /)",
        "to_rgb": "(self, /)",
        "valid": "(self, /)",
        **dict.fromkeys(["width", "height", "stride", "uv_offset", "format", "idx", "fd", "leased"], ""),
        **dict.fromkeys(["data", "array", "image", "planes", "frame_id", "timestamp_sof", "timestamp_eof"], ""),
        **dict.fromkeys(["valid_frame", "origin_time", "publish_time"], ""),
    },
    visionipc.OutgoingFrame: {
        **dict.fromkeys(["data", "array", "image", "planes", "dropped"], ""),
        **dict.fromkeys(["frame_id", "timestamp_sof", "timestamp_eof", "valid"], ""),
    },
    msgq.Context: {"closed": "", "term": "(self, /)"},
    msgq.PubSocket: {
        "all_readers_updated": "(self, /)",
        "close": "(self, /, linger=None)",
        "closed": "",
        "connect": "(self, /, context, endpoint, segment_size=0, *, mode=None, schema=None, trust=None, tracked=None, "
        "prefix=None)",
        "endpoint": "",
        "linger": "",
        "loan": "(self, /, size, *, origin_time=0)",
        "reserve": "(self, /, size, *, origin_time=0)",
        "send": "(self, data, /, flags=0, copy=True, *, origin_time=0)",
        "send_many": "(self, /, messages, *, origin_time=0)",
        "sndhwm": "",
        "sndtimeo": "",
        "stats": "(self, /)",
        "tracked": "",
        "unlink": "(self, /)",
        "wait_for_readers": "(self, /, timeout=1.0, interval=0.001, n=None)",
    },
    msgq.SubSocket: {
        "areceive": "(self, /)",
        "arecv": "(self, /)",
        "close": "(self, /, linger=None)",
        "closed": "",
        "conflate": "",
        "connect": "(self, /, context, endpoint, address=b'127.0.0.1', conflate=False, "
        "segment_size=0, *, mode=None, passive=False, latest=False, spin_us=None, trust=None, prefix=None)",
        "endpoint": "",
        "fileno": "(self, /)",
        "linger": "",
        "lost": "",
        "rcvhwm": "",
        "rcvtimeo": "",
        "receive": "(self, /, non_blocking=False, *, timeout=None)",
        "receive_array": "(self, /, dtype, limit=None, wait_for_one=False)",
        "receive_into": "(self, /, buffer, non_blocking=False)",
        "receive_many": "(self, /, limit=None, wait_for_one=False)",
        "receive_tracked": "(self, /, non_blocking=False)",
        "recv": "(self, /, flags=0, copy=True)",
        "recv_into": "(self, /, buffer, flags=0)",
        "setTimeout": "(self, /, timeout)",
        "stats": "(self, /)",
        "tracked": "",
    },
    msgq.Event: {
        "clear": "(self, /)",
        "fd": "",
        "peek": "(self, /)",
        "set": "(self, /)",
        "wait": "(self, /, timeout_s=-1)",
    },
    msgq.SocketEventHandle: {
        "close": "(self, /)",
        "enabled": "",
        "endpoint": "",
        "identifier": "",
        "recv_called_event": "",
        "recv_ready_event": "",
    },
    core.Poller: {
        "apoll": "(self, /, timeout)",
        "poll": "(self, /, timeout)",
        "registerSocket": "(self, /, socket)",
        "unregisterSocket": "(self, /, socket)",
    },
}


def public(namespace: object) -> set[str]:
    return {name for name in dir(namespace) if not name.startswith("_")}


def defined_in(module: types.ModuleType) -> set[str]:
    return {name for name in public(module) if getattr(getattr(module, name), "__module__", None) == module.__name__}


def plain_signature(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def test_msgq_package_has_pinned_names() -> None:
    assert all(hasattr(msgq, name) for name in TOP)  # from now on the lazy ones are there, and their modules
    assert set(msgq.__all__) == TOP
    assert sorted(msgq.__all__) == sorted(set(msgq.__all__))
    submodules = {name for name in public(msgq) if isinstance(getattr(msgq, name), types.ModuleType)}
    assert public(msgq) - submodules <= TOP
    assert set(api.__all__) | set(fake_events.__all__) <= TOP


def test_error_classes_have_pinned_base_classes() -> None:
    assert defined_in(errors) == set(ERRORS)
    bases = {name: " ".join(base.__name__ for base in getattr(errors, name).__bases__) for name in ERRORS}
    assert bases == ERRORS


@each_case("record", RECORDS)
def test_dataclasses_are_frozen_and_have_pinned_fields(record: Any) -> None:
    assert [field.name for field in dataclasses.fields(record)] == RECORDS[record].split()
    assert record.__dataclass_params__.frozen


def test_simulation_module_has_pinned_names() -> None:
    assert set(simulation.__all__) == {
        "Exploration",
        "Fault",
        "Faults",
        "PlaybackMessage",
        "SentMessage",
        "Simulation",
        "MessageSource",
        "explore",
    }
    assert simulation.SentMessage._fields == ("time_ns", "node", "endpoint", "data", "source", "schema", "priority")
    assert simulation.PlaybackMessage._fields == ("time_ns", "endpoint", "data", "age_ns", "source", "schema")
    assert simulation.MessageSource._fields == ("kind", "publisher", "key", "options")
    members = {"add", "clock", "decisions", "on", "play", "prepare"}
    members |= {"run", "run_until_idle", "sent_messages", "sent_on"}
    assert public(simulation.Simulation) == members  # seed is set by __init__


def test_recording_module_has_pinned_names() -> None:
    reading = {"Attachment", "EndpointInfo", "Header", "LogReader", "Message", "Metadata", "Problem"}
    reading |= {"DecodedBatch", "Schemas", "Undecoded"}
    playing = {"Player", "PlayerStats", "playback_messages", "replay"}
    comparing = {"Comparison", "Difference", "EndpointComparison", "Tolerance", "compare"}
    recorded = {"FrameStream", "RecordingLimits", "Recorder", "RecorderStats", "Writer"}
    mending = {"Finding", "Recovery", "examine", "recover", "reindex"}
    assert set(recording.__all__) == reading | playing | comparing | recorded | mending
    names = ("endpoint", "data", "log_time", "publish_time", "sequence", "epoch", "schema", "origin_time", "source")
    assert recording.Message._fields == names
    members = {
        "to_numpy",
        "batches",
        "between",
        "decoded",
        "end_time",
        "endpoints",
        "full_history",
        "messages",
    }
    members |= {"attachments", "channels", "headers", "metadata", "missing_endpoints", "size", "split", "start_time"}
    members |= {"iter_batches", "counts", "decoded_batches", "has_statistics", "summarize", "to_arrow", "to_pandas"}
    members |= {"times", "to_parquet", "to_polars"}
    assert public(recording.LogReader) == members  # files and problems are set by __init__
    members = {"close", "pause", "paused", "rate", "resume", "run", "seek", "set_rate", "skip", "stats", "step", "stop"}
    assert public(recording.Player) == members  # begin, end, endpoints and skipped are set by __init__


def test_stats_module_has_pinned_names() -> None:
    named = set()
    for module in (stat_values, topic, channel, records, workqueue, endpoint, meter):
        there = {record.__name__ for record in RECORDS if record.__module__ == module.__name__}
        assert defined_in(module) - {"Tracked"} == there  # a tuple: one is made for each message
        named |= there - {"ChannelMessage", "PublisherInfo"}  # what comes with a message is no statistic
        assert all(getattr(stats, name) is getattr(module, name) for name in there & named)
    assert topic.Tracked._fields == ("data", "publish_time", "origin_time")
    kinds = ("endpoint", "topic", "channel", "queue", "record")
    functions = {f"{kind}{what}" for kind in kinds for what in ("", "s", "_inodes")} | {"queue_messages"}
    of_any_kind = {"endpoint", "endpoints", "endpoint_inodes"}  # defined in msgq.kinds.snapshots
    assert defined_in(stats) == functions - of_any_kind
    assert set(stats.__all__) == named | functions


@each_case("function", FUNCTIONS)
def test_functions_have_pinned_signatures(function: Any) -> None:
    assert plain_signature(function) == FUNCTIONS[function]


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_methods_have_pinned_signatures(kind: Any) -> None:
    members = {name: inspect.getattr_static(kind, name) for name in public(kind)}
    found = {name: plain_signature(member) if callable(member) else "" for name, member in members.items()}
    assert found == METHODS[kind]


@pytest.mark.parametrize("kind", MASTERS, ids=lambda kind: kind.__name__)
def test_master_classes_have_pinned_signatures(kind: Any) -> None:
    made = kind([], connect=False) if kind is msgq.SubMaster else kind([])
    found = {plain_signature(kind)}
    for name in public(made):
        method = inspect.getattr_static(kind, name, None)
        found.add(name + plain_signature(method) if inspect.isfunction(method) else name)
    assert found == MASTERS[kind]
    documented = inspect.getdoc(kind) or ""
    for name in vars(made):
        assert name.startswith("_") or f"`{name}`" in documented
    for name in public(kind):
        assert inspect.getdoc(inspect.getattr_static(kind, name))


def test_visionipc_module_has_pinned_names() -> None:
    named = {
        "ClientStats",
        "FrameFormat",
        "FrameSync",
        "Geometry",
        "OutgoingFrame",
        "StreamStats",
        "VisionBuf",
        "VisionIpcClient",
    }
    functions = {"get_endpoint_name", "to_rgb"}
    assert set(visionipc.__all__) == named | {"VisionIpcServer", "VisionStreamType"} | functions
    formats = ["NV12", "YUV420P", "RGB24", "BGR24", "RGBA", "GRAY8", "GRAY16", "BAYER8", "FLOAT32", "RAW"]
    assert [member.name for member in visionipc.FrameFormat] == formats
    assert importlib.import_module("msgq.visionipc").__all__ == visionipc.__all__


IPC_PYX = {
    "Context",
    "Event",
    "IpcError",
    "MultiplePublishersError",
    "Poller",
    "PubSocket",
    "SocketEventHandle",
    "SubSocket",
    "delete_fake_prefix",
    "get_fake_prefix",
    "set_fake_prefix",
    "toggle_fake_events",
    "wait_for_one_event",
}


def test_stock_extension_modules_have_pinned_names() -> None:
    """Programs of 2024 to 2026 import from there; what they get is what `msgq` has."""
    ipc_pyx = importlib.import_module("msgq.ipc_pyx")
    assert set(ipc_pyx.__all__) == IPC_PYX
    assert all(getattr(ipc_pyx, name) is getattr(msgq, name) for name in IPC_PYX)
    visionipc_pyx = importlib.import_module("msgq.visionipc.visionipc_pyx")
    assert visionipc_pyx.__all__ == visionipc.__all__
    assert all(getattr(visionipc_pyx, name) is getattr(visionipc, name) for name in visionipc.__all__)


@pytest.mark.parametrize("kind", VISIONIPC, ids=lambda kind: kind.__name__)
def test_visionipc_classes_have_pinned_signatures(kind: Any) -> None:
    expected = dict(VISIONIPC[kind])
    if signature := expected.pop("", ""):
        assert plain_signature(kind) == signature
    found = {}
    for name in public(kind):
        method = inspect.unwrap(getattr(kind, name))
        found[name] = plain_signature(method) if inspect.isfunction(method) else ""
        assert not inspect.isfunction(method) or inspect.getdoc(method)
    assert found == expected


def arguments(text: str) -> list[tuple[str, str]]:
    """Return the names of parameters and their defaults, without annotations; "" is a property."""
    if not text:
        return []
    function = ast.parse(f"def f{text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    found = function.args
    positional = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(positional) - len(found.defaults)) + found.defaults
    pairs = [*zip(positional, defaults, strict=True), *zip(found.kwonlyargs, found.kw_defaults, strict=True)]
    return [(argument.arg, ast.unparse(default) if default else "") for argument, default in pairs]


@pytest.mark.parametrize("name", ["zmq", "fake"])
@pytest.mark.parametrize("kind", [msgq.Context, msgq.PubSocket, msgq.SubSocket, core.Poller])
def test_zmq_and_fake_backends_have_methods_of_default_backend(kind: Any, name: Any) -> None:
    same = getattr(backend.load_backend(name), kind.__name__)
    assert public(same) == public(getattr(backend.load_backend("msgq"), kind.__name__))
    for method_name, text in METHODS[kind].items():
        method = inspect.getattr_static(same, method_name)
        if method_name == "poll":  # which `PyzmqPoller` extends, for all backends alike
            continue
        assert not callable(method) or arguments(plain_signature(method)) == arguments(text), method_name
