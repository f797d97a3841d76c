"""Outlets: what was recorded goes back to where it came from, each kind of endpoint in its own way.

The player sends by them in real time, a simulation in virtual time. Both open an outlet for each endpoint, and give it
the messages as the recording has them.
"""

from msgq.outlets.base import Outlet, Place, Played, UnplayableError, Wanted
from msgq.outlets.opening import open_outlet

__all__ = ["Outlet", "Place", "Played", "UnplayableError", "Wanted", "open_outlet"]
