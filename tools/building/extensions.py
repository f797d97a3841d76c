"""The extension modules: one for each `.pyx` of the packages, and two for the code of Cython that modules share.

A `.pyx` may include parts, `.pxi`.

Paths are relative to the folder of setup.py, which is the current one.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from glob import glob
from multiprocessing import get_context
from pathlib import Path

import Cython
import numpy as np
from Cython.Build.Dependencies import create_dependency_tree
from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

from tools.building.critical_sections import HAS_GIL, add_critical_sections, allow_attributes_in_sections

FOLDERS = ("msgq", "visionipc")
# Without binding a call is faster; `inspect.signature` reads the first line of a docstring, as Argument Clinic has it.
DIRECTIVES = {"language_level": 3, "binding": False, "embedsignature": True, "embedsignature.format": "clinic"}
# These two have no source: Cython generates them. The second also has the classes of typed memoryviews, which need
# memory, and the package `collections`, in each process. Only modules that use such views share it.
SHARED = "msgq.impl.utilities"
SHARED_WITH_VIEWS = "msgq.impl.view_utilities"
TYPED_VIEW = re.compile(r"\w\[[:1, ]*:[:1, ]*\] \w")  # such as: const int64_t[::1] times
SECTIONS = "msgq/impl/base/object_lock.h"  # also for the sections that the compiler adds
BUILD = ["setup.py", *sorted(glob("tools/building/*.py")), Cython.__file__]  # a change in these compiles all modules


def extensions() -> list[Extension]:
    """Return all modules."""
    shared = [extension(name, [], BUILD) for name in (SHARED, SHARED_WITH_VIEWS)]
    return [*shared, *[extension(name_of(source), [source], find_needed(source)) for source in files("pyx")]]


def name_of(source: str) -> str:
    """Return the name of the module of a `.pyx` file."""
    return source.removesuffix(".pyx").replace("/", ".")


def extension(name: str, sources: list[str], depends: list[str]) -> Extension:
    """Return a module. Without -g0, gcc takes a third longer and files are six times as large."""
    return Extension(
        name,
        sources,
        include_dirs=["msgq/impl", "msgq/recording", "visionipc/impl", "msgq", np.get_include()],
        define_macros=[("_GNU_SOURCE", "1"), ("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        extra_compile_args=["-std=gnu11", "-g0", "-O3", *([] if HAS_GIL else ["-include", SECTIONS])],
        depends=depends,
    )


@cache  # each module asks for the headers, many times
def files(ending: str) -> list[str]:
    """Return the packages' files with this ending."""
    return sorted(path for folder in FOLDERS for path in glob(f"{folder}/**/*.{ending}", recursive=True))


def find_needed(source: str) -> list[str]:
    """Return the files that a module is made of: the build, stub, parts, headers, and the `.pxd` it imports from."""
    find_needed: set[str] = set()
    tree = create_dependency_tree(quiet=True)  # type: ignore[no-untyped-call]  # Cython's own
    todo = [*tree.all_dependencies(source), source]
    while todo:
        path = todo.pop()
        if path not in find_needed and path.startswith(FOLDERS):  # the others are Cython's own
            find_needed.add(path)
            names = re.findall(r'"([\w/]+\.h)"', Path(path).read_text())
            todo += [header for header in files("h") if any(header.endswith(f"/{name}") for name in names)]
    return [*BUILD, *glob(f"{source[:-1]}i"), *sorted(find_needed)]


class BuildExtensions(build_ext):  # type: ignore[misc]  # setuptools has no stubs of its own
    """Compiles the modules whose sources have changed, in as many processes as there are cores."""

    def finalize_options(self) -> None:
        """Let editable installs and builds in place keep their results in the same folder."""
        super().finalize_options()
        self.cython_directives = {**DIRECTIVES, "freethreading_compatible": not HAS_GIL}
        allow_attributes_in_sections()
        if not HAS_GIL:
            add_critical_sections()
        self.cython_c_in_temp = True  # an editable install by pip does not see that of setup.cfg
        if self.inplace:
            self.build_temp, self.build_lib = "build/temp", "build/lib"
        else:  # a wheel needs no symbols; in place, `perf` and `gdb` name functions by them
            for module in self.extensions:
                module.extra_link_args = ["-Wl,-s"]

    def build_extensions(self) -> None:
        """Compile in forked processes: Cython holds the GIL, so threads would take turns."""
        self.check_extensions_list(self.extensions)
        changed = [e for e in self.extensions if self.force or newer_group(e.depends, self.get_ext_fullpath(e.name))]
        if changed:
            forks = ProcessPoolExecutor(self.parallel or os.cpu_count(), get_context("fork"), _become, (self,))
            with forks as processes:
                names = processes.map(_compile, sorted(changed, key=_size, reverse=True))
                for number, name in enumerate(names, 1):
                    print(f"compiled {number} of {len(changed)} modules: {name}", flush=True)

    def build_extension(self, ext: Extension) -> None:
        """Compile one module from its source: Cython checks fewer dependencies than `needed`."""
        for source in ext.sources or [ext.name.replace(".", "/")]:
            Path(self.build_temp, source).with_suffix(".c").unlink(missing_ok=True)
        has_views = ext.name == SHARED_WITH_VIEWS or _uses_typed_views(ext)
        self.shared_utility_qualified_name = SHARED_WITH_VIEWS if has_views else SHARED
        self.shared_utility_features_disabled = [] if has_views else ["MemoryView"]
        super().build_extension(ext)


def _uses_typed_views(module: Extension) -> bool:
    parts = [path for path in module.depends if path.endswith((".pyx", ".pxi", ".pxd"))]
    return any(TYPED_VIEW.search(Path(path).read_text()) for path in parts)


def _size(module: Extension) -> int:
    """Return the size of the sources: large modules come first, so that no process ends long after the others."""
    parts = [path for path in module.depends if path.endswith(".pxi")]
    return sum(os.path.getsize(source) for source in [*module.sources, *parts]) if module.sources else sys.maxsize


_command: BuildExtensions


def _become(command: BuildExtensions) -> None:
    """In a worker process: keep the command for `_compile`, because it cannot be pickled."""
    global _command
    _command = command


def _compile(module: Extension) -> str:
    """In a forked process: compile a module, and return its name."""
    _command.build_extension(module)
    return str(module.name)
