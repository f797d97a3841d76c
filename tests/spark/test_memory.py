"""How large the heap of a default session is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from msgq.spark.runtime import memory
from msgq.spark.runtime.memory import choose_driver_memory, measure_machine_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("machine", "heap"),
    [
        (GIB, "512m"),
        (2 * GIB, "1024m"),
        (3 * GIB, "1024m"),
        (8 * GIB, "2048m"),
        (64 * GIB, "16384m"),
        (999 * GIB, "31744m"),
    ],
)
def test_driver_heap_is_quarter_of_memory(monkeypatch: pytest.MonkeyPatch, machine: int, heap: str) -> None:
    monkeypatch.setattr(memory, "measure_machine_memory", lambda: machine)
    assert choose_driver_memory() == heap


def memory_limit(root: Path, told: str, limits: dict[str, str]) -> int:
    for place, text in {
        "proc/self/cgroup": told,
        **{f"sys/fs/cgroup/{place}": text for place, text in limits.items()},
    }.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    return measure_machine_memory(root)


def test_driver_heap_respects_memory_limit_of_control_group(tmp_path: Path) -> None:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert measure_machine_memory(tmp_path) == whole, "there are none"
    assert memory_limit(tmp_path / "a", "0::/x/y\n", {"x/memory.max": "5000\n", "x/y/memory.max": "max\n"}) == 5000
    assert memory_limit(tmp_path / "b", "0::/of/the/host\n", {"memory.max": "6000\n"}) == 6000, "a container"
    v1 = "4:cpu,memory:/x\n3:cpuset:/\n"
    assert memory_limit(tmp_path / "c", v1, {"memory/x/memory.limit_in_bytes": "7000"}) == 7000
    assert memory_limit(tmp_path / "d", "0::/\n", {"memory.max": "9223372036854771712\n"}) == whole, "that is none"
