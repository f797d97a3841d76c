"""Statistics of endpoints of any kind, read at one moment without a trace; `msgq.stats` is the public face."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from msgq.errors import EndpointNameError, SegmentError
from msgq.impl.backend import resolve_prefix
from msgq.impl.base.files import list_files
from msgq.kinds import Kind, find_announced_kind, kind_of, list_stored_kinds

if TYPE_CHECKING:
    from msgq.common.stats.endpoint import EndpointStats


def endpoint(name: str | bytes, prefix: str | None = None) -> EndpointStats:
    """Return a snapshot of one endpoint of any kind.

    Args:
        name: name with the prefix of its kind: `channel/NAME`, `queue/NAME`, `records/NAME`. Topics have no such
            prefix.
        prefix: prefix of the endpoint; None: the current prefix, "": no prefix.

    Raises:
        EndpointNameError: the name is invalid.
        SegmentError: the endpoint does not exist, or its files cannot be read.
    """
    text = name if isinstance(name, str) else name.decode(errors="surrogateescape")
    kind = kind_of(text)
    return _make_endpoint_stats(kind, kind.bare_name(text), prefix)


def endpoints(prefix: str | None = None) -> list[EndpointStats]:
    """Return a snapshot of each endpoint: topics first, then channels, records and queues, each sorted by name.

    Skips files of other formats, and files that this user may not read.

    Args:
        prefix: prefix of the endpoints; None: the current prefix, "": no prefix.
    """
    resolved_prefix = resolve_prefix(prefix)
    snapshots = []
    for kind in list_stored_kinds("stats"):
        for name in list_inodes(kind, resolved_prefix):
            with contextlib.suppress(SegmentError, EndpointNameError):
                snapshots.append(_make_endpoint_stats(kind, name, resolved_prefix))
    return snapshots


def endpoint_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return a dictionary of the names that may be endpoints, and the inode numbers of their files.

    Opens no file. The names have the prefixes of their kinds and the order of `endpoints`. The inode number belongs to
    the ring of a topic, or to the channel file of a channel.

    Args:
        prefix: prefix as in `endpoints`.
    """
    return {
        kind.endpoint(name): inode
        for kind in list_stored_kinds("stats")
        for name, inode in list_inodes(kind, prefix).items()
    }


def read(kind: Kind, name: str | bytes, prefix: str | None = None) -> Any:
    """Return the statistics of one endpoint as the dataclass of its kind.

    Raises:
        EndpointNameError: the name is invalid.
        SegmentError: the endpoint does not exist, or its files cannot be read.
    """
    return kind.stats.open_watch(kind.validate_name(name), resolve_prefix(prefix)).stats()


def _make_endpoint_stats(kind: Kind, bare_name: str, prefix: str | None) -> EndpointStats:
    stats = read(kind, bare_name, prefix)
    endpoint = kind.endpoint(kind.validate_name(bare_name))
    size, messages, lost = kind.stats.row_class.compute_totals(stats)
    common = stats.path, size, stats.participants, messages, lost, stats.schema, stats.created_ns
    from msgq.common.stats.endpoint import EndpointStats  # imported late: most callers only list names

    return EndpointStats(find_announced_kind(endpoint).name, endpoint, *common, stats)


def read_all(kind: Kind, prefix: str | None = None) -> list[Any]:
    """Return the statistics of all readable endpoints of one kind, sorted by name."""
    resolved_prefix = resolve_prefix(prefix)
    snapshots = []
    for name in list_inodes(kind, resolved_prefix):
        with contextlib.suppress(SegmentError, EndpointNameError):
            snapshots.append(read(kind, name, resolved_prefix))
    return snapshots


def list_inodes(kind: Kind, prefix: str | None = None) -> dict[str, int]:
    """Return a dictionary of the names that may be endpoints of a kind, and their inode numbers. Opens no file."""
    if kind.locate_files is None:
        return {}
    directory, start = kind.locate_files(resolve_prefix(prefix))
    files = sorted(list_files(directory))
    return {name[len(start) :]: inode for name, inode in files if name.startswith(start) and name != start}
