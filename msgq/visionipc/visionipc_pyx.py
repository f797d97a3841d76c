"""The package `visionipc`, under the name of the extension module that stock has it in."""

from visionipc import *  # noqa: F403
from visionipc import __all__ as __all__
