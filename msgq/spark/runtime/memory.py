"""Memory for Spark's Java process on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_HEAP_MEMORY_DIVISOR = 4
_HEAP_BYTES_MIN = 1 << 30  # Spark's own default
_HEAP_BYTES_MAX = 31 << 30  # from 32 GiB on each reference takes twice the room, and there is no archive of classes
_CGROUP_LIMIT_FILES = {"memory": "memory.limit_in_bytes", "": "memory.max"}  # files of control groups, versions 1 and 2


def choose_driver_memory() -> str:
    """Return the heap size of a local driver's Java process, in Spark's format.

    The size is a quarter of the memory, at least 1 GiB and at most 31 GiB. On a machine with less than 2 GiB, the size
    is half of the memory. Outside of its heap, Java uses up to the same size again for Arrow and Parquet buffers. The
    rest is for the Python workers (one per core), the program with the session, and the kernel's file cache.
    """
    memory = measure_machine_memory()
    heap = min(max(memory // _HEAP_MEMORY_DIVISOR, min(_HEAP_BYTES_MIN, memory // 2)), _HEAP_BYTES_MAX)
    return f"{heap >> 20}m"


def measure_machine_memory(root: Path = Path("/")) -> int:
    """Return the memory that this process may use, in bytes: of the machine, or less if its control groups limit it.

    `root`: root of the file system that contains /proc and /sys.
    """
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_read_cgroup_limits(root)])


def _read_cgroup_limits(root: Path) -> Iterator[int]:
    """Yield the limits of this process's control groups and of their parents."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, inside = line.split(":", 2)
            for controller in set(controllers.split(",")) & set(_CGROUP_LIMIT_FILES):
                top = root / "sys/fs/cgroup" / controller
                group = top / inside.lstrip("/")  # in a container it may be what the machine calls it: not there
                for folder in (top, *(parent for parent in (group, *group.parents) if top in parent.parents)):
                    with suppress(OSError, ValueError):  # there is none, or it is "max"
                        yield int((folder / _CGROUP_LIMIT_FILES[controller]).read_text())
