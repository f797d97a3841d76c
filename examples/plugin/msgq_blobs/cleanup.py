"""Blobs stay until they are named: no process is registered in one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from msgq.kinds.cleanup import WARNING, EndpointIssue, FileRemoval, KindCleanup
from msgq_blobs.names import blob_files, blob_path
from msgq_blobs.stats import BlobStats


def remove_unused(names: Iterable[str], prefix: str, *, remove: bool, force: bool) -> Iterator[FileRemoval]:
    """See `msgq.kinds.cleanup.RemoveUnused`."""
    for name in names:
        path = blob_path(name, prefix)
        size = path.stat().st_size
        if remove:
            path.unlink()
        yield FileRemoval(f"blob/{name}", prefix, str(path), size, "no process uses it")


def remove_orphans(prefix: str, remove: bool) -> Iterable[FileRemoval]:
    """Remove the directory of a prefix if it is empty."""
    with contextlib.suppress(OSError):
        if remove and prefix:
            os.rmdir(blob_files(prefix)[0])
    return ()


def diagnose(blob: BlobStats) -> list[EndpointIssue]:
    """Return that a blob is empty."""
    return [] if blob.messages else [EndpointIssue(f"blob/{blob.name} is empty", WARNING)]


CLEANUP = KindCleanup(remove_unused, remove_orphans, diagnose)
