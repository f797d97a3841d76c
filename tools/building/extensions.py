"""The extension modules: one of each `.pyx` of the packages, made anew when anything that it is made of has changed.

Paths are relative to the folder of setup.py, which is the current one.
"""

from __future__ import annotations

import os
import re
from functools import cache
from glob import glob
from pathlib import Path

from Cython.Build.Dependencies import create_dependency_tree
from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

FOLDERS = ("msgq", "visionipc")
# Without binding a call is faster; `inspect.signature` reads the first line of a docstring, as Argument Clinic has it.
DIRECTIVES = {"language_level": 3, "binding": False, "embedsignature": True, "embedsignature.format": "clinic"}


def extensions() -> list[Extension]:
    """Return all modules."""
    return [extension(source) for source in files("pyx")]


def extension(source: str) -> Extension:
    """Return the module of a `.pyx` file."""
    return Extension(
        source.removesuffix(".pyx").replace("/", "."),
        [source],
        include_dirs=["msgq/impl", "msgq/recording", "visionipc/impl", "msgq"],
        define_macros=[("_GNU_SOURCE", "1")],
        extra_compile_args=["-std=gnu11", "-O3"],
        depends=needed(source),
    )


@cache  # each module asks for the headers, many times
def files(ending: str) -> list[str]:
    """Return the packages' files with this ending."""
    return sorted(path for folder in FOLDERS for path in glob(f"{folder}/**/*.{ending}", recursive=True))


def needed(source: str) -> list[str]:
    """Return what a module is made of: its stub, each `.pxd` that it imports from, each header of these, the build."""
    found: set[str] = set()
    tree = create_dependency_tree(quiet=True)  # type: ignore[no-untyped-call]  # Cython's own
    todo = [*tree.all_dependencies(source), source]
    while todo:
        path = todo.pop()
        if path not in found and path.startswith(FOLDERS):  # the others are Cython's own
            found.add(path)
            names = re.findall(r'"([\w/]+\.h)"', Path(path).read_text())
            todo += [header for header in files("h") if any(header.endswith(f"/{name}") for name in names)]
    return ["setup.py", *sorted(glob("tools/building/*.py")), *glob(f"{source[:-1]}i"), *sorted(found)]


class BuildExtensions(build_ext):  # type: ignore[misc]  # setuptools has no stubs of its own
    """Makes a module anew, from the source, when anything that it is made of has changed: Cython looks at less."""

    def finalize_options(self) -> None:
        """Let editable installs, and what builds in place, keep what they made, in the same folder."""
        super().finalize_options()
        self.cython_directives = DIRECTIVES
        self.cython_c_in_temp = True  # an editable install by pip does not see that of setup.cfg
        self.parallel: int | bool | None = self.parallel or os.cpu_count()
        if self.inplace:
            self.build_temp, self.build_lib = "build/temp", "build/lib"

    def build_extension(self, ext: Extension) -> None:
        """Say which module is made, since that takes a minute for all."""
        if newer_group(ext.depends, self.get_ext_fullpath(ext.name)):
            Path(self.build_temp, ext.sources[0]).with_suffix(".c").unlink(missing_ok=True)
            print(f"compiling {ext.name}\n", end="", flush=True)  # in one piece: several threads are here
        super().build_extension(ext)
