"""How much memory Spark's Java may have on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_HEAP_MEMORY_DIVISOR = 4
_HEAP_BYTES_MIN = 1 << 30  # Spark's own default
_HEAP_BYTES_MAX = 31 << 30  # from 32 GiB on each reference takes twice the room, and there is no archive of classes
_CGROUP_LIMIT_FILES = {"memory": "memory.limit_in_bytes", "": "memory.max"}  # of control groups, versions 1 and 2


def choose_driver_memory() -> str:
    """Return how large the heap of a driver's Java should be that does all the work of a machine, for Spark.

    A quarter of the memory. Outside its heap Java takes up to as much again, for buffers of Arrow and Parquet; the rest
    is for the Python workers, one a core, for the program that has the session, and for what the kernel keeps of files.
    No less than 1 GiB, unless that is more than half of all there is.
    """
    memory = measure_machine_memory()
    heap = min(max(memory // _HEAP_MEMORY_DIVISOR, min(_HEAP_BYTES_MIN, memory // 2)), _HEAP_BYTES_MAX)
    return f"{heap >> 20}m"


def measure_machine_memory(root: Path = Path("/")) -> int:
    """Return the memory that this process may use: that of the machine, or less where its control groups say so.

    root : of the file system in which /proc and /sys are.
    """
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_read_cgroup_limits(root)])


def _read_cgroup_limits(root: Path) -> Iterator[int]:
    """Give the limits of this process's control groups, and of those around them."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, inside = line.split(":", 2)
            for controller in set(controllers.split(",")) & set(_CGROUP_LIMIT_FILES):
                top = root / "sys/fs/cgroup" / controller
                group = top / inside.lstrip("/")  # in a container it may be what the machine calls it: not there
                for folder in (top, *(parent for parent in (group, *group.parents) if top in parent.parents)):
                    with suppress(OSError, ValueError):  # there is none, or it is "max"
                        yield int((folder / _CGROUP_LIMIT_FILES[controller]).read_text())
