"""A copy of this tree, with its extension modules compiled for AArch64."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension

from tools.aarch64.sysroot import PYTHON
from tools.building.extensions import DIRECTIVES, extensions
from tools.fuzz.build import ROOT

COMPILER = "aarch64-linux-gnu-gcc"
SUFFIX = f".cpython-{PYTHON.replace('.', '')}-aarch64-linux-gnu.so"
# QEMU simulates /proc/PID/stat of its own process, with another start time than the kernel. Each process would appear
# dead to the others. QEMU does not simulate the second path, which leads to the same file.
KNOWN, UNKNOWN = '"/proc/%llu/stat"', '"/proc/%llu/task/../stat"'


def copy_tree(folder: Path) -> Path:
    """Copy the files that git knows, or would; return the copy. Files that did not change keep their time."""
    tree = folder / "tree"
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    for name in names.splitlines():
        source, target = ROOT / name, tree / name
        if not source.exists() or (target.exists() and target.stat().st_mtime == source.stat().st_mtime):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        if source.name == "process_info.h":
            text = source.read_text()
            assert KNOWN in text, "process_info.h spells the path of a process's state in another way now"
            target.write_text(text.replace(KNOWN, UNKNOWN))
            shutil.copystat(source, target)
    return tree


def build_extensions(tree: Path, root: Path) -> None:
    """Compile the modules whose sources are newer."""
    with contextlib.chdir(tree):
        described = [module for module in extensions() if module.sources]  # each has what the others share
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda module: _build(module, tree, root), described):
            pass


def _build(module: Extension, tree: Path, root: Path) -> None:
    source = tree / module.sources[0]
    target, c = source.with_suffix(SUFFIX), tree / "build" / f"{module.name}.c"
    inputs = [source, *(tree / name for name in module.depends)]
    if target.exists() and target.stat().st_mtime > max(path.stat().st_mtime for path in inputs):
        return
    c.parent.mkdir(exist_ok=True)
    directives = [part for name, value in DIRECTIVES.items() for part in ("-X", f"{name}={value}")]
    subprocess.run([sys.executable, "-m", "cython", *directives, "-o", c, module.sources[0]], cwd=tree, check=True)
    include = [f"-I{tree / name}" for name in module.include_dirs]
    include += [f"-I{root}/usr/include/python{PYTHON}", "-idirafter", f"{root}/usr/include"]
    flags = ["-shared", "-fPIC", "-O2", "-w", "-DNDEBUG", "-std=gnu11", "-D_GNU_SOURCE"]
    subprocess.run([COMPILER, *flags, *include, "-o", target, c], check=True)
