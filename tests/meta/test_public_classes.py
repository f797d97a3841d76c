"""The public classes of Python code, pinned with their members and signatures, and the classes of other backends.

test_stubs.py pins the default backend's compiled classes; other backends have the same names and signatures.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import msgq
import msgq.workqueue
import visionipc
from msgq.impl import backend, records, workqueue
from msgq.impl.fake import records as fake_records
from msgq.impl.fake import workqueue as fake_workqueue
from tests.meta.test_public_names import plain_signature, public

# The arguments that make one, its methods, its plain attributes.
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
_JOB_OPTIONS = "*, retries=3, backoff=1.0, max_backoff=600.0, jitter=False, lease=None, dead_letters=None"
# The same of other classes: "" makes one; a property or plain attribute has no signature.
CLASSES: dict[Any, dict[str, str]] = {
    msgq.Channel: {
        "": "(name, *, capacity=None, publishers=None, subscribers=None, stamps=None, schema=None, "
        "strict_schema=False, create=None, passive=False, node=None, mode=None, prefix=None, trust=None)",
        **dict.fromkeys(["capacity", "stamps", "messages", "creator", "created_ns", "schema", "schema_matches"], ""),
        "claim_schema": "(self, schema)",
        "close": "(self)",
        "diagnose": "(self)",
        "stats": "(self)",
        "unlink_name": "(name, prefix=None)",
        "publisher": "(self, *, slots=None, slot_bytes=None, max_bytes=1073741824)",
        "replace_schema": "(self, schema)",
        "subscriber": "(self, *, history=0, max_views=8, conflate=False, on_lapped='oldest', on_lost='count', "
        "own=True, spin_us=None)",
        "unlink": "(self)",
    },
    msgq.Node: {
        "": "(name, *, prefix=None, trust=None)",
        "advertise": "(self, channel, config=None, **settings)",
        "close": "(self)",
        "create_mailbox": "(self, tag, config=None, **settings)",
        "join_broadcast": "(self, name, config=None, *, own=False, **settings)",
        "open_mailbox": "(self, owner, tag, config=None, **settings)",
        "subscribe": "(self, channel, config=None, **settings)",
    },
    msgq.Worker: {
        "": f"(queue, function, {_JOB_OPTIONS})",
        "run": "(self, timeout=None)",
        "stop": "(self)",
    },
    msgq.JobClient: {
        "": "(queue, *, max_pending=128, max_result_size=None)",
        "close": "(self)",
        "queue_name": "",
        "submit": "(self, data, priority=0, *, timeout=None, delay=None)",
    },
    msgq.workqueue.JobFuture: {"cancel": "(self)", "is_done": "(self)", "result": "(self, timeout=None)"},
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


ENDPOINTS = ["Context", "PubSocket", "SubSocket", "Poller"]
# Classes with another backend: modules of shared memory and of the other backend, and names.
BACKENDS = [
    *[(backend.load_backend("msgq"), backend.load_backend(name), ENDPOINTS) for name in ("zmq", "fake")],
    (workqueue, fake_workqueue, ["MessageQueue"]),
    (records, fake_records, ["SeqlockVector", "Seqlock", "Board", "Entry", "KeyObserver"]),
]


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


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_classes_have_pinned_signatures_and_docstrings(kind: Any) -> None:
    expected = dict(CLASSES[kind])
    if signature := expected.pop("", ""):
        assert plain_signature(kind) == signature
    found = {}
    for name in public(kind):
        method = inspect.unwrap(getattr(kind, name))
        found[name] = plain_signature(method) if inspect.isfunction(method) else ""
        assert inspect.getdoc(method) or inspect.isgetsetdescriptor(method)  # test_stubs has those of stubs
    assert inspect.getdoc(kind)
    assert found == expected


def signatures_of(kind: Any, is_made_by_users: bool) -> dict[str, str]:
    """Return the signatures of a class and its public members, without the mark of positional parameters."""
    members = {name: getattr(kind, name) for name in public(kind)} | ({"": kind} if is_made_by_users else {})
    return {
        name: plain_signature(member).replace(", /", "") if callable(member) else "" for name, member in members.items()
    }


@pytest.mark.parametrize(("real", "other", "names"), BACKENDS, ids=["zmq", "fake", "fake-queue", "fake-records"])
def test_backends_have_names_and_signatures_of_default_backend(real: Any, other: Any, names: list[str]) -> None:
    for name in names:
        is_made_by_users = name not in ("Entry", "KeyObserver")
        expected = signatures_of(getattr(real, name), is_made_by_users)
        assert signatures_of(getattr(other, name), is_made_by_users) == expected, name
