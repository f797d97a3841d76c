"""Prints what extras require, one package a line: `python tools/requirements.py cli record`. Without
extras, it prints those of the build.

With this list, pip installs packages while the extension modules are compiled. `pip install --editable` compiles first.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any


def requirements(pyproject: dict[str, Any], extras: list[str]) -> list[str]:
    """Return the requirements of the project with these extras. An extra may name others: `msgq-bus[record]`."""
    project = pyproject["project"]
    if not extras:
        return list(pyproject["build-system"]["requires"])
    packages, todo, seen = list(project["dependencies"]), list(extras), set()
    while todo:
        extra = todo.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in project["optional-dependencies"][extra]:
            if own := re.fullmatch(rf"{project['name']}\[(.+)\]", requirement):
                todo += own[1].split(",")
            else:
                packages.append(requirement)
    return packages


if __name__ == "__main__":
    described = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
    print(*requirements(described, sys.argv[1:]), sep="\n")
