"""The build notices every change: of stubs, of `.pxd` files, and of headers, also those that headers include."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from sysconfig import get_path

import pytest

from tests.meta.sources import PACKAGES, ROOT
from tools.building import docstrings as building
from tools.fuzz.build import compiler
from tools.requirements import requirements

PROGRAM = """
import json
from tools.building.extensions import extensions
modules = [module for module in extensions() if module.sources]
print(json.dumps({module.sources[0]: [module.include_dirs, module.depends] for module in modules}))
"""
SETUP = """
from setuptools import setup
from tools.building.extensions import BuildExtensions, extensions
setup(name="broken", ext_modules=extensions()[2:], cmdclass={"build_ext": BuildExtensions})
"""
Modules = dict[str, tuple[list[str], list[str]]]


def read_module_dependencies(folder: Path) -> Modules:
    """Return the extension modules of a tree by their sources: where their headers are, what they depend on."""
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    found: Modules = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def modules() -> Modules:
    return read_module_dependencies(ROOT)


def test_each_compiled_file_is_dependency_of_a_module(modules: Modules) -> None:
    wanted = {path for package in PACKAGES for ending in ("h", "pxd", "pyi") for path in package.rglob(f"*.{ending}")}
    wanted = {path for path in wanted if path.read_text()}  # the others mark folders
    wanted = {path for path in wanted if not {"include", "c"} & set(path.parts)}  # sources of programs in C
    known = {ROOT / path for _, depends in modules.values() for path in depends}
    assert wanted - known == set()


def test_module_dependencies_equal_headers_read_by_compiler(modules: Modules) -> None:
    for source, (folders, depends) in modules.items():
        texts = [(ROOT / path).read_text() for path in [source, *depends] if path.endswith((".pyx", ".pxi", ".pxd"))]
        names = sorted(
            {name for text in texts for name in re.findall(r'^cdef extern from "(\w+/?\w+\.h)"', text, re.M)}
        )
        program = "".join(f'#include "{name}"\n' for name in names)
        own = [f"-I{folder}" for folder in folders]
        command = [compiler(), "-MM", "-xc", "-D_GNU_SOURCE", *own, "-isystem", get_path("include"), "-"]
        done = subprocess.run(command, cwd=ROOT, input=program, capture_output=True, text=True, check=True)
        assert set(re.findall(r"[\w/]+\.h", done.stdout)) <= set(depends), source


def test_headers_in_new_folder_become_module_dependencies(tmp_path: Path) -> None:
    folder = tmp_path / "msgq" / "impl" / "piece"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parents[1]):
        (package / "__init__.pxd").touch()
    (folder / "inner.h").write_text("typedef int mq_inner;\n")
    (folder / "outer.h").write_text('#include "piece/inner.h"\n')
    (folder / "unrelated.h").touch()
    (folder / "core.pxd").write_text('cdef extern from "piece/outer.h":\n    ctypedef int mq_inner\n')
    (folder / "thing.pyx").write_text('from msgq.impl.piece.core cimport mq_inner\ninclude "part.pxi"\n')
    (folder / "part.pxi").write_text('cdef extern from "piece/own.h":\n    ctypedef int mq_own\n')
    (folder / "own.h").write_text("typedef int mq_own;\n")
    [(_, depends)] = read_module_dependencies(tmp_path).values()
    assert {Path(path).name for path in depends} >= {"setup.py", "core.pxd", "outer.h", "inner.h", "part.pxi", "own.h"}
    assert "msgq/impl/piece/unrelated.h" not in depends


def test_build_with_broken_module_fails_and_names_line(tmp_path: Path) -> None:
    (tmp_path / "msgq").mkdir()
    for name in ("__init__.py", "__init__.pxd"):
        (tmp_path / "msgq" / name).touch()
    (tmp_path / "msgq" / "broken.pyx").write_text("fine = 1\ncdef int wrong = missing\n")
    (tmp_path / "setup.py").write_text(SETUP)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "msgq/broken.pyx:2:" in done.stdout + done.stderr


def test_requirements_of_extra_include_nested_extras() -> None:
    project = {
        "name": "bus",
        "dependencies": ["base>=1"],
        "optional-dependencies": {"a": ["bus[b]", "x"], "b": ["y<2"]},
    }
    pyproject = {"project": project, "build-system": {"requires": ["builder"]}}
    assert requirements(pyproject, ["a"]) == ["base>=1", "x", "y<2"]
    assert requirements(pyproject, []) == ["builder"]


def test_build_with_unknown_cython_step_warns_about_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "Step", object)
    with pytest.warns(UserWarning, match="may lack docstrings.*no visit_ClassDefNode, visit_DefNode"):
        building.use_stubs()
