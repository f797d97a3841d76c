"""The files of a channel's pools, by their names."""

from __future__ import annotations

from msgq.common import shm_paths
from msgq.common.naming import POOL_UID_DIGITS
from msgq.impl.base.files import list_files


def list_pools(in_prefix: str) -> list[tuple[str, int]]:
    """Return channel and uid of each pool of a prefix, sorted. `shm_paths.pool_path` returns the path."""
    directory, start = shm_paths.locate_pool_files(in_prefix)
    pool_files = []
    for name, _ in list_files(directory):
        channel, colon, uid = name.removeprefix(start).rpartition(":")
        digits = len(uid) == POOL_UID_DIGITS and set(uid) <= set("0123456789abcdef")
        if name.startswith(start) and channel and colon and digits:
            pool_files.append((channel, int(uid, 16)))
    return sorted(pool_files)
