"""The public names and signatures of work queues, pinned as those of `test_public_names` are, on both backends."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import msgq
import msgq.workqueue
from msgq.impl.fake import workqueue as fake
from msgq.impl.workqueue import Job, MessageQueue
from tests.meta.test_public_names import plain_signature, public

OPENING = (
    "(name, flags=None, mode=None, max_messages=None, max_message_size=None, *, read=True, write=True, schema=None, "
    "prefix=None, trust=None, spin_us=None, events=None, create=None)"
)
# Methods; "" is a property.
QUEUE = {
    **dict.fromkeys(["name", "prefix", "path", "mode", "max_messages", "max_message_size", "schema", "events"], ""),
    **dict.fromkeys(["current_messages", "in_flight", "delayed_messages", "block", "closed", "endpoint"], ""),
    **dict.fromkeys(["identity", "signals_end_waits"], ""),  # for msgq.posix_ipc
    "arecv": "(self)",
    "areceive": "(self)",
    "close": "(self)",
    "fileno": "(self)",
    "notify": "(self, target, once=False, *, exclusive=False)",
    "peek": "(self, limit=None)",
    "receive": "(self, timeout=None, *, deadline=None)",
    "receive_into": "(self, buffer, timeout=None, *, deadline=None)",
    "receive_many": "(self, limit=None)",
    "send": "(self, message, priority=0, *, timeout=None, deadline=None, origin_time=0, delay=None)",
    "send_many": "(self, messages, priority=0, *, timeout=None, deadline=None, delay=None)",
    "stats": "(self)",
    "take": "(self, timeout=None, *, deadline=None, lease=None)",
    "jobs": "(self, timeout=None, *, lease=None)",
    "unlink": "(self)",
    "unlink_name": "(name, prefix=None)",
    "wait_space": "(self, timeout=None, *, deadline=None)",
}
JOB = {
    **dict.fromkeys(["data", "priority", "deliveries", "sent_time", "origin_time"], ""),
    "ack": "(self)",
    "nack": "(self, delay=None)",
}


def found_in(kind: Any) -> dict[str, str]:
    """Return the public members of a class; of what is compiled without the mark of its `self`."""
    members = {name: inspect.getattr_static(kind, name) for name in public(kind)}
    functions = {name: getattr(kind, name) for name, member in members.items() if hasattr(member, "__get__")}
    return {
        name: plain_signature(function).replace("self, /", "self") if callable(function) else ""
        for name, function in functions.items()
    }


def test_workqueue_package_has_pinned_names() -> None:
    flags = {"O_CREAT", "O_CREX", "O_EXCL", "O_NONBLOCK"}
    helpers = {"DeadLetter", "JobClient", "JobFuture", "WorkCounts", "Worker", "parse_dead_letter"}
    assert set(msgq.workqueue.__all__) == {"Job", "Message", "MessageQueue"} | flags | helpers
    assert msgq.MessageQueue is msgq.workqueue.MessageQueue
    assert (msgq.Worker, msgq.JobClient) == (msgq.workqueue.Worker, msgq.workqueue.JobClient)


def test_workers_and_clients_have_pinned_signatures() -> None:
    options = "*, retries=3, backoff=1.0, max_backoff=600.0, jitter=False, lease=None, dead_letters=None"
    assert plain_signature(msgq.Worker) == f"(queue, function, {options})"
    assert found_in(msgq.Worker) == {"run": "(self, timeout=None)", "stop": "(self)"}
    assert plain_signature(msgq.JobClient) == "(queue, *, max_pending=128, max_result_size=None)"
    assert found_in(msgq.JobClient) == {
        "close": "(self)",
        "queue_name": "",
        "submit": "(self, data, priority=0, *, timeout=None, delay=None)",
    }
    assert found_in(msgq.workqueue.JobFuture) == {
        "cancel": "(self)",
        "is_done": "(self)",
        "result": "(self, timeout=None)",
    }
    assert plain_signature(msgq.workqueue.parse_dead_letter) == "(message)"
    assert msgq.workqueue.DeadLetter._fields == ("data", "reason", "deliveries")
    counts = ["succeeded", "retried", "failed", "postponed", "expired", "unanswered"]
    assert [field.name for field in dataclasses.fields(msgq.workqueue.WorkCounts)] == counts


def test_message_queue_has_pinned_signatures() -> None:
    assert plain_signature(MessageQueue) == OPENING
    assert found_in(MessageQueue) == QUEUE


def test_job_has_pinned_signatures() -> None:
    assert found_in(Job) == JOB


def test_fake_queue_has_names_and_signatures_of_real_queue() -> None:
    assert plain_signature(fake.MessageQueue) == OPENING
    assert found_in(fake.MessageQueue) | {"signals_end_waits": ""} == QUEUE  # there it is a plain attribute


def test_queue_message_is_pair_of_data_and_priority() -> None:
    assert msgq.workqueue.Message is fake.Message
    assert public(msgq.workqueue.Message) == {
        *("data", "priority", "deliveries", "sent_time", "origin_time"),
        *("n_fields", "n_sequence_fields", "n_unnamed_fields", "count", "index"),
    }


@pytest.mark.parametrize("kind", [MessageQueue, Job, msgq.workqueue.Message], ids=lambda kind: kind.__name__)
def test_queue_members_have_docstrings(kind: Any) -> None:
    assert inspect.getdoc(kind)
    for name in public(kind) - {"n_fields", "n_sequence_fields", "n_unnamed_fields"}:
        assert inspect.getdoc(inspect.getattr_static(kind, name)), name
