"""The package `visionipc`, where programs written for stock look for it."""

from visionipc import *  # noqa: F403
from visionipc import __all__ as __all__
