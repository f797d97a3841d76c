"""The package `visionipc` under the name that stock uses."""

from visionipc import *  # noqa: F403
from visionipc import __all__ as __all__
