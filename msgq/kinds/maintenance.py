"""Repair and diagnosis of endpoints of all kinds."""

from __future__ import annotations

from collections.abc import Iterable

from msgq.common.stats.endpoint import EndpointStats
from msgq.impl.base.files import list_files
from msgq.kinds import Kind, list_stored_kinds
from msgq.kinds.cleanup import ERROR, EndpointIssue, RepairReport, read_issues
from msgq.kinds.snapshots import endpoint


def repair_all_kinds(prefix: str) -> RepairReport:
    """Repair endpoints of all kinds after the death of processes, and remove what only dead processes used."""
    repairs = [kind.cleanup.repair(prefix) for kind in list_stored_kinds("cleanup")]
    done = [text for repair in repairs for text in repair.completed_repairs]
    return RepairReport(done, [text for repair in repairs for text in repair.failed_repairs])


def find_unreadable(prefix: str) -> list[EndpointIssue]:
    """Return the issues of unreadable files: errors for damaged files, warnings for files without permission."""
    return [issue for kind in list_stored_kinds("stats") for issue in _find_unreadable(kind, prefix)]


def _find_unreadable(kind: Kind, prefix: str) -> list[EndpointIssue]:
    if kind.locate_files is None:
        return []
    directory, start = kind.locate_files(prefix)
    files = sorted(name for name, _ in list_files(directory, regular=False))  # directories are those of prefixes
    names = [name.removeprefix(start) for name in files if name.startswith(start) and name != start]
    return read_issues([kind.endpoint(name) for name in names], prefix, endpoint)


def diagnose_kind(kind: Kind, endpoints: Iterable[EndpointStats], prefix: str) -> list[EndpointIssue]:
    """Return the issues of endpoints of a kind, errors first."""
    cleanup = kind.cleanup
    issues = [issue for stats in endpoints for issue in cleanup.diagnose(stats.stats)] + cleanup.find_orphans(prefix)
    return sorted(issues, key=lambda issue: issue.severity != ERROR)
