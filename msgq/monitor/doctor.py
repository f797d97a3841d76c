"""Checks of `msgq doctor`: clock, round trip, files, and leftovers of dead processes."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import msgq
from msgq.common import shm_paths
from msgq.common.formatting import format_bytes
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.errors import MsgqError
from msgq.impl.backend import resolve_prefix
from msgq.impl.base import clock
from msgq.impl.ring.core import unlink_topic
from msgq.kinds import kind_of, list_stored_kinds, maintenance
from msgq.kinds.cleanup import ERROR, WARNING, EndpointIssue
from msgq.monitor.machine import MACHINE_CHECKS, DoctorCheck
from msgq.stats import endpoints
from msgq.topic import cleanup as topic_cleanup
from msgq.topic import leftovers

_ISSUES_SHOWN_MAX = 10  # issues of a check that are shown, errors first


def run_checks(prefix: str | None, fix: bool) -> Iterator[DoctorCheck]:
    """Yield the result of each check. `fix`: first remove leftovers of dead processes, and repair queues."""
    resolved_prefix = resolve_prefix(prefix)
    if fix:
        yield repair_endpoints(resolved_prefix)
    yield from (check() for check in MACHINE_CHECKS)
    yield check_clock()
    yield check_round_trip()
    yield check_segments(resolved_prefix)
    yield check_files(resolved_prefix)
    yield from check_endpoints(resolved_prefix)
    yield check_leftovers(resolved_prefix)


def check_clock() -> DoctorCheck:
    """Check that this process uses the same clock as all other processes."""
    trouble = clock.clock_problem()
    if trouble:
        return DoctorCheck("clock", "warning", f"clocks of different users may differ: {trouble}")
    apart_s = (clock.wall_offset_ns() - clock.offset_ns()) / 1e9
    return DoctorCheck(
        "clock",
        "ok",
        f"shared by all processes; the wall clock was set by {apart_s:+.3f} s since the start of the clock",
    )


def check_round_trip() -> DoctorCheck:
    """Send one message to this process, on a topic that is removed afterwards."""
    endpoint = f"doctor-{os.getpid()}"
    try:
        with msgq.sub_sock(endpoint, timeout=1000) as subscriber, msgq.pub_sock(endpoint) as publisher:
            publisher.send(b"ping")
            arrived = subscriber.receive() == b"ping"
        unlink_topic(endpoint, resolve_prefix())
    except MsgqError as error:
        with contextlib.suppress(MsgqError):  # the directory may be read-only
            unlink_topic(endpoint, resolve_prefix())
        return DoctorCheck("round trip", "error", str(error))
    if not arrived:
        return DoctorCheck("round trip", "error", "sent message did not arrive within 1 s")
    return DoctorCheck("round trip", "ok", "test message sent and received")


def check_segments(prefix: str) -> DoctorCheck:
    """Check for damaged files (error), and for files that this user cannot read (warning)."""
    return _make_check("segments", list(maintenance.find_unreadable(prefix)), "all files are readable")


def check_files(prefix: str) -> DoctorCheck:
    """Check for side segments without a ring, and for files with a wrong owner or mode."""
    names = topic_cleanup.find_orphaned_sides(prefix)
    lost = [f"{name} has a side segment, but no ring (--fix removes it)" for name in names]
    issues = (
        [EndpointIssue(text, severity=ERROR) for text in lost]
        + topic_cleanup.find_permission_issues(prefix)
        + _find_orphans_of_prefixes(prefix)
    )
    return _make_check("files", issues, "all files have their ring, and the expected owner and mode")


def _make_check(check: str, issues: Sequence[EndpointIssue], good: str) -> DoctorCheck:
    if not issues:
        return DoctorCheck(check, "ok", good)
    ordered = sorted(issues, key=lambda issue: issue.severity != ERROR)
    worst = ordered[0].severity
    texts = (issue.text if issue.severity == worst else f"warning: {issue.text}" for issue in ordered)
    return DoctorCheck(check, worst, join_first_texts(texts, _ISSUES_SHOWN_MAX, "; "))


def _find_orphans_of_prefixes(prefix: str) -> list[EndpointIssue]:
    """Return warnings about side segments without a ring under all prefixes, if no prefix is set."""
    prefixes = [] if prefix else topic_cleanup.find_orphaned_prefixes()
    if not prefixes:
        return []
    orphans = [
        orphan
        for orphan_prefix in prefixes
        for orphan in topic_cleanup.remove_orphaned_sides(orphan_prefix, remove=False)
        if orphan.endpoint
    ]
    size = format_bytes(sum(orphan.bytes for orphan in orphans))
    text = f"{format_count_noun(len(orphans), 'side segment')} without a ring, {size}, under unused prefixes"
    return [EndpointIssue(f"{text} (`msgq clean` removes them)", severity=WARNING)]


def check_endpoints(prefix: str) -> Iterator[DoctorCheck]:
    """Check the endpoints of each kind for problems (errors), dead participants and their leftovers."""
    every = endpoints(prefix)
    for kind in list_stored_kinds("cleanup"):
        of_kind = [stats for stats in every if kind_of(stats.endpoint) == kind]
        size = format_bytes(sum(stats.bytes for stats in of_kind))
        good = f"{len(of_kind)} {kind.plural_name}, {size} of {shm_paths.SHARED_MEMORY}; no leftovers of dead processes"
        yield _make_check(kind.plural_name, maintenance.diagnose_kind(kind, of_kind, prefix), good)


def check_leftovers(prefix: str) -> DoctorCheck:
    """Check for leftovers of killed processes that belong to no endpoint.

    Such leftovers block no process, so they are a warning.
    """
    dead = [
        *leftovers.remove_dead_gates(prefix, remove=False),
        *leftovers.remove_dead_claims(prefix, remove=False),
        *leftovers.remove_old_drafts(prefix or None, remove=False),
    ]
    if not dead:
        return DoctorCheck("leftovers", "ok", "no gates, ZMQ claims or unnamed directories of dead processes")
    texts = (f"{removal.endpoint or removal.path}: {removal.reason}" for removal in dead)
    text = join_first_texts(texts, _ISSUES_SHOWN_MAX, "; ")
    return DoctorCheck("leftovers", "warning", f"{text}. `msgq clean` removes them")


def repair_endpoints(prefix: str) -> DoctorCheck:
    """Remove leftovers of dead processes, repair queues, and report completed and failed repairs."""
    done, failed = maintenance.repair_all_kinds(prefix)
    return DoctorCheck(
        "repair",
        "error" if failed else "ok",
        join_first_texts(failed + done, _ISSUES_SHOWN_MAX, "; ") or "nothing to repair",
    )
