"""The package `visionipc` under the name of stock's extension module."""

from visionipc import *  # noqa: F403
from visionipc import __all__ as __all__
