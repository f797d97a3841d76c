"""The instructions of each edge in code for AArch64."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.meta.sources import ROOT

SCRIPT = "tools/aarch64.sh"
pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="gcc-aarch64-linux-gnu is not installed"),
]


def run_script(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tree / SCRIPT], capture_output=True, text=True, check=False)


def test_code_for_aarch64_has_instructions_of_edges() -> None:
    done = run_script(ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("header", "function", "fence", "edge"),
    [
        ("ring/publisher.h", "mq_ring_publisher_announce_limit(", "mq_fence_release();", "EDGE grant"),
        ("base/schema.h", "mq_schema_read(", "mq_fence_acquire();", "EDGE schema"),
    ],
)
def test_missing_fence_is_reported(tmp_path: Path, header: str, function: str, fence: str, edge: str) -> None:
    for folder in ("msgq/impl", "visionipc/impl"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so", "*.c"))
    (tmp_path / "tools").mkdir()
    shutil.copy2(ROOT / SCRIPT, tmp_path / SCRIPT)
    changed = tmp_path / "msgq/impl" / header
    before, name, after = changed.read_text().partition(function)
    assert fence in after
    changed.write_text(before + name + after.replace(fence, "", 1))
    done = run_script(tmp_path)
    assert done.returncode == 1
    assert edge in done.stderr
