"""The extension modules, which the packages' `.pyx` files tell. All else is in pyproject.toml."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # an isolated build looks elsewhere

from tools.building.platforms import require_platform  # noqa: E402  # found by the line above

require_platform()

from setuptools import setup  # noqa: E402  # after the check, as all that follows

from tools.building.docstrings import use_stubs  # noqa: E402
from tools.building.extensions import BuildExtensions, extensions  # noqa: E402

use_stubs()
README = (HERE / "README.md").read_text(encoding="utf-8")

setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtensions},
    # Links into this tree lead nowhere on an index's page: their words are left.
    long_description=re.sub(r"\[([^]]+)\]\((?!https?:|#)[^)]+\)", r"\1", README),
    long_description_content_type="text/markdown",
)
