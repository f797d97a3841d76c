"""The public names and signatures of Python code, pinned: what is not here is not promised.

What is here does not change silently. test_public_classes.py pins classes, test_stubs.py what is compiled, and
test_errors_page.py errors.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import msgq
import msgq.channel
import msgq.records
import msgq.workqueue
import visionipc
from msgq import bridge, recording, simulation, stats
from msgq.common import selection
from msgq.common import stats as stat_values
from msgq.common.stats import channel, endpoint, meter, records, topic, workqueue
from msgq.impl.fake import workqueue as fake_workqueue
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
    simulation.Exploration: "orders complete choices error comparison",
    simulation.SimulationEvent: "time_ns kind node endpoint number sender payload",
    recording.PlayerStats: "messages bytes passes position late_ns late_max_ns unplayed by_kind",
    recording.Difference: "endpoint index field time_a time_b a b",
    recording.EndpointComparison: "a b different",
    recording.Comparison: "endpoints first",
    recording.Tolerance: "absolute relative",
}
FUNCTIONS = {
    msgq.pub_sock: "(endpoint, segment_size=0, *, schema=None, backend=None, trust=None, tracked=None, prefix=None)",
    msgq.sub_sock: "(endpoint, poller=None, addr='127.0.0.1', conflate=False, timeout=None, segment_size=0, *, "
    "passive=False, latest=False, decoded=False, backend=None, trust=None, prefix=None)",
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
    msgq.workqueue.parse_dead_letter: "(message)",
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
    "max_chunk_bytes=268435456, clock='host', schemas=None, storage_options=None)",
    recording.LogReader.between: "(self, start=None, end=None)",
    recording.LogReader.times: "(self, endpoint)",
    recording.LogReader.to_numpy: "(self, endpoint)",
    recording.LogReader.to_pandas: "(self, endpoint, datetimes=False)",
    recording.LogReader.batches: "(self, columns=None, rows=65536)",
    recording.LogReader.decoded: "(self)",
    simulation.Simulation: "(seed=0, faults=None, fault_schedule=(), choices=None, segment_size=0)",
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
    selection.SelectedEndpoints: "(included=None, excluded=())",
    selection.parse_pattern: "(text)",
    selection.compile_expression: "(text)",
    recording.compare: "(a, b, tolerances=mappingproxy({}), *, endpoints=None, time_tolerance=None)",
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
        "SimulationEvent",
        "MessageSource",
        "Trace",
        "TraceComparison",
        "explore",
    }
    assert simulation.SentMessage._fields == ("time_ns", "node", "endpoint", "data", "source", "schema", "priority")
    assert simulation.PlaybackMessage._fields == ("time_ns", "endpoint", "data", "age_ns", "source", "schema")
    assert simulation.MessageSource._fields == ("kind", "publisher", "key", "options")
    members = {"add", "clock", "decisions", "on", "play", "prepare"}
    members |= {"run", "run_until_idle", "sent_messages", "sent_on", "trace"}
    assert public(simulation.Simulation) == members  # seed is set by __init__
    trace = {"add_event", "add_message", "count_common_events", "events", "left_out", "select_last", "simulation"}
    assert public(simulation.Trace) == trace
    assert public(simulation.TraceComparison) == {"to_mermaid", "to_svg", "write_report"}


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
        named |= there - {"ChannelMessage", "PublisherInfo"}  # parts of messages are no statistics
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


def test_channel_package_has_pinned_names() -> None:
    assert set(msgq.channel.__all__) == {"Broadcast", "Channel", "Node"}
    assert msgq.channel.Broadcast._fields == ("publisher", "subscriber")
    assert msgq.Channel is msgq.channel.Channel
    assert msgq.Node is msgq.channel.Node


def test_workqueue_package_has_pinned_names() -> None:
    flags = {"O_CREAT", "O_CREX", "O_EXCL", "O_NONBLOCK"}
    helpers = {"DeadLetter", "JobClient", "JobFuture", "WorkCounts", "Worker", "parse_dead_letter"}
    assert set(msgq.workqueue.__all__) == {"Job", "Message", "MessageQueue"} | flags | helpers
    assert msgq.MessageQueue is msgq.workqueue.MessageQueue
    assert (msgq.Worker, msgq.JobClient) == (msgq.workqueue.Worker, msgq.workqueue.JobClient)
    assert msgq.workqueue.Message is fake_workqueue.Message
    counts = ["succeeded", "retried", "failed", "postponed", "expired", "unanswered"]
    assert [field.name for field in dataclasses.fields(msgq.workqueue.WorkCounts)] == counts
    assert msgq.workqueue.DeadLetter._fields == ("data", "reason", "deliveries")


def test_records_package_has_pinned_names() -> None:
    kinds = {"Blackboard", "Board", "RecordQueue", "Seqlock", "SeqlockVector", "StageTracer", "tracked"}
    assert set(msgq.records.__all__) == kinds | {"Changes", "Value"}
    for name in kinds:
        assert getattr(msgq, name) is getattr(msgq.records, name)
    assert msgq.records.Changes._fields == ("indices", "rows", "times", "counts")
    value = {"data", "time", "count", "age_ns", "owner", "alive"}
    fields = {field.name for field in dataclasses.fields(msgq.records.Value) if field.repr}
    assert fields | public(msgq.records.Value) == value
