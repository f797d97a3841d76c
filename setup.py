"""The extension modules, which the packages' `.pyx` files tell. All else is in pyproject.toml."""

import re
import sys
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # an isolated build looks elsewhere

from tools.building.docstrings import use_stubs  # noqa: E402  # found by the line above
from tools.building.extensions import BuildExtensions, extensions  # noqa: E402

use_stubs()
setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtensions},
    # Links into this tree lead nowhere on an index's page: their words are left.
    long_description=re.sub(r"\[([^]]+)\]\((?!https?:|#)[^)]+\)", r"\1", (HERE / "README.md").read_text()),
    long_description_content_type="text/markdown",
)
